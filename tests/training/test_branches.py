"""Branches: a stage graph with breaks, its schedules, and models whose layers take from several others."""

import itertools
import json
import re

import pytest
import torch
from few import one_in
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hybridlab as hl
from hybridlab.core.when.exchange import to_pytorch
from hybridlab.modes import recomputation
from hybridlab.predict.papers.googlenet import MODULES, branches
from hybridlab.predict.plans.branches import compared, speedup
from hybridlab.runtime.work import ModelWork
from hybridlab.scheduling.most_urgent import most_urgent_first
from hybridlab.scheduling.rendezvous import CONVENTIONS, check_rendezvous
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.subgraph import on_graph
from hybridlab.scheduling.validate import Invalid
from hybridlab.show.layouts.stage_graph import BOX, GREEN, GREY, TALL, stage_graph
from hybridlab.training import stages
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gpt import GPT
from hybridlab.training.models.inception import Inception
from hybridlab.training.stages import Links

COSTS = hl.Costs(F=1, B=2)
DIAMOND = hl.Schedule.from_csv("0F0,0B0\n1F0,1B0\n2F0,2B0\n3F0,3B0")
DIAMOND = DIAMOND.with_programs(list(DIAMOND.program), name="diamond", skips=((0, 2), (1, 3)), breaks=((1, 2),))
PP4 = hl.Mesh(pp=4)
BLOCK = hl.Shape(layers=1, width=8, heads=2, context=4, parallel=True)  # embed, attention, MLP, sum, head
BLOCKS = hl.Shape(layers=2, width=8, heads=2, context=4, parallel=True)


def facts(schedule):
    return schedule.skips, schedule.breaks, schedule.place, schedule.microbatches, list(map(list, schedule.program))


# --- the stage graph


def test_the_longest_branch_is_waited_for_and_not_the_sum():
    costs = hl.Costs(F=(1, 5, 2, 1), B=(2, 10, 4, 2))
    chain = DIAMOND.with_programs(list(DIAMOND.program), skips=(), breaks=())
    assert hl.simulate(DIAMOND, costs).length == 3 * (1 + max(5, 2) + 1)
    assert hl.simulate(chain, costs).length == 3 * (1 + 5 + 2 + 1)
    assert hl.simulate(hl.lower(DIAMOND), costs).length == 3 * (1 + max(5, 2) + 1)


def test_nothing_travels_over_a_break():
    lowered = hl.lower(DIAMOND)
    messages = {action.edge for program in lowered.program for action in program if action.kind.startswith("SEND")}
    assert messages == {(0, 1), (0, 2), (1, 3), (2, 3)} == set(DIAMOND.inside.values())


@pytest.mark.parametrize(
    "skips, breaks, says",
    [
        ((), ((1, 2),), "2F0 receives from no stage: give stage 2 an edge"),
        (((0, 2),), ((1, 2),), "1F0 sends to no stage: give stage 1 an edge"),
        (((1, 3),), ((0, 1),), "1F0 receives from no stage"),
        (((0, 3),), ((2, 3),), "2F0 sends to no stage"),
    ],
)
def test_a_missing_edge_is_refused_by_name(skips, breaks, says):
    with pytest.raises(Invalid, match=says):
        hl.validate(DIAMOND.with_programs(list(DIAMOND.program), skips=skips, breaks=breaks))


def test_a_branch_that_takes_from_its_neighbour_is_refused_by_name():
    programs = [list(map(str, program)) for program in hl.lower(DIAMOND).program]
    programs[1].insert(2, "1SEND_F0")
    programs[2].insert(1, "2RECV_F0")
    wrong = DIAMOND.with_programs([[hl.Action.parse(cell) for cell in program] for program in programs])
    with pytest.raises(Invalid, match="1SEND_F0 takes the activation of stage 1 for microbatch 0, which no action"):
        hl.validate(wrong)


def test_a_schedule_that_forgets_a_branch_is_refused():
    without = lambda cells: DIAMOND.with_programs([[a for a in one if str(a) not in cells] for one in DIAMOND.program])
    with pytest.raises(Invalid, match="rank 2 never makes the weight gradient of stage 2 for microbatch 0: add 2B0"):
        hl.validate(without({"2F0", "2B0"}))
    with pytest.raises(Invalid, match="2B0 takes the saved tensors of 2F0, which no action makes"):
        hl.validate(without({"2F0"}))


# --- files


