// Paint: a picture's boxes, axes and rulers on a canvas. Where things lie is `layout`'s business alone.

// In em, the reader's letters: the names of lanes, the peaks behind the end of time, an axis, lines of text, a lane.
const LEFT = 5.9, RIGHT = 3.4, AXIS = 1.9, HEAD = 2, BAND = 2, LANE = 2.3;
const NARROW = 34, LETTER = 0.62; // in em: on a picture less wide, the names take only what they need
const APART = 0.8; // em between a name and its lane
// In em too: the flattest lane, all lanes together (little: of one timeline); the lowest row of activations held, all,
// the highest.
const ROOM = {
  plenty: { lane: [0.55, 37], held: [0.47, 28, 1.6] },
  little: { lane: [0.2, 12.8], held: [0.1, 4.6, 1.15] },
};
const CROWDED = 2; // pixels for a box and its neighbours' edges: with less, on average, shares are painted
const MOST = 0.9; // the part of all boxes that a form of label must fit, and of a kind's boxes, for it to have labels
const LEAST = 13; // pixels: the smallest letters in a box, however large the reader's are
const dash = (pen, pattern = "") => pen.setLineDash(pattern.split(" ").filter(Boolean).map(Number));

// Where everything lies on the canvas, in CSS pixels; `from` to `to` is the time to be seen, `em` a letter's height,
// `room` one of ROOM.
function layout(picture, width, from, to, em, room) {
  const many = picture.timelines.length, rows = Math.max(...picture.timelines.map((one) => one.ranks));
  const [[flat, lanes], [low, curves, high]] = [room.lane, room.held], little = room === ROOM.little;
  const heads = picture.headings.length + many, all = little ? lanes * many - BAND * heads : lanes;
  const lane = em * within(flat, all / (picture.height - (little ? heads : 0)), LANE);
  const held = em * within(low, curves / rows, high);
  const letters = Math.max(...[picture.unit, ...picture.lanes.map((one) => one.label)].map((one) => one.length));
  const left = em * (width < NARROW * em ? letters * LETTER + APART + 0.2 : LEFT);
  const band = BAND * em, axis = AXIS * em, bands = [];
  for (const heading of picture.headings) bands.push([heading.y - 0.5, band - lane]);
  for (const { ruler } of picture.timelines) bands.push([ruler, band - 0.8 * lane]);
  const lifted = (y) => y * lane + bands.reduce((sum, [top, more]) => sum + (top < y ? Math.max(0, more) : 0), 0);
  const lift = picture.lanes.map((one) => lifted(one.top) - one.top * lane);
  const plot = picture.height * lane + Math.max(...lift);
  const right = width - RIGHT * em; // where time ends; the peaks stand behind
  const heldTop = plot + axis + HEAD * em, scale = (right - left) / (to - from);
  const x = (t) => left + (t - from) * scale;
  const tall = heldTop + rows * held + 4;
  return {
    width, em, left, axis, band, lane, lift, lifted, plot, rows, held, heldTop, tall, from, to, right, scale, x,
    names: left - APART * em,
  };
}

// A box in pixels; while boxes glide, `place.at` says where each is on its way.
const frame = (data, place, i) => (place.at ? place.at(i) : rests(data, place, i));

