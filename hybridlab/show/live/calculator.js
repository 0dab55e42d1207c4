// The calculator: memory and time of a division, looked up in tables that Python has computed. Nothing is predicted
// here: the numbers are added, and compared with the memory of a GPU.
//
//   { choices: as in choices.js, tables, memory: [[name, colour], …], step, capacity, room, peak, work, batch,
//     recompute: names, assumed: arguments of each machine }
//   tables, packed: { axes, numbers } for each model, machine and part; axes: the choices after these two that matter

async function renderCalculator(el, data) {
  const { choices, memory, step } = data, tables = await unpacked(data.tables);
  const lengths = choices.slice(2).map(({ values }) => values.length), parts = [...memory, ...step];
  const chosen = choosing(choices, show), value = (which) => choices[which].values[chosen.at(which)];
  const problem = element("p", { class: "hl-problem", role: "alert" });
  const figures = element("div", { class: "hl-figures" }), bars = element("div");
  const told = element("p", { class: "hl-readout", role: "status" });
  const root = element("div", { class: "hl-explorer hl-view hl-calculator" },
    element("div", { class: "hl-row" }, ...chosen.roots.filter((_, i) => i < 2 || i === 7)),
    element("div", { class: "hl-row" }, ...chosen.roots.filter((_, i) => i > 1 && i < 7), projector()),
    problem, element("div", { class: "hl-sums" }, figures, bars, told));

  function look(part) {
    const [model, machine, ...at] = choices.map((_, which) => chosen.at(which));
    const { axes, numbers } = JSON.parse(tables[(model * choices[1].values.length + machine) * parts.length + part]);
    return numbers[axes.reduce((place, axis) => place * lengths[axis] + at[axis], 0)];
  }

  // A bar of parts, as long as `full`; a line at `limit`.
  function bar(title, names, numbers, unit, full, limit) {
    const pieces = names.map(([name, colour], i) => element("i", { title: `${name} ${said(numbers[i], unit)}`,
      style: `width: ${(100 * numbers[i]) / full}%; background: ${colour}` }));
    const line = limit ? [element("b", { style: `left: ${(100 * limit) / full}%` })] : [];
    const keys = names.map(([name, colour], i) => element("span", {},
      element("i", { style: `background: ${colour}` }), `${name} ${said(numbers[i], unit)}`));
    return [element("p", {}, title), element("div", { class: "hl-bar" }, ...pieces, ...line),
      element("div", { class: "hl-legend" }, ...keys)];
  }

  const said = (number, unit) => `${+number.toPrecision(3)} ${unit}`;
  const figure = (large, small) => element("span", {}, element("b", {}, large), element("small", {}, small));
  const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

  function show() {
    const [model, machine, n, p, t, b, zero] = choices.map((_, which) => value(which)), copies = n / (p * t);
    problem.textContent = copies < 1 ? `p · t = ${p * t} is more than ${n} GPUs: choose more GPUs, or a smaller p or t`
      : copies * b > data.batch ? `d · b = ${copies * b} is more than ${data.batch} sequences: choose fewer GPUs or a `
        + "smaller b, or a larger p or t" : "";
    root.toggleAttribute("data-stale", problem.textContent !== "");
    if (problem.textContent) { told.textContent = ""; return; }
    const numbers = parts.map((_, part) => look(part));
    const held = numbers.slice(0, memory.length), took = numbers.slice(memory.length);
    const capacity = data.capacity[chosen.at(1)], seconds = sum(took), fits = sum(held) <= data.room * capacity;
    const share = data.work[chosen.at(0)] / (seconds * n * data.peak[chosen.at(1)]);
    const largest = memory[held.indexOf(Math.max(...held))][0];
    figures.replaceChildren(
      figure(fits ? "fits" : "too large", `${said(sum(held), "GB")} of ${said(capacity, "GB")}`),
      figure(said(seconds, "s"), `a step of ${data.batch} sequences`),
      figure(`${Math.round(100 * share)} %`, "of the peak"),
      figure(`${copies}`, `cop${copies > 1 ? "ies" : "y"} d, ${data.batch / copies / b} microbatches m`));
    figures.firstChild.toggleAttribute("data-large", !fits);
    bars.replaceChildren(
      ...bar("memory of a GPU; the line is its capacity", memory, held, "GB", Math.max(capacity, sum(held)), capacity),
      ...bar("a step", step, took, "s", seconds));
    const sharded = copies > 1 && zero ? `, zero=${zero}` : "", how = data.recompute[chosen.at(7)];
    told.textContent = `${fits ? "It fits." : `It does not fit: the largest part is ${largest}.`} In Python: `
      + `hl.memory("${model}", batch=${data.batch}, p=${p}, t=${t}, d=${copies}, b=${b}${sharded}, recompute="${how}"`
      + `${t > 1 ? ", sequence=True" : ""}${data.assumed[chosen.at(1)]})`;
  }

  keepKeys(root);
  el.replaceChildren(root);
  const left = themed(root, el);
  show();
  return left;
}
