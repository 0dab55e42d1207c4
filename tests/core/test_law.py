"""The law: every row says what it should, and every term of it is needed.

`FACTS` are things a student would say about training, each tried on a tiny schedule. Every term of every row is then
taken out in turn; some fact must notice.
"""

import pytest

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.law import LAW
from hybridlab.core.when.play import Stuck, play
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.validate import Invalid, validate

RECOMPUTED = "0C0,0C1,0R0,0B0,0R1,0B1"
PAIR = "0F0,0B0\n1F0,1B0"
SPLIT = "0F0,0I0,0W0\n1F0,1I0,1W0"
CHECKPOINTED = "0C0,0R0,0B0\n1F0,1B0"
SENT = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0"
STEP = "0F0,0B0,0REDUCE_GRAD,0OPT"
AWAY = "0F0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0B0"
SHARDED = "0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD,0OPT"


def is_valid(text):
    validate(Schedule.from_csv(text))
    return True


def is_refused(text):
    try:
        validate(Schedule.from_csv(text))
    except (Invalid, Stuck):
        return True
    return False


def comes_after(text, later, earlier):
    flow = Flow(Schedule.from_csv(text))
    order, rounds = play(flow)
    at = {str(flow.action(number)): now for number, now in zip(order.tolist(), rounds.tolist())}
    return at[later] > at[earlier]


def needs(text, action, value):
    """Does `action` hold on to `value` until it has run?"""
    flow = Flow(Schedule.from_csv(text))
    number = next(n for n in range(flow.actions) if str(flow.action(n)) == action)
    return value in [flow.describe(v) for v in flow.takes[number]]


def gives(text, action, value):
    flow = Flow(Schedule.from_csv(text))
    number = next(n for n in range(flow.actions) if str(flow.action(n)) == action)
    return value in [flow.describe(v) for v in flow.makes[number]]


NORMED = "0F0,0B0,0REDUCE_GRAD,0NORM,0VALID,0OPT\n1F0,1B0,1REDUCE_GRAD,1NORM,1VALID,1OPT"
STEPPED = NORMED.replace("VALID,0OPT", "OPT,0VALID").replace("VALID,1OPT", "OPT,1VALID")
ON_ONE_RANK = "0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD,0NORM,0VALID,0OPT,1OPT"

