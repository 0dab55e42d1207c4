"""What ranks hold, what links carry, what sharded weights cost."""

import itertools

import pytest

import hybridlab as hl
from hybridlab.predict.bytes.live import Bytes, peak_bytes

pytestmark = pytest.mark.slow  # many cases

SYNCHRONOUS = [name for name in hl.schedules() if not name.startswith("pipedream")]


@pytest.mark.parametrize("name", hl.schedules())
def test_activations_in_pieces_peak_where_the_timeline_says(name):
    t = hl.simulate(hl.schedule(name, ranks=4, microbatches=8))
    assert peak_bytes(t) == t.peak_live


def test_what_i_frees_is_free_before_w():
    t = hl.simulate(hl.schedule("zb_h2", ranks=4, microbatches=8))
    until_w, until_i = peak_bytes(t), peak_bytes(t, Bytes(input=0, saved=1))
    assert until_w == [7, 7, 7, 7] and until_i == [7, 5, 3, 1]  # the last rank does I right after F


def test_receive_buffers_count_from_their_posting():
    s = hl.lower(hl.schedule("gpipe", ranks=2, microbatches=4))
    only = Bytes(input=0, buffer=10)
    program, early = (hl.simulate(s, hl.Costs(F=1, B=2, latency=0.5), post=post) for post in ("program", "early"))
    assert peak_bytes(program, only)[1] == 40  # each activation is kept until its backward
    assert peak_bytes(early, only)[1] >= peak_bytes(program, only)[1]
    assert peak_bytes(program, only)[0] <= 40


MESSAGES = {
    "gpipe": lambda p, m: 2 * m * (p - 1),
    "1f1b": lambda p, m: 2 * m * (p - 1),
    "naive": lambda p, m: 2 * m * (p - 1),
    "interleaved": lambda p, m: 2 * m * (2 * p - 1),
    "looped_bfs": lambda p, m: 2 * m * (2 * p - 1),
    "zb_h1": lambda p, m: 2 * m * (p - 1),
    "zb_interleaved": lambda p, m: 2 * m * (2 * p - 1),
    "zb_v": lambda p, m: 4 * m * (p - 1),
    "v_half": lambda p, m: 4 * m * (p - 1),
    "dualpipe": lambda p, m: 2 * m * (p - 1),
    "dualpipe_v": lambda p, m: 4 * m * (p - 1),
    "chimera": lambda p, m: 2 * m * (p - 1),
    "hanayo": lambda p, m: 4 * m * (p - 1),
    "subgraph": lambda p, m: 2 * m * {2: 1, 4: 4}[p],  # a chain of two; two branches
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_of_a_step(name):
    for p, m in ((2, 4), (4, 8), (4, 12)):
        links = hl.traffic(hl.schedule(name, ranks=p, microbatches=m), bytes=100)
        assert sum(count for count, _ in links.values()) == MESSAGES[name](p, m)
        assert all(weight == 100 * count for count, weight in links.values())


def test_bytes_may_differ_by_edge():
    links = hl.traffic(hl.schedule("gpipe", ranks=3, microbatches=2), bytes=(5, 7, 0))
    assert links[0, 1] == (2, 10) and links[2, 1] == (2, 14)


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_sharded_schedules_are_valid_and_cost_nothing_when_gathers_are_free(name):
    for active, dp in itertools.product((1, 2, 3), (1, 2)):
        plain = hl.schedule(name, ranks=4, microbatches=8, dp=dp)
        s = hl.validate(hl.sharded(plain, active=active))
        assert hl.simulate(s).length == hl.simulate(plain).length


def test_pytorch_gathers_the_same_stages():
    theirs = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(theirs, "_add_unshard_reshard"):
        pytest.skip("this torch has no such pass under its private name")
    for name, active in itertools.product(("gpipe", "1f1b", "interleaved", "looped_bfs", "zb_v"), (1, 2, 3)):
        s = hl.schedule(name, ranks=4, microbatches=8)
        for plain, mine in zip(s.program, hl.sharded(s, active).program):
            listed = theirs._add_unshard_reshard([theirs._Action.from_str(str(a)) for a in plain], active)
            gathered = [str(a) for a in listed if str(a).endswith("UNSHARD")]
            assert gathered == [str(a) for a in mine if a.kind == "UNSHARD"], (name, active)


def test_breadth_first_gathers_less_often_and_hides_it():
    costs = hl.Costs(F=1, B=2, gather=3, reduce=3)
    gathers, length = {}, {}
    for name in ("interleaved", "looped_bfs"):
        s = hl.sharded(hl.schedule(name, ranks=4, microbatches=8, chunks=4))
        gathers[name] = sum(a.kind == "UNSHARD" for a in s.program[0])
        length[name] = hl.simulate(s, costs).length
    assert gathers == {"interleaved": 12, "looped_bfs": 6}
    assert length["looped_bfs"] < length["interleaved"]
