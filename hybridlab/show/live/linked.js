// Linked: a picture and words about it, for all values of some choices. A term of the words lights its parts of the
// picture while it is pointed at or in focus; a click keeps it lit. Grips in the picture are dragged to make a choice.
//
//   { choices, panels }   as in choices.js
//   panels, packed: { svg, words: HTML, told: { "": the picture in words, term: what it lights } }
//   in the words: data-lights: a term          in an svg: data-term: the terms that light it
//   in an svg: data-grip: the number of a choice; data-stops: where its grip is for each value, as "x,y x,y"

async function renderLinked(el, { choices, panels: packed }) {
  const panels = (await unpacked(packed)).map(JSON.parse);
  const words = element("div", { class: "hl-words" }), picture = element("div");
  const told = element("p", { class: "hl-readout", role: "status" });
  const chosen = choosing(choices, draw);
  const root = element("div", { class: "hl-explorer hl-view hl-linked" },
    element("div", { class: "hl-row" }, ...chosen.roots, projector()), words, picture, told);
  let panel, kept = "", lit = "", grip = -1;

  const inRow = (target) => target.closest("tr")?.querySelector("[data-lights]"); // of a table, all of it is the term
  const termOf = ({ target }) => (target.closest("[data-lights]") ?? inRow(target))?.dataset.lights
    ?? target.closest("[data-term]")?.dataset.term.split(" ")[0] ?? "";

  function light(term) {
    lit = term in panel.told ? term : "";
    root.toggleAttribute("data-lit", lit !== "");
    for (const one of root.querySelectorAll("[data-lights]")) {
      one.toggleAttribute("data-on", one.dataset.lights === lit);
      one.setAttribute("aria-pressed", one.dataset.lights === kept);
    }
    for (const one of picture.querySelectorAll("[data-term]"))
      one.toggleAttribute("data-on", one.dataset.term.split(" ").includes(lit));
    if (told.textContent !== panel.told[lit]) told.textContent = panel.told[lit];
  }

  function keep(term) {
    kept = kept === term ? "" : term;
    light(kept);
  }

  function draw() {
    panel = panels[chosen.place()];
    [picture.innerHTML, words.innerHTML] = [panel.svg, panel.words];
    for (const one of words.querySelectorAll("[data-lights]"))
      for (const [name, value] of [["tabindex", 0], ["role", "button"]]) one.setAttribute(name, value);
    light(kept);
  }

  // The choice whose grip is dragged gets the value whose place is nearest.
  function drag({ clientX, clientY }) {
    const svg = picture.firstElementChild, held = picture.querySelector(`[data-grip="${grip}"]`);
    const here = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
    const far = held.dataset.stops.split(" ").map((stop) => stop.split(",")).map(([x, y]) =>
      Math.hypot(x - here.x, y - here.y));
    const nearest = far.indexOf(Math.min(...far));
    if (nearest !== chosen.at(grip)) chosen.put(grip, nearest);
  }

  picture.addEventListener("pointerdown", (event) => {
    const held = event.target.closest("[data-grip]");
    if (!held) return;
    event.preventDefault();
    grip = +held.dataset.grip;
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => { if (grip >= 0) drag(event); });
  for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => { grip = -1; });
  for (const part of [words, picture]) {
    part.addEventListener("pointerover", (event) => { if (grip < 0) light(termOf(event) || kept); });
    part.addEventListener("pointerleave", () => { if (grip < 0) light(kept); });
    part.addEventListener("click", (event) => { if (termOf(event)) keep(termOf(event)); });
  }
  words.addEventListener("focusin", (event) => light(termOf(event) || kept));
  words.addEventListener("focusout", () => light(kept));
  moveByKeys(words, { Enter: 1, " ": 1 }, (_, event) => { if (termOf(event)) keep(termOf(event)); });
  keepKeys(root);
  el.replaceChildren(root);
  const left = themed(root, el);
  draw();
  return left;
}
