// The grid: the view without a kernel, over pictures that Python has computed for every choice.

// `address`: the page's address remembers the choices, as in #1f1b/4/8/2: schedule, ranks, microbatches, ratio.
async function renderGrid(el, { names, axes, first, style, pictures: packed, machine, play }, address = false) {
  const pictures = await unpacked(packed);
  const lists = [names, ...axes.map((axis) => axis.values)];
  let at = first.slice();

  const choose = (k) => (i) => { at[k] = i; show(); };
  const schedule = selection("schedule", names, names[at[0]], (name) => choose(0)(names.indexOf(name)));
  const sliders = axes.map(({ label, values }, k) => stops(label, values, at[k + 1], choose(k + 1)));
  const problem = element("p", { class: "hl-problem", role: "alert" });
  const root = element("div", { class: "hl-explorer" }), roots = sliders.map((one) => one.root);
  el.replaceChildren(root);
  const row = element("div", { class: address ? "hl-row" : "hl-row hl-sliders" }, ...roots);
  const chosen = names.length > 1 && !address ? [element("div", { class: "hl-chosen" }, schedule.root)] : [];
  if (address) row.prepend(schedule.root);
  else keepKeys(root);
  root.append(...(address ? [row] : []), problem);
  const more = () => element("summary", {}, "More controls");
  const fold = (...nodes) => element("details", { class: "hl-more" }, more(), ...nodes);
  const shown = view(root, style, address ? {} : { head: [...chosen, row], brief: true, fold, machine });

  function show() {
    const line = at.reduce((sum, i, k) => sum * lists[k].length + i, 0), picture = JSON.parse(pictures[line]);
    problem.textContent = picture.problem ?? "";
    root.toggleAttribute("data-stale", "problem" in picture);
    const chosen = lists.map((list, k) => encodeURIComponent(list[at[k]]));
    if (address) history.replaceState(null, "", `#${chosen.join("/")}`);
    if (!("problem" in picture)) shown.show(picture);
  }

  function visit() {
    const asked = location.hash.slice(1).split("/").map(decodeURIComponent);
    const found = lists.map((list, k) => list.findIndex((value) => String(value) === asked[k]));
    if (found.every((i) => i >= 0)) at = found;
    schedule.put(names[at[0]]);
    sliders.forEach((one, k) => one.put(at[k + 1]));
    show();
  }

  if (address) addEventListener("hashchange", visit);
  if (address) visit();
  else show();
  if (play) shown.playOnce();
}
