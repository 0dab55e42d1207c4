// Controls: elements, sliders, selects, buttons that are worked by mouse and by keys. They know nothing of pictures.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const number = (value) => String(Math.round(value * 1000) / 1000);
const within = (low, value, high) => Math.min(high, Math.max(low, value));

// JupyterLab cancels what arrow keys do on ranges and selects, so they are moved here.
const LEAP = 1e9;
const LEAPS = { Home: -LEAP, End: LEAP };
const ALONG = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, ...LEAPS };
const DOWN = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, ...LEAPS };
function moveByKeys(control, strides, move) {
  control.addEventListener("keydown", (event) => {
    if (!(event.key in strides) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move(strides[event.key], event);
  });
}

// A notebook has shortcuts for plain keys (0 0 restarts the kernel): what is typed here stays here.
function keepKeys(root) {
  root.addEventListener("keydown", (event) => {
    const chord = event.ctrlKey || event.metaKey || event.altKey;
    if (!chord || event.key === "Enter") event.stopPropagation();
  });
}

function slider(label, least, most, step, value, changed) {
  const input = element("input", { type: "range", min: least, max: most, step, "aria-label": label });
  const shown = element("b"); // an output would take the label for itself
  const put = (to) => {
    input.max = Math.max(most, to); // a choice made in Python may lie beyond
    input.value = to;
    shown.textContent = number(to);
  };
  input.addEventListener("input", () => { shown.textContent = number(+input.value); changed(+input.value); });
  moveByKeys(input, ALONG, (strides) => {
    if (input.disabled) return;
    put(within(least, +input.value + strides * step, +input.max));
    changed(+input.value);
  });
  put(value);
  return { root: element("label", {}, element("span", {}, label, shown), input), input, put };
}

// A slider that stops at some values only.
function stops(label, values, at, changed) {
  const tell = (i) => { made.root.querySelector("b").textContent = number(values[i]); };
  const made = slider(label, 0, values.length - 1, 1, at, (i) => { tell(i); changed(i); });
  const put = (i) => { made.put(i); tell(i); };
  tell(at);
  return { root: made.root, put };
}

function selection(label, choices, value, changed) {
  const select = element("select", {}, ...choices.map((name) => element("option", { value: name }, name)));
  select.addEventListener("change", () => changed(select.value));
  moveByKeys(select, DOWN, (strides) => {
    select.selectedIndex = within(0, select.selectedIndex + strides, choices.length - 1);
    changed(select.value);
  });
  select.value = value;
  return { root: element("label", {}, element("span", {}, label), select), put: (to) => { select.value = to; } };
}

function button(text, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}

// Buttons of which one is pressed.
function pushes(label, names, at, changed) {
  const put = (i) => made.forEach((one, k) => one.setAttribute("aria-pressed", k === i));
  const made = names.map((name, i) => button(name, () => { put(i); changed(i); }));
  put(at);
  return { root: element("div", { class: "hl-pushes", role: "group", "aria-label": label }, ...made), put };
}

function toggle(label, on, changed) {
  const box = element("input", { type: "checkbox" });
  box.checked = on;
  box.addEventListener("change", () => changed(box.checked));
  return element("label", { class: "hl-toggle" }, box, label);
}

// The switch for the back row: while it is on, all live pictures of this page are larger (see explorer.css). Each
// picture has one; they are switched together.
function projector() {
  const page = document.documentElement, made = toggle("projector", "projector" in page.dataset, (on) => {
    page.toggleAttribute("data-projector", on);
    page.dispatchEvent(new Event("hl-projector"));
  });
  page.addEventListener("hl-projector", () => { made.firstChild.checked = "projector" in page.dataset; });
  made.title = "large type, to be read from the back row";
  return made;
}
