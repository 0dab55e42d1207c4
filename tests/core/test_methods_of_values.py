"""Methods of public values look at their arguments, answer soon, and no caller changes a value behind its caches."""

import numpy as np
import pytest

import hybridlab as hl

MESH = hl.Mesh(dp=2, pp=2)
SCHEDULE = hl.schedule("1f1b", ranks=2, microbatches=4)
TIMELINE = hl.simulate(SCHEDULE, hl.Costs(F=1, B=2))
HUGE = 10**30


class Odd:
    """Of no type that any method takes."""

    def __repr__(self):
        return "Odd()"


SAID = {
    "group-rank": (lambda: MESH.group([], "dp"), r"has no rank \[\]: choose from 0 to 3"),
    "group-axes": (lambda: MESH.group(0, 3), "3 does not name axes: give a name, such as 'dp', or a tuple of names"),
    "groups-axes": (lambda: MESH.groups(b"dp"), "b'dp' does not name axes: give a name"),
    "length": (lambda: MESH.length(3), r"3 does not name axes: give a name, such as 'dp', or several joined by \+"),
    "place": (lambda: MESH.place(0, Odd()), r"Odd\(\) does not name axes: give a name"),
    "action": (lambda: SCHEDULE.action(len(SCHEDULE.rows)), "there is no row 16: choose from 0 to 15"),
    "action-kind": (lambda: SCHEDULE.action(Odd()), r"action takes row as int, not Odd\(\)"),
    "grid": (lambda: SCHEDULE.grid(HUGE), f"there is no row {HUGE}: choose from 0 to 15"),
    "of": (
        lambda: hl.Schedule.of("x", [["0F0"]], {(0, 0): 0}, 1),
        "'0F0' is not an action: write, for example",
    ),
    "of-programs": (lambda: SCHEDULE.with_programs(3), "with_programs takes programs as list, not 3, an int"),
    "save": (lambda: SCHEDULE.save(0), "0 is not a path: give the name of a file"),
    "csv": (lambda: SCHEDULE.to_csv(Odd()), r"Odd\(\) is not a path: give the name of a file"),
    "load": (lambda: hl.Schedule.load(3), "cannot read the schedule file 3: give the name of a file"),
    "rows": (lambda: hl.Schedule("x", 3, 4, {}, 1, (0,)), "Schedule takes rows as ndarray, not 3, an int"),
    "parse": (lambda: hl.Action.parse(3), "3 is not the text of an action: write, for example, '0F0'"),
    "step": (lambda: TIMELINE.step(1), "step=1 does not exist: choose from 0 to 0"),
    "span-step": (lambda: TIMELINE.span(7, 0), "step=7 does not exist: choose from 0 to 0"),
    "span": (lambda: TIMELINE.span(0, -1), "action=-1 does not exist: choose from 0 to 15"),
    "peak": (lambda: TIMELINE.peak("inputs"), "there is no value 'inputs': did you mean 'input'"),
    "gap": (lambda: TIMELINE.gap(SCHEDULE), "gap takes real as Timeline, not <schedule"),
    "save-timeline": (lambda: TIMELINE.save(1), "1 is not a path: give the name of a file"),
    "trace": (lambda: TIMELINE.to_chrome(1), "to_chrome takes path as str | PathLike"),
    "measured": (lambda: hl.Costs.measured(3), "measured takes real as Timeline, not 3, an int"),
    "refuse": (lambda: hl.Costs().refuse(3), "refuse takes schedule as Schedule, not 3, an int"),
    "of-kind": (lambda: hl.Costs().of([], 0), r"there is no kind of action \[\]: choose one of"),
}


@pytest.mark.parametrize("name", SAID)
def test_an_odd_argument_of_a_method_ends_in_a_sentence(name):
    call, said = SAID[name]
    with pytest.raises(ValueError, match=said.replace("|", r"\|")):
        call()


@pytest.mark.parametrize("ask", [lambda mesh: mesh.groups("dp"), lambda mesh: mesh.group(0, "dp"), lambda m: m.line(0)])
def test_groups_that_no_machine_can_list_are_refused_at_once(ask):
    with pytest.raises(ValueError, match="the groups of .* have too many ranks, 1e.30: list those of at most"):
        ask(hl.Mesh(dp=HUGE))


def test_whether_a_mesh_names_an_axis_is_a_question_that_ends():
    assert "dp" in MESH and "tp" not in MESH
    with pytest.raises(TypeError, match="not iterable"):
        iter(MESH)


@pytest.mark.parametrize("array", [SCHEDULE.rows, SCHEDULE.starts, TIMELINE.begin, TIMELINE.end, TIMELINE.lane])
def test_no_write_changes_a_schedule_or_a_timeline_behind_its_caches(array):
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 0


@pytest.mark.parametrize("several", [{0.5: 1}, {1, 2}, frozenset({1})])
def test_numbers_of_stages_have_an_order(several):
    with pytest.raises(ValueError, match="Costs takes F as float | tuple"):
        hl.Costs(F=several)


def test_messages_that_would_take_infinitely_long_are_refused():
    with pytest.raises(ValueError, match="bytes=1e.300 at bandwidth=1e-300 take too long to be added up: give fewer"):
        hl.Costs(bandwidth=1e-300, bytes=1e300)


def test_costs_of_edges_have_one_length():
    with pytest.raises(
        ValueError, match="different lengths, .*'bandwidth': 2, 'bytes': 3.: give one number for each edge"
    ):
        hl.Costs(bandwidth=(1, 2), bytes=(1, 2, 3))


def test_ties_of_stages_are_tuples_of_tuples():
    tied = SCHEDULE.with_programs(list(SCHEDULE.program), tied=((0, 1),))
    assert tied.tied == ((0, 1),) and np.array_equal(tied.rows, SCHEDULE.rows)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: hl.schedule("hanayo", 2, 4, waves=10**9), "1.6e.10 actions take .*: give waves=.* or fewer"),
        (lambda: hl.automatic(HUGE, 4), "actions take .*: give ranks=.* or fewer"),
        (lambda: hl.automatic(2, HUGE), "actions take .*: give microbatches=.* or fewer"),
        (lambda: hl.automatic(2, -1), "microbatches=-1 is not possible: give a whole number, 1 or more"),
        (lambda: hl.automatic(2, 2, limit=float("nan")), "limit=nan leaves no memory for one activation: give 1"),
        (lambda: hl.traffic(SCHEDULE, [1, 2, 3]), "has 3 numbers, not 2: give one for each edge, or one"),
        (lambda: hl.traffic(SCHEDULE, np.ones(3)), "has 3 numbers, not 2: give one for each edge, or one"),
        (lambda: hl.traffic(SCHEDULE, b"x"), "traffic takes bytes as float | Sequence".replace("|", r"\|")),
        (lambda: hl.recomputed(SCHEDULE, b"x"), "recomputed takes which as Collection"),
        (lambda: hl.explore("gpipe", ranks="4"), "explore takes ranks as int, not '4', a str"),
        (lambda: hl.explore("gpipe", F=Odd()), r"explore takes F as float, not Odd\(\), an Odd"),
    ],
)
def test_numbers_that_cannot_be_end_in_a_sentence_at_once(call, said):
    with pytest.raises(ValueError, match=said):
        call()
