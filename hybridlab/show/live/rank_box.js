// The box of ranks: the rank under the pointer, or in focus, lights its groups; played, a step lights the groups that
// add, as often as they add, and sends a token along every pipeline.
//
//   moments: [{ told, groups: [[rank, …], …], times, hops: [[from, to], …] }]   all: what is said in the end

const MOMENT = 900, BLINK = 0.65; // milliseconds of a moment; the share of a blink in which a group is lit

function renderBox(el, { svg, told: words, rank: first, moments, all }) {
  const picture = element("div"), told = element("p", { class: "hl-readout", role: "status" });
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let chosen = String(first), now = 0, tokens = [], here = -1;
  const length = () => moments.length;
  const along = transport({
    length,
    now: () => now,
    events: () => [0, ...moments.map((_, i) => i + 0.5), moments.length],
    moveTo(time, playing = false) {
      now = within(0, time, length());
      show(playing);
    },
    sweep: () => length() * MOMENT,
  });
  const root = element("div", { class: "hl-explorer hl-view hl-box" }, picture, told,
    ...(moments.length ? [along.root] : []), element("div", { class: "hl-row" }, projector()));

  const display = (part, on) => { part.style.display = on ? "" : "none"; };
  const groups = (lit) => {
    for (const part of picture.querySelectorAll("[data-of]")) display(part, lit(part.dataset.of));
  };
  const say = (text) => { if (told.textContent !== text) told.textContent = text; };

  function choose(rank) {
    chosen = rank;
    along.stop();
    [now, here] = [0, -1];
    rest(words[+rank]);
    along.show("moments");
  }

  function rest(text) {
    groups((of) => of.split(" ").includes(chosen));
    move({ hops: [] }, 0);
    say(text);
  }

  // What is on its way in a moment: a token for each hop, over its piece of the line.
  function move({ hops }, share) {
    for (const part of picture.querySelectorAll("[data-hop]"))
      display(part, hops.some(([a, b]) => [`${a} ${b}`, `${b} ${a}`].includes(part.dataset.hop)));
    const disc = (rank) => picture.querySelector(`[data-rank="${rank}"] > circle`);
    tokens.forEach((token, i) => {
      display(token, i < hops.length);
      if (i >= hops.length) return;
      const [from, to] = hops[i].map(disc), between = (name) => +from.getAttribute(name)
        + share * (to.getAttribute(name) - from.getAttribute(name));
      for (const name of ["cx", "cy"]) token.setAttribute(name, between(name));
    });
  }

  function show(playing) {
    told.setAttribute("aria-live", playing ? "off" : "polite");
    along.show("moments");
    if (now >= length() || (now <= 0 && !playing)) {
      here = -1;
      rest(now > 0 ? all : words[+chosen]);
      return;
    }
    const number = Math.min(Math.floor(now), length() - 1), moment = moments[number], share = now - number;
    const blinks = moment.times > 1 && playing && !calm.matches;
    const lit = !blinks || (share * moment.times) % 1 < BLINK, state = `${number} ${lit}`;
    if (state !== here) {
      const on = new Set(lit ? moment.groups.map((one) => one.join(" ")) : []);
      groups((of) => on.has(of));
    }
    here = state;
    move(moment, share);
    say(moment.told);
  }

  picture.innerHTML = svg;
  tokens = Array.from({ length: Math.max(0, ...moments.map(({ hops }) => hops.length)) }, () => {
    const drawn = picture.firstElementChild, token = document.createElementNS(drawn.namespaceURI, "circle");
    for (const [name, value] of [["r", 8], ["class", "hl-token"]]) token.setAttribute(name, value);
    drawn.append(token);
    return token;
  });
  for (const part of picture.querySelectorAll("[data-rank]")) {
    const { rank } = part.dataset;
    for (const [name, value] of [["tabindex", 0], ["role", "button"], ["aria-label", words[+rank]]])
      part.setAttribute(name, value);
    for (const event of ["pointerenter", "click", "focus"])
      part.addEventListener(event, () => { if (event !== "pointerenter" || !along.playing()) choose(rank); });
  }
  keepKeys(root);
  el.replaceChildren(root);
  const left = themed(root, el);
  choose(String(first));
  return () => { along.stop(); left(); };
}
