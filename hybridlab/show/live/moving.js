// Moving: a picture in steps, for all values of one or two choices. The picture says when a part is there, and how it
// moves.
//
//   { choices, panels }   as in choices.js
//   panels, packed: { svg, told: [each step in words] } for all values together
//   in an svg: data-at, data-until: the steps between which a part is there;  data-by: how far it moves in that time

const STEP = 1200; // milliseconds of one step

async function renderMoving(el, { choices, panels: packed }) {
  const panels = (await unpacked(packed)).map(JSON.parse);
  const picture = element("div"), told = element("p", { class: "hl-readout", role: "status" });
  const chosen = choosing(choices, () => { along.stop(); draw(); });
  let panel, parts = [], now = 0, here = -1, on = new Set();
  const length = () => panel.told.length - 1;
  const along = transport({
    length,
    now: () => now,
    events: () => panel.told.map((_, step) => step),
    moveTo(time) { now = within(0, time, length()); show(); },
    sweep: () => length() * STEP,
  });
  const root = element("div", { class: "hl-explorer hl-view hl-moving" },
    element("div", { class: "hl-row" }, ...chosen.roots, projector()), picture, told, along.root);

  // Only a step changes which parts are there; between two steps some parts move.
  function show() {
    const step = Math.floor(now + 1e-6), playing = along.playing();
    if (step !== here) for (const one of parts) {
      const there = one.at <= step && step < one.until;
      if (there !== one.there) one.part.style.display = there ? "" : "none";
      one.there = there;
    }
    here = step;
    for (const { part, by, at, until, there } of parts) {
      if (!by || !there) continue;
      const share = (now - at) / (until - at);
      part.style.display = share > 1e-6 ? "" : "none";
      part.setAttribute("transform", `translate(${by[0] * share} ${by[1] * share})`);
    }
    told.setAttribute("aria-live", playing ? "off" : "polite");
    if (told.textContent !== panel.told[step]) told.textContent = panel.told[step];
    along.show("steps");
  }

  function draw() {
    panel = panels[chosen.place()];
    picture.innerHTML = panel.svg;
    parts = Array.from(picture.querySelectorAll("[data-at], [data-until]"), (part) => {
      const { at = 0, until = Infinity, by } = part.dataset;
      return { part, at: +at, until: +until, by: by?.split(" ").map(Number), there: null };
    });
    [now, here] = [0, -1];
    show();
  }

  moveByKeys(picture, { ArrowRight: 1, ArrowLeft: -1, ...LEAPS }, along.step);
  moveByKeys(picture, { " ": 1 }, along.toggle);
  picture.tabIndex = 0;
  picture.setAttribute("role", "application");
  picture.setAttribute("aria-label", "a picture in steps; ← and → step, space plays");
  keepKeys(root);
  el.replaceChildren(root);
  const left = themed(root, el);
  draw();
  return () => { along.stop(); left(); };
}
