// Machine: the ranks of each timeline as cards, at the time of the cursor: the action that runs, the activations held,
// and the outputs on their way from card to card. Forwards travel above the cards, backwards below them; an output that
// has arrived stands at its card until it is used. In a deadlock, an arrow leads from each waiting card to the one that
// it waits for. It reads the picture's columns, as the timeline above it does.
//
//   const machine = machined(open, kinds);   machine.root
//   machine.show(picture, data);   machine.lay(width, em, ratio);   machine.paint(time, theme, font)
//   machine.put(open)

const STRIP = 1.7, BODY = 5, NAME = 1.6, EDGE = 0.5; // em: a way of tokens, a card, a heading, half of a gap
const AT_ONCE = 0.3; // of the shortest action: how long a token is seen on its way if the message takes no time

const MEANING = "Each card is a rank. Cells: the activations that it holds, of the most that any rank holds. Circles: "
  + "outputs on their way to another rank, or waiting there; forwards above the cards, backwards below them.";

function machined(open, kinds) {
  const root = element("div", { class: "hl-machine" }), canvas = element("canvas", { role: "img" });
  const key = element("p", {}, MEANING);
  let picture, data, rows = [], size = { width: 0, em: 16 };

  function show(next, columns) {
    [picture, data] = [next, columns];
    rows = open ? picture.timelines.map((_, t) => ranksOf(picture, data, t, kinds)) : [];
  }

  function put(on) {
    open = on;
    root.replaceChildren(...(on ? [canvas, key] : []));
    if (picture) show(picture, data);
  }

  function lay(width, em, ratio) {
    if (!open) return;
    size = { width, em, ratio, name: rows.length > 1 ? NAME * em : 0 };
    size.tall = size.name + (2 * STRIP + BODY + 0.4) * em;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(rows.length * size.tall * ratio);
    canvas.style.height = `${rows.length * size.tall}px`;
  }

  function paint(time, theme, font) {
    if (!open || !size.ratio) return;
    const pen = canvas.getContext("2d");
    pen.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    pen.clearRect(0, 0, size.width, rows.length * size.tall);
    pen.textBaseline = "middle";
    rows.forEach((row, t) => paintRow(pen, row, t * size.tall, time, theme, font, t));
    const told = rows.map((row, t) => {
      const there = row.trips.filter((trip) => trip.there <= time && time < trip.use);
      const waits = there.map(({ box, to }) => `${nameOf(picture, data, box)} at rank ${to}`).join(", ");
      const name = `${picture.timelines[t].name} at ${number(time)}`;
      return `${name}: ${inWords(row, time, t)}${waits && `; arrived, not yet used: ${waits}`}`;
    });
    canvas.setAttribute("aria-label", `machine view. ${told.join(". ")}`);
  }

  // The ranks that wait in a deadlock at this time: rank → [the action that it would do, the rank that it waits for].
  function stuckAt(t, time) {
    const { stuck, measures } = picture.timelines[t];
    return new Map(time < measures[0].end - 1e-6 ? [] : stuck.map(([rank, ...why]) => [rank, why]));
  }

  function inWords(row, time, t) {
    const stuck = stuckAt(t, time);
    return row.ranks.map(({ boxes, curve }, r) => {
      const now = running(data, boxes, time), waits = stuck.get(r);
      const what = waits ? waitsFor(r, waits) : now < 0 ? "idle" : nameOf(picture, data, now);
      return `rank ${r} ${what}, holds ${held(data, curve, time)}`;
    }).join("; ");
  }

  function paintRow(pen, row, top, time, theme, font, t) {
    const { em } = size, wide = size.width / row.ranks.length, y = top + size.name + STRIP * em;
    if (size.name) {
      pen.fillStyle = theme.ink;
      pen.textAlign = "left";
      pen.font = `600 ${font.axis}px ${font.family}`;
      const one = picture.timelines[t];
      pen.fillText(one.measured ? `${one.name}, measured` : one.name, 0, top + size.name / 2);
    }
    const edge = Math.min(EDGE * em, 0.1 * wide), card = (r) => [r * wide + edge, y, wide - 2 * edge, BODY * em];
    const stuck = stuckAt(t, time);
    row.ranks.forEach((rank, r) => paintCard(pen, rank, r, card(r), row.most, time, theme, font, stuck.get(r)));
    paintTokens(pen, row, wide, y, time, theme, font);
    for (const [r, [, whom]] of stuck) if (whom >= 0 && whom !== r) paintWait(pen, r, whom, wide, y, theme);
  }

  // A card: its name, the running action, and one cell for each activation that the fullest rank ever holds.
  function paintCard(pen, rank, r, [x, y, w, h], most, time, theme, font, waits) {
    const { em } = size, edge = Math.min(0.4 * em, 0.1 * w), now = running(data, rank.boxes, time);
    const inner = [x + edge, w - 2 * edge], fits = (one) => pen.measureText(one).width <= inner[1];
    pen.lineWidth = waits ? 3 : 1.5;
    pen.strokeStyle = waits ? theme.error : theme.muted;
    pen.strokeRect(x, y, w, h);
    pen.textAlign = "left";
    pen.fillStyle = theme.ink;
    pen.font = `${Math.min(font.axis, inner[1] / 1.3)}px ${font.family}`; // two digits fit into the narrowest card
    pen.fillText([`rank ${r}`, String(r)].find(fits) ?? "", inner[0], y + 0.9 * em);
    const look = now >= 0 ? picture.looks[data.look[now]] : null, m = now >= 0 ? data.microbatch[now] : -1;
    const ink = look ? inkOf(look, m, theme) : { fill: theme.bubble, text: theme.muted };
    pen.fillStyle = ink.fill;
    pen.fillRect(inner[0], y + 1.6 * em, inner[1], 1.6 * em);
    pen.fillStyle = waits ? theme.ink : ink.text;
    pen.textAlign = "center";
    const idle = waits ? [waitsFor(r, waits), `${waits[0]} waits`, waits[0]] : ["idle"];
    const texts = look ? [look.letter + (m < 0 ? "" : m), m < 0 ? "" : String(m)] : idle;
    pen.fillText(texts.find(fits) ?? "", inner[0] + inner[1] / 2, y + 2.45 * em);
    paintHolding(pen, held(data, rank.curve, time), most, [inner[0], y + 3.7 * em, inner[1], 0.9 * em], theme);
  }

  function paintHolding(pen, count, most, [x, y, w, h], theme) {
    const cell = w / most, gap = cell > 4 ? 1.5 : 0;
    pen.lineWidth = 1;
    pen.strokeStyle = theme.muted;
    pen.fillStyle = theme.ink;
    for (let k = 0; k < Math.min(count, most); k++) pen.fillRect(x + k * cell, y, cell - gap, h);
    if (gap) for (let k = count; k < most; k++) pen.strokeRect(x + k * cell + 0.5, y + 0.5, cell - gap - 1, h - 1);
    else pen.strokeRect(x, y, w, h);
  }

  // In a deadlock: an arrow from a card to the one that it waits for; to the right above them, to the left below them.
  function paintWait(pen, from, to, wide, y, theme) {
    const { em } = size, up = to > from ? -1 : 1, edge = up < 0 ? y : y + BODY * em, far = edge + up * (STRIP * em - 3);
    const [a, b] = [from, to].map((r, end) => (r + 0.5) * wide - up * (end ? -1 : 1) * Math.min(1.6 * em, wide / 5));
    pen.beginPath();
    for (const [x, at] of [[a, edge], [a, far], [b, far], [b, edge + 2 * up]]) pen.lineTo(x, at);
    for (const side of [-1, 1]) {
      pen.moveTo(b, edge + 2 * up);
      pen.lineTo(b + side * 0.35 * em, edge + up * 0.6 * em);
    }
    pen.lineWidth = 3;
    pen.strokeStyle = theme.error;
    pen.stroke();
  }

  function paintTokens(pen, row, wide, y, time, theme, font) {
    const { em } = size, radius = 0.62 * em, waiting = new Map();
    const levels = [y + BODY * em + radius + 1, y - radius - 1], centre = (r) => (r + 0.5) * wide;
    pen.fillStyle = theme.grid; // the wires on which they travel
    for (const level of levels) pen.fillRect(centre(0), level - 1, centre(row.ranks.length - 1) - centre(0), 2);
    pen.textAlign = "center";
    pen.font = `${font.smallest}px ${font.family}`;
    for (const trip of row.trips) {
      if (trip.leave > time) break;
      if (Math.max(trip.there, trip.use) <= time) continue;
      const level = levels[+trip.forward], share = (time - trip.leave) / (trip.there - trip.leave);
      let x = centre(trip.from) + (centre(trip.to) - centre(trip.from)) * Math.min(1, share);
      if (share >= 1) { // it waits at its card, behind those that came before it
        const key = `${trip.to}/${trip.forward}`, before = waiting.get(key) ?? 0;
        waiting.set(key, before + 1);
        const far = Math.min(before * Math.min(2.1 * radius, wide / 6), wide / 2 - radius);
        x = centre(trip.to) + (trip.forward ? -far : far);
      }
      const look = picture.looks[data.look[trip.box]], ink = inkOf(look, data.microbatch[trip.box], theme);
      pen.beginPath();
      pen.arc(x, level, radius, 0, 2 * Math.PI);
      pen.fillStyle = ink.fill;
      pen.fill();
      pen.fillStyle = ink.text;
      pen.fillText(String(data.microbatch[trip.box]), x, level + 0.5);
    }
  }

  put(open);
  return { root, show, put, lay, paint };
}

