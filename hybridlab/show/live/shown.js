// Shown: one of these pictures as a widget.

export default { render: ({ model, el }) => SHOWS[model.get("data").show](el, model.get("data")) };
