"""Six layers and three knives, live: each cut of the stack, its devices, and the messages that it causes, in bytes.

All numbers are from `predict.bytes.of_cuts`.
"""

from hybridlab.predict.bytes.of_cuts import BATCHES, COPIES, PARTS, STAGES, Cut, Messages
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.layouts.slabs import HEIGHT, LEFT, WIDTH, Slabs
from hybridlab.show.live.linked import Panel, grip, lights, linked_panel
from hybridlab.show.live.moving import Choice
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.sheet import captioned, sheet
from hybridlab.show.paper.still import Still

CHOICES = {"stages p": STAGES, "parts t": PARTS, "copies d": COPIES, "sequences B": BATCHES}


def cut_model(stages: int = 3, parts: int = 2, copies: int = 2, batch: int = 32) -> Shown:
    """Six transformer layers of width 4096 that knives cut into stages, parts and copies; and the bytes that one device
    sends in a step.

    stages, parts, copies  p, t and d at first: 1, 2, 3 or 6; 1, 2 or 4; 1, 2 or 4
    batch                  sequences in a step at first: 8, 32 or 128, of 2048 tokens; a microbatch is one of them

    raises  ValueError for a number that is not among the choices

    >>> import hybridlab as hl
    >>> print(hl.pictures.cut_model(stages=3, parts=1, copies=4).summary)
    p=3, t=1, d=4, B=32: 12 devices. The blue one holds 806 MB of weights and sends 1.48 GB in a step: 268 MB between \
stages, 0 inside layers, 1.21 GB between copies.
    """
    choices = []
    for (label, values), value in zip(CHOICES.items(), (stages, parts, copies, batch)):
        if value not in values:
            raise ValueError(f"{label[:-2]}={value} is invalid: it is not drawn. Choose one of {list(values)}")
        choices.append(Choice(label, values, values.index(value)))
    return linked_panel(lambda *sizes: _panel(Cut(*sizes)), choices, _still(Cut(stages, parts, copies, batch)))


def _panel(cut: Cut) -> Panel:
    slabs = Slabs(cut)
    places = slabs.between_layers, slabs.through_width, slabs.through_batch
    grips = [
        grip(i, values.index(cut[i]), its, sign)
        for i, (values, its, sign) in enumerate(zip((STAGES, PARTS, COPIES), places, ("p↕", "t↔", "d↔")))
    ]
    return Panel(sheet(WIDTH, HEIGHT, _title(cut), _summary(cut), [*slabs.drawn(), *grips]), _table(cut), _told(cut))


def _still(cut: Cut) -> Still:
    return captioned(WIDTH, HEIGHT + 12, _title(cut), _summary(cut), Slabs(cut).drawn(), LEFT)


def _title(cut):
    return f"p={cut.p}, t={cut.t}, d={cut.d}, B={cut.batch}"


def _devices(cut):
    return "1 device" if cut.devices == 1 else f"{cut.devices} devices"


def _bytes(sent):
    return size(sent) if sent else "0"


def _summary(cut):
    sent = [_bytes(one.sent) for one in (cut.between_stages, cut.inside_layers, cut.between_copies)]
    return (
        f"{_title(cut)}: {_devices(cut)}. The blue one holds {size(cut.weights)} of weights "
        f"and sends {_bytes(cut.sent)} in a step: {sent[0]} between stages, {sent[1]} inside layers, {sent[2]} between "
        "copies."
    )


def _rows(cut: Cut) -> list[tuple[str, str, str, str, Messages]]:
    """For each knife: its term, its name, the tensor that is sent, the formula for the number of messages, and the
    messages.
    """
    m, layers = cut.microbatches, cut.layers
    hops = f"2 · {m}" if cut.between_stages.times > m else f"{m}"
    sums = f"4 · {layers} layer{'s' * (layers > 1)} · {m}"
    return [
        ("p", f"between layers, p = {cut.p}", "activations, or gradients back", hops, cut.between_stages),
        ("t", f"through width, t = {cut.t}", "partial sums, all-reduced", sums, cut.inside_layers),
        ("d", f"through batch, d = {cut.d}", "gradients, all-reduced", "once", cut.between_copies),
    ]


def _table(cut: Cut) -> str:
    heads = "knife", "the blue device sends", "size", f"times, m = {cut.microbatches}", "in a step"
    head = "".join(f"<th>{one}</th>" for one in heads)
    body = ""
    for term, name, what, times, one in _rows(cut):
        cells = what, size(one.size), times, f"<b>{size(one.sent)}</b>"
        cells = cells if one.times else ("nothing", "", "", "0")
        body += f'<tr><th scope="row">{lights(term, name, "span")}</th>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'
    held = f"{_devices(cut)}; the blue one holds {size(cut.weights)} of weights"
    total = f'<tr><th scope="row">all</th><td colspan="3">{held}</td><td><b>{_bytes(cut.sent)}</b></td></tr>'
    return f'<table class="hl-counters hl-cut"><thead><tr>{head}</tr></thead><tbody>{body}{total}</tbody></table>'


def _told(cut: Cut) -> dict[str, str]:
    none = {
        "p": "One stage has all layers: nothing is sent between layers.",
        "t": "Each layer is on one device: nothing is sent inside it.",
        "d": "One copy has the whole batch: its gradients are complete.",
    }
    some = {
        "p": "At every cut between layers, an activation is sent forward and its gradient back, for each of "
        f"{cut.microbatches} microbatches. A device has fewer layers, and all of their width.",
        "t": f"The {cut.t} parts of each layer add their partial sums twice in the forward and twice in the backward, "
        f"for each of {cut.microbatches} microbatches.",
        "d": f"The {cut.d} copies add their gradients once in a step, however large the batch is. They hold the same "
        "weights.",
    }
    told = {term: some[term] if one.times else none[term] for term, *_, one in _rows(cut)}
    how = "Drag a knife, p, t or d, or use its slider. Point at a row of the table to see the messages."
    return {"": f"{_devices(cut)}, {cut.microbatches} microbatches in each copy. {how}"} | told