// The ranks of a timeline with their actions in order, the messages between them, and the most that one of them holds.
function ranksOf(picture, data, t, kinds) {
  const one = picture.timelines[t], first = picture.timelines.slice(0, t).reduce((sum, each) => sum + each.ranks, 0);
  const ranks = Array.from({ length: one.ranks }, (_, r) => ({ boxes: [], curve: first + r }));
  for (let i = 0; i < data.count; i++)
    if (data.kind[i] >= 0 && !data.isMessage[data.look[i]] && data.timeline[data.lane[i]] === t)
      ranks[picture.lanes[data.lane[i]].rank].boxes.push(i);
  for (const { boxes } of ranks) boxes.sort((a, b) => data.x0[a] - data.x0[b]);
  return { ranks, trips: tripsOf(picture, data, ranks, kinds, one.outputs), most: Math.max(1, ...one.peaks) };
}

// Every output for another rank: when it leaves, when it is there, when it is used; in a deadlock some never are. A
// backward also needs the input that its forward has received, which does not come again.
function tripsOf(picture, data, ranks, kinds, outputs) {
  const goes = (i) => kinds[picture.kinds[data.kind[i]][0]]?.tone === "forward";
  const all = ranks.flatMap(({ boxes }) => boxes), rankOf = (i) => picture.lanes[data.lane[i]].rank, trips = [];
  const longs = all.map((i) => data.x1[i] - data.x0[i]);
  const shortest = longs.reduce((least, long) => (long > 0 && long < least ? long : least), Infinity);
  for (const i of all) {
    const came = before(data, i), message = came.filter((k) => data.isMessage[data.look[k]]).map((k) => data.x1[k]);
    for (const from of came) {
      if (data.isMessage[data.look[from]] || rankOf(from) === rankOf(i) || goes(from) !== goes(i)) continue;
      const leave = data.x1[from], arrived = Math.max(leave, ...message.filter((end) => end <= data.x0[i] + 1e-6));
      const there = Math.max(arrived, leave + AT_ONCE * shortest);
      trips.push({ box: from, from: rankOf(from), to: rankOf(i), leave, there, use: data.x0[i], forward: goes(from) });
    }
  }
  for (const [box, to] of outputs) {
    if (trips.some((trip) => trip.box === box && trip.to === to)) continue;
    const leave = data.x1[box], there = Math.min(leave + AT_ONCE * shortest, picture.length);
    trips.push({ box, from: rankOf(box), to, leave, there, use: Infinity, forward: goes(box) });
  }
  return trips.sort((a, b) => a.leave - b.leave);
}

// The action that runs on a rank at a time, or -1.
function running(data, boxes, time) {
  let low = 0, high = boxes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.x0[boxes[middle]] <= time) low = middle + 1; else high = middle;
  }
  const last = boxes[low - 1];
  return last !== undefined && time < data.x1[last] ? last : -1;
}

// How many activations a rank holds at a time.
function held(data, curve, time) {
  let count = 0;
  for (let i = data.held_starts[curve]; i < data.held_starts[curve + 1] && data.held_times[i] <= time; i++)
    count = data.held_counts[i];
  return count;
}