function rests(data, place, i) {
  const lift = place.lift[data.lane[i]], x = place.x(data.x0[i]), y = data.y0[i] * place.lane + lift;
  return [x, y, (data.x1[i] - data.x0[i]) * place.scale, (data.y1[i] - data.y0[i]) * place.lane];
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

const fillOf = (look, theme) => (look.kind === "bubble" ? theme.bubble : look.fill);

// The fill and the text of a box of microbatch m: those of its kind, or in the tone of its kind those of m.
function inkOf(look, m, theme) {
  const tone = theme.tints && m >= 0 && theme.kinds[look.kind].tone;
  return tone ? theme.tints[m % theme.tints.length][tone] : { fill: fillOf(look, theme), text: look.text };
}

// The boxes to be seen, per look.
function visible(picture, data, place) {
  const found = picture.looks.map(() => []);
  for (let i = 0; i < data.count; i++)
    if (data.x1[i] > place.from && data.x0[i] < place.to && data.x1[i] > data.x0[i]) found[data.look[i]].push(i);
  return found;
}

// All boxes, one by one where they have room, else as shares; says which. Without a font, without letters.
function paintBoxes(pen, picture, data, place, theme, font, ratio) {
  const seen = visible(picture, data, place), many = seen.reduce((sum, some) => sum + some.length, 0);
  const crowded = many > (picture.lanes.length * (place.right - place.left)) / CROWDED;
  pen.save();
  pen.beginPath();
  pen.rect(place.left, 0, place.right - place.left, place.plot);
  pen.clip();
  let labels = new Map();
  if (crowded) paintShares(pen, picture, data, place, theme);
  else labels = paintEach(pen, picture, data, place, theme, font, seen, ratio);
  const letters = pen.font;
  pen.restore();
  return { crowded, many, labels, letters };
}

// Rectangle after rectangle: one path with thousands of them takes browsers ten times as long. Bubbles come first, and
// a look's labels with its boxes: a box that glides hides what is below it.
function paintEach(pen, picture, data, place, theme, font, seen, ratio) {
  const numbers = [...seen.keys()], isIdle = (number) => picture.looks[number].kind === "bubble";
  const labels = font ? labelled(pen, picture, data, place, font, seen) : new Map();
  for (const number of [...numbers.filter(isIdle), ...numbers.filter((one) => !isIdle(one))]) {
    const boxes = seen[number], look = picture.looks[number], tinted = theme.tints && theme.kinds[look.kind].tone;
    pen.strokeStyle = look.edge;
    dash(pen, look.dotted ? theme.dotted : "");
    pen.fillStyle = look.hatch && !tinted ? stripes(pen, look, ratio) : fillOf(look, theme);
    for (const i of boxes) {
      if (tinted) pen.fillStyle = inkOf(look, data.microbatch[i], theme).fill;
      paintBox(pen, frame(data, place, i), look);
    }
    dash(pen);
    pen.textAlign = "center";
    for (const i of boxes.filter((one) => labels.has(one))) {
      const [x, y, w, h] = frame(data, place, i);
      pen.fillStyle = inkOf(look, data.microbatch[i], theme).text;
      pen.fillText(labels.get(i), x + w / 2, y + h / 2 + 1);
    }
  }
  return labels;
}

function paintBox(pen, [x, y, w, h], look) {
  const gap = look.kind === "bubble" || w <= 3 || h < 4 ? 0 : w < 8 ? 0.25 : 0.5; // edges must not drown narrow boxes
  pen.fillRect(x + gap, y + gap, Math.max(w - 2 * gap, 0.5), h - 2 * gap);
  if (!gap || !(look.dotted || look.measured || look.chunk)) return;
  pen.lineWidth = 2 * gap; // inside the box: its neighbour must not hide it
  pen.strokeRect(x + 2 * gap, y + 2 * gap, w - 4 * gap, h - 4 * gap);
}

// The label of every box, all alike "F3", or "3" where that is too wide; sets the pen's font for them. If many boxes of
// a kind have no room, none of that kind has a label.
function labelled(pen, picture, data, place, font, seen) {
  const written = seen.flatMap((boxes, number) => (picture.looks[number].letter ? boxes : []));
  const text = (i, wide) => {
    const { letter } = picture.looks[data.look[i]], m = data.microbatch[i];
    if (picture.by_stage) {
      const number = data.stage[i] % (picture.slices > 1 ? picture.slices : Infinity);
      return wide ? number + letter : String(number);
    }
    return m < 0 ? letter : wide ? letter + m : String(m);
  };
  const forms = [[font.box, true], [font.box, false], [font.smallest, false], [Math.min(font.smallest, LEAST), false]];
  for (const [size, wide] of forms) {
    pen.font = `${size}px ${font.family}`;
    const widths = new Map(), widthOf = (one) => {
      if (!widths.has(one)) widths.set(one, pen.measureText(one).width);
      return widths.get(one);
    };
    const fits = written.filter((i) => size + 2 <= (data.y1[i] - data.y0[i]) * place.lane
      && widthOf(text(i, wide)) <= (data.x1[i] - data.x0[i]) * place.scale - (wide ? 6 : 1.5));
    if (fits.length < MOST * written.length && (size !== forms.at(-1)[0] || wide)) continue;
    const counted = (some) => some.reduce((counts, i) => counts.set(data.look[i], (counts.get(data.look[i]) ?? 0) + 1),
      new Map());
    const [all, fit] = [written, fits].map(counted);
    const often = fits.filter((i) => fit.get(data.look[i]) >= MOST * all.get(data.look[i]));
    return new Map(often.map((i) => [i, text(i, wide)]));
  }
}

// Every column of pixels as a stack of what it covers, pixel by pixel: rectangles would be a hundred thousand.
function paintShares(pen, picture, data, place, theme) {
  const columns = Math.max(1, Math.floor(place.right - place.left)), tall = Math.ceil(place.lane);
  const { share, top, bottom, rows } = shares(picture, data, place.from, place.to, columns);
  const sheet = element("canvas", { width: columns, height: rows * tall }), ink = sheet.getContext("2d");
  const image = ink.createImageData(columns, rows * tall), pixels = new Uint32Array(image.data.buffer);
  const colours = picture.looks.map((look) => packed(fillOf(look, theme)));
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++)
      stack(pixels, (row + 1) * tall - 1, column, columns, tall, share, row * columns + column, colours);
  ink.putImageData(image, 0, 0);
  for (let row = 0; row < rows; row++) {
    const high = (bottom[row] - top[row]) * place.lane, y = top[row] * place.lane + place.lift[row >> 1];
    if (high > 0) pen.drawImage(sheet, 0, row * tall, columns, tall, place.left, y, columns, high);
  }
}

