// A picture with parts that can be pressed: a part with data-press tells Python its value.

function render({ model, el }) {
  const draw = () => {
    el.innerHTML = model.get("svg");
  };
  el.addEventListener("click", (event) => {
    const part = event.target.closest("[data-press]");
    if (!part) return;
    model.set("pressed", part.dataset.press);
    model.save_changes();
  });
  model.on("change:svg", draw);
  draw();
}

export default { render };
