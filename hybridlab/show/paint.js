// Painting: a picture's boxes, axes and curves on a canvas, from the columns that Python sent.

const LEFT = 78, RIGHT = 64, AXIS = 26, HELD = 24, HELD_HEAD = 30; // pixels

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const number = (value) => String(Math.round(value * 1000) / 1000);
const within = (low, value, high) => Math.min(high, Math.max(low, value));

// Columns arrive as bytes that need not lie on a multiple of four: copy them.
function columns(picture) {
  const read = (views, Type) => Object.entries(views).map(([name, view]) =>
    [name, new Type(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength))]);
  return Object.fromEntries([...read(picture.floats, Float32Array), ...read(picture.whole, Int32Array)]);
}

// Whether the page behind is dark: what colour does it really have?
function isDark(node) {
  for (let at = node; at; at = at.parentElement) {
    const [r, g, b, alpha = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    if (alpha > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Where everything lies on the canvas, in CSS pixels.
function layout(picture, width) {
  const ranks = picture.peaks.length;
  const lane = within(14, 400 / picture.height, 34), held = ranks > 8 ? 14 : HELD, plot = picture.height * lane;
  const heldTop = plot + AXIS + HELD_HEAD;
  const scale = (width - LEFT - RIGHT) / picture.length;
  return { width, lane, held, plot, heldTop, tall: heldTop + ranks * held + 4, scale };
}

function stripes(pen, look, ratio) {
  const tile = element("canvas"), size = 8 * ratio;
  tile.width = tile.height = size;
  const to = tile.getContext("2d");
  to.fillStyle = look.fill;
  to.fillRect(0, 0, size, size);
  to.strokeStyle = look.hatch;
  to.lineWidth = 2 * ratio;
  for (const shift of [-size, 0, size]) {
    to.beginPath();
    to.moveTo(shift, size);
    to.lineTo(shift + size, 0);
    to.stroke();
  }
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

// The label of every box: all alike "F3", or "3" where that is too wide, or none.
function labels(pen, picture, data, place, font) {
  const text = (i, wide) => {
    const { letter } = picture.looks[data.look[i]], m = data.microbatch[i];
    return !letter ? "" : m < 0 ? letter : wide ? letter + m : String(m);
  };
  const written = Array.from(data.x0.keys()).filter((i) => data.x1[i] > data.x0[i] && text(i, true));
  for (const [size, wide] of [[font.box, true], [font.box, false], [font.smallest, false]]) {
    pen.font = `${size}px ${font.family}`;
    const room = (i) => (data.x1[i] - data.x0[i]) * place.scale - 3;
    const fits = written.filter((i) => pen.measureText(text(i, wide)).width <= room(i)
      && size + 2 <= (data.y1[i] - data.y0[i]) * place.lane);
    if (fits.length >= 0.9 * written.length || (size === font.smallest && !wide))
      return { size, texts: new Map(fits.map((i) => [i, text(i, wide)])) };
  }
}

function paintBoxes(pen, picture, data, place, theme, label, font, fills) {
  for (let i = 0; i < data.x0.length; i++) {
    const look = picture.looks[data.look[i]];
    const x = LEFT + data.x0[i] * place.scale, y = data.y0[i] * place.lane;
    const w = (data.x1[i] - data.x0[i]) * place.scale, h = (data.y1[i] - data.y0[i]) * place.lane;
    if (!w) continue;
    pen.fillStyle = look.kind === "bubble" ? theme.bubble : fills[data.look[i]];
    pen.fillRect(x, y, w, h);
    pen.strokeStyle = look.dotted || look.measured ? look.edge : theme.edge;
    pen.setLineDash(look.dotted ? [4, 3] : []);
    pen.lineWidth = w < 8 ? 0.5 : 1; // edges must not drown narrow boxes
    if (look.kind !== "bubble" && w > 3) pen.strokeRect(x, y, w, h);
    if (!label.texts.has(i)) continue;
    pen.fillStyle = look.text;
    pen.font = `${label.size}px ${font.family}`;
    pen.textAlign = "center";
    pen.fillText(label.texts.get(i), x + w / 2, y + h / 2 + 1);
  }
  pen.setLineDash([]);
}

function paintAxes(pen, picture, place, theme, font) {
  pen.fillStyle = theme.ink;
  pen.font = `${font.axis}px ${font.family}`;
  pen.textAlign = "right";
  const every = Math.ceil((font.axis + 3) / (place.lane * (picture.height / picture.lanes.length)));
  for (const lane of picture.lanes)
    if (lane.rank % every === 0) pen.fillText(lane.label, LEFT - 10, (lane.top + 0.5) * place.lane + 1);
  const unit = `time, ${picture.unit}`, end = LEFT + picture.length * place.scale, y = place.plot + AXIS / 2 + 2;
  pen.fillText(unit, end, y);
  pen.textAlign = "center";
  const power = 10 ** Math.floor(Math.log10(picture.length / 6));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => picture.length / s <= 8);
  for (let t = 0; t <= picture.length; t += step) {
    const x = LEFT + t * place.scale;
    if (x < end - pen.measureText(unit).width - 14) pen.fillText(number(t), x, y);
  }
}

// One small curve per rank, on the time axis of the boxes; its highest value at the right.
function paintHeld(pen, picture, data, place, theme, font, cursor) {
  const most = Math.max(1, ...picture.peaks), until = Math.min(cursor, picture.length);
  pen.textAlign = "left";
  pen.fillStyle = theme.ink;
  pen.font = `${font.axis}px ${font.family}`;
  pen.fillText("activations held by each rank, at most:", LEFT, place.plot + AXIS + HELD_HEAD / 2 + 2);
  picture.peaks.forEach((peak, rank) => {
    const bottom = place.heldTop + (rank + 1) * place.held - 3, tall = place.held - 6;
    const [from, to] = [data.held_starts[rank], data.held_starts[rank + 1]];
    pen.beginPath();
    pen.moveTo(LEFT, bottom);
    let y = bottom;
    for (let i = from; i < to && data.held_times[i] <= until; i++) {
      const x = LEFT + data.held_times[i] * place.scale;
      pen.lineTo(x, y);
      y = bottom - (data.held_counts[i] / most) * tall;
      pen.lineTo(x, y);
    }
    pen.lineTo(LEFT + until * place.scale, y);
    pen.lineTo(LEFT + until * place.scale, bottom);
    pen.closePath();
    pen.globalAlpha = 0.45;
    pen.fill();
    pen.globalAlpha = 1;
    if (place.held < font.axis && rank % 2) return;
    pen.textAlign = "right";
    pen.fillText(`rank ${rank}`, LEFT - 10, bottom - tall / 2);
    pen.textAlign = "left";
    pen.fillText(String(peak), LEFT + picture.length * place.scale + 10, bottom - tall / 2);
  });
}
