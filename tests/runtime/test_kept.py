"""What forwards keep on a device: counted in an arena that has an end, carried to the host and back by engines that the
rank does not wait for, with gradients that are the same bit for bit. One process, tiny tensors."""

import math
import random
import time
import weakref
from collections import Counter
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hybridlab.core.when.action import SWAPS, Action
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.out_of_core import KeepingWork
from hybridlab.modes.parts.replicated import Replicated
from hybridlab.runtime.arena import Arena, Kept
from hybridlab.runtime.copies import Coming, Leaving
from hybridlab.runtime.player import Player
from hybridlab.runtime.work import Ends, ModelWork
from hybridlab.scheduling.validate import validate
from hybridlab.world.talk.clock import HostClock

ALONE = SimpleNamespace(
    rank=0,
    device=torch.device("cpu"),
    mesh=Mesh(pp=1),
    open=lambda *groups: None,
    clock=lambda device: HostClock(),
    greet=lambda *pairs: None,
    settle=lambda: None,
)
STAGES, WIDTH, INSIDE, ROWS = 4, 6, 8, 3
BOUNDARY = ROWS * WIDTH * 8
IN_CORE = "0F0,1F0,2F0,3F0,3B0,2B0,1B0,0B0"
AWAY = "0F0,0SWAP_OUT0,1F0,1SWAP_OUT0,2F0,3F0,3B0,1SWAP_IN0,2B0,0SWAP_IN0,1B0,0B0"


class Block(nn.Module):
    """A block whose output is among what its graph saves, where it ends in tanh, or not."""

    def __init__(self, last, tanh):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INSIDE), nn.Linear(INSIDE, WIDTH)
        self.last, self.tanh = last, tanh

    def forward(self, x_BD):
        y_BD = x_BD + self.down(nn.functional.gelu(self.up(self.norm(x_BD))))
        y_BD = y_BD.tanh() if self.tanh else y_BD
        return y_BD if self.last else (y_BD,)


class Bench:
    """Four blocks on one rank, some microbatches, and the room that a forward of each block takes."""

    def __init__(self, microbatches=1):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.stages = {s: Block(s == STAGES - 1, s % 2 == 1).double() for s in range(STAGES)}
            self.inputs, self.targets = torch.randn(2, microbatches, ROWS, WIDTH, dtype=torch.float64)
        self.named = {s: {f"{s}.{n}": w for n, w in stage.named_parameters()} for s, stage in self.stages.items()}
        params = [Param(name, tuple(w.shape)) for its in self.named.values() for name, w in its.items()]
        self.layout, self.microbatches = Layout(Mesh(), tuple(params)), microbatches
        self.room = Room(math.inf, self._keeps(), boundary=[BOUNDARY] * (STAGES - 1) + [0])

    def work(self, capacity=math.inf, works=KeepingWork):
        weights = Replicated(ALONE, self.layout, self.stages, self.named, program=[], early=False)
        rooms = {s: [torch.empty(ROWS, WIDTH, dtype=torch.float64)] for s in range(STAGES - 1)}
        ends = Ends({0}, {STAGES - 1: lambda targets: targets})
        about = weights, ends, lambda y, t: (y * t).sum(), rooms, SimpleNamespace(on=True), (ROWS, 0)
        work = works(Arena(capacity), *about) if issubclass(works, KeepingWork) else works(*about)
        weights.begin()
        weights.arm(True)
        work.load(list(self.inputs), list(self.targets), ROWS * self.microbatches)
        return work

    def played(self, text, capacity=math.inf, steps=1, works=KeepingWork):
        """(the gradients, the work) after a program, within a room if there is one."""
        schedule, room = (
            Schedule.from_csv(text),
            None if capacity == math.inf else replace(self.room, capacity=capacity),
        )
        validate(schedule, room)
        work = self.work(capacity, works)
        player = Player(ALONE, schedule, work, room=room)
        for _ in range(steps):
            work.weights.begin()
            work.load(list(self.inputs), list(self.targets), ROWS * self.microbatches)
            player.step()
        return [w.grad.clone() for its in self.named.values() for w in its.values()], work

    def right(self):
        """The gradients of a plain work, in core."""
        of = lambda kind, stages: [f"{s}{kind}{m}" for m in range(self.microbatches) for s in stages]
        return self.played(",".join(of("F", range(STAGES)) + of("B", range(STAGES)[::-1])), works=ModelWork)[0]

    def _keeps(self):
        """Bytes that autograd saves in each block, but for weights, the batch and what comes in."""
        work, arrived, keeps = self.work(), [], []
        for stage in range(STAGES):
            arrived = work.forward(stage, 0, -1, arrived)
            keeps.append(sum(one.size for one in work.stored[stage, 0].saved))
        return keeps


