"""A mode is one file: a toy one from outside the package trains, is proved equal, has flags; and guards fail closed.

The toy cuts the rows of a microbatch among the ranks of a stage. So that it sends something, it gathers what leaves the
first layer and cuts it again.
"""

import re
import sys

import cloudpickle
import pytest
from few import one_in

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.modes import registry
from hybridlab.modes.mode import Mode, Option
from hybridlab.training.make_job import job_of
from hybridlab.world.talk import typed

pytestmark = pytest.mark.filterwarnings("error")
cloudpickle.register_pickle_by_value(sys.modules[__name__])
SMALL = hl.Shape(layers=4, width=16, heads=2, context=8, dropout=0.1)


class Echo:
    """In place of a layer: what it makes is gathered from all ranks, and cut again."""

    def __init__(self, comm, ways):
        self.comm, self.ways = comm, ways

    def __call__(self, layer, arrived, x_BTD):
        whole_BTD = typed.all_gather(self.comm, x_BTD, "rows", 0, to="I")
        return typed.split(self.comm, whole_BTD, "rows", 0, of="I")


class Rows(Mode):
    """Ranks that hold a stage between them have some rows each."""

    name, axis, purpose = "toy parallelism", "rows", "echo"
    options = {"loud": Option(False, "with --rows: send every row twice")}

    def refuse(self, job):
        if job.rows % job.mesh["rows"]:
            raise ValueError(f"rows={job.mesh['rows']} cannot share out {job.rows} rows: choose a divisor of it")

    def data(self, job):
        return {"B": "rows"}

    def fit(self, module, comm, job):
        for _ in range(1 + job["loud"]):
            module.layers()[0].register_forward_hook(Echo(comm, job.mesh["rows"]))

    def sends(self, job, layer, when, here):
        if layer == 0 and when in ("forward", "backward"):
            size = here["B"] * here["T"] * job.sizes["D"] * job.widths.value
            yield "all_gather", (1 + job["loud"]) * size


