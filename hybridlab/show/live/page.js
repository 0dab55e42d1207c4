// The page: one grid, and the address remembers the choices.

renderGrid(document.getElementById("page"), JSON.parse(document.getElementById("grid").textContent), true);