def test_breaks_are_kept_in_json_and_read_back_from_messages(tmp_path):
    for s in (DIAMOND, hl.schedule("subgraph", ranks=6, microbatches=3), hl.schedule("subgraph", 4, 2, dp=2)):
        s.save(tmp_path / "s.json")
        assert facts(hl.Schedule.load(tmp_path / "s.json")) == facts(s)
        lowered = hl.lower(s)
        assert facts(hl.Schedule.from_csv(lowered.to_csv())) == facts(lowered)


def test_older_json_has_no_breaks_and_damaged_ones_are_refused():
    saved = json.loads(json.dumps(DIAMOND.to_dict()))
    older = {key: value for key, value in saved.items() if key != "breaks"}
    assert hl.Schedule.from_dict(older).breaks == ()
    for damaged in ([[1, 3]], [[1]], [[3, 4]], "12", [[1, "2"]]):
        with pytest.raises(ValueError, match="damaged at 'breaks'"):
            hl.Schedule.from_dict(saved | {"breaks": damaged})


def test_a_forgotten_message_is_no_break():
    forgotten = hl.Schedule.from_csv("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n2F0,2B0")
    assert forgotten.breaks == ()
    with pytest.raises(Invalid, match="takes the"):
        hl.validate(forgotten)


def test_pytorchs_form_has_no_branches():
    with pytest.raises(ValueError, match="cannot express the skip from stage to stage 0, 2"):
        to_pytorch(DIAMOND)
    with pytest.raises(ValueError, match="cannot express the break between stages 1, 2"):
        to_pytorch(DIAMOND.with_programs(list(DIAMOND.program), skips=()))


# --- the family


@pytest.mark.parametrize("branches, ranks", [(b, p) for b in (1, 2, 3, 4) for p in range(3, 12) if p >= b + 2])
def test_subgraph_is_as_deep_as_its_longest_way(branches, ranks):
    depth = 2 - (-(ranks - 2) // branches)
    for m in (1, 2, 5, 12):
        t = hl.simulate(hl.schedule("subgraph", ranks, m, branches=branches), COSTS)
        assert t.bubble_overhead == pytest.approx((depth - 1) / m)
        assert max(t.peak_live) == min(depth, m)


@pytest.mark.slow
def test_one_branch_is_1f1b():
    for p, m in itertools.product(range(1, 7), range(1, 9)):
        one = hl.schedule("subgraph", p, m, branches=1)
        assert one.program == hl.schedule("1f1b", p, m).program and not one.skips and not one.breaks
    assert most_urgent_first([0, 1, 1, 0], [(0, 1), (1, 2), (2, 3)], 5) == [
        list(program) for program in hl.schedule("hanayo", 2, 5).program
    ]


def test_branches_run_at_the_same_time_and_hold_less():
    graph, chain = (hl.simulate(hl.schedule(name, 8, 8), COSTS) for name in ("subgraph", "1f1b"))
    assert (graph.length, chain.length) == (36, 45)
    assert (max(graph.peak_live), max(chain.peak_live)) == (5, 8)


def test_stem_and_join_may_live_with_the_branches():
    s = hl.schedule("subgraph", ranks=2, microbatches=1, shared=True)
    assert s.place == {(0, 0): 0, (1, 0): 0, (2, 0): 1, (3, 0): 1} and s.breaks == ((1, 2),)
    assert hl.simulate(s, COSTS).length == 9


@st.composite
def graphs(draw, most=7):
    """(takes of some layers, layers of each stage, rank of each stage): everyone takes something and is taken."""
    layers = draw(st.integers(2, most))
    takes = {0: (-1,)}
    for number in range(1, layers):
        takes[number] = tuple(draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3, unique=True)))
    taken = {source for sources in takes.values() for source in sources}
    takes[layers - 1] += tuple(sorted(set(range(layers - 1)) - taken))
    ends = draw(st.sets(st.integers(1, layers - 1), min_size=1, max_size=4))
    bounds = tuple(range(a, b) for a, b in itertools.pairwise([0, *sorted(ends), layers]))
    home = [0, *draw(st.lists(st.integers(0, 1), min_size=len(bounds) - 2, max_size=len(bounds) - 2)), 1]
    return takes, bounds, home


@pytest.mark.slow
@given(graphs(most=9), st.integers(1, 4), st.sampled_from((1, 2)))
@settings(max_examples=60)
def test_any_graph_plays_under_every_convention(graph, microbatches, copies):
    takes, bounds, home = graph
    s = hl.validate(on_graph("any", home, list(Links.of(bounds, takes).crossing), microbatches))
    s = s if copies == 1 else hl.validate(replicate(s, hl.Mesh(dp=2, pp=2)))
    lowered = hl.validate(hl.lower(s))
    for convention in CONVENTIONS:
        check_rendezvous(lowered, convention)
    assert hl.simulate(s, COSTS).length == hl.simulate(lowered, COSTS).length
    assert sum(hl.simulate(s, COSTS).busy) == 3 * len(home) * microbatches * copies


