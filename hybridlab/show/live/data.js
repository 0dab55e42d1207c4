// Data: a picture's columns as typed arrays, and what follows from them alone: relations, names, shares of a pixel.

const TYPES = { f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array };

// Columns come as views of bytes (from Python) or in base64 (from a page); bytes need not lie on a multiple of four.
function bytesOf(data) {
  if (typeof data !== "string") return data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

function opened(picture) {
  const data = {};
  for (const [name, { type, data: raw }] of Object.entries(picture.columns)) data[name] = new TYPES[type](bytesOf(raw));
  const { looks, lanes } = picture;
  data.count = data.x0.length;
  data.isArrived = looks.map((look) => look.kind === "arrived"); // a message that waits to be used
  data.isMessage = looks.map((look, k) => look.kind === "message" || data.isArrived[k]);
  data.timeline = lanes.map((lane) => lane.timeline);
  return data;
}

// Lines of text, as `module.packed` packs them.
async function unpacked(text) {
  const bytes = new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]);
  return (await new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text()).split("\n");
}

const slice = (values, starts, i) => Array.from(values.subarray(starts[i], starts[i + 1]));

// Who takes from whom, the other way round: made when first asked for.
function takersOf(data) {
  if (data.takers) return data.takers;
  const starts = new Int32Array(data.count + 1), values = new Int32Array(data.needs.length);
  for (const need of data.needs) starts[need + 1]++;
  for (let i = 0; i < data.count; i++) starts[i + 1] += starts[i];
  const at = starts.slice();
  for (let i = 0; i < data.count; i++)
    for (let k = data.need_starts[i]; k < data.need_starts[i + 1]; k++) values[at[data.needs[k]]++] = i;
  data.takers = { starts, values };
  return data.takers;
}

// The boxes on the other side of every link of a box; a message is passed through, and shown too.
function linked(data, i, next) {
  const beyond = (other) => (data.isMessage[data.look[other]] ? linked(data, other, next) : []);
  return next(i).flatMap((other) => [other, ...beyond(other)]);
}
const before = (data, i) => linked(data, i, (one) => slice(data.needs, data.need_starts, one));
const after = (data, i) => linked(data, i, (one) => slice(takersOf(data).values, takersOf(data).starts, one));

// The other boxes of the same microbatch on its way through the same timeline.
function sameMicrobatch(data, i) {
  const [m, timeline] = [data.microbatch[i], data.timeline[data.lane[i]]], found = [];
  if (m < 0) return found;
  for (let k = 0; k < data.count; k++)
    if (data.microbatch[k] === m && data.timeline[data.lane[k]] === timeline) found.push(k);
  return found;
}

// Why a box begins when it does: the box that it waited for, the one before that, …; from the first to the box itself.
function chainOf(data, i) {
  const found = [];
  for (let k = i; k >= 0; k = data.waited[k]) found.push(k);
  return found.reverse();
}

// The boxes that decide the length of each timeline.
const pathsOf = (data) => Array.from(data.path_starts.slice(1), (_, t) => slice(data.path, data.path_starts, t));

function nameOf(picture, data, i) {
  const kind = picture.kinds[data.kind[i]][0], m = data.microbatch[i], copy = data.replica[i];
  return `${data.stage[i]}${kind}${m < 0 ? "" : m}${copy > 0 ? `@${copy}` : ""}`;
}

function describe(picture, data, i) {
  const lane = picture.lanes[data.lane[i]], one = picture.timelines[lane.timeline];
  const whose = picture.timelines.length > 1 ? `${one.name}${one.measured ? " measured" : ""}, ` : "";
  const where = `${whose}rank ${lane.rank}`;
  const when = `${number(data.x0[i])} to ${number(data.x1[i])} ${picture.unit} (${number(data.x1[i] - data.x0[i])})`;
  if (data.isArrived[data.look[i]]) {
    const what = `message of microbatch ${data.microbatch[i]} for stage ${data.stage[i]}`;
    return `${where}: ${what}: arrived, not yet used, ${when}`;
  }
  if (data.kind[i] < 0) return `${where}: idle, ${when}`;
  const look = picture.looks[data.look[i]];
  const meaning = look.kind.startsWith("LENT") ? look.name : picture.kinds[data.kind[i]][1];
  return `${where}: ${nameOf(picture, data, i)}, ${meaning}, ${when}; ${waiting(picture, data, i)}`;
}

function waiting(picture, data, i) {
  const cause = data.waited[i];
  if (cause < 0) return "waited for nothing";
  const rank = picture.lanes[data.lane[cause]].rank;
  const whose = data.lane[cause] === data.lane[i] ? "of its own rank" : `of rank ${rank}`;
  const before = chainOf(data, cause).filter((k) => !data.isMessage[data.look[k]]).length;
  const line = before > 1 ? `; the line leads through the ${before} actions that decide when it begins` : "";
  return `waited for ${nameOf(picture, data, cause)} ${whose}, which ended at ${number(data.x1[cause])}${line}`;
}

// Shares: for every row of lanes and every column of pixels, how much of it each look covers; many boxes, few numbers.
// A lane has two rows, compute actions and messages. share[(row * columns + column) * looks + look], 0 to 1.
function shares(picture, data, from, to, columns) {
  const looks = picture.looks.length, rows = 2 * picture.lanes.length, wide = (to - from) / columns;
  const share = new Float32Array(rows * columns * looks);
  const top = new Float32Array(rows).fill(Infinity), bottom = new Float32Array(rows).fill(-Infinity);
  const rowOf = (i) => 2 * data.lane[i] + data.isMessage[data.look[i]];
  for (let i = 0; i < data.count; i++) {
    const row = rowOf(i);
    if (data.y0[i] < top[row]) top[row] = data.y0[i];
    if (data.y1[i] > bottom[row]) bottom[row] = data.y1[i];
  }
  for (let i = 0; i < data.count; i++) {
    const x0 = Math.max(data.x0[i], from), x1 = Math.min(data.x1[i], to), row = rowOf(i);
    if (x1 <= x0) continue;
    const part = (data.y1[i] - data.y0[i]) / (bottom[row] - top[row]);
    const last = Math.min(columns - 1, Math.floor((x1 - from) / wide));
    for (let column = Math.floor((x0 - from) / wide); column <= last; column++) {
      const edge = from + column * wide, covered = Math.min(x1, edge + wide) - Math.max(x0, edge);
      if (covered > 0) share[(row * columns + column) * looks + data.look[i]] += (covered / wide) * part;
    }
  }
  return { share, top, bottom, rows, columns };
}
