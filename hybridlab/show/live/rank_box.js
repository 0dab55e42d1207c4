// The box of ranks: the rank under the pointer, or in focus, lights its groups. All of it is in the picture already.

function renderBox({ model, el }) {
  const picture = element("div"), told = element("p", { class: "hl-readout", role: "status" });
  const root = element("div", { class: "hl-explorer hl-view hl-box" }, picture, told);

  function choose(rank) {
    for (const part of picture.querySelectorAll("[data-of]"))
      part.style.display = part.dataset.of.split(" ").includes(rank) ? "" : "none";
    told.textContent = model.get("told")[+rank];
  }

  function draw() {
    picture.innerHTML = model.get("svg");
    for (const part of picture.querySelectorAll("[data-rank]")) {
      const { rank } = part.dataset;
      for (const [name, value] of [["tabindex", 0], ["role", "button"], ["aria-label", model.get("told")[+rank]]])
        part.setAttribute(name, value);
      for (const event of ["pointerenter", "click", "focus"]) part.addEventListener(event, () => choose(rank));
    }
    choose(String(model.get("rank")));
  }

  const paint = () => { root.dataset.theme = isDark(el) ? "dark" : "light"; };
  const themed = new MutationObserver(paint);
  themed.observe(document.body, { attributes: true });
  keepKeys(root);
  el.append(root);
  requestAnimationFrame(paint);
  model.on("change:svg", draw);
  draw();
  return () => themed.disconnect();
}

export default { render: renderBox };