@pytest.mark.parametrize(
    "one", [DIAMOND, hl.schedule("subgraph", 7, 2), hl.schedule("subgraph", 12, 1), hl.schedule("1f1b", 9, 1)]
)
def test_the_picture_of_a_stage_graph_has_every_edge_and_no_box_over_another(one):
    drawn = stage_graph(one).svg
    assert drawn.count("<path") == len(one.inside) and drawn.count('stroke-width="1.5"') == one.stages
    boxes = [tuple(map(float, at)) for at in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', drawn)]
    apart = [abs(a[0] - b[0]) >= BOX or abs(a[1] - b[1]) >= TALL for a, b in itertools.combinations(boxes, 2)]
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])
    assert all(apart) and max(x for x, _ in boxes) + BOX <= width


def test_edges_inside_a_rank_are_no_messages():
    drawn = stage_graph(hl.schedule("subgraph", 2, 1, shared=True), ["stem", "a", "b", "join"])
    lines = drawn.svg.partition("</style>")[2]
    assert [lines.count(f'stroke="{colour}"') for colour in (GREEN, GREY)] == [2, 2]
    assert drawn.summary.startswith("stem, stage 0 (rank 0) → 1, 2; a, stage 1 (rank 0) → 3")


# --- models


class Mixed(nn.Module):
    """A layer that treats each of its arguments in another way."""

    def __init__(self, arguments):
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(3, 3) for _ in range(arguments))

    def forward(self, *x):
        return torch.tanh(sum(linear(one) for linear, one in zip(self.each, x, strict=True)))


def mixed(takes):
    """A model of such layers, and its Model."""
    net = lambda seed: nn.Sequential(*(Mixed(len(takes[number])) for number in range(len(takes))))
    loss = lambda y, target: (y - target).square().sum()

    def data(step, rows):
        x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(step))
        return x, x.flip(1)

    return hl.Model(net, loss, data, takes={there: its for there, its in takes.items() if there})


@pytest.mark.long
@pytest.mark.ranks
@given(graphs(), st.integers(1, 3))
@settings(max_examples=8)
def test_any_graph_of_layers_cut_anywhere_is_one_device(bench, graph, microbatches):
    takes, bounds, home = graph
    schedule = on_graph("any", home, list(Links.of(bounds, takes).crossing), microbatches)
    report = bench.asked(hl.Mesh(pp=2), schedule=schedule, model=mixed(takes), cut=list(map(len, bounds)))
    assert report.ok and report.largest_gap < 1e-11, report


