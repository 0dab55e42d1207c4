"""The live widgets of an open notebook: what each shows, which controls it has, and how a reader moves them.

Nothing is known here of a particular widget: a control is anything on which a reader can put a hand, a picture is
everything else. A slider and a menu are moved by arrow keys, a check box by the space bar, buttons and parts of a
picture by the mouse; and back again, where there is a way back.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from playwright.sync_api import Locator, Page, TimeoutError

SECONDS = 10  # until a moved control shows; the machine may be busy
TRIES = 2  # a button may have nothing to do until another one was pressed

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
# Everything that is no control: texts, pictures with their places, and what is painted. What only marks where the focus
# is does not count.
SEEN = """area => Array.from(area.querySelectorAll("svg, canvas, p, table"), (one) =>
  one.tagName === "CANVAS" ? one.toDataURL()
    : one.tagName === "svg"
      ? one.clientWidth + one.outerHTML.replace(/ (tabindex|role|aria-label|data-chosen)="[^"]*"/g, "")
    : one.innerText).join("\\n")"""
CHANGED = f"([area, before]) => ({SEEN})(area) !== before"
NAME = """one => one.ariaLabel ?? one.closest("label")?.innerText
  ?? one.closest(".lm-Widget:has(.widget-label)").querySelector(".widget-label").innerText"""
PRESSED = "all => all.map((one) => one.ariaPressed === 'true' || one.classList.contains('mod-active'))"
WHERE = "one => one.value ?? one.getAttribute('aria-valuenow')"
# Texts that lie on each other, or reach out of their picture.
ASTRAY = """area => Array.from(area.querySelectorAll("svg"), (svg) => {
  const frame = svg.getBoundingClientRect(), found = [];
  const texts = Array.from(svg.querySelectorAll("text"), (one) => [one.textContent, one.getBoundingClientRect()])
    .filter(([text, box]) => text.trim() && box.width);
  texts.forEach(([text, box], i) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
      found.push(`"${text}" is cut off`);
    for (const [other, its] of texts.slice(0, i)) {
      const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
      const tall = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
      if (wide > 1 && tall > 0.35 * Math.min(box.height, its.height)) found.push(`"${text}" lies on "${other}"`);
    }
  });
  return found;
}).flat()"""


class Control(NamedTuple):
    """One thing to move: what it is called, how it is moved, and how it is moved back."""

    name: str
    move: Callable[[], None]
    back: Callable[[], None]


class Widget(NamedTuple):
    """A live widget: the cell that shows it, and where it stands on the page."""

    cell: str
    area: Locator

    def faults(self) -> list[str]:
        """Moves every control once; returns what has no effect, and texts that cannot be read, before and after."""
        self.area.scroll_into_view_if_needed()
        found, left = self._astray("at first"), list(controls(self.area))
        for _ in range(TRIES):
            left = [one for one in left if not self._moved(one, found)]
        return [f"{self.cell}: {one}" for one in found] + [f"{self.cell}: {one.name} does nothing" for one in left]

    def _moved(self, control, found):
        before = self.area.evaluate(SEEN)
        control.move()
        moved = self._until_not(before)
        found += self._astray(f"{control.name} was moved")
        after = self.area.evaluate(SEEN)
        control.back()
        if moved and control.back is not _stay:
            self._until_not(after)
        return moved

    def _until_not(self, seen):
        """Waits until another picture is shown; False where it never is."""
        page, limit = self.area.page, 1e3 * SECONDS
        try:
            page.wait_for_function(CHANGED, arg=[self.area.element_handle(), seen], timeout=limit)
        except TimeoutError:
            return False
        return True

    def _astray(self, when):
        return [f"{one}, {when}" for one in self.area.evaluate(ASTRAY)]


def widgets(page: Page) -> list[Widget]:
    """The live widgets of the notebook that a page shows, in its order."""
    return [Widget(cell, page.locator(f"[data-live='{model}']")) for cell, model in page.evaluate(MARK)]


def controls(area: Locator) -> Iterator[Control]:
    """Every control of a widget, kind after kind; what is switched off or folded away is left out."""
    for selector, make in KINDS:
        for one in area.locator(selector).all():
            if one.is_visible() and one.is_enabled():
                yield make(one)


def _slider(one):
    """One step along, by the keyboard; at the end, one step back."""
    went = []

    def move():
        one.focus()
        before = one.evaluate(WHERE)
        one.press("ArrowRight")
        went[:] = ["ArrowLeft"]
        if one.evaluate(WHERE) == before:
            one.press("ArrowLeft")
            went[:] = ["ArrowRight"]

    return Control(_name(one), move, lambda: one.press(went[0]))


def _menu(one):
    """The next choice, by the keyboard; of the last one, the one before."""
    at, of = one.evaluate("one => [one.selectedIndex, one.options.length]")
    there, back = ("ArrowDown", "ArrowUp") if at + 1 < of else ("ArrowUp", "ArrowDown")
    return Control(_name(one), lambda: one.press(there), lambda: one.press(back))


def _box(one):
    return Control(_name(one), lambda: one.press("Space"), lambda: one.press("Space"))


def _choice(one):
    """The first of several buttons that is not pressed yet; then again the one that was."""
    pressed = one.locator("button").evaluate_all(PRESSED)
    there, back = (one.locator("button").nth(pressed.index(which)) for which in (False, True))
    return Control(_name(one), there.click, back.click)


def _press(one):
    return Control(one.get_attribute("title") or one.text_content(), one.click, _stay)


def _canvas(one):
    return Control("the picture", lambda: one.press("Home"), lambda: one.press("End"))


def _stay():
    """There is no way back."""


def _name(one):
    return one.evaluate(NAME).partition("\n")[0]


KINDS = (
    ("canvas", _canvas),
    ("input[type=range]", _slider),
    (".noUi-handle", _slider),
    ("select", _menu),
    ("input[type=checkbox]", _box),
    (".widget-toggle-buttons", _choice),
    (".hl-pushes", _choice),
    (".widget-button", _press),
    (".hl-moves button[aria-disabled=false] >> nth=0", _press),
    ("[data-press] >> nth=0", _press),
    (".hl-cell:not([data-chosen]) >> nth=0", _press),
)