BENCH = {m: Bench(m) for m in (1, 2)}


@cache
def right(microbatches):
    return BENCH[microbatches].right()


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def run_right(text, capacity=math.inf, microbatches=1, steps=1):
    found, work = BENCH[microbatches].played(text, capacity, steps)
    assert same(found, right(microbatches)) and work.arena.held == 0 and not work.stored
    return work


MOST = 576 + 720 + 3 * BOUNDARY  # that AWAY keeps: of two blocks, and what came into three
ROOM = MOST + BOUNDARY  # with the gradient that travels between them


# ---- what is counted


def test_a_forward_keeps_what_autograd_saves():
    """Of a block: what its norm has made, with mean and spread of each row, the MLP's inside before and behind the
    nonlinearity; and tanh's result where there is one. Not: weights, the batch, what came in."""
    numbers = WIDTH + 2 + 2 * INSIDE
    assert BENCH[1].room.keeps == tuple(8 * ROWS * (numbers + WIDTH * (s % 2)) for s in range(STAGES))


def test_in_core_the_arena_holds_every_forward_and_what_came_into_it():
    """The first block's input is the batch, which is there anyway."""
    assert run_right(IN_CORE).arena.peak == sum(BENCH[1].room.keeps) + (STAGES - 1) * BOUNDARY


def test_memory_counts_once_however_many_keep_it():
    arena, x = Arena(capacity=100), torch.zeros(12)
    one, other = Kept(arena, x), Kept(arena, x[3:])
    assert arena.held == 48
    one.end()
    assert arena.held == 48
    other.end()
    assert (arena.held, arena.peak) == (0, 48)


def test_what_is_away_takes_no_memory_on_the_device():
    """Not only in the count: nobody else holds what has left, not even the graph that will ask for it."""
    work = BENCH[1].work()
    leaving = work.forward(1, 0, -1, [(torch.ones(ROWS, WIDTH, dtype=torch.float64),)])
    kept = work.stored[1, 0].saved
    gone, ends = [weakref.ref(one.flat.untyped_storage()) for one in kept], [leaving[0][0].untyped_storage().data_ptr()]
    work.swap(Action.parse("1SWAP_OUT0"), []).wait()
    assert not any(one() for one in gone) and work.arena.held == BOUNDARY
    assert leaving[0][0].untyped_storage().data_ptr() in ends  # what goes on to the next stage is memory of its own


def test_a_history_says_what_was_held_when():
    work = run_right(AWAY, capacity=ROOM)
    told = work.arena.told()
    assert (told[:, 0].diff() >= 0).all() and told[:, 1].max() == work.arena.peak and told[-1, 1] == 0


# ---- programs


PROGRAMS = (
    IN_CORE,
    AWAY,
    "0F0,0SWAP_OUT0,1F0,0SWAP_IN0,2F0,0SWAP_OUT0,3F0,3B0,2B0,1B0,0SWAP_IN0,0B0",
    "0C0,1C0,2F0,3F0,3B0,2B0,1R0,1B0,0R0,0B0",
    "0C0,1F0,2F0,3F0,3B0,2B0,0R0,0SWAP_OUT0,1B0,0SWAP_IN0,0B0",
    "0F0,0SWAP_OUT0,1F0,2F0,2SWAP_OUT0,3F0,3I0,2SWAP_IN0,2I0,1I0,0SWAP_IN0,0I0,2W0,3W0,1W0,0W0",
)