CASES = {
    "a module of three branches": (
        hl.Mesh(pp=5),
        {"model": "inception", "schedule": hl.schedule("subgraph", 5, 4, branches=3)},
    ),
    "unequal branches of two stages": (PP4, {"model": "inception", "schedule": "subgraph"}),
    "attention beside the MLP": (PP4, {"shape": BLOCKS, "schedule": "subgraph"}),
    "copies, ZeRO 1": (hl.Mesh(dp=2, pp=4), {"shape": BLOCK, "schedule": "subgraph", "zero": 1, "accumulate": 2}),
    "halves of a backward": (PP4, {"shape": BLOCK, "schedule": "zb_h1", "cut": [0, 1, 1, 1]}),
    "stem and join with the branches": (
        hl.Mesh(pp=2),
        {"shape": BLOCK, "schedule": hl.schedule("subgraph", 2, 4, shared=True), "rows": 1},
    ),
    "several branches in a stage": (hl.Mesh(dp=2, pp=2), {"shape": BLOCKS, "schedule": "gpipe", "zero": 3}),
    "cut along x": (hl.Mesh(pp=2, x=2), {"shape": BLOCK, "schedule": "1f1b"}),
    "cut along tp": (hl.Mesh(pp=4, tp=2), {"shape": BLOCK, "schedule": "subgraph", "sequence": True}),
    "modern parts, dropout, a tie": (
        PP4,
        {
            "shape": hl.Shape(
                layers=1, width=8, heads=2, context=4, parallel=True, style="llama", dropout=0.1, tied=True
            ),
            "schedule": "subgraph",
        },
    ),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", one_in(4, CASES))
def test_branches_are_one_device_and_every_byte_is_claimed(bench, case):
    mesh, job = CASES[case]
    report = bench.asked(mesh, **job)
    assert report.ok and report.largest_gap < 1e-11, report


def only_first(arrived):
    return arrived[:1] + [tuple(map(torch.zeros_like, one)) for one in arrived[1:]]


def stem_adds_one_branch(patch):
    right = ModelWork.backward
    patch.setattr(ModelWork, "backward", lambda work, s, m, v, arrived: right(work, s, m, v, only_first(arrived)))


def join_pulls_one_branch(patch):
    """A join that drops the gradients of all branches but one."""
    right = ModelWork.backward
    patch.setattr(ModelWork, "backward", lambda work, *of: only_first(right(work, *of)))


def join_takes_one_branch_twice(patch):
    right = stages.in_sequence
    twice = lambda takes: {n: (its[0],) * len(its) for n, its in takes.items()}
    patch.setattr(stages, "in_sequence", lambda layers, takes, made: right(layers, twice(takes), made))


def branch_takes_from_its_neighbour(patch):
    right = stages.in_sequence
    nearest = lambda takes, made: {
        n: its if len(its) > 1 or n - 1 not in made else (n - 1,) for n, its in takes.items()
    }

    def in_sequence(layers, takes, made):
        for number, layer in layers.items():
            right({number: layer}, nearest(takes, made), made)
        return made

    patch.setattr(stages, "in_sequence", in_sequence)


def arguments_in_another_order(patch):
    right = stages.in_sequence
    turned = lambda takes: {n: its[::-1] for n, its in takes.items()}
    patch.setattr(stages, "in_sequence", lambda layers, takes, made: right(layers, turned(takes), made))


MIXED = {0: (-1,), 1: (0,), 2: (0,), 3: (1, 2)}
MUTANTS = [
    (stem_adds_one_branch, PP4, {"shape": BLOCK, "schedule": "subgraph"}),
    (join_pulls_one_branch, PP4, {"shape": BLOCK, "schedule": "subgraph"}),
    (join_takes_one_branch_twice, PP4, {"shape": BLOCK, "schedule": "subgraph"}),
    (branch_takes_from_its_neighbour, hl.Mesh(pp=2), {"shape": BLOCKS, "schedule": "1f1b"}),
    (arguments_in_another_order, PP4, {"model": mixed(MIXED), "schedule": "subgraph"}),
]


@pytest.mark.ranks
@pytest.mark.parametrize("mutant, mesh, job", one_in(3, MUTANTS), ids=[mutant.__name__ for mutant, *_ in MUTANTS])
def test_mutants_of_branches_are_noticed(bench, mutant, mesh, job):
    assert bench.right(mesh, **job)
    assert not bench.asked(mesh, sabotage=mutant, **job).ok


@pytest.mark.long
@pytest.mark.ranks
def test_a_run_waits_for_the_longest_branch(kept):
    forward = (0.02, 0.08, 0.05, 0.02)
    costs = hl.Costs(F=forward, B=tuple(2 * one for one in forward))
    s = hl.schedule("subgraph", ranks=4, microbatches=1)
    predicted, chain = (hl.simulate(one, costs).length for one in (s, hl.schedule("1f1b", 4, 1)))
    assert predicted == pytest.approx(3 * 0.12) and chain == pytest.approx(3 * 0.17)
    real = hl.run(s, costs=costs, steps=3)
    assert predicted <= real.length < (predicted + chain) / 2
    assert real.peak_live == hl.simulate(s, costs).peak_live


@pytest.mark.ranks
def test_what_is_done_again_is_done_in_branches_too(bench):
    report = bench.asked(PP4, shape=BLOCK, schedule="subgraph", recompute="full")
    assert report.ok and report.largest_gap < 1e-11, report
    job = job_of(PP4, shape=BLOCK, schedule="subgraph", recompute="full")
    module = job.model.made(0, torch.float32)
    recomputation.MODE.fit(module, None, job)
    assert ["forward" in vars(layer) for layer in job.model.layers(module)] == [False, True, True, True, False]


def refused(**asked):
    with pytest.raises(ValueError) as found:
        job_of(asked.pop("mesh", PP4), batch=8, **asked)
    return str(found.value)


@pytest.mark.slow
def test_a_model_is_cut_at_its_branches():
    bounds = lambda **asked: list(map(list, job_of(PP4, schedule="subgraph", **asked).bounds))
    assert bounds(shape=BLOCK) == [[0], [1], [2], [3, 4]]
    assert bounds(shape=BLOCKS) == [[0, 1, 2, 3], [4], [5], [6, 7]]  # the second block's, more even than the first's
    assert [[6], [7, 8]] == bounds(model="inception")[1:3]  # of the second of three modules: 1×1, and both others
    assert job_of(PP4, shape=BLOCK, cut=[0, 1, 1, 1]).schedule.breaks == ((1, 2),)  # 1F1B of the same stages


@pytest.mark.slow
def test_a_model_without_branches_is_refused_by_a_schedule_that_has_some():
    assert "stages, but this model cannot be divided into" in refused(schedule="subgraph", shape=hl.Shape(layers=4))
    said = refused(schedule="subgraph", shape=BLOCKS, cut=[2, 1, 1, 2])
    assert (
        "stages 1 and 2 in different branches, but with this cut, stage 2 of the model takes the output of stage 1"
        in said
    )
    assert "into 4 stages in too many ways" in refused(schedule="subgraph", shape=hl.Shape(layers=40, parallel=True))


@pytest.mark.parametrize(
    "takes, says",
    [
        ({2: (0,)}, "no layer takes the output of layer 1"),
        ({1: (2,)}, "takes={1: (2,)} does not lead from an earlier layer to a later one: choose layers from 0 to 3"),
        ({1: (1,)}, "does not lead from an earlier layer"),
        ({2: (-1,)}, "does not lead from an earlier layer"),
        ({2: ()}, "does not lead from an earlier layer"),
        ({4: (3,)}, "does not lead from an earlier layer"),
    ],
)
def test_what_no_layer_can_take_is_refused(takes, says):
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    loss, data = (lambda y, t: (y - t).square().sum()), (lambda step, rows: (torch.ones(rows, 3), torch.ones(rows, 3)))
    assert says in refused(model=net, loss=loss, data=data, takes=takes, mesh=hl.Mesh(pp=2))


def test_a_net_with_branches_is_its_branches_joined():
    net = Inception(dtype=torch.float64)
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    *modules, scores = net.layers()
    y = x
    for stem, *of_module, _ in zip(*[iter(modules)] * 5):
        stemmed = stem(y)
        y = torch.cat([branch(stemmed) for branch in of_module], 1)
    assert torch.equal(scores(y), net(x))


def test_parallel_blocks_are_the_sum_of_both_on_one_input():
    shape = hl.Shape(layers=2, width=8, heads=2, context=4, parallel=True)
    model = GPT(shape)
    tokens = torch.arange(4)[None]
    x = model.embed(tokens)
    for attending, beside, _ in model.blocks:
        x = x + attending.attention(attending.norm(x)) + beside.mlp(beside.norm(x))
    assert torch.allclose(model.head(x), model(tokens), atol=1e-6)
    assert sum(weight.numel() for weight in model.parameters()) == shape.parameters


# --- when it pays


@pytest.mark.long
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 5), st.integers(0, 5))
def test_speedup_is_what_the_simulator_says(times, stem, join):
    ways = compared(times, stem, join)
    assert ways["one device"].length / ways["sub-graph"].length == pytest.approx(speedup(times, stem, join))
    assert 1 <= speedup(times, stem, join) <= len(times)


