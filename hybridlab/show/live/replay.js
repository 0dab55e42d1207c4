// Replay: parts of a picture appear and go, step by step. Which part is there when, the picture says itself.

function renderReplay({ model, el }) {
  const picture = element("div"), told = element("p", { class: "hl-readout", role: "status" });
  const length = () => model.get("told").length - 1;
  let now = length();
  const control = transport({
    length,
    now: () => now,
    events: () => Array.from({ length: length() + 1 }, (_, step) => step),
    moveTo(time) { now = within(0, time, length()); show(); },
  });
  const root = element("div", { class: "hl-explorer hl-view" }, control.root, told, picture);

  function show() {
    const here = Math.floor(now + 1e-6);
    for (const part of picture.querySelectorAll("[data-at]")) {
      const { at, until = Infinity } = part.dataset;
      part.style.display = +at <= here && here < +until ? "" : "none";
    }
    told.textContent = model.get("told")[here];
    control.show("steps");
  }

  function draw() {
    picture.innerHTML = model.get("svg");
    show();
  }

  keepKeys(root);
  el.append(root);
  model.on("change:svg", draw);
  draw();
  return () => control.stop();
}

export default { render: renderReplay };