@pytest.fixture
def toy():
    yield registry.register(mode := Rows())
    registry.unregister(mode)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    one_in(
        3,
        [
            (hl.Mesh(rows=2), {}),
            (hl.Mesh(rows=2), {"loud": True}),
            (hl.Mesh(pp=2, rows=2), {"schedule": "zb_h1"}),
            (hl.Mesh(rows=2, dp=2), {"zero": 1, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
            (hl.Mesh(dp=2, rows=2), {"zero": 3}),
            (hl.Mesh(tp=2, rows=2), {"sequence": True}),
        ],
    ),
    ids=str,
)
def test_a_mode_from_outside_is_one_device_and_its_bytes_are_claimed(bench, toy, mesh, more):
    report = bench.asked(mesh, shape=SMALL, microbatches=2, **more)
    assert report.ok and report.largest_gap < 1e-11, report
    assert report.bytes["inside stages, along rows"][0] > 0


@pytest.mark.ranks
def test_it_has_flags_and_refuses_on_the_command_line(toy, capsys):
    assert main("check --rows 2 --pp 1 --loud --layers 2 --batch 8".split()) == 0
    assert "rows=2, loud, float64: equal to one device" in capsys.readouterr().out
    assert main("check --rows 2 --batch 4 --layers 2".split()) == 2
    assert "rows=2 cannot share out 1 rows" in capsys.readouterr().err
    main(["check", "--help-all"])
    assert "with --rows: send every row twice" in capsys.readouterr().out


# ---- guards fail closed


class Silent(Rows):
    """A mode that does not say what it sends."""

    def sends(self, job, layer, when, here):
        return iter(())


@pytest.mark.ranks
def test_bytes_that_a_mode_does_not_own_up_to_fail_the_proof():
    registry.register(mode := Silent())
    try:
        report = hl.check(hl.Mesh(rows=2), shape=SMALL, microbatches=2)
    finally:
        registry.unregister(mode)
    assert report.largest_gap < 1e-11 and not report.ok
    assert "echo, along rows, all_gather: 49,152 bytes counted, 0 by the formula" in str(report)


def nobodys(patch):
    """Something is sent through a door that says nothing."""
    import torch

    from hybridlab.training import loop

    right = loop.Trainer.update

    def update(trainer):
        trainer.comm.all_reduce(torch.ones(4))
        right(trainer)

    patch.setattr(loop.Trainer, "update", update)


@pytest.mark.ranks
def test_bytes_that_nobody_claims_fail_the_proof(bench):
    report = bench.asked(hl.Mesh(pp=2), shape=SMALL, microbatches=2, sabotage=nobodys)
    assert report.largest_gap == 0 and not report.ok
    assert report.bytes["claimed by no mode"] == (2 * 3 * 16, 0)
    assert "claimed by no mode, along pp, all_reduce: 96 bytes counted, 0 by the formula" in str(report)


def test_a_mode_must_say_what_it_sends_for():
    class Nameless(Rows):
        name, purpose = "nameless parallelism", ""

    with pytest.raises(ValueError, match="nameless parallelism has no `purpose`, under which its bytes are counted"):
        registry.register(Nameless())


def test_purposes_and_options_belong_to_one_mode():
    class Same(Rows):
        name, purpose = "the same again", "sums"

    class Sharing(Rows):
        name, options = "sharing", {"zero": Option(0, "…")}

    with pytest.raises(ValueError, match="already has the purpose sums: give the same again a different one"):
        registry.register(Same())
    with pytest.raises(ValueError, match="ZeRO already has an option zero: rename the option of sharing"):
        registry.register(Sharing())


def test_two_modes_that_cut_one_dim_are_refused_by_name():
    class Positions(Rows):
        name, axis, purpose, options = "cutting the positions", "cut", "cutting", {}

        def refuse(self, job):
            pass

        def data(self, job):
            return {"T": "cut"}

    registry.register(mode := Positions())
    try:
        with pytest.raises(
            ValueError, match=r"tensor parallelism shards T along cp\+tp, but cutting the positions shards it along"
        ):
            job_of(hl.Mesh(tp=2, cut=2), shape=SMALL, sequence=True)
    finally:
        registry.unregister(mode)


def test_an_axis_of_no_mode_is_refused():
    with pytest.raises(
        ValueError, match=r"Mesh\(zz=2\) has an axis zz, which no mode uses: choose from pp, dp, x, cp, ep, tp"
    ):
        job_of(hl.Mesh(zz=2))


def test_every_mode_of_the_package_says_who_it_is():
    every = registry.modes()
    axes = [
        *("pp",),
        *("dp", "dp", "dp", "dp"),
        *("x", "cp", "ep", "", "tp", "h"),
        *("", ""),
        "",
    ]  # stages, copies, inside (lent experts have the axes of ep), what is kept, for the optimizer
    assert [mode.axis for mode in every] == axes
    assert len({mode.name for mode in every}) == len({mode.purpose for mode in every}) == len(every)
    assert all(option.help for mode in every for option in mode.options.values())


TIED = hl.Shape(layers=4, width=8, heads=2, context=4, tied=True)


@pytest.mark.slow
def test_a_pack_is_gathered_as_often_as_the_stages_that_use_it_are_opened():
    """Two stages at a time. The tied weight is a pack of its own: stage 0 brings it twice, the last one once."""
    job = job_of(hl.Mesh(dp=2), "gpipe", microbatches=2, zero=3, shape=TIED)
    times = {names[0]: job.keeper.gathers(job, pack, rank=0) for pack, names in job.layout.packs.items()}
    of_stages = dict(zip((f"blocks.{s}.attention_norm.weight" for s in (1, 2, 3)), (2, 1, 1)))
    assert times == {"embed.token.weight": 3, "embed.position.weight": 2} | of_stages


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh, more, elements",
    [
        (hl.Mesh(dp=2), {}, 2 * TIED.parameters),
        (hl.Mesh(dp=2), {"zero": 1}, TIED.parameters),
        (hl.Mesh(dp=2, pp=2), {}, 2 * (TIED.parameters + 256 * TIED.width)),  # the tied weight is on both ends
    ],
)
def test_an_optimizer_on_the_host_is_sent_each_gradient_and_sends_each_value_back(mesh, more, elements):
    job = job_of(mesh, "gpipe", microbatches=2, shape=TIED, offload=True, **more)
    assert job.keeper.moved(job) == (4 + 4) * elements


@pytest.mark.parametrize(
    "mesh, more, said",
    [
        (hl.Mesh(dp=2), {"sequence": True}, "sequence=True has no effect without tp: give both, or leave out sequence"),
        (hl.Mesh(tp=2), {"zigzag": True}, "zigzag=True has no effect without cp"),
        (hl.Mesh(dp=2), {"attend": "ring"}, "attend='ring' has no effect without cp"),
        (hl.Mesh(dp=2), {"owners": 2}, "owners=2 has no effect without zero"),
        (hl.Mesh(dp=2), {"owners": 2, "zero": 0}, "owners=2 has no effect without zero"),
    ],
)
def test_an_option_that_means_nothing_is_refused(mesh, more, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        job_of(mesh=mesh, **more)


def test_what_is_usual_may_be_said_where_it_means_nothing():
    assert not job_of(mesh=hl.Mesh(dp=2), sequence=False, attend="gather", zero=0)["sequence"]
