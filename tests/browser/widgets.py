"""The live widgets of an open notebook: what each shows, which controls it has, and how a reader moves them.

Nothing is known here of a particular widget: a control is anything on which a reader can put a hand, a picture is
everything else. A slider is moved by its arrow keys, a check box by the space bar, a menu by its keys, buttons and parts
of a picture by the mouse.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from playwright.sync_api import Locator, Page, TimeoutError

SECONDS = 20  # until a moved control shows; another's work may hold the kernel

MARK = """() => {
  const view = "application/vnd.jupyter.widget-view+json", found = [];
  for (const { model, outputArea } of jupyterapp.shell.currentWidget.content.widgets) {
    for (let i = 0; i < (outputArea?.model.length ?? 0); i++) {
      const live = outputArea.model.get(i).data[view];
      if (!live) continue;
      outputArea.node.querySelectorAll(".jp-OutputArea-output")[i].dataset.live = live.model_id;
      found.push([model.id, live.model_id]);
    }
  }
  return found;
}"""
# Everything that is no control: texts, pictures with their places, and what is painted. What only marks a focus is no
# part of it.
SEEN = """area => Array.from(area.querySelectorAll("svg, canvas, p, table"), (one) =>
  one.tagName === "CANVAS" ? one.toDataURL()
    : one.tagName === "svg" ? one.outerHTML.replace(/ (tabindex|role|aria-label|data-chosen)="[^"]*"/g, "")
    : one.innerText).join("\\n")"""
CHANGED = f"([area, before]) => ({SEEN})(area) !== before"
NAME = """one => one.ariaLabel ?? one.closest("label")?.innerText
  ?? one.closest(".jupyter-widgets:has(.widget-label)").querySelector(".widget-label").innerText"""
SUMMARY = "__import__('ipywidgets').widgets.widget._instances[{!r}].summary"


class Control(NamedTuple):
    """One thing to move: what it is called, and how it is moved."""

    name: str
    move: Callable[[], None]


class Widget(NamedTuple):
    """A live widget: the cell that shows it, its name in the kernel, and where it stands on the page."""

    cell: str
    model: str
    area: Locator

    def seen(self) -> str:
        """All that it shows, the controls left out."""
        return self.area.evaluate(SEEN)

    def stuck(self) -> list[str]:
        """Moves every control once; returns the names of those after which nothing looks different."""
        return [one.name for one in controls(self.area) if not self._moved(one)]

    def _moved(self, control):
        before = self.seen()
        control.move()
        try:
            self.area.page.wait_for_function(CHANGED, arg=[self.area.element_handle(), before], timeout=1e3 * SECONDS)
        except TimeoutError:
            return False
        return True


def widgets(page: Page) -> list[Widget]:
    """The live widgets of the notebook that a page shows, in its order."""
    return [Widget(cell, model, page.locator(f"[data-live='{model}']")) for cell, model in page.evaluate(MARK)]


def controls(area: Locator) -> Iterator[Control]:
    """Every control of a widget, one after the other; what is switched off or folded away is left out."""
    for selector, name, move in KINDS:
        found = area.locator(selector)
        for i in range(found.count()):
            one = found.nth(i)
            if one.is_visible() and one.is_enabled():
                yield Control(name(one), lambda: move(one))


def _slide(one):
    """One step along, by the keyboard; at the end, one step back."""
    where = "one => one.value ?? one.getAttribute('aria-valuenow')"
    one.focus()
    before = one.evaluate(where)
    one.press("ArrowRight")
    if one.evaluate(where) == before:
        one.press("ArrowLeft")


def _choose(one):
    """The next choice of a menu, by the keyboard; of the last one, the one before."""
    at, of = one.evaluate("one => [one.selectedIndex, one.options.length]")
    one.focus()
    one.press("ArrowDown" if at + 1 < of else "ArrowUp")


def _label(one):
    return one.evaluate(NAME).partition("\n")[0]


def _text(one):
    return one.get_attribute("title") or one.inner_text()


def _title(one):
    return one.locator("title").text_content()


KINDS = (
    ("input[type=range]", _label, _slide),
    (".noUi-handle", _label, _slide),
    ("select", _label, _choose),
    ("input[type=checkbox]", _label, lambda one: one.press("Space")),
    (".widget-toggle-buttons", _label, lambda one: one.locator("button:not(.mod-active)").first.click()),
    (".widget-button", _text, lambda one: one.click()),
    (".hl-moves button[aria-disabled=false]", _text, lambda one: one.click()),
    ("[data-press]", lambda one: f"the part {one.get_attribute('data-press')}", lambda one: one.click()),
    (".hl-cell", _title, lambda one: one.click()),
    ("canvas", lambda one: "the picture", lambda one: one.press("End")),
)
