// View: one picture on the page: legend, transport, zoom, readout, counters. It knows no schedule and no kernel.
//
//   const shown = view(el, style, { extra: [nodes for the row of buttons], under: [nodes for the place below it],
//     head: [nodes over the picture, beside one large number], brief: whether buttons for single steps and looks
//     are folded too, fold: (nodes that a reader may fold) => their node, machine: whether its view is open });
//   shown.show(picture);           a picture as show/timelines/picture.py makes it, bytes or base64; again and again
//   shown.show(picture, "live");   the same while a run goes on: nothing is read aloud
//   shown.canvas                   for focus, and to look at: data-painted counts its paintings, data-note says how
//   shown.playOnce()               moves into sight, and plays there where motion is welcome
//   shown.stop()                   leave: end play, let go of what is observed
//
// `style` is show/paper/style.py's STYLE.

const HINT = "Point at a box; or, with the picture in focus, use the keys: ← → step in time, ↑ ↓ choose a rank, "
  + "space plays, + − zoom, 0 shows all, shift with ← → moves along.";
const BRIEF = "Point at a box, or click the picture and step with ← and →.";
const CLOSER = 2, FAINT = [0.22, 0.15], PAST = [1, 0.35]; // zoom of one step; opacity, also beside a chosen box

function view(el, style, options = {}) {
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "timeline" });
  const readout = element("p", { class: "hl-readout" }), note = element("p", { class: "hl-note" });
  const summary = element("p", { class: "hl-summary" });
  const legend = element("div", { class: "hl-legend" }), counters = counting(() => { refresh(); });
  const layers = layered();
  let picture, data, place, theme, font, painted, belongs, cursor = Infinity, chosen = -1, lane = 0;
  let from = 0, to = 1, whole = true, critical = false, tinted = false, paintings = 0, first = false;

  const along = transport({ length: () => picture.length, now: () => cursor, events, moveTo });
  const glide = gliding(() => { paintAll(); paint(); }, style.kinds), machine = machined(options.machine, style.kinds);
  const machines = toggle("machine view", options.machine, (on) => {
    machine.put(on);
    refresh();
    if (on && cursor >= picture.length) along.playOnce(); // at the end, all ranks are idle
  });
  const looks = element("div", { class: "hl-row" },
    machines,
    toggle("colour by microbatch", false, (on) => { tinted = on; showLegend(); refresh(); }), projector());
  const zooms = element("div", { class: "hl-row" },
    button("Zoom in", () => zoom(1 / CLOSER), { "aria-keyshortcuts": "+" }),
    button("Zoom out", () => zoom(CLOSER), { "aria-keyshortcuts": "-" }),
    button("◀ Earlier", () => pan(-0.25)), button("Later ▶", () => pan(0.25)),
    button("All", () => look(0, Infinity), { "aria-keyshortcuts": "0" }),
    toggle("critical path", false, (on) => { critical = on; paint(); }), ...(options.extra || []));
  const head = options.head ? [element("div", { class: "hl-row hl-head" }, counters.figures, ...options.head)] : [];
  const fold = options.fold || ((...nodes) => nodes);
  const steps = options.brief ? [element("div", { class: "hl-row" }, ...along.steps), looks] : []; // not in the bar
  const root = element("div", { class: "hl-view" },
    ...head, legend, canvas, machine.root, readout, ...(options.head ? [] : [note]), along.root,
    ...(options.brief ? [] : [looks]), ...(options.under || []),
    ...[fold(...steps, zooms, counters.table, summary)].flat());
  el.append(root);

  function show(next, live) {
    const were = !live && place && painted && !painted.crowded ? glide.places(picture, data, place) : null;
    glide.end();
    [picture, data] = [next, opened(next)];
    along.stop();
    [cursor, chosen, lane] = [Infinity, -1, Math.min(lane, picture.lanes.length - 1)];
    if (whole || from >= picture.length) [from, to] = [0, picture.length];
    to = Math.min(to, picture.length);
    summary.setAttribute("aria-live", live ? "off" : "polite");
    summary.textContent = picture.summary;
    canvas.setAttribute("aria-label", `${picture.summary}. ${HINT}`);
    showLegend();
    counters.show(picture);
    machine.show(picture, data);
    const stuck = picture.timelines.some((one) => one.stuck.length);
    if (stuck) { // a deadlock is seen there
      machines.firstChild.checked = true;
      machine.put(true);
    }
    place = null; // nothing is painted before all is laid out
    moveTo(options.machine && !live && !stuck ? picture.length / 3 : Infinity); // at the end, all ranks are idle
    read(-1);
    refresh();
    if (place && !painted.crowded) glide.begin(were, picture, data, place);
  }

  function swatchOf(fill, name) {
    const swatch = element("i", {});
    swatch.style.background = fill;
    return element("span", {}, swatch, name);
  }

  function showLegend() {
    const tints = tinted ? style.tints.map(({ forward }, m) => swatchOf(forward.fill, `microbatch ${m}`)) : [];
    if (tinted) tints.push(element("span", {}, "darker: backward"));
    const kinds = picture.legend.filter(([, look]) => !tinted || !style.kinds[look.kind].tone);
    legend.replaceChildren(...tints, ...kinds.map(([name, look]) => {
      const swatch = element("i", {}), stripe = `${look.hatch} 0 2px, ${look.fill} 2px 6px`;
      swatch.style.background = look.hatch ? `repeating-linear-gradient(135deg, ${stripe})` : look.fill;
      if (look.kind === "bubble") swatch.dataset.bubble = "";
      const tall = { message: "7px", arrived: "3px" }[look.kind];
      if (tall) swatch.style.height = tall;
      return element("span", {}, swatch, name);
    }));
  }

  function count() {
    const all = cursor >= picture.length;
    counters.tell(all ? null : picture.timelines.map((_, t) => counted(picture, data, t, cursor)));
  }

  // Lay out and paint the boxes; what moves is painted over them by `paint`.
  function refresh() {
    if (!root.clientWidth || !picture) return;
    const ratio = devicePixelRatio || 1;
    glide.end();
    el.dataset.theme = root.dataset.theme = isDark(el) ? "dark" : "light";
    theme = { ...style[root.dataset.theme], dotted: style.dotted, kinds: style.kinds, error: style.error };
    theme.tints = tinted ? style.tints : null;
    for (const swatch of root.querySelectorAll("[data-bubble]")) swatch.style.background = theme.bubble;
    const em = letter();
    font = { family: style.font };
    for (const [what, size] of Object.entries(style.pixels)) font[what] = (size * em) / style.pixels.axis;
    place = layout(picture, root.clientWidth, from, to, em, options.head ? ROOM.little : ROOM.plenty);
    layers.lay(place, ratio);
    canvas.width = Math.round(place.width * ratio);
    canvas.height = Math.round(place.tall * ratio);
    canvas.getContext("2d").scale(ratio, ratio);
    canvas.style.height = `${place.tall}px`;
    machine.lay(place.width, em, ratio);
    paintAll();
    note.textContent = painted.crowded
      ? `${painted.many} boxes are too many for one each: every column of pixels shows the share of each kind. `
        + "Zoom in, and the boxes stand one by one."
      : whole ? "" : `From ${number(from)} to ${number(to)} ${picture.unit}: every box is one action, or one bubble.`;
    canvas.dataset.note = painted.crowded ? "shares" : "exact";
    if (chosen < 0) read(chosen);
    paint();
    if (first) root.scrollIntoView({ block: "nearest" });
    first = false;
  }

  function paintAll() {
    painted = layers.paint(picture, data, theme, font);
  }

  function paint() {
    if (!place) return;
    machine.paint(Math.min(cursor, picture.length), theme, font);
    canvas.toggleAttribute("data-gliding", glide.moving());
    const pen = canvas.getContext("2d"), all = cursor >= picture.length, now = place.x(all ? picture.length : cursor);
    pen.textBaseline = "middle";
    pen.clearRect(0, 0, place.width, place.tall);
    paintAxes(pen, picture, place, theme, font);
    paintRulers(pen, picture, place, theme, font, counters.chosen());
    const lit = chosen >= 0 && belongs.own.length > 0 && !along.playing();
    layers.copy(pen, 0, all ? place.width : now, PAST[+lit]);
    if (!all) layers.copy(pen, now, place.width, FAINT[+lit], true);
    if (lit) layers.light(pen, data, [...belongs.own, ...belongs.causes, ...belongs.effects, ...belongs.chain]);
    paintHeld(pen, picture, data, place, theme, font, cursor);
    clipped(pen, place, () => {
      if (all) paintDeadlocks(pen, picture, data, place, theme, font);
      if (critical || lit) paintPaths(pen, data, place, theme, lit ? [belongs.chain] : pathsOf(data));
      if (!all) paintCursor(pen, picture, place, theme, cursor);
      if (!all) layers.letter(pen, picture, data, cursor, theme);
      if (chosen >= 0) paintChosen(pen, data, place, theme, chosen, lit ? belongs : { causes: [], effects: [] });
    });
    canvas.dataset.painted = ++paintings;
  }

  function read(i) {
    chosen = i;
    belongs = belongings(data, i);
    const hint = toldDeadlocks(picture) || (options.head ? note.textContent || BRIEF : HINT);
    readout.textContent = i >= 0 ? describe(picture, data, i) : hint;
  }

  function moveTo(time, playing = false) {
    cursor = time >= picture.length ? Infinity : Math.max(0, time);
    for (const one of [readout, counters.figures]) one.setAttribute("aria-live", playing ? "off" : "polite");
    read(cursor < Infinity ? at(cursor) : -1);
    along.show(picture.unit);
    count();
    if (cursor < Infinity && (cursor < from || cursor > to)) look(cursor - (to - from) / 2, cursor + (to - from) / 2);
    else paint();
  }

  // The box on the lane in focus that begins at, or lasts over, a time.
  function at(time) {
    for (let i = 0; i < data.count; i++)
      if (data.lane[i] === lane && data.x0[i] <= time && time < data.x1[i] && !data.isMessage[data.look[i]]) return i;
    return -1;
  }

  // The times at which something begins or ends.
  function events() {
    if (data.events) return data.events;
    const times = new Set([0, picture.length]);
    for (let i = 0; i < data.count; i++)
      if (picture.looks[data.look[i]].letter) times.add(data.x0[i]).add(data.x1[i]);
    data.events = Array.from(Float64Array.from(times).sort());
    return data.events;
  }

  function look(first, last) {
    const wide = Math.min(last - first, picture.length);
    from = within(0, first, picture.length - wide);
    to = Math.min(picture.length, from + wide);
    whole = wide >= picture.length;
    refresh();
  }

  function zoom(factor, around = cursor < to && cursor > from ? cursor : (from + to) / 2) {
    const wide = within(picture.length / 4096, (to - from) * factor, picture.length);
    const share = (around - from) / (to - from);
    look(around - share * wide, around + (1 - share) * wide);
  }

  const pan = (share) => look(from + share * (to - from), to + share * (to - from));
  const timeAt = (event) => from + (event.clientX - canvas.getBoundingClientRect().left - place.left) / place.scale;

  function under(event) {
    const y = event.clientY - canvas.getBoundingClientRect().top, t = timeAt(event);
    if (t < from || t > to) return -1;
    for (let i = data.count - 1; i >= 0; i--) {
      if (data.x0[i] > t || t >= data.x1[i]) continue;
      const top = data.y0[i] * place.lane + place.lift[data.lane[i]];
      if (top <= y && y < top + (data.y1[i] - data.y0[i]) * place.lane) return i;
    }
    return -1;
  }

  let held = null; // where the pointer took hold of the picture
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from, to }; });
  canvas.addEventListener("pointermove", (event) => {
    if (held && event.buttons && to - from < picture.length) {
      const moved = (held.x - event.clientX) / place.scale;
      look(held.from + moved, held.to + moved);
      return;
    }
    const over = under(event);
    if (over !== chosen) { read(over); paint(); }
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointerleave", () => { held = null; read(-1); paint(); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? CLOSER : 1 / CLOSER, within(from, timeAt(event), to));
  }, { passive: false });
  moveByKeys(canvas, { ArrowRight: 1, ArrowLeft: -1, ...LEAPS }, (by, { shiftKey }) =>
    (shiftKey ? pan(by / 4) : along.step(by)));
  moveByKeys(canvas, { ArrowUp: -1, ArrowDown: 1 }, (by) => {
    lane = within(0, lane + by, picture.lanes.length - 1);
    moveTo(cursor < Infinity ? cursor : 0);
  });
  moveByKeys(canvas, { " ": 1 }, along.toggle);
  moveByKeys(canvas, { "+": 1 / CLOSER, "=": 1 / CLOSER, "-": CLOSER }, (factor) => zoom(factor));
  moveByKeys(canvas, { 0: 1 }, () => look(0, Infinity));
  keepKeys(root);

  const letter = () => parseFloat(getComputedStyle(root).fontSize); // what the reader has chosen
  const resized = new ResizeObserver(() => {
    if (root.clientWidth !== place?.width || letter() !== place.em) refresh();
  });
  const unthemed = onTheme(refresh);
  resized.observe(root);
  const seen = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!isIntersecting) return;
    seen.disconnect();
    along.playOnce();
  }, { threshold: 0.9 });
  function stop() {
    along.stop();
    seen.disconnect();
    resized.disconnect();
    unthemed();
  }
  function playOnce() {
    first = true;
    refresh();
    seen.observe(canvas);
  }
  return { root, canvas, show, stop, refresh, playOnce };
}