// One column of a row, from its lowest pixel up.
function stack(pixels, lowest, column, columns, tall, share, cell, colours) {
  let filled = 0, y = 0;
  for (let look = 0; look < colours.length; look++) {
    filled += share[cell * colours.length + look] * tall;
    for (; y < Math.round(filled); y++) pixels[(lowest - y) * columns + column] = colours[look];
  }
}

// A colour "#RRGGBB" as the number that stands for an opaque pixel.
function packed(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function paintAxes(pen, picture, place, theme, font) {
  pen.fillStyle = theme.ink;
  pen.font = `${font.axis}px ${font.family}`;
  pen.textAlign = "right";
  const every = Math.ceil((font.axis + 3) / (place.lane * (picture.height / picture.lanes.length)));
  for (const lane of picture.lanes)
    if (lane.rank % every === 0) pen.fillText(lane.label, place.names, place.lifted(lane.top) + place.lane / 2 + 1);
  const y = place.plot + place.axis / 2 + 2;
  pen.fillText(picture.unit, place.names, y);
  pen.textAlign = "center";
  const span = place.to - place.from, power = 10 ** Math.floor(Math.log10(span / 6));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => span / s <= 8);
  for (let t = Math.ceil(place.from / step - 1e-9) * step; t <= place.to + 1e-9 * step; t += step)
    pen.fillText(number(t), place.x(t), y);
  pen.textAlign = "left";
  pen.font = `600 ${font.heading}px ${font.family}`;
  for (const heading of picture.headings)
    pen.fillText(heading.text, place.left, place.lifted(heading.y - 0.5) + Math.max(place.band, place.lane) / 2);
}

// The first of these texts that has room on the canvas, or the last: from x, or further left.
function fitted(pen, place, texts, x, y) {
  const text = texts.find((one) => pen.measureText(one).width <= place.width) ?? texts.at(-1);
  pen.fillText(text, Math.max(0, Math.min(x, place.width - pen.measureText(text).width - 1)), y);
}

// Which time a bubble is compared with: per timeline, compute time and idle time laid end to end, the idle time
// filled in the colour of idle boxes; framed, the whole.
function paintRulers(pen, picture, place, theme, font, key) {
  for (const one of picture.timelines.filter(({ stuck }) => !stuck.length)) { // a step that never ends has no bubble
    const measure = one.measures.find((each) => each.key === key), y = place.lifted(one.ruler);
    const [begin, busy, end, whole] = [measure.begin, measure.busy_end, measure.end, measure.whole].map(place.x);
    pen.font = `${font.axis}px ${font.family}`;
    pen.fillStyle = pen.strokeStyle = theme.ink;
    pen.textAlign = "left";
    const text = `${one.measured ? "measured, " : ""}${measure.text}`;
    fitted(pen, place, [text, measure.text], place.left, y + 0.6 * place.em);
    pen.save();
    pen.beginPath();
    pen.rect(place.left - 2, y, place.right - place.left + 4, place.plot);
    pen.clip();
    const bar = y + 1.35 * place.em;
    pen.fillStyle = theme.bubble;
    pen.fillRect(busy, bar, end - busy, 6);
    pen.lineWidth = 1;
    for (const [x, to] of [[begin, whole], [busy, end]]) pen.strokeRect(x, bar - 0.5, to - x, 7);
    pen.lineWidth = 2;
    if (measure.rank >= 0) {
      const lane = picture.lanes.find((each) => each.rank === measure.rank && picture.timelines[each.timeline] === one);
      pen.strokeRect(begin, place.lifted(lane.top) - 1, end - begin, place.lane + 2);
    }
    pen.restore();
  }
}
