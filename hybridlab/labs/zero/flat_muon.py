"""Muon on ZeRO's flat shards, in notebook 22: each rank orthogonalizes its piece of a matrix, with other weights."""

import hybridlab as hl
from hybridlab.modes import full_matrices, registry
from hybridlab.modes.mode import Mode
from hybridlab.modes.parts.newton_schulz import newton_schulz
from hybridlab.training.report import Report


class FlatShards(Mode):
    """A mode in which ZeRO's pieces end anywhere, even inside a matrix."""

    name, purpose = "flat shards", "flat"

    def takes_part(self, mesh, chosen):
        return chosen.get("optimizer") == "muon"

    def placed(self, layout, job):
        return layout.with_params(lambda param: {"whole": False})


def checked() -> Report:
    """The report on ZeRO 1 with Muon, in which every rank orthogonalizes the piece that it owns.

    >>> report = checked()  # starts ranks
    >>> report.ok, [one[2] for one in counted(report)]
    (False, [0, 12])
    """
    registry.register(mode := FlatShards())
    try:
        shape = hl.Shape(layers=2, width=16, heads=4, context=8)
        return hl.check(hl.Mesh(dp=2), zero=1, optimizer="muon", rate=0.02, shape=shape, sabotage=_each_its_piece)
    finally:
        registry.unregister(mode)


def _each_its_piece():
    """On a rank: the update of a matrix, of which it has a flat piece or nothing."""
    turned = lambda piece: newton_schulz(piece.view(1, -1)).view_as(piece) if piece.numel() else piece
    full_matrices.update_of = lambda job, name, comm: turned


def counted(report: Report) -> list[tuple[str, int, int]]:
    """[(what, tensors compared, tensors that are not equal)] of gradients, and of the weights that Muon updates."""
    kinds = {kind: [name for name in report.gaps if name.startswith(kind)] for kind in ("gradient", "weight")}
    return [(f"{kind}s", len(names), len({*names} & {*report.wrong})) for kind, names in kinds.items()]
