"""The browser's program: small files of JavaScript beside their Python, joined into one text. No build step, no import.

Each file says at its top what it holds; a file may use names of those before it. `module("explorer.js")` is what the
widget loads; a page writes `module("page.js")` between <script type="module"> and </script> and asks no server.
"""

from pathlib import Path

HERE = Path(__file__).parent
VIEW = ("controls.js", "data.js", "paint.js", "mark.js", "transport.js", "view.js")  # the last has `view`


def module(*own: str) -> str:
    """The view's files and then one's own, as one module; the last of one's own may export.

    >>> "function view(" in module()
    True
    """
    return "\n".join((HERE / name).read_text("utf-8") for name in (*VIEW, *own))


def stylesheet() -> str:
    """How the view and its controls look: ink and paper are taken from the page around them."""
    return (HERE / "explorer.css").read_text("utf-8")
