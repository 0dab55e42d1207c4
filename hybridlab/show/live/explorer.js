// The explorer's controls: they ask the kernel for pictures, and show what comes.

const TYPING = 300; // milliseconds of rest after which what was typed is read
const FIRST = ["ranks", "microbatches"]; // the sliders that are never folded away

function render({ model, el }) {
  const choose = (trait) => (value) => { model.set(trait, value); model.save_changes(); };
  const ask = (what) => model.send({ ask: what });
  const problem = element("p", { class: "hl-problem", role: "alert" });
  const progress = element("p", { class: "hl-progress", role: "status" });
  const run = button("", () => ask(model.get("running").on ? "stop" : "run"), { class: "hl-run" });
  const save = button("Save SVG", () => ask("svg"));
  const stack = stacked(model, choose("schedules")), sliders = sliding(model, choose);
  const controls = model.get("controls"), brief = controls === "two", visible = [stack.root, stack.number];
  const behind = visible.splice(brief ? 0 : 1);
  const sheet = typing(model, choose("typed"));
  const root = element("div", { class: "hl-explorer" }, problem);
  keepKeys(root);
  el.append(root);
  const fold = (...nodes) => {
    const more = element("details", { class: "hl-more" }, element("summary", {}, "More controls"),
      element("div", { class: "hl-row" }, ...behind), sliders.more, ...nodes, sheet.root);
    more.open = controls === "all";
    return more;
  };
  const head = [...visible, sliders.first];
  const options = { head, brief, fold, extra: [run, save], under: [progress], machine: model.get("machine") };
  const shown = view(root, model.get("style_data"), options);

  function receive() {
    const picture = model.get("picture");
    shown.show(picture, picture.live ? "live" : "");
    runnable();
  }

  function tell() {
    problem.textContent = model.get("problem");
    root.toggleAttribute("data-stale", problem.textContent !== "");
  }

  function runnable() {
    const { can, on, text } = model.get("running"), top = model.get("picture").timelines[0];
    run.textContent = on ? "■ Stop" : `Run ${top.name} for real`;
    run.title = `runs ${top.name} on ${top.ranks} real processes of this machine; computing is emulated by waiting`;
    run.hidden = !can || top.stuck.length > 0;
    progress.textContent = text;
  }

  function download({ svg }) {
    if (!svg) return;
    const at = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    element("a", { href: at, download: "timeline.svg" }).click();
    URL.revokeObjectURL(at);
  }

  const again = {
    picture: receive, problem: tell, running: runnable, fault: sheet.mark,
    schedules: () => { stack.put(); sliders.put(); },
  };
  for (const [trait] of model.get("sliders")) again[trait] = sliders.put;
  for (const [trait, act] of Object.entries(again)) model.on(`change:${trait}`, act);
  model.on("msg:custom", download);
  tell();
  receive();
  if (model.get("play")) shown.playOnce();
  return () => shown.stop();
}

// One select per timeline that is chosen by name; `number`: buttons to compare with one more or one less.
function stacked(model, chosen) {
  const [root, number] = [0, 1].map(() => element("div", { class: "hl-chosen" }));
  const names = Object.keys(model.get("choices"));
  function put() {
    const now = model.get("schedules");
    const controls = () => [root, number].flatMap((one) => Array.from(one.querySelectorAll("select, button")));
    const focus = controls().indexOf(document.activeElement);
    const change = (i) => (name) => chosen(now.map((old, k) => (k === i ? name : old)));
    const next = names.find((name) => !now.includes(name)) ?? names[0];
    const more = button("+ Compare", () => chosen([...now, next]), { title: "one more schedule below" });
    const less = button("− Remove", () => chosen(now.slice(0, -1)), { title: "without the lowest schedule" });
    less.disabled = now.length < 2;
    root.hidden = number.hidden = now.length === 0;
    const label = (i) => (now.length > 1 ? `schedule ${i + 1}` : "schedule");
    root.replaceChildren(...now.map((name, i) => selection(label(i), names, name, change(i)).root));
    number.replaceChildren(more, less);
    if (focus >= 0) controls()[focus]?.focus();
  }
  put();
  return { root, number, put };
}

// The sliders: `first` the sizes that everybody asks for, `more` all others.
function sliding(model, choose) {
  const controls = {};
  for (const [trait, name, least, most, step] of model.get("sliders"))
    controls[trait] = slider(name, least, most, step, model.get(trait), choose(trait));
  function put() {
    for (const [trait, control] of Object.entries(controls)) control.put(model.get(trait));
    const options = model.get("choices"), taken = model.get("schedules").flatMap((name) => options[name] ?? []);
    for (const option of new Set(Object.values(options).flat())) {
      if (!controls[option]) continue;
      const idle = !taken.includes(option);
      controls[option].input.disabled = idle;
      controls[option].root.toggleAttribute("data-idle", idle);
      controls[option].root.title = idle ? "none of these schedules has this option" : "";
    }
  }
  put();
  const [first, more] = [true, false].map((wanted) => Object.entries(controls)
    .filter(([trait]) => FIRST.includes(trait) === wanted).map(([, one]) => one.root));
  const row = (those) => element("div", { class: "hl-row hl-sliders" }, ...those);
  return { first: row(first), more: row(more), put };
}

// The sheet on which a schedule is typed; behind the text lies the same text with the fault framed.
function typing(model, typed) {
  const text = element("textarea", { rows: 4, spellcheck: "false", wrap: "off", "aria-label": "your own schedule",
    placeholder: "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1" });
  const behind = element("pre", { "aria-hidden": "true" });
  const told = element("p", { role: "alert", class: "hl-problem", id: `hl-${Math.random().toString(36).slice(2)}` });
  text.setAttribute("aria-describedby", told.id);
  text.value = model.get("typed");
  let timer = 0;
  text.addEventListener("input", () => {
    behind.replaceChildren();
    clearTimeout(timer);
    timer = setTimeout(() => typed(text.value), TYPING);
  });
  text.addEventListener("scroll", () => { behind.scrollTop = text.scrollTop; behind.scrollLeft = text.scrollLeft; });
  function mark() {
    const { text: fault = "", begin = 0, end = 0 } = model.get("fault"), now = model.get("typed");
    told.textContent = fault;
    text.setAttribute("aria-invalid", fault ? "true" : "false");
    behind.replaceChildren(...(end > begin && now === text.value
      ? [now.slice(0, begin), element("mark", {}, now.slice(begin, end)), now.slice(end)] : []));
  }
  mark();
  const how = "One line for each rank; an action is stage, kind, microbatch: 0F2, 1B0, or 1I0 and 1W0.";
  const root = element("details", { class: "hl-typed" }, element("summary", {}, "Type a schedule of your own"),
    element("p", {}, how), element("div", { class: "hl-sheet" }, behind, text), told);
  root.open = text.value !== "";
  return { root, mark };
}

export default { render };
