// Choices: what a reader may choose, as a row of controls; numbers make a slider, names make buttons. A picture has
// data for all values together; the last choice varies fastest.
//
//   choices: [{ label, values, first }]

function choosing(choices, changed) {
  const at = choices.map((one) => one.first);
  const controls = choices.map(({ label, values, first }, which) => {
    const make = typeof values[0] === "number" ? stops : pushes;
    return make(label, values, first, (i) => { at[which] = i; changed(); });
  });
  return {
    roots: controls.map(({ root }) => root).filter((_, which) => choices[which].values.length > 1),
    place: () => choices.reduce((place, { values }, which) => place * values.length + at[which], 0),
    at: (which) => at[which],
    put(which, i) {
      at[which] = i;
      controls[which].put(i);
      changed();
    },
  };
}
