"""Pages with live pictures and no kernel, as the site has them: the cells whose pictures are shown, and the page."""

from hybridlab.show.live.embedded import program
from tools.sheet import explored

PAPER = {"light": "#fff; color: #111", "dark": "#111; color: #eee; color-scheme: dark"}
CELLS = {
    "ring": "hl.pictures.ring_all_reduce(ranks=4, size=12_000_000)",
    "grid": 'hl.pictures.matmul_on_grid("cannon", "summa", side=3, size=144_000_000)',
    "box": "hl.pictures.box_of_ranks(hl.Mesh(pp=3, dp=2, tp=2), rank=5, per_node=4)",
    "formula": 'hl.pictures.bubble_formula("gpipe", ranks=4, microbatches=8)',
    "knives": "hl.pictures.cut_model(stages=3, parts=2, copies=2, batch=32)",
    "calculator": "hl.pictures.calculator()",
    "deadlock": 'hl.explore(hl.Schedule.from_csv("0F0,0F1,0B0,0B1\\n1F1,1B1,1F0,1B0\\n2F0,2F1,2B0,2B1"))',
    "naive": 'hl.explore("naive", ranks=4, microbatches=8)',
    "compared": 'hl.explore("naive", "interleaved", "zb_h1")',
    "large": 'hl.explore("1f1b", ranks=16, microbatches=64, machine=True)',
}


def page(names, theme):
    pictures = "".join(
        f'<div class="hl-live"><script type="application/json">{explored(CELLS[name])}</script></div>' for name in names
    )
    style = f"font: 15px system-ui; background: {PAPER[theme]}; padding: 20px"
    return f'<!doctype html><body style="{style}">{pictures}{program()}</body>'
