// The explorer's controls: they ask Python for pictures and show them at the time where the cursor stands.

const HINT = "Point at a box; or, with the picture in focus, use ← → ↑ ↓ and the space bar.";
const SWEEP = 10_000, BEAT = 700; // milliseconds: of the whole play; between two events where motion is unwelcome

// JupyterLab cancels what arrow keys do on ranges and selects, so they are moved here.
const LEAP = 1e9;
const LEAPS = { Home: -LEAP, End: LEAP };
const ALONG = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, ...LEAPS };
const DOWN = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, ...LEAPS };
function moveByKeys(control, strides, move) {
  control.addEventListener("keydown", (event) => {
    if (!(event.key in strides)) return;
    event.preventDefault();
    event.stopPropagation();
    move(strides[event.key]);
  });
}

function slider(label, least, most, step, value, changed) {
  const input = element("input", { type: "range", min: least, max: most, step });
  const shown = element("output");
  const put = (to) => {
    input.max = Math.max(most, to); // a choice made in Python may lie beyond
    input.value = to;
    shown.textContent = number(to);
  };
  input.addEventListener("input", () => { shown.textContent = number(+input.value); changed(+input.value); });
  moveByKeys(input, ALONG, (strides) => {
    put(within(least, +input.value + strides * step, +input.max));
    changed(+input.value);
  });
  put(value);
  return { root: element("label", {}, element("span", {}, label, shown), input), put };
}

function selection(choices, value, changed) {
  const select = element("select", {}, ...choices.map((name) => element("option", { value: name }, name)));
  select.addEventListener("change", () => changed(select.value));
  moveByKeys(select, DOWN, (strides) => {
    select.selectedIndex = within(0, select.selectedIndex + strides, choices.length - 1);
    changed(select.value);
  });
  select.value = value;
  return { root: element("label", {}, element("span", {}, "schedule"), select), put: (to) => { select.value = to; } };
}

