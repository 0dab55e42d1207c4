// Layers: all boxes on a canvas, and the same boxes without letters on another; a picture is put together from parts of
// them. A box still to come has no letters: they could not be read in its faint colour.
//
//   const layers = layered();
//   layers.lay(place, ratio);   layers.paint(picture, data, theme, font) -> { crowded, many }
//   layers.copy(pen, left, right, alpha, coming);   layers.light(pen, data, boxes);
//   layers.letter(pen, picture, data, time, theme)   the letters of the boxes that are running, over a cursor

function layered() {
  const told = element("canvas"), bare = element("canvas");
  let place, ratio, again, labels = new Map(), letters = "";

  function lay(next, pixels) {
    [place, ratio] = [next, pixels];
    for (const sheet of [told, bare]) {
      sheet.width = Math.round(place.width * ratio);
      sheet.height = Math.round(place.plot * ratio);
      sheet.getContext("2d").scale(ratio, ratio);
    }
  }

  function paintOn(sheet, ...what) {
    const pen = sheet.getContext("2d");
    pen.textBaseline = "middle";
    pen.clearRect(0, 0, place.width, place.plot);
    return paintBoxes(pen, ...what);
  }

  function paint(picture, data, theme, font) {
    const painted = paintOn(told, picture, data, place, theme, font, ratio);
    ({ labels, letters } = painted);
    again = () => { // once, and only if it is looked at
      paintOn(bare, picture, data, place, theme, null, ratio);
      again = () => {};
    };
    return painted;
  }

  function copy(pen, left, right, alpha, coming) {
    const wide = right - left, sheet = coming ? bare : told;
    if (wide <= 0) return;
    if (coming) again();
    pen.globalAlpha = alpha;
    pen.drawImage(sheet, left * ratio, 0, wide * ratio, sheet.height, left, 0, wide, place.plot);
    pen.globalAlpha = 1;
  }

  function light(pen, data, boxes) {
    for (const i of boxes) {
      const [x, y, w, h] = frame(data, place, i);
      const [left, right] = [Math.max(x, place.left), Math.min(x + w, place.right)];
      if (right <= left) continue;
      pen.drawImage(told, left * ratio, y * ratio, (right - left) * ratio, h * ratio, left, y, right - left, h);
    }
  }

  function letter(pen, picture, data, time, theme) {
    pen.font = letters;
    pen.textAlign = "center";
    pen.lineJoin = "round";
    pen.lineWidth = 4;
    for (const [i, text] of labels) {
      if (data.x0[i] > time || data.x1[i] <= time) continue;
      const [x, y, w, h] = frame(data, place, i), ink = inkOf(picture.looks[data.look[i]], data.microbatch[i], theme);
      const at = [x + w / 2, y + h / 2 + 1];
      pen.strokeStyle = ink.fill;
      pen.strokeText(text, ...at);
      pen.fillStyle = ink.text;
      pen.fillText(text, ...at);
    }
  }

  return { lay, paint, copy, light, letter };
}
