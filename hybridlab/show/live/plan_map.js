// The map's controls: choices go to the kernel, which sends maps. A cell that is pointed at, or reached by arrow keys,
// asks for its timeline. Nothing is computed here.

const REST = 150; // milliseconds for which the pointer rests on a cell before its timeline is asked for

function renderMap({ model, el }) {
  const choose = (trait) => (value) => { model.set(trait, value); model.save_changes(); };
  const controls = model.get("controls").map(({ trait, label, values, slides }) => {
    const make = slides ? ladder : selection;
    const one = make(label, values, model.get(trait), choose(trait));
    model.on(`change:${trait}`, () => one.put(model.get(trait)));
    return one.root;
  });
  const map = element("div", { class: "hl-map" }), timeline = element("div", { class: "hl-plan" });
  const told = element("p", { class: "hl-note", role: "status" });
  const problem = element("p", { class: "hl-problem", role: "alert" });
  const root = element("div", { class: "hl-explorer" },
    element("div", { class: "hl-row hl-sliders" }, ...controls), problem, map, told, timeline);
  let timer = 0;

  const cells = () => Array.from(map.querySelectorAll(".hl-cell"));
  const sizes = (cell) => [+cell.dataset.p, +cell.dataset.t];
  const find = ([p, t]) => map.querySelector(`[data-p="${p}"][data-t="${t}"]`);

  function visit(cell) {
    clearTimeout(timer);
    if (`${model.get("cell")}` !== `${sizes(cell)}`) choose("cell")(sizes(cell));
  }

  function draw() {
    const focused = map.contains(document.activeElement);
    map.innerHTML = model.get("map");
    for (const cell of cells()) {
      cell.setAttribute("role", "button");
      cell.setAttribute("aria-label", cell.querySelector("title").textContent);
    }
    mark(focused);
  }

  function mark(focus) {
    const chosen = find(model.get("cell")) ?? cells()[0];
    for (const cell of cells()) {
      cell.setAttribute("tabindex", cell === chosen ? 0 : -1);
      cell.toggleAttribute("data-chosen", cell === chosen);
    }
    if (focus) chosen?.focus();
  }

  // The next cell that exists in a direction: up and down to other p, left and right to other t.
  function beside(cell, down, right) {
    const here = sizes(cell), [along, other, sign] = down ? [0, 1, down] : [1, 0, right];
    const ahead = (one) => one[other] === here[other] && sign * (one[along] - here[along]) > 0;
    const line = cells().map(sizes).filter(ahead).sort((a, b) => sign * (a[along] - b[along]));
    return line.length ? find(line[0]) : cell;
  }

  const STEPS = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  map.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".hl-cell");
    if (!cell || !(event.key in STEPS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    beside(cell, ...STEPS[event.key]).focus();
  });
  map.addEventListener("focusin", ({ target }) => { const cell = target.closest(".hl-cell"); if (cell) visit(cell); });
  map.addEventListener("click", ({ target }) => target.closest(".hl-cell")?.focus());
  map.addEventListener("pointerover", ({ target }) => {
    const cell = target.closest(".hl-cell");
    clearTimeout(timer);
    if (cell) timer = setTimeout(() => visit(cell), REST);
  });
  map.addEventListener("pointerleave", () => clearTimeout(timer));
  keepKeys(root);
  el.append(root);

  const again = {
    map: draw,
    cell: () => mark(map.contains(document.activeElement)),
    told: () => { told.textContent = model.get("told"); },
    timeline: () => { timeline.innerHTML = model.get("timeline"); },
    problem: () => { problem.textContent = model.get("problem"); },
  };
  for (const [trait, act] of Object.entries(again)) {
    model.on(`change:${trait}`, act);
    act();
  }
  return () => clearTimeout(timer);
}

// A slider over given values, which need not lie at equal distances.
function ladder(label, values, value, changed) {
  const input = element("input", { type: "range", min: 0, max: values.length - 1, step: 1, "aria-label": label });
  const shown = element("b");
  const put = (to) => {
    input.value = values.indexOf(to);
    shown.textContent = to;
    input.setAttribute("aria-valuetext", to);
  };
  const move = (place) => { put(values[within(0, place, values.length - 1)]); changed(values[+input.value]); };
  input.addEventListener("input", () => move(+input.value));
  moveByKeys(input, ALONG, (strides) => move(+input.value + strides));
  put(value);
  return { root: element("label", {}, element("span", {}, label, shown), input), put };
}

export default { render: renderMap };