function render({ model, el }) {
  const style = model.get("style_data"), font = { ...style.pixels, family: style.font };
  const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "timeline" });
  const readout = element("p", { class: "hl-readout", "aria-live": "polite" });
  const problem = element("p", { class: "hl-problem", role: "alert" });
  const summary = element("p", { class: "hl-summary", "aria-live": "polite" });
  const legend = element("div", { class: "hl-legend" }), counters = element("div", { class: "hl-counters" });
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), night = matchMedia("(prefers-color-scheme: dark)");
  let picture, data, place, label, events, theme, cursor = Infinity, chosen = -1, rank = 0, timer = 0;

  const choose = (trait) => (value) => { model.set(trait, value); model.save_changes(); };
  const controls = { schedule: selection(model.get("choices"), model.get("schedule"), choose("schedule")) };
  for (const [trait, name, least, most, step] of model.get("sliders"))
    controls[trait] = slider(name, least, most, step, model.get(trait), choose(trait));
  const button = (text, act) => {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", act);
    return made;
  };
  const play = button("▶ Play", () => (timer ? stop() : start()));
  const scrub = element("input", { type: "range", min: 0, step: "any", "aria-label": "time" });
  scrub.addEventListener("input", () => { stop(); moveTo(+scrub.value); });
  moveByKeys(scrub, ALONG, step);
  const transport = element("div", { class: "hl-row" },
    button("Start", () => step(-LEAP)), button("◀ Step", () => step(-1)), play, button("Step ▶", () => step(1)),
    button("End", () => step(LEAP)), element("label", { class: "hl-scrub" }, scrub));
  const root = element("div", { class: "hl-explorer" },
    element("div", { class: "hl-row" }, ...Object.values(controls).map((one) => one.root)),
    problem, legend, canvas, readout, transport, counters, summary);
  el.append(root);

  function receive() {
    picture = model.get("picture");
    data = columns(picture);
    const worked = Array.from(data.x0.keys()).filter((i) => picture.looks[data.look[i]].letter);
    const times = worked.flatMap((i) => [data.x0[i], data.x1[i]]).concat(0, picture.length);
    events = [...new Set(times)].sort((a, b) => a - b);
    scrub.max = picture.length;
    legend.replaceChildren(...picture.legend.map(([name, look]) => {
      const swatch = element("i", {}), stripe = `${look.hatch} 0 2px, ${look.fill} 2px 6px`;
      swatch.style.background = look.hatch ? `repeating-linear-gradient(135deg, ${stripe})` : look.fill;
      if (look.kind === "bubble") swatch.dataset.bubble = "";
      if (look.kind === "message") swatch.style.height = "7px";
      return element("span", {}, swatch, name);
    }));
    counters.replaceChildren(...picture.counters.map(([name, value, told]) =>
      element("div", {}, element("div", {}, name, element("b", {}, value)), element("small", {}, told))));
    stop();
    chosen = -1;
    rank = Math.min(rank, picture.peaks.length - 1);
    moveTo(Infinity);
  }

  function tell() {
    summary.textContent = model.get("summary");
    const keys = "Keys: left and right step, up and down choose a rank, space plays.";
    canvas.setAttribute("aria-label", `${summary.textContent}. ${keys}`);
    problem.textContent = model.get("problem");
    root.toggleAttribute("data-stale", problem.textContent !== "");
  }

  function paint() {
    if (!root.clientWidth || !picture) return;
    const dark = isDark(el), ratio = devicePixelRatio || 1, pen = canvas.getContext("2d");
    root.dataset.theme = dark ? "dark" : "light";
    theme = style[root.dataset.theme];
    for (const swatch of legend.querySelectorAll("[data-bubble]")) swatch.style.background = theme.bubble;
    place = layout(picture, root.clientWidth);
    canvas.width = Math.round(place.width * ratio);
    canvas.height = Math.round(place.tall * ratio);
    canvas.style.height = `${place.tall}px`;
    pen.scale(ratio, ratio);
    pen.textBaseline = "middle";
    label = labels(pen, picture, data, place, font);
    const fills = picture.looks.map((look) => (look.hatch ? stripes(pen, look, ratio) : look.fill));
    const now = LEFT + Math.min(cursor, picture.length) * place.scale;
    paintAxes(pen, picture, place, theme, font);
    for (const [from, to, alpha] of [[0, now, 1], [now, place.width, 0.15]]) { // what is to come is pale
      pen.save();
      pen.beginPath();
      pen.rect(from, 0, to - from, place.plot);
      pen.clip();
      pen.globalAlpha = alpha;
      paintBoxes(pen, picture, data, place, theme, label, font, fills);
      pen.restore();
    }
    paintHeld(pen, picture, data, place, theme, font, cursor);
    pen.fillStyle = pen.strokeStyle = theme.ink;
    if (cursor < picture.length) pen.fillRect(now - 1, 0, 2, place.tall);
    if (chosen < 0) return;
    pen.lineWidth = 3;
    const [x0, x1, y0, y1] = [data.x0, data.x1, data.y0, data.y1].map((column) => column[chosen]);
    pen.strokeRect(LEFT + x0 * place.scale, y0 * place.lane, (x1 - x0) * place.scale, (y1 - y0) * place.lane);
  }

  function describe(i) {
    const look = picture.looks[data.look[i]], m = data.microbatch[i];
    const of = m < 0 ? "" : ` of microbatch ${m}`;
    const what = look.kind === "bubble" ? "idle" : `${look.name}${of}, stage ${data.stage[i]}`;
    const [from, to] = [data.x0[i], data.x1[i]];
    return `rank ${data.rank[i]}: ${what}, ${number(from)} to ${number(to)} ${picture.unit} (${number(to - from)})`;
  }

  function read(i) {
    chosen = i;
    readout.textContent = i >= 0 ? describe(i) : HINT;
  }

  function moveTo(time) {
    cursor = time >= picture.length ? Infinity : Math.max(0, time);
    scrub.value = Math.min(cursor, picture.length);
    scrub.setAttribute("aria-valuetext", `${number(+scrub.value)} ${picture.unit}`);
    read(cursor < Infinity ? at(Math.min(cursor, picture.length), rank) : -1);
    paint();
  }

  // The box on a rank's lane that begins at, or lasts over, a time.
  function at(time, onRank) {
    return data.x0.findIndex((x0, i) => data.rank[i] === onRank && x0 <= time && time < data.x1[i]
      && picture.looks[data.look[i]].kind !== "message");
  }

  function step(strides) {
    stop();
    const here = Math.min(cursor, picture.length), slack = picture.length * 1e-6;
    const [after, before] = [(t) => t > here + slack, (t) => t < here - slack];
    const past = strides > 0 ? events.findIndex(after) : events.findLastIndex(before);
    if (past >= 0) moveTo(events[within(0, past + strides - Math.sign(strides), events.length - 1)]);
  }

  function start() {
    if (cursor >= picture.length) moveTo(0);
    play.textContent = "❚❚ Pause";
    readout.setAttribute("aria-live", "off");
    const began = performance.now() - (cursor / picture.length) * SWEEP;
    const sweep = (now) => {
      const time = ((now - began) / SWEEP) * picture.length;
      if (time >= picture.length) { stop(); moveTo(Infinity); return; }
      moveTo(time);
      timer = requestAnimationFrame(sweep);
    };
    const beat = () => { // less motion: from event to event
      moveTo(events.find((t) => t > cursor + picture.length * 1e-6) ?? Infinity);
      if (cursor < picture.length) timer = setTimeout(beat, BEAT); else stop();
    };
    timer = calm.matches ? setTimeout(beat, BEAT) : requestAnimationFrame(sweep);
  }

  function stop() {
    cancelAnimationFrame(timer);
    clearTimeout(timer);
    timer = 0;
    play.textContent = "▶ Play";
    readout.setAttribute("aria-live", "polite");
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const [t, y] = [(event.clientX - box.left - LEFT) / place.scale, (event.clientY - box.top) / place.lane];
    const over = data.x0.findLastIndex((x0, i) => x0 <= t && t < data.x1[i] && data.y0[i] <= y && y < data.y1[i]);
    if (over !== chosen) { read(over); paint(); }
  });
  canvas.addEventListener("pointerleave", () => { read(-1); paint(); });
  moveByKeys(canvas, { ArrowRight: 1, ArrowLeft: -1, ...LEAPS }, step);
  moveByKeys(canvas, { ArrowUp: -1, ArrowDown: 1 }, (by) => {
    rank = within(0, rank + by, picture.peaks.length - 1);
    moveTo(Math.min(cursor, picture.length * (1 - 1e-6)));
  });
  moveByKeys(canvas, { " ": 1 }, () => (timer ? stop() : start()));

  const again = { picture: receive, summary: tell, problem: tell };
  for (const [trait, act] of Object.entries(again)) model.on(`change:${trait}`, act);
  for (const trait of Object.keys(controls)) model.on(`change:${trait}`, () => controls[trait].put(model.get(trait)));
  const resized = new ResizeObserver(paint), themed = new MutationObserver(paint);
  resized.observe(root);
  themed.observe(document.body, { attributes: true }); // JupyterLab names its theme there
  night.addEventListener("change", paint);
  tell();
  receive();
  return () => {
    stop();
    resized.disconnect();
    themed.disconnect();
    night.removeEventListener("change", paint);
  };
}

export default { render };
