// Paint: a picture's boxes, axes, rulers and curves on a canvas. Where things lie is `layout`'s business alone.

const LEFT = 5.9, PEAK = 1.9, AXIS = 1.9, HEAD = 2, BAND = 2, LANE = 2.3; // in em: the reader's letters
// In em too: the flattest lane, all lanes together (little: of one timeline); the lowest row of activations held, all,
// the highest.
const ROOM = {
  plenty: { lane: [0.55, 37], held: [0.47, 28, 1.6] },
  little: { lane: [0.2, 12.8], held: [0.1, 4.6, 1.15] },
};
const CROWDED = 2; // pixels for a box and its neighbours' edges: with less, on average, shares are painted
const dash = (pen, pattern = "") => pen.setLineDash(pattern.split(" ").filter(Boolean).map(Number));

// Where everything lies on the canvas, in CSS pixels; `from` to `to` is the time to be seen, `em` a letter's height,
// `room` one of ROOM.
function layout(picture, width, from, to, em, room) {
  const many = picture.timelines.length, rows = Math.max(...picture.timelines.map((one) => one.ranks));
  const [[flat, lanes], [low, curves, high]] = [room.lane, room.held], little = room === ROOM.little;
  const heads = picture.headings.length + many, all = little ? lanes * many - BAND * heads : lanes;
  const lane = em * within(flat, all / (picture.height - (little ? heads : 0)), LANE);
  const more = little && many > 1 ? 1.5 : 1, held = em * within(low, (curves * more) / rows, high * more);
  const band = BAND * em, left = LEFT * em, axis = AXIS * em, bands = [];
  for (const heading of picture.headings) bands.push([heading.y - 0.5, band - lane]);
  for (const { ruler } of picture.timelines) bands.push([ruler, band - 0.8 * lane]);
  const lifted = (y) => y * lane + bands.reduce((sum, [top, more]) => sum + (top < y ? Math.max(0, more) : 0), 0);
  const lift = picture.lanes.map((one) => lifted(one.top) - one.top * lane);
  const plot = picture.height * lane + Math.max(...lift);
  const right = width - 20 - PEAK * em * Math.max(2, many); // where time ends; the peaks stand behind
  const heldTop = plot + axis + HEAD * em, scale = (right - left) / (to - from);
  const x = (t) => left + (t - from) * scale;
  const tall = heldTop + rows * held + 4;
  return {
    width, em, left, axis, band, lane, lift, lifted, plot, rows, held, heldTop, tall, from, to, right, scale, x,
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

// All boxes, one by one where they have room, else as shares; says which.
function paintBoxes(pen, picture, data, place, theme, font, ratio) {
  const seen = visible(picture, data, place), many = seen.reduce((sum, some) => sum + some.length, 0);
  const crowded = many > (picture.lanes.length * (place.right - place.left)) / CROWDED;
  pen.save();
  pen.beginPath();
  pen.rect(place.left, 0, place.right - place.left, place.plot);
  pen.clip();
  if (crowded) paintShares(pen, picture, data, place, theme);
  else paintEach(pen, picture, data, place, theme, font, seen, ratio);
  pen.restore();
  return { crowded, many };
}

// Rectangle after rectangle: one path with thousands of them takes browsers ten times as long. Bubbles come first, and
// a look's labels with its boxes: a box that glides hides what is below it.
function paintEach(pen, picture, data, place, theme, font, seen, ratio) {
  const numbers = [...seen.keys()], isIdle = (number) => picture.looks[number].kind === "bubble";
  const labels = labelled(pen, picture, data, place, font, seen);
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
}

function paintBox(pen, [x, y, w, h], look) {
  const gap = look.kind === "bubble" || w <= 3 || h < 4 ? 0 : w < 8 ? 0.25 : 0.5; // edges must not drown narrow boxes
  pen.fillRect(x + gap, y + gap, Math.max(w - 2 * gap, 0.5), h - 2 * gap);
  if (!gap || !(look.dotted || look.measured)) return;
  pen.lineWidth = 2 * gap; // inside the box: its neighbour must not hide it
  pen.strokeRect(x + 2 * gap, y + 2 * gap, w - 4 * gap, h - 4 * gap);
}

// The label of every box that has room, all alike "F3", or "3" where that is too wide; sets the pen's font for them.
function labelled(pen, picture, data, place, font, seen) {
  const written = seen.flatMap((boxes, number) => (picture.looks[number].letter ? boxes : []));
  const text = (i, wide) => {
    const { letter } = picture.looks[data.look[i]], m = data.microbatch[i];
    return m < 0 ? letter : wide ? letter + m : String(m);
  };
  for (const [size, wide] of [[font.box, true], [font.box, false], [font.smallest, false]]) {
    pen.font = `${size}px ${font.family}`;
    const widths = new Map(), widthOf = (one) => {
      if (!widths.has(one)) widths.set(one, pen.measureText(one).width);
      return widths.get(one);
    };
    const fits = written.filter((i) => size + 2 <= (data.y1[i] - data.y0[i]) * place.lane
      && widthOf(text(i, wide)) <= (data.x1[i] - data.x0[i]) * place.scale - 3);
    if (fits.length >= 0.9 * written.length || (size === font.smallest && !wide))
      return new Map(fits.map((i) => [i, text(i, wide)]));
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
    if (lane.rank % every === 0) pen.fillText(lane.label, place.left - 10, place.lifted(lane.top) + place.lane / 2 + 1);
  const y = place.plot + place.axis / 2 + 2;
  pen.fillText(picture.unit, place.left - 10, y);
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

// Which time a bubble is compared with: per timeline, compute time and idle time laid end to end, the idle time in the
// colour of idle boxes; framed, the whole.
function paintRulers(pen, picture, place, theme, font, key) {
  for (const one of picture.timelines) {
    const measure = one.measures.find((each) => each.key === key), y = place.lifted(one.ruler);
    const [begin, busy, end, whole] = [measure.begin, measure.busy_end, measure.end, measure.whole].map(place.x);
    pen.font = `${font.axis}px ${font.family}`;
    pen.fillStyle = pen.strokeStyle = theme.ink;
    pen.textAlign = "left";
    pen.fillText(`${one.measured ? "measured, " : ""}${measure.text}`, place.left, y + 0.6 * place.em);
    pen.save();
    pen.beginPath();
    pen.rect(place.left - 2, y, place.right - place.left + 4, place.plot);
    pen.clip();
    const bar = y + 1.35 * place.em;
    pen.fillStyle = theme.bubble;
    pen.fillRect(busy, bar, end - busy, 6);
    pen.fillStyle = theme.muted;
    pen.fillRect(begin, bar, busy - begin, 6);
    pen.lineWidth = 1;
    pen.strokeRect(begin, bar - 0.5, whole - begin, 7);
    pen.lineWidth = 2;
    if (measure.rank >= 0) {
      const lane = picture.lanes.find((each) => each.rank === measure.rank && picture.timelines[each.timeline] === one);
      pen.strokeRect(begin, place.lifted(lane.top) - 1, end - begin, place.lane + 2);
    }
    pen.restore();
  }
}

// Step curves on the time axis of the boxes, a row per rank; the highest values at the right.
function paintHeld(pen, picture, data, place, theme, font, cursor) {
  const most = Math.max(1, ...picture.timelines.flatMap((one) => one.peaks)), several = picture.timelines.length > 1;
  pen.fillStyle = pen.strokeStyle = theme.ink;
  pen.font = `${font.axis}px ${font.family}`;
  heldTitle(pen, picture, place, theme, several);
  for (let rank = 0; rank < place.rows; rank++) {
    const bottom = place.heldTop + (rank + 1) * place.held - 3, tall = place.held - 5;
    let curve = rank;
    const peaks = [];
    picture.timelines.forEach((one, t) => {
      if (rank < one.ranks) {
        const end = Math.min(cursor, one.measures[0].end); // of a run that goes on nobody knows what comes
        heldCurve(pen, data, place, theme, curve, end, bottom, tall / most, t, several);
        peaks.push(one.peaks[rank]);
      }
      curve += one.ranks;
    });
    if (rank % Math.ceil((font.axis + 1) / place.held)) continue;
    pen.textAlign = "right";
    pen.fillText(`rank ${rank}`, place.left - 10, bottom - tall / 2);
    pen.textAlign = "left";
    pen.fillText(peaks.join(" · "), place.x(place.to) + 10, bottom - tall / 2);
  }
}

function heldTitle(pen, picture, place, theme, several) {
  const y = place.plot + place.axis + HEAD * place.em / 2 + 2;
  pen.textAlign = "left";
  const thin = picture.timelines.some((one) => one.chunks > 1) ? " of one stage" : ""; // which is 1/v of a rank
  const title = `activations${thin} held by each rank, at most:`;
  pen.fillText(title, place.left, y);
  let x = place.left + pen.measureText(title).width + 24;
  if (several) picture.timelines.forEach((one, t) => {
    const name = one.measured ? `${one.name} measured` : one.name;
    pen.globalAlpha = 1;
    heldPen(pen, theme, t);
    pen.strokeRect(x, y - (t ? 0 : 4), 30, t ? 0 : 8);
    dash(pen);
    pen.fillText(name, x + 38, y);
    x += 62 + pen.measureText(name).width;
  });
}

// Width and dashes of the curves of the t-th timeline.
function heldPen(pen, theme, t) {
  const [width, pattern] = theme.held[t % theme.held.length];
  pen.lineWidth = width;
  dash(pen, pattern);
}

function heldCurve(pen, data, place, theme, curve, end, bottom, unit, t, several) {
  const until = Math.min(end, place.to), line = new Path2D();
  let y = bottom;
  line.moveTo(place.x(Math.max(0, place.from)), bottom);
  for (let i = data.held_starts[curve]; i < data.held_starts[curve + 1] && data.held_times[i] <= until; i++) {
    const x = place.x(Math.max(place.from, data.held_times[i]));
    line.lineTo(x, y);
    y = bottom - data.held_counts[i] * unit;
    line.lineTo(x, y);
  }
  line.lineTo(place.x(Math.max(place.from, until)), y);
  if (t === 0) { // the first is an area, so that the others show on it
    line.lineTo(place.x(Math.max(place.from, until)), bottom);
    line.closePath();
    pen.globalAlpha = several ? 0.25 : 0.45;
    pen.fill(line);
    pen.globalAlpha = 1;
  }
  if (t === 0 && !several) return;
  heldPen(pen, theme, t);
  pen.stroke(line);
  dash(pen);
}
