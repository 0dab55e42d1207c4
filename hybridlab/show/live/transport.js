// Transport: play, step and scrub along a time axis. Where motion is unwelcome it steps, and never starts by itself.

const SWEEP = 10_000, BEAT = 700; // milliseconds: of the whole play; between two events where motion is unwelcome

// axis: { length(), now(), events() -> sorted times, moveTo(time, playing), and perhaps sweep() -> milliseconds of the
// whole play }; a time beyond the length is the end.
function transport(axis) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const whole = axis.sweep ?? (() => SWEEP);
  let timer = 0;
  const play = button("▶ Play", () => toggle(), { class: "hl-play" });
  const scrub = element("input", { type: "range", min: 0, step: "any", "aria-label": "time" });
  scrub.addEventListener("input", () => { stop(); axis.moveTo(+scrub.value); });
  moveByKeys(scrub, ALONG, step);
  const strides = [["Start", -LEAP], ["◀ Step", -1], ["Step ▶", 1], ["End", LEAP]];
  const steps = strides.map(([name, by]) => button(name, () => step(by)));
  const root = element("div", { class: "hl-row" },
    ...steps.slice(0, 2), play, ...steps.slice(2), element("label", { class: "hl-scrub" }, scrub));

  const slack = () => axis.length() * 1e-6, here = () => Math.min(axis.now(), axis.length());
  const toggle = () => (timer ? stop() : start());

  function step(strides) {
    stop();
    if (strides === 1 && axis.now() >= axis.length()) { axis.moveTo(0); return; } // from the end, begin again
    const events = axis.events(), now = here();
    const [later, earlier] = [(t) => t > now + slack(), (t) => t < now - slack()];
    const past = strides > 0 ? events.findIndex(later) : events.findLastIndex(earlier);
    if (past >= 0) axis.moveTo(events[within(0, past + strides - Math.sign(strides), events.length - 1)]);
  }

  function start() {
    if (here() >= axis.length()) axis.moveTo(0, true);
    play.textContent = "❚❚ Pause";
    const long = whole(), began = performance.now() - (here() / axis.length()) * long;
    const sweep = (now) => {
      const time = ((now - began) / long) * axis.length();
      if (time >= axis.length()) { stop(); axis.moveTo(Infinity); return; }
      axis.moveTo(time, true);
      timer = requestAnimationFrame(sweep);
    };
    const beat = () => { // less motion: from event to event
      axis.moveTo(axis.events().find((t) => t > here() + slack()) ?? Infinity, true);
      if (here() < axis.length()) timer = setTimeout(beat, BEAT); else stop();
    };
    timer = calm.matches ? setTimeout(beat, BEAT) : requestAnimationFrame(sweep);
  }

  function stop() {
    cancelAnimationFrame(timer);
    clearTimeout(timer);
    timer = 0;
    play.textContent = "▶ Play";
  }

  function show(unit) {
    scrub.max = axis.length();
    scrub.value = here();
    scrub.setAttribute("aria-valuetext", `${number(+scrub.value)} ${unit}`);
  }

  const playOnce = () => { if (!calm.matches) start(); };
  return { root, steps, step, stop, toggle, show, playOnce, playing: () => timer !== 0 };
}