FACTS = {
    "plain, split, checkpointed, sent, updated, sharded and swapped steps are valid": lambda: all(
        map(is_valid, (PAIR, SPLIT, CHECKPOINTED, SENT, STEP, SHARDED, AWAY))
    ),
    "a forward waits for the stage before": lambda: comes_after(PAIR, "1F0", "0F0"),
    "so does a checkpointed one": lambda: comes_after("0F0,0B0\n1C0,1R0,1B0", "1C0", "0F0"),
    "a forward cannot run on what nobody made": lambda: is_refused("1F0,1B0"),
    "a backward waits for the stage behind": lambda: comes_after(PAIR, "0B0", "1B0"),
    "so does an input half": lambda: comes_after(SPLIT, "0I0", "1I0"),
    "a backward on the last stage needs its own loss": lambda: is_refused("0B0,0F0"),
    "an input half on the last stage too": lambda: is_refused("0I0,0F0,0W0"),
    "a weight half needs its input half": lambda: is_refused("0F0,0W0,0I0") and is_refused("0F0,0W0"),
    "a weight half is not a whole backward": lambda: is_refused("0F0,0I0"),
    "an input half and a backward of one microbatch are one too many": lambda: is_refused("0F0,0B0,0I0,0W0"),
    "what was not kept must be computed again": lambda: is_refused("0C0,0B0") and is_refused("0C0,0I0,0W0"),
    "what was kept must not be computed again": lambda: is_refused("0F0,0R0,0B0"),
    "a forward is done once": lambda: is_refused("0F0,0F0,0B0"),
    "a recomputation needs what came in": lambda: needs(
        "0F0,0B0\n1C0,1R0,1B0", "1R0", "activation of stage 0 for microbatch 0"
    ),
    "what came in is held until the backward": lambda: needs(PAIR, "1B0", "activation of stage 0 for microbatch 0"),
    "or until the weight half": lambda: needs(SPLIT, "1W0", "activation of stage 0 for microbatch 0"),
    "what F saved is held until the backward": lambda: needs(PAIR, "0B0", "saved tensors of 0F0"),
    "or until the input half": lambda: needs(SPLIT, "0I0", "saved tensors of 0F0"),
    "an activation counts until W": lambda: simulate(Schedule.from_csv("0F0,0I0,0F1,0I1,0W0,0W1")).peak_live == [2],
    "and a weight half frees it": lambda: simulate(Schedule.from_csv("0F0,0I0,0W0,0F1,0I1,0W1")).peak_live == [1],
    "an activation counts until B": lambda: simulate(Schedule.from_csv("0F0,0B0,0F1,0B1")).peak_live == [1],
    "a checkpointed forward holds nothing": lambda: simulate(Schedule.from_csv(RECOMPUTED)).peak_live == [1],
    "a receive needs a send": lambda: is_refused(SENT.replace("0SEND_F0,", ""))
    and is_refused(SENT.replace(",1SEND_B0", "")),
    "what is used must have been received": lambda: is_refused(SENT.replace("1RECV_F0,", ""))
    and is_refused(SENT.replace("0RECV_B0,", "")),
    "what is sent must have been made": lambda: is_refused(SENT.replace("0F0,0SEND_F0", "0SEND_F0,0F0"))
    and is_refused(SENT.replace("1B0,1SEND_B0", "1SEND_B0,1B0")),
    "an update needs the summed gradient": lambda: is_refused("0F0,0B0,0OPT")
    and is_refused("0F0,0B0,0OPT,0REDUCE_GRAD"),
    "a sum needs every microbatch": lambda: is_refused("0F0,0B0,0F1,0REDUCE_GRAD,0B1"),
    "a sum is made once": lambda: is_refused("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD"),
    "weights that were let go must be gathered again": lambda: is_refused(
        SHARDED.replace("0RESHARD,0UNSHARD,0B0", "0RESHARD,0B0")
    ),
    "weights are gathered before they are used": lambda: is_refused("0F0,0UNSHARD,0B0"),
    "also by a checkpointed forward": lambda: is_refused("0C0,0UNSHARD,0R0,0B0"),
    "also by a recomputation": lambda: is_refused("0UNSHARD,0C0,0RESHARD,0R0,0UNSHARD,0B0"),
    "also by a backward": lambda: is_refused("0UNSHARD,0F0,0RESHARD,0B0"),
    "also by an input half": lambda: is_refused("0UNSHARD,0F0,0RESHARD,0I0,0UNSHARD,0W0"),
    "only gathered weights can be let go": lambda: is_refused("0UNSHARD,0F0,0B0,0RESHARD,0RESHARD"),
    "what is gathered are the weights at rest": lambda: needs(SHARDED, "0UNSHARD", "weights of stage 0"),
    "an update starts from the weights before it": lambda: needs(STEP, "0OPT", "weights of stage 0"),
    "an update makes the next weights": lambda: gives(STEP, "0OPT", "weights of stage 0, version 1"),
    "a copy to the host needs what it copies": lambda: needs(AWAY, "0SWAP_OUT0", "saved tensors of 0F0")
    and needs(AWAY, "0SWAP_OUT0", "input of 0F0"),
    "so does a copy back": lambda: needs(AWAY, "0SWAP_IN0", "saved tensors of 0F0 on the host")
    and needs(AWAY, "0SWAP_IN0", "input of 0F0 on the host"),
    "what is on the host must come back": lambda: is_refused(AWAY.replace("0SWAP_IN0,", "")),
    "both halves of a backward need what came back": lambda: is_valid(AWAY.replace("0B0", "0I0,0W0")),
    "what is on the device cannot come back": lambda: is_refused(AWAY.replace("0SWAP_OUT0,", "")),
    "a copy to the host makes room": lambda: gives(AWAY, "0SWAP_OUT0", "room on the device"),
    "a step waits for its norm, or only for the squares so far": lambda: all(
        map(is_valid, (NORMED, STEPPED, ON_ONE_RANK))
    ),
    "a rank adds its squares to those of the rank before": lambda: comes_after(NORMED, "1NORM", "0NORM"),
    "squares are those of summed gradients": lambda: is_refused(
        NORMED.replace("0REDUCE_GRAD,0NORM", "0NORM,0REDUCE_GRAD")
    ),
    "of all stages on the rank": lambda: is_refused(ON_ONE_RANK.replace("1REDUCE_GRAD,0NORM", "0NORM,1REDUCE_GRAD")),
    "the norm comes back from the rank after": lambda: comes_after(NORMED, "0VALID", "1VALID")
    and is_refused(NORMED.replace("1VALID,", "")),
    "on the last rank it is the squares": lambda: needs(NORMED, "1VALID", "squares of ranks 0 to 1"),
    "a step needs the squares so far": lambda: is_refused(STEPPED.replace("0NORM,0OPT", "0OPT,0NORM")),
    "a backward uses the weights of its forward": lambda: is_refused("0F0#0,0B0#1,0REDUCE_GRAD,0OPT"),
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_fact(fact):
    assert FACTS[fact]()


def mutants():
    for kind, row in LAW.items():
        takes, makes = (side.split() for side in row.split("|"))
        for side, terms in enumerate((takes, makes)):
            for term in terms:
                left = [t for t in terms if t != term]
                sides = (left, makes) if side == 0 else (takes, left)
                yield (
                    kind,
                    f"{'does not take' if side == 0 else 'does not make'} {term}",
                    " | ".join(map(" ".join, sides)),
                )


@pytest.mark.parametrize("kind, what, row", list(mutants()), ids=lambda x: x.replace(" ", "_") if "|" not in x else "")
@pytest.mark.long
def test_every_term_of_the_law_is_needed(kind, what, row, monkeypatch):
    monkeypatch.setitem(LAW, kind, row)
    for fact in FACTS.values():
        try:
            if not fact():
                return
        except (Invalid, Stuck):
            return
    pytest.fail(f"{kind} {what}: no fact notices")


def test_a_fused_pair_makes_its_values_at_its_end():
    fused = Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1")
    assert [str(a) for a in fused.program[0]] == ["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"]
    assert simulate(validate(fused)).peak_live == [2]  # the forward of the pair allocates before its backward frees
    assert Schedule.from_csv(fused.to_csv()).program == fused.program


def test_a_skip_travels_on_its_own_edge():
    chain = Schedule.from_csv("0F0,0B0\n1F0,1B0\n2F0,2B0")
    skipping = chain.with_programs(list(chain.program), skips=((0, 2),))
    lowered = lower(skipping)
    assert "0SEND_F0>2" in str(lowered) and "2RECV_F0>0" in str(lowered) and "2SEND_B0>0" in str(lowered)
    validate(lowered)
    without = [[a for a in program if a.peer < 0] for program in lowered.program]
    with pytest.raises(Invalid, match="gradient of stage 2"):
        validate(lowered.with_programs(without))


def test_tied_stages_meet_in_one_sum():
    text = "0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD"
    alone = Schedule.from_csv(text)
    tied = alone.with_programs(list(alone.program), tied=((0, 1),))
    assert Flow(alone).meeting.max() == -1
    flow = Flow(tied)
    assert flow.attendance[0] == 2
    t = simulate(tied)
    assert t.begin[0, 2] == t.begin[0, 5]  # both sums begin when the later one has come


def test_two_tied_stages_of_one_rank_both_come_to_the_sum():
    alone = Schedule.from_csv("0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD\n2F0,2B0,2REDUCE_GRAD")
    tied = validate(alone.with_programs(list(alone.program), tied=((0, 1, 2),)))
    assert Flow(tied).attendance[0] == 3
    t = simulate(tied)
    assert len({t.begin[0, i] for i in (4, 5, 8)}) == 1
