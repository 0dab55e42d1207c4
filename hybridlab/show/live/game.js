// The game: a button for each rank and kind of action, over the timeline that grows. What is possible, what a choice
// would do and why another one must wait are sentences from Python; no rule is known here.

const ROUND = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function renderGame({ model, el }) {
  const ask = (what, ...more) => model.send({ ask: what, with: more }), board = () => model.get("board");
  const told = element("p", { class: "hl-told", role: "status", "aria-live": "polite" });
  const asked = element("p", { class: "hl-asked", "aria-live": "polite" });
  const score = element("p", { class: "hl-score" });
  const kinds = board().rows[0].choices.map((one) => one.kind);
  const moves = board().rows.map((_, rank) => row(rank));
  const grid = element("div", { class: "hl-moves", role: "group",
    "aria-label": `next action of each rank; arrows move, ${kinds.join(", ")} or Enter choose, U takes back` },
  ...moves.map((one) => one.root));
  const undo = button("Take back", () => ask("undo"), { "aria-keyshortcuts": "u" });
  const restart = button("Begin again", () => ask("restart"));
  const run = button("", () => ask(model.get("running").on ? "stop" : "run"));
  const root = element("div", { class: "hl-game" }, told, grid, asked,
    element("div", { class: "hl-row" }, undo, restart, run), score);
  el.append(root);
  const shown = view(root, model.get("style_data"));
  let here = [0, 0];

  function row(rank) {
    const held = element("span", { class: "hl-held" });
    const buttons = kinds.map((kind, k) => {
      const one = button(kind, () => press(rank, k), { tabindex: -1 }), { fill, text } = model.get("looks")[kind];
      one.style.setProperty("--hl-fill", fill);
      one.style.setProperty("--hl-text", text);
      one.addEventListener("focus", () => { visit(rank, k); });
      one.addEventListener("pointerenter", () => explain(rank, k));
      return one;
    });
    return { root: element("div", {}, element("span", {}, `rank ${rank}`), ...buttons, held), buttons, held };
  }

  const choice = ([rank, k]) => board().rows[rank].choices[k];

  // What this choice would do, or why it is not possible.
  function explain(rank, k) {
    const { why, left, told: would } = choice([rank, k]);
    asked.textContent = !left ? "" : why ? `Not now: ${why}.` : would;
    asked.toggleAttribute("data-refused", left && why !== "");
  }

  function visit(rank, k) {
    moves[here[0]].buttons[here[1]].tabIndex = -1;
    here = [rank, k];
    moves[rank].buttons[k].tabIndex = 0; // the grid is one stop of the tab key
    explain(rank, k);
  }

  function press(rank, k) {
    visit(rank, k);
    if (!choice([rank, k]).why) ask("choose", rank, kinds[k]);
  }

  function show() {
    const { rows, limit, chosen, all, length, lost } = board();
    rows.forEach(({ choices, held, peak }, rank) => {
      choices.forEach(({ text, why, left }, k) => {
        const one = moves[rank].buttons[k];
        one.textContent = left ? text : `${text} ✓`;
        one.setAttribute("aria-disabled", why !== "");
        one.setAttribute("aria-label", `rank ${rank}: ${left ? text : `${text}, all done`}`);
      });
      moves[rank].held.textContent = `holds ${held}${limit ? ` of ${limit}` : ""}, at most ${peak}`;
    });
    score.textContent = `${chosen} of ${all} actions chosen; length ${length}.` + (chosen < all
      ? ` Idle for good: ${lost} units of rank-time; the grey behind a rank's last box can still be filled.` : "");
    explain(...here);
  }

  function draw() {
    const picture = model.get("picture");
    shown.show(picture, picture.live ? "live" : "");
  }

  function runnable() {
    const { can, on } = model.get("running");
    run.textContent = on ? "■ Stop" : "Run it for real";
    run.hidden = !can;
  }

  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [down, right] = ROUND[event.key] ?? [0, 0], k = kinds.indexOf(event.key.toUpperCase());
    if (event.key in ROUND) {
      const [rank, next] = [within(0, here[0] + down, moves.length - 1), within(0, here[1] + right, kinds.length - 1)];
      moves[rank].buttons[next].focus();
    } else if (k >= 0) {
      moves[here[0]].buttons[k].focus();
      press(here[0], k);
    } else if (event.key.toUpperCase() === "U") ask("undo");
    else return;
    event.preventDefault();
  });
  keepKeys(root);

  const tell = () => { told.textContent = model.get("told"); };
  const again = { told: tell, board: show, picture: draw, running: runnable };
  for (const [trait, act] of Object.entries(again)) model.on(`change:${trait}`, act);
  visit(0, 0);
  for (const act of Object.values(again)) act();
  return shown.stop;
}

export default { render: renderGame };
