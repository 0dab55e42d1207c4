// Mark: what is painted over the boxes: a chosen one with all that belongs to it, the critical path, the cursor.

function clipped(pen, place, paint) {
  pen.save();
  pen.beginPath();
  pen.rect(place.left - 2, 0, place.right - place.left + 4, place.tall);
  pen.clip();
  paint();
  pen.restore();
}

// What belongs to a box: `own` its microbatch, `causes` and `effects` whom it takes from and who takes from it, `chain`
// those that decide when it begins.
function belongings(data, i) {
  if (i < 0 || data.kind[i] < 0) return { own: [], causes: [], effects: [], chain: [] };
  return { own: sameMicrobatch(data, i), causes: before(data, i), effects: after(data, i), chain: chainOf(data, i) };
}

function paintChosen(pen, data, place, theme, i, { causes, effects }) {
  pen.strokeStyle = pen.fillStyle = theme.ink;
  pen.lineWidth = 2;
  const plain = (k) => !data.isMessage[data.look[k]];
  for (const k of [...causes, ...effects]) pen.strokeRect(...frame(data, place, k));
  for (const k of causes.filter(plain)) arrow(pen, data, place, k, i);
  for (const k of effects.filter(plain)) arrow(pen, data, place, i, k);
  pen.lineWidth = 3;
  pen.strokeRect(...frame(data, place, i));
}

// The time of the cursor: a line through each timeline's lanes and through the areas below them, not through words.
function paintCursor(pen, picture, place, theme, time) {
  pen.fillStyle = theme.ink;
  picture.timelines.forEach((_, t) => {
    const tops = picture.lanes.filter((one) => one.timeline === t).map((one) => place.lifted(one.top));
    const top = Math.min(...tops) - 4;
    pen.fillRect(place.x(time) - 1, top, 2, Math.max(...tops) + place.lane + 4 - top);
  });
  if (picture.timelines.length === 1)
    pen.fillRect(place.x(time) - 1, place.heldTop, 2, place.rows * place.held);
}

// In a deadlock: in words; and from a rank's last action on, a frame with the action that it waits to do.
const waitsFor = (rank, [action, whom]) =>
  `${action} waits for ${whom < 0 ? "what no rank makes" : whom === rank ? "its own rank" : `rank ${whom}`}`;

const toldDeadlocks = (picture) => picture.timelines.flatMap(({ name, stuck }) => (stuck.length
  ? [`Deadlock of “${name}”: ${stuck.map(([r, ...why]) => `rank ${r}: ${waitsFor(r, why)}`).join("; ")}.`]
  : [])).join(" ");

function paintDeadlocks(pen, picture, data, place, theme, font) {
  pen.font = `${font.box}px ${font.family}`;
  pen.textAlign = "center";
  picture.timelines.forEach(({ stuck }, t) => stuck.forEach(([rank, action]) => {
    const number = picture.lanes.findIndex((one) => one.timeline === t && one.rank === rank);
    let last = 0;
    for (let i = 0; i < data.count; i++)
      if (data.lane[i] === number && data.kind[i] >= 0) last = Math.max(last, data.x1[i]);
    const [x, right, y] = [place.x(last), place.x(picture.length), place.lifted(picture.lanes[number].top)];
    pen.fillStyle = theme.bubble;
    pen.fillRect(x, y, right - x, place.lane);
    pen.lineWidth = 3;
    pen.strokeStyle = theme.error;
    pen.strokeRect(x, y + 1.5, right - x, place.lane - 3);
    pen.fillStyle = theme.ink;
    const text = `waits at ${action}`, fits = [text, action].find((one) => pen.measureText(one).width < right - x - 8);
    if (fits && font.box + 4 < place.lane) pen.fillText(fits, (x + right) / 2, y + place.lane / 2 + 1);
  }));
}

// From the end of one box to the begin of another.
function arrow(pen, data, place, from, to) {
  if (data.lane[from] === data.lane[to]) return;
  const [x, y, w, h] = frame(data, place, from), [x2, y2, , h2] = frame(data, place, to);
  const [ax, ay, bx, by] = [x + w, y + h / 2, x2, y2 + h2 / 2], angle = Math.atan2(by - ay, bx - ax || 1e-3);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(ax, ay);
  pen.lineTo(bx, by);
  for (const side of [-0.45, 0.45]) {
    pen.moveTo(bx, by);
    pen.lineTo(bx - 9 * Math.cos(angle + side), by - 9 * Math.sin(angle + side));
  }
  pen.stroke();
}

// A line through the boxes of each path, cased so that it shows on every fill.
function paintPaths(pen, data, place, theme, paths) {
  const line = new Path2D();
  for (const path of paths)
    path.forEach((i, k) => {
      const [x, y, w, h] = frame(data, place, i);
      line[k ? "lineTo" : "moveTo"](x, y + h * 0.82);
      line.lineTo(x + w, y + h * 0.82);
    });
  pen.lineJoin = "round";
  for (const [width, colour] of [[6, theme.edge], [3, theme.ink]]) {
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.stroke(line);
  }
}

// The three bubbles of one timeline as counted until a time: idle, and what it is compared with, in rank-time.
function counted(picture, data, t, time) {
  const one = picture.timelines[t], span = one.measures[2];
  let idle = 0, busy = 0, own = 0;
  for (let i = 0; i < data.count; i++) {
    if (data.timeline[data.lane[i]] !== t || data.isMessage[data.look[i]] || data.x0[i] >= time) continue;
    const long = (Math.min(data.x1[i], time) - data.x0[i]) * (data.y1[i] - data.y0[i]);
    if (data.kind[i] >= 0) busy += long;
    else idle += long;
    if (data.kind[i] < 0 && picture.lanes[data.lane[i]].rank === span.rank)
      own += Math.max(0, Math.min(data.x1[i], time, span.end) - Math.max(data.x0[i], span.begin));
  }
  const share = (part, whole) => (whole > 0 ? part / whole : 0);
  const spanned = Math.min(time, span.end) - span.begin;
  return [share(idle, idle + busy), share(idle, busy), share(own, spanned)];
}
