// The box of ranks: the rank under the pointer, or in focus, lights its groups. All of it is in the picture already.

function renderBox(el, { svg, told: words, rank: first }) {
  const picture = element("div"), told = element("p", { class: "hl-readout", role: "status" });
  const row = element("div", { class: "hl-row" }, projector());
  const root = element("div", { class: "hl-explorer hl-view hl-box" }, picture, told, row);

  function choose(rank) {
    for (const part of picture.querySelectorAll("[data-of]"))
      part.style.display = part.dataset.of.split(" ").includes(rank) ? "" : "none";
    told.textContent = words[+rank];
  }

  picture.innerHTML = svg;
  for (const part of picture.querySelectorAll("[data-rank]")) {
    const { rank } = part.dataset;
    for (const [name, value] of [["tabindex", 0], ["role", "button"], ["aria-label", words[+rank]]])
      part.setAttribute(name, value);
    for (const event of ["pointerenter", "click", "focus"]) part.addEventListener(event, () => choose(rank));
  }
  const paint = () => { root.dataset.theme = isDark(el) ? "dark" : "light"; };
  const themed = new MutationObserver(paint);
  themed.observe(document.body, { attributes: true });
  keepKeys(root);
  el.replaceChildren(root);
  requestAnimationFrame(paint);
  choose(String(first));
  return () => themed.disconnect();
}