def carried(text, microbatches=1, steps=1):
    """Bytes that a program's swaps carry."""
    swaps = [Action.parse(one) for one in text.split(",") if "SWAP" in one]
    return Counter(
        {way: steps * sum(BENCH[1].room.keeps[one.stage] for one in swaps if one.kind == way) for way in SWAPS}
    )


@pytest.mark.slow
@pytest.mark.parametrize("text", PROGRAMS)
def test_gradients_are_those_in_core_bit_for_bit_and_bytes_are_counted(text):
    work = run_right(text, steps=2)
    assert work.carried == carried(text, steps=2)


def test_the_room_that_a_program_needs():
    assert least(AWAY, BENCH[1].room) == ROOM


def test_who_does_not_fit_is_told_so():
    def unplanned(work):
        player = Player(ALONE, Schedule.from_csv(IN_CORE), work)
        with pytest.raises(MemoryError) as told:
            player.step()
        return str(told.value)

    assert unplanned(BENCH[1].work(capacity=1500)) == (
        "rank 0 has no room for 2F0: it needs 144 bytes more, 1,440 are held, and the capacity is 1,500"
    )


def slow(patch, way, seconds=0.01):
    """Copies of one way take long."""
    load = {"SWAP_OUT": Leaving, "SWAP_IN": Coming}[way]
    right = load.carry
    patch.setattr(load, "carry", lambda one: (time.sleep(seconds), right(one)))


@pytest.mark.slow
@pytest.mark.parametrize("way", SWAPS)
def test_a_rank_waits_for_room_and_for_what_comes_back(monkeypatch, way):
    slow(monkeypatch, way)
    work = run_right(AWAY, capacity=ROOM)
    assert work.arena.peak == MOST


def test_without_the_arrows_of_room_it_runs_over(monkeypatch):
    slow(monkeypatch, "SWAP_OUT", 0.05)
    with pytest.raises(MemoryError, match="no room for"):
        Player(ALONE, Schedule.from_csv(AWAY), BENCH[1].work(capacity=ROOM)).step()


@pytest.mark.slow
def test_a_rank_computes_while_its_copies_run(monkeypatch):
    """Copies to the host take long; where there is room nobody waits for them, until what has left is wanted back."""
    slow(monkeypatch, "SWAP_OUT", 0.3)
    work = BENCH[1].work()
    player = Player(ALONE, Schedule.from_csv(AWAY), work)
    times = dict(zip(map(str, player.program), player.step().tolist()))
    assert times["3F0"][2] < times["0SWAP_OUT0"][2] < times["1SWAP_OUT0"][1] < times["1SWAP_IN0"][1]
    assert times["1SWAP_IN0"][2] <= times["1B0"][1]


# ---- any program


def any_program(seed):
    """A random program of one rank: blocks in order, whole or split backwards, some again, and journeys between."""
    rng = random.Random(seed)
    microbatches, todo = rng.choice((1, 1, 2)), []
    for m in range(microbatches):
        again = [rng.random() < 0.25 for _ in range(STAGES)]
        backs = [["I", "W"] if rng.random() < 0.3 else ["B"] for _ in range(STAGES)]
        down = [[("C" if again[s] else "F", s, m)] for s in range(STAGES)]
        up = [[("R", s, m)] * again[s] + [(kind, s, m) for kind in backs[s]] for s in reversed(range(STAGES))]
        todo.append([one for some in down + up for one in some])
    program = []
    while any(todo):
        kind, s, m = rng.choice([own for own in todo if own]).pop(0)
        program.append((kind, s, m))
    done = []
    for i, (kind, s, m) in enumerate(program):
        done.append((kind, s, m))
        for place in [(s, m) for k, s, m in done if k in "FR"]:
            journeys = sum(k.startswith("SWAP") and (s, m) == place for k, s, m in done)
            gone = any(k in "BI" and (s, m) == place for k, s, m in done)
            wanted = any(k in "BI" and (s, m) == place for k, s, m in program[i + 1 : i + 2])
            if not gone and (wanted and journeys % 2 or not wanted and journeys < 4 and rng.random() < 0.25):
                done.append(("SWAP_IN" if journeys % 2 else "SWAP_OUT", *place))
    return microbatches, ",".join(f"{s}{kind}{m}" for kind, s, m in done), rng


