// Themed: a picture is light or dark as the page around it, also after the page has changed.

// Whether the page behind is dark: what colour does it really have?
function isDark(node) {
  for (let at = node; at; at = at.parentElement) {
    const [r, g, b, alpha = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    if (alpha > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Call `changed` whenever the page may have become light or dark. Returns the function that ends this.
function onTheme(changed) {
  const page = new MutationObserver(changed), night = matchMedia("(prefers-color-scheme: dark)");
  for (const one of [document.documentElement, document.body]) // the site names its theme there, JupyterLab here
    page.observe(one, { attributes: true });
  night.addEventListener("change", changed);
  return () => { page.disconnect(); night.removeEventListener("change", changed); };
}

// The same for a picture whose colours are all in its style sheet.
function themed(root, el) {
  const paint = () => { root.dataset.theme = isDark(el) ? "dark" : "light"; };
  requestAnimationFrame(paint);
  return onTheme(paint);
}