def test_who_is_fastest_depends_on_the_batch():
    length = lambda *of, **more: {way: t.length for way, t in compared(*of, **more).items()}
    one, eight = (length([1, 1], 1, 1, m, reduce=6) for m in (1, 8))
    assert min(one, key=one.get) == "sub-graph" and "data parallelism" not in one
    assert eight["sub-graph"] < eight["pipeline"] and eight["sub-graph"] < eight["data parallelism"]
    uneven = length([1, 3], 1, 1, 8, reduce=6)
    assert min(uneven, key=uneven.get) == "data parallelism"


PRINTED = {
    "3a": 128,
    "3b": 304,
    "4a": 73,
    "4b": 88,
    "4c": 100,
    "4d": 119,
    "4e": 170,
    "5b": 71,
}  # millions, column "ops"


def test_googlenets_modules_multiply_what_their_table_says():
    assert all(abs(sum(branches(module).values()) / 1e6 - millions) < 1 for module, millions in PRINTED.items())
    assert all(max(branches(module), key=branches(module).get) == "3x3" for module in MODULES)
    with pytest.raises(ValueError, match="choose one of 3a, 3b"):
        branches("6a")


def test_a_second_rank_is_enough_for_googlenets_branches():
    """The three others together take no longer than the longest."""
    for module in MODULES:
        *others, longest = sorted(branches(module).values())
        assert speedup([*others, longest]) == speedup([sum(others), longest]) < 2
