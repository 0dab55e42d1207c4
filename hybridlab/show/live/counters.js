// Counters: a table of each timeline's three bubbles with their definitions; the chosen bubble also as a large number.
//
//   const counters = counting(chose);   chose() after another bubble was chosen: its ruler must be painted
//   counters.show(picture);  counters.tell(shares)   each timeline's three shares so far, or null: all is played
//   counters.chosen();  counters.table;  counters.figures

function counting(chose) {
  const own = `hl-${Math.random().toString(36).slice(2)}`, table = element("table", { class: "hl-counters" });
  const figures = element("div", { class: "hl-figures", role: "status" });
  let picture, cells = [], measure = "bubble_fraction", told = null;

  function show(next) {
    picture = next;
    if (!table.tHead) table.append(head(), element("tbody"));
    cells = picture.timelines.map((one) => one.measures.map(() => element("b")));
    table.tBodies[0].replaceChildren(...picture.timelines.map((one, t) => {
      const what = element("small", {}, `${one.measured ? "measured" : "predicted"}, ${one.length}`);
      const values = cells[t].map((value) => element("td", {}, value));
      return element("tr", {}, element("th", { scope: "row" }, one.name, what), ...values);
    }));
    enlarge();
  }

  // The chosen bubble of each timeline, beside the colour of idle time.
  function enlarge() {
    const several = picture.timelines.length > 1;
    figures.replaceChildren(...picture.timelines.map((one) => {
      const name = one.stuck.length ? "no step ends" : one.measures.find(({ key }) => key === measure).name;
      const what = several ? `${one.name}${one.measured ? " measured" : ""}: ${name}` : name;
      const swatch = one.stuck.length ? [] : [element("i", { "data-bubble": "" })];
      return element("div", {}, element("b"), element("small", {}, ...swatch, what));
    }));
  }

  function head() {
    const heads = picture.timelines[0].measures.map(({ key, name, told: meaning }) => {
      const radio = element("input", { type: "radio", name: own, value: key });
      radio.checked = key === measure;
      radio.addEventListener("change", () => { measure = key; enlarge(); tell(told); chose(); });
      const label = element("label", { title: "show over the picture what it compares" }, radio, name);
      return element("th", { scope: "col" }, label, element("small", {}, `${key}: ${meaning}`));
    });
    moveRadios(heads.map((one) => one.querySelector("input")));
    return element("thead", {}, element("tr", {}, element("td", {}), ...heads));
  }

  function moveRadios(radios) {
    radios.forEach((radio, i) => moveByKeys(radio, DOWN, (by) => {
      const next = radios[within(0, i + by, radios.length - 1)];
      next.focus();
      next.click();
    }));
  }

  function tell(shares) {
    told = shares;
    const percent = (value) => `${(100 * value).toFixed(1)}%`;
    picture.timelines.forEach((one, t) => cells[t].forEach((cell, k) => {
      const end = one.stuck.length ? "deadlock" : one.measures[k].value; // a step that never ends has no bubble
      cell.textContent = shares ? percent(shares[t][k]) : end;
      if (one.measures[k].key === measure) figures.children[t].firstChild.textContent = cell.textContent;
    }));
    for (const one of [table, figures]) one.toggleAttribute("data-counting", shares !== null);
  }

  return { show, tell, table, figures, chosen: () => measure };
}
