"""Random valid programs play through under every convention; random damage to good ones is found and named."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.play import Stuck
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.simulate import LINKS
from hybridlab.scheduling.rendezvous import CONVENTIONS, check_rendezvous
from hybridlab.scheduling.validate import Invalid


def random_program(seed):
    """A valid schedule of any shape: stages anywhere, whole and split backwards, actions in a random possible order."""
    rng = random.Random(seed)
    ranks, stages, microbatches = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 4)
    home = [rng.randrange(ranks) for _ in range(stages)]
    split = {(s, m): rng.random() < 0.4 for s in range(stages) for m in range(microbatches)}
    programs, done = [[] for _ in range(ranks)], set()
    wanted = [(k, s, m) for (s, m), two in split.items() for k in (("F", "I", "W") if two else ("F", "B"))]

    def possible(kind, s, m):
        if kind == "F":
            return s == 0 or ("F", s - 1, m) in done
        if kind == "W":
            return ("I", s, m) in done
        return ("F", s, m) in done and (s == stages - 1 or {("B", s + 1, m), ("I", s + 1, m)} & done)

    while wanted:
        kind, s, m = rng.choice([one for one in wanted if possible(*one)])
        wanted.remove((kind, s, m))
        done.add((kind, s, m))
        programs[home[s]].append(hl.Action(kind, s, m))
    return Schedule.of("random", programs, {(s, 0): rank for s, rank in enumerate(home)}, microbatches)


@given(st.integers(0, 10**9))
@settings(max_examples=25)
@pytest.mark.long
def test_random_programs_play_through_under_every_convention(seed):
    lowered = hl.lower(hl.validate(random_program(seed)))
    hl.validate(lowered)
    for convention in CONVENTIONS:
        check_rendezvous(lowered, convention)
    costs = hl.Costs(F=2, I=3, W=1, latency=1)
    lengths = {}
    for link, rendezvous, post in itertools.product(LINKS, (False, True), ("program", "early")):
        t = hl.simulate(lowered, costs, link=link, rendezvous=rendezvous, post=post)
        assert sum(t.busy) == 6 * lowered.stages * lowered.microbatches
        lengths[link, rendezvous, post] = t.length
    assert lengths["directed", False, "program"] <= lengths["directed", True, "program"]
    assert lengths["directed", False, "program"] <= lengths["compute", True, "program"]
    assert hl.simulate(lowered, costs, link="pair").length == lengths["pair", False, "program"]  # ties are decided


SIZES = {"pipedream_2bw": [(2, 4), (3, 6)], "dualpipe": [(2, 4), (4, 8)], "chimera": [(2, 4), (4, 4)]}
KINDS = ("drop", "repeat", "move", "swap", "version")
EACH = 26  # mutants for each schedule and size: over 2 000 together


def damaged(good, flow, rng, how):
    """One mutant: (programs, the actions at fault), or None where this damage does nothing here."""
    programs = [list(program) for program in good.program]
    rank = rng.choice([r for r, program in enumerate(programs) if program])
    at = rng.randrange(len(programs[rank]))
    action = programs[rank][at]
    match how:
        case "drop":
            programs[rank].pop(at)
        case "repeat":
            programs[rank].insert(rng.randrange(len(programs[rank]) + 1), action)
        case "move":
            if good.ranks == 1:
                return None
            programs[(rank + 1 + rng.randrange(good.ranks - 1)) % good.ranks].insert(0, programs[rank].pop(at))
        case "swap":
            number = int(flow.program[rank]) + at
            makers = [int(flow.maker[value]) for value in flow.takes[number]]
            own = [maker - int(flow.program[rank]) for maker in makers if maker >= 0 and flow.rank[maker] == rank]
            if not own:
                return None
            before = rng.choice(own)
            programs[rank][before], programs[rank][at] = action, programs[rank][before]
            return programs, {str(action), str(programs[rank][at])}
        case "version":
            if action.version < 0 or action.kind not in "FB":
                return None
            programs[rank][at] = action._replace(version=action.version + 1)
            return programs, {str(programs[rank][at]), str(action)}
    return programs, {str(action)}


def named(error, fault, good, flow):
    """Does the message name an action of the fault, or one that gives it a value or takes one from it?"""
    near = set(fault)
    for number in range(flow.actions):
        if str(flow.action(number)) in fault:
            near |= {str(flow.action(int(flow.maker[v]))) for v in flow.takes[number] if flow.maker[v] >= 0}
            makes = set(flow.makes[number].tolist())
            near |= {str(flow.action(n)) for n in range(flow.actions) if makes & set(flow.takes[n].tolist())}
    text = str(error)
    in_a_cycle = isinstance(error, Stuck)
    return in_a_cycle or any(one in text for one in near) or "add" in text


@pytest.mark.long
@pytest.mark.parametrize("name", hl.schedules())
def test_damage_is_found_and_named(name):
    rng = random.Random(name)
    for p, m in sizes_of(name):
        plain = hl.schedule(name, ranks=p, microbatches=m)
        for good in (plain, hl.lower(plain)):
            flow, found = Flow(good), 0
            while found < EACH:
                mutant = damaged(good, flow, rng, rng.choice(KINDS))
                if mutant is None:
                    continue
                programs, fault = mutant
                with pytest.raises((Invalid, Stuck)) as caught:
                    hl.validate(good.with_programs(programs))
                assert named(caught.value, fault, good, flow), (fault, str(caught.value))
                found += 1


def sizes_of(name):
    return SIZES.get(name, [(2, 4), (3, 7), (4, 8)])


def test_over_two_thousand_mutants_are_tried():
    assert sum(2 * len(sizes_of(name)) * EACH for name in hl.schedules()) >= 2000
