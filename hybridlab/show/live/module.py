"""The browser's program: small JavaScript files next to their Python files, joined into one text, without build step or
import.

A comment at the top of each file describes it; a file may use names of those before it. The widget loads
`module("explorer.js")`; a page writes `module("page.js")` between <script type="module"> and </script> and needs no
server.
"""

import base64
import gzip
from collections.abc import Sequence
from pathlib import Path

from hybridlab.show.paper.style import STYLE, look

HERE = Path(__file__).parent
VIEW = (
    "controls.js", "themed.js", "data.js", "paint.js", "held.js", "mark.js", "counters.js", "transport.js", "glide.js",
    "layers.js", "machine.js", "view.js"
)  # fmt: skip


def module(*own: str) -> str:
    """The view's files and then `own`, as one module; the last file may export.

    >>> "function view(" in module()
    True
    """
    return "\n".join((HERE / name).read_text("utf-8") for name in (*VIEW, *own))


def packed(lines: Sequence[str]) -> str:
    """Lines of text, compressed and in base64; `unpacked` in data.js reads them."""
    return base64.b64encode(gzip.compress("\n".join(lines).encode(), 9, mtime=0)).decode()


def stylesheet(*own: str) -> str:
    """The style sheets of the view and its controls, and then `own`; ink and paper come from the page around them."""
    colours = {"error": STYLE["error"], "control": STYLE["control"], "still": STYLE["ink"], "sky": STYLE["curves"][0]}
    colours |= {"focus-light": look("F").fill, "focus-dark": look("F", chunk=1).fill}
    colours |= {"projector": STYLE["projector"], "token": look("W").fill}
    colours |= {"lit": STYLE["tints"][2]["forward"]["fill"]}
    properties = "; ".join(f"--hl-{name}: {colour}" for name, colour in colours.items())
    sheets = [(HERE / name).read_text("utf-8") for name in ("explorer.css", *own)]
    return "\n".join([f":root, :host {{ {properties} }}", *sheets])