def least(text, room) -> int:
    """The least room that this program fits into: what it lacks where there is none."""
    return math.ceil(Flow(Schedule.from_csv(text), replace(room, capacity=0)).lacks.max())


def any_runs(seeds):
    for seed in seeds:
        microbatches, text, rng = any_program(seed)
        room = least(text, BENCH[microbatches].room) + rng.choice((0, 0, 500))
        work = run_right(text, room, microbatches)
        assert work.arena.peak <= room and work.carried == carried(text), (seed, text)


@pytest.mark.slow
def test_random_programs_within_the_least_room_give_the_same_gradients():
    any_runs(range(50))


@pytest.mark.parametrize(
    "hundred",
    [pytest.param(number, marks=pytest.mark.soak if number > 3 else pytest.mark.long) for number in range(20)],
)
def test_two_thousand_do(hundred):
    any_runs(range(100 * hundred, 100 * (hundred + 1)))


# ---- mistakes


def nobody_waits(patch):
    slow(patch, "SWAP_IN", 2)
    patch.setattr(Player, "_copies_before", lambda player, index: [])


def the_next_copy_does_not_wait(patch):
    slow(patch, "SWAP_OUT", 0.2)
    right = Player._swap
    patch.setattr(Player, "_swap", lambda player, index, action: no_copies(player, right, index, action))


def no_copies(player, right, index, action):
    kept, player.brought = player.brought, {}
    right(player, index, action)
    player.brought = kept


def a_stale_value(patch):
    """What comes back is what left before, in this run: copies of a run that failed may still be under way."""
    right, before = Leaving.over, {}

    def over(load):
        right(load)
        for i, one in enumerate(load.kept):
            place = one.arena, i
            one.host, before[place] = before.get(place, one.host), one.host

    patch.setattr(Leaving, "over", over)


def half_of_it_is_carried(patch):
    patch.setattr(Coming, "carry", lambda load: [room.zero_() for room in load.rooms])


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [nobody_waits, the_next_copy_does_not_wait, a_stale_value, half_of_it_is_carried])
def test_a_mistake_is_caught(monkeypatch, mistake):
    text = "0F0,0SWAP_OUT0,0SWAP_IN0,1F0,2F0,3F0,0F1,0SWAP_OUT1,0SWAP_IN1,1F1,2F1,3F1,"
    text += "3B0,2B0,1B0,0B0,3B1,2B1,1B1,0B1"
    run_right(text, microbatches=2)
    mistake(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, AttributeError, TypeError)):
        run_right(text, microbatches=2)


def copies_in_are_not_counted(patch):
    patch.setattr(Coming, "room", lambda load: free_room(load))


def free_room(load):
    load.rooms = [torch.empty_like(one.host) for one in load.kept]
    for one, room in zip(load.kept, load.rooms):
        one.arena._holders[room.untyped_storage()._cdata] = 1


def what_leaves_is_counted_for_ever(patch):
    patch.setattr(Kept, "end", lambda one: setattr(one, "flat", None))


def what_comes_in_is_not_counted(patch):
    right = KeepingWork._begun
    patch.setattr(KeepingWork, "_begun", lambda work, stage, m, arrived: right(work, stage, m, []))


@pytest.mark.parametrize(
    "mistake", [copies_in_are_not_counted, what_leaves_is_counted_for_ever, what_comes_in_is_not_counted]
)
def test_an_arena_that_forgets_is_caught(monkeypatch, mistake):
    mistake(monkeypatch)
    with pytest.raises((AssertionError, MemoryError)):
        work = run_right(AWAY, capacity=ROOM)
        assert work.arena.peak == MOST and work.arena.told()[-1, 1] == 0
