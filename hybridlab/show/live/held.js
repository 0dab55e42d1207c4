// Held: the activations that each rank holds over time, as areas below the boxes, a row for each rank; of several
// timelines side by side, each with its own highest values.

const NUMBER = 1.9; // em: room for a highest value, behind its area

// The columns, one for each timeline: { one, x(time), end: where its areas end, first: the number of its first curve }.
// A single one has the time axis of the boxes.
function heldColumns(picture, place) {
  const many = picture.timelines.length, wide = (place.right + NUMBER * place.em - place.left) / many;
  let first = 0;
  return picture.timelines.map((one, t) => {
    const left = place.left + t * wide, right = many > 1 ? left + wide - (NUMBER + 0.6) * place.em : place.right;
    const scale = (right - left) / (place.to - place.from), column = { one, left, end: right, first };
    first += one.ranks;
    return { ...column, x: (time) => left + (within(place.from, time, place.to) - place.from) * scale };
  });
}

function paintHeld(pen, picture, data, place, theme, font, cursor) {
  const most = Math.max(1, ...picture.timelines.flatMap((one) => one.peaks)), columns = heldColumns(picture, place);
  const every = Math.ceil((font.axis + 1) / place.held), tall = 0.82 * place.held;
  pen.fillStyle = theme.ink;
  pen.font = `${font.axis}px ${font.family}`;
  heldTitle(pen, picture, place, columns);
  for (let rank = 0; rank < place.rows; rank++) {
    const bottom = place.heldTop + (rank + 1) * place.held - 0.12 * place.held;
    for (const column of columns.filter(({ one }) => rank < one.ranks)) {
      const until = Math.min(cursor, column.one.measures[0].end); // of a run that goes on nobody knows what comes
      heldArea(pen, data, column, column.first + rank, until, bottom, tall / most);
      pen.textAlign = "left";
      if (rank % every === 0) pen.fillText(column.one.peaks[rank], column.end + 0.6 * place.em, bottom - tall / 2);
    }
    pen.textAlign = "right";
    if (rank % every === 0) pen.fillText(`rank ${rank}`, place.names, bottom - tall / 2);
  }
}

function heldTitle(pen, picture, place, columns) {
  const y = place.plot + place.axis + (HEAD * place.em) / 2 + 2;
  const long = `activations${columns[0].one.one_of} held by each rank, at most:`, short = "activations held, at most:";
  pen.textAlign = "left";
  if (columns.length === 1) {
    fitted(pen, place, [long, short], place.left, y);
    return;
  }
  const names = columns.map(({ one }) => (one.measured ? `${one.name} measured` : one.name));
  const room = (columns[1].left - columns[0].left) * 0.96, full = names.map((name) => `${name}: ${short.slice(0, -1)}`);
  const fits = (texts) => texts.every((text) => pen.measureText(text).width <= room);
  const texts = fits(full) ? full : names;
  columns.forEach(({ left }, t) => pen.fillText(texts[t], left, y, room));
}

// One area, until a time.
function heldArea(pen, data, { x }, curve, until, bottom, unit) {
  let y = bottom;
  pen.beginPath();
  pen.moveTo(x(0), bottom);
  for (let i = data.held_starts[curve]; i < data.held_starts[curve + 1] && data.held_times[i] <= until; i++) {
    pen.lineTo(x(data.held_times[i]), y);
    y = bottom - data.held_counts[i] * unit;
    pen.lineTo(x(data.held_times[i]), y);
  }
  pen.lineTo(x(until), y);
  pen.lineTo(x(until), bottom);
  pen.closePath();
  pen.globalAlpha = 0.45;
  pen.fill();
  pen.globalAlpha = 1;
}
