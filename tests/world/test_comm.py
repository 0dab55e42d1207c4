"""The door to the network: values, counts and bytes of every operation, asynchronous ones too, and the ring by hand."""

import ast
import itertools
import re
import sys
import time
import warnings
from pathlib import Path

import cloudpickle
import numpy
import pytest
import torch

import hybridlab
from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import placement
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import ring
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.message import Message, incoming, outgoing, settle
from hybridlab.world.talk.parts import joined, lengths, stacked

cloudpickle.register_pickle_by_value(sys.modules[__name__])
on_ranks = pytest.mark.ranks
gpu = pytest.mark.gpu


@pytest.fixture(scope="module", params=[2, 3, 4])
def pool(request):
    with ranks(request.param, timeout=20) as pool:
        yield pool


@pytest.fixture(scope="module")
def two():
    with ranks(2, timeout=20) as pool:
        yield pool


def numbers(rank, *shape):
    """Whole numbers, different on every rank: their sums are exact."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape) + 1000 * rank


# ---- what travels, and how it is counted


def each_collective(comm):
    """Every collective once, on 12 p rows of 8 bytes; returns values and (operation, group, bytes) of the ledger."""
    p, x = comm.size, numbers(comm.rank, 12 * comm.size)
    uneven = list(range(p))
    values = {
        "all_reduce": comm.all_reduce(x.clone()),
        "all_gather": comm.all_gather(x),
        "reduce_scatter": comm.reduce_scatter(x),
        "all_to_all": comm.all_to_all(x),
        "broadcast": comm.broadcast(x.clone(), source=p - 1),
        "uneven all_gather": comm.all_gather(x[: uneven[comm.rank]], sizes=uneven),
        "uneven reduce_scatter": comm.reduce_scatter(x[: sum(uneven)], sizes=uneven),
    }
    comm.barrier()
    return values, [(row["op"], row["group"], row["bytes"]) for row in comm.ledger.rows()]


@on_ranks
def test_values_counts_and_bytes_of_every_collective(pool):
    """The n of the cost formulas: bytes of the full tensor; of an all-to-all, those of one rank's buffer."""
    p = pool.size
    xs = [numbers(rank, 12 * p) for rank in range(p)]
    total, sizes = sum(xs), list(range(p))
    for rank, (values, rows) in enumerate(pool.run(each_collective)):
        part = slice(12 * rank, 12 * (rank + 1))
        assert values["all_reduce"].equal(total)
        assert values["all_gather"].equal(torch.cat(xs))
        assert values["reduce_scatter"].equal(total[part])
        assert values["all_to_all"].equal(torch.cat([x[part] for x in xs]))
        assert values["broadcast"].equal(xs[-1])
        assert values["uneven all_gather"].equal(torch.cat([x[:size] for x, size in zip(xs, sizes)]))
        assert values["uneven reduce_scatter"].equal(total[: sum(sizes)].split(sizes)[rank])
        n, padded = 12 * p * 8, p * (p - 1) * 8
        assert rows == [
            ("all_reduce", p, n),
            ("all_gather", p, p * n),
            ("reduce_scatter", p, n),
            ("all_to_all", p, n),
            ("broadcast", p, n),
            ("all_gather", p, padded),
            ("reduce_scatter", p, padded),
            ("barrier", p, 0),
        ]


@on_ranks
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_uneven_parts_along_any_dim(two, dim):
    def there_and_back(comm):
        x = numbers(0, 5, 5, 5)
        part = comm.reduce_scatter(x, dim=dim, sizes=(2, 3))
        return part.shape[dim], comm.all_gather(part, dim=dim, sizes=(2, 3))

    for rank, (length, x) in enumerate(two.run(there_and_back)):
        assert length == (2, 3)[rank] and x.equal(2 * numbers(0, 5, 5, 5))


@on_ranks
def test_lengths_may_be_integers_of_any_kind(two):
    def there_and_back(comm):
        x, sizes = numbers(0, 5), torch.tensor([2, 3])
        part = comm.reduce_scatter(x, sizes=[one.sum() for one in sizes.split(1)])
        sent, received = (sizes, [sizes[comm.rank]] * 2) if comm.rank else ([numpy.int64(2), 3], sizes[:1].repeat(2))
        return comm.all_gather(part, sizes=sizes), comm.all_to_all(x, sent=sent, received=received)

    for rank, (twice, parts) in enumerate(two.run(there_and_back)):
        assert twice.equal(2 * numbers(0, 5)) and parts.equal(numbers(0, 5).split([2, 3])[rank].repeat(2))


@on_ranks
def test_a_list_of_ranks_is_the_group_of_its_tuple(two):
    def both(comm):
        comm.open([0, 1])
        return comm.all_reduce(torch.ones(2), [0, 1]).equal(comm.all_reduce(torch.ones(2), (0, 1)))

    assert two.run(both) == [True, True]


# ---- operations that only start


@on_ranks
def test_what_only_starts_gives_the_same_once_waited_for(pool):
    def both(comm):
        x = numbers(comm.rank, 4 * comm.size)
        started = [comm.iall_reduce(x.clone()), comm.iall_gather(x), comm.ireduce_scatter(x)]
        results = [message.wait() for message in reversed(started)][::-1]
        again = [message.wait() for message in started]
        at_once = [comm.all_reduce(x.clone()), comm.all_gather(x), comm.reduce_scatter(x)]
        same = [a.equal(b) and a is c for a, b, c in zip(results, at_once, again)]
        rows = [(row["op"], row["bytes"]) for row in comm.ledger.rows()]
        return same, rows[:3] == rows[3:], all(row["end_ns"] for row in comm.ledger.rows())

    assert pool.run(both) == [([True] * 3, True, True)] * pool.size


@on_ranks
def test_a_message_can_be_asked_whether_it_is_over(two):
    """gloo itself says "no" for ever of some (torch 2.13). Rank 1 starts when rank 0, which asks, lets it."""

    def ask(comm):
        x, answers = torch.ones(4), {}
        starts = {
            "message": lambda: comm.irecv(x, 1) if comm.rank == 0 else comm.isend(x, 0),
            "all_reduce": lambda: comm.iall_reduce(x),
            "all_gather": lambda: comm.iall_gather(x),
            "reduce_scatter": lambda: comm.ireduce_scatter(x),
        }
        for name, start in starts.items():
            if comm.rank == 1:
                comm.recv(torch.empty(1), 0, tag=1)
            message = start()
            before = [message.done() for _ in range(3)]
            if comm.rank == 0:
                comm.send(torch.empty(1), 1, tag=1)
            end = time.monotonic() + 5
            while not message.done() and time.monotonic() < end:
                time.sleep(0.001)
            answers[name] = any(before), message.done()
            message.wait()
        return answers

    asking, _ = two.run(ask)
    assert asking == dict.fromkeys(("message", "all_reduce", "all_gather", "reduce_scatter"), (False, True))


@on_ranks
def test_a_group_of_one_gives_a_copy(two):
    """What is written into the result does not change the input, as in a larger group."""

    def written(comm):
        found = {}
        for name in ("iall_gather", "ireduce_scatter", "iall_to_all"):
            x = torch.ones(3)
            getattr(comm, name)(x, (comm.rank,)).wait().zero_()
            found[name] = x.sum().item()
        return found

    assert two.run(written) == 2 * [{"iall_gather": 3.0, "ireduce_scatter": 3.0, "iall_to_all": 3.0}]


@on_ranks
def test_a_lost_message_is_told_where_it_is_waited_for():
    def lose(comm):
        if comm.rank == 1:
            time.sleep(0.1)
            raise ValueError("gone")
        message = comm.irecv(torch.ones(4), 1)
        while not message.done():
            time.sleep(0.001)
        return "done"

    with ranks(2, timeout=5) as pool, pytest.raises(hybridlab.RankError, match="rank 1 .*gone"):
        pool.run(lose)


def test_without_anybody_a_message_is_over():
    message = Message(lambda: "here")
    assert message.done() and message.wait() == message.wait() == "here"


# ---- the ring


@on_ranks
@pytest.mark.parametrize("length", [1, 7, 12, 1000])
def test_the_ring_gives_torchs_sum_and_sends_2n_p_minus_1_over_p(pool, length):
    def both(comm, length):
        x = torch.randn(length, dtype=torch.float64, generator=torch.Generator().manual_seed(comm.rank))
        mine = ring.all_reduce(comm, x.clone())
        sent = comm.ledger.total("isend")
        return mine, comm.all_reduce(x.clone()), sent, comm.ledger.total("irecv")

    homes, p, n = pool.run(both, length), pool.size, 8 * length
    sizes = [len(chunk) * 8 for chunk in torch.empty(length).tensor_split(p)]
    for rank, (mine, torchs, sent, received) in enumerate(homes):
        assert (mine - torchs).abs().max() < 1e-12 and mine.equal(homes[0][0])
        assert p > 2 or mine.equal(torchs)  # two numbers have one sum
        assert sent == (2 * (p - 1), 2 * n - sizes[(rank + 1) % p] - sizes[(rank + 2) % p])
        assert received[0] == 2 * (p - 1)
        assert length % p or sent[1] == 2 * n * (p - 1) // p
    assert sum(sent for _, _, (_, sent), _ in homes) == 2 * n * (p - 1)


@on_ranks
def test_the_ring_along_an_axis_and_in_several_pieces():
    def along(comm):
        x = numbers(comm.rank, 4, 6).t()
        assert ring.all_reduce(comm, x, "dp") is x and not x.is_contiguous()
        alone = ring.all_reduce(comm, numbers(0, 3), "tp")
        return x, alone.equal(numbers(0, 3)), comm.ledger.total("isend", "dp")[1]

    with ranks(Mesh(dp=2, pp=2)) as pool:
        for rank, (x, alone, sent) in enumerate(pool.run(along)):
            assert x.equal((numbers(rank % 2, 4, 6) + numbers(rank % 2 + 2, 4, 6)).t()) and alone
            assert sent == 4 * 6 * 8  # 2 n (p-1)/p with p = 2


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_route_of_the_ring(ranks):
    """Every rank adds each chunk but its first one once, and ends with all sums; what is sent is what comes."""
    routes = [ring.route(ranks, here) for here in range(ranks)]
    holds = [[{here} for _ in range(ranks)] for here in range(ranks)]
    for step in zip(*routes):
        sent = [holds[here][one.sends] for here, one in enumerate(step)]
        for here, one in enumerate(step):
            assert one.gets == step[here - 1].sends
            holds[here][one.gets] = sent[here - 1] | (holds[here][one.gets] if one.adds else set())
    assert all(chunk == set(range(ranks)) for rank in holds for chunk in rank)


# ---- parts


def test_parts_are_cut_filled_and_joined():
    x = numbers(0, 3, 5)
    room = stacked(x, 1, [2, 0, 3])
    assert room.shape == (3, 3, 3) and room[0, :, 2].eq(0).all() and room[1].eq(0).all()
    assert joined(room, 1, [2, 0, 3]).equal(x)
    assert stacked(x, 0, [1, 1, 1]).data_ptr() == x.data_ptr()  # equal parts of the first dim are not copied


def test_parts_lie_in_one_piece_however_the_tensor_lies():
    for order in itertools.permutations(range(4)):
        x = numbers(0, 2, 4, 6, 8).permute(order)
        for dim in range(4):
            assert stacked(x, dim, [x.shape[dim] // 2] * 2).is_contiguous(), (order, dim)


@pytest.mark.parametrize("sizes", [(2, 2), (5,), (6, -1)])
def test_lengths_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ValueError, match="2 lengths that add up to 5"):
        lengths("split", 5, 0, 2, sizes)


@on_ranks
def test_a_group_whose_ranks_stand_in_another_order_is_refused(two):
    with pytest.raises(
        hybridlab.RankError, match=r"cannot be \(1, 0\): list its ranks in order and once each, \(0, 1\)"
    ):
        two.run(opens_backwards)


def opens_backwards(comm):
    comm.open((1, 0))


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (lambda comm: comm.all_gather(torch.ones(3), sizes=(1, 2)), "with 3 at position"),
        (lambda comm: comm.reduce_scatter(torch.ones(3)), "pad it to a multiple of 2, or give the length of each part"),
        (lambda comm: comm.all_to_all(torch.ones(3), sent=(1, 2)), "only one of sent= and received=: give both"),
        (lambda comm: comm.all_to_all(torch.ones(3), sent=(1, 2), received=(1,)), "give 2 lengths"),
        (lambda comm: comm.all_to_all(torch.ones(3), sent=(1, 2), received=(1, 1.5)), "give a list of integers"),
        (lambda comm: comm.reduce_scatter(torch.ones(3), sizes=3), "give a list of integers"),
        (lambda comm: comm.all_to_all(torch.ones(3), cut=1), "is not possible for shape"),
        (lambda comm: comm.iall_reduce(torch.ones(3), op="mean"), "choose one of sum"),
    ],
)
@pytest.mark.long
def test_impossible_operations_are_refused_before_anything_is_sent(two, wrong, sentence):
    def attempt(comm):
        try:
            wrong(comm)
        except ValueError as error:
            return str(error), len(comm.ledger)

    for text, counted in two.run(attempt):
        assert re.search(sentence, text) and counted == 0


# ---- tensors on a GPU, as far as a machine without one can tell


@on_ranks
def test_messages_by_way_of_the_host_never_show_their_tensor_to_the_backend(two):
    """On a GPU the detour is forced; here it is asked for, and every address that torch is given is noted."""

    def detour(comm):
        seen, real = [], {name: getattr(comm.net, name) for name in ("isend", "irecv")}

        def noting(name):
            return lambda x, *more: (seen.append(x.data_ptr()), real[name](x, *more))[1]

        comm._via_host = lambda x: True
        for name in real:
            setattr(comm.net, name, noting(name))
        try:
            x, y = numbers(comm.rank, 2, 3), torch.zeros(2, 3, dtype=torch.float64)
            arriving = comm.irecv(y, 1 - comm.rank)
            comm.send(x, 1 - comm.rank)
            assert arriving.wait() is y
        finally:
            for name, function in real.items():
                setattr(comm.net, name, function)
        return y, len(seen), sorted({x.data_ptr(), y.data_ptr()} & set(seen))

    for rank, (y, handed_over, own) in enumerate(two.run(detour)):
        assert y.equal(numbers(1 - rank, 2, 3)) and handed_over == 2 and not own


def test_only_a_tensor_on_a_gpu_makes_the_detour_and_only_with_gloo():
    door = Comm.__new__(Comm)
    for gpus, on_gpu, via_host in [(0, False, False), (1, True, True), (1, False, False), (2, True, False)]:
        door._placed = placement(2, gpus=gpus)
        assert door._via_host(torch.empty(1, device="meta" if on_gpu else "cpu")) == via_host


def test_a_detour_ends_where_it_should():
    x = numbers(0, 2, 3)
    twin = outgoing(x, via_host=True)
    assert twin.equal(x) and twin.data_ptr() != x.data_ptr()
    room = incoming(x, via_host=True)
    assert settle(room.fill_(7), x) is x and x.eq(7).all()
    y = torch.ones(3)
    assert incoming(y, via_host=False).data_ptr() == outgoing(y, via_host=False).data_ptr() == y.data_ptr()


@on_ranks
def test_a_rank_has_the_device_that_its_placement_gives():
    with ranks(2, placement=placement(2, gpus=0)) as pool:
        assert pool.run(lambda comm: str(comm.device)) == ["cpu", "cpu"]
    with pytest.raises(ValueError, match="has 3 ranks, but .* has 2: make them equal"):
        ranks(2, placement=placement(3, gpus=0))


@gpu
@on_ranks
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_everything_on_a_gpu_that_two_ranks_share():
    def everything(comm):
        x = numbers(comm.rank, 4).to(comm.device)
        y = torch.empty_like(x)
        arriving = comm.irecv(y, 1 - comm.rank)
        comm.send(x, 1 - comm.rank)
        arriving.wait()
        return [y, *(part for part in (comm.all_reduce(x.clone()), comm.all_gather(x), comm.reduce_scatter(x)))]

    with ranks(2, placement=placement(2, gpus=1)) as pool:
        for rank, found in enumerate(pool.run(everything)):
            x, other = numbers(rank, 4), numbers(1 - rank, 4)
            both = torch.cat([x, other] if rank == 0 else [other, x])
            wanted = [other, x + other, both, (x + other).split(2)[rank]]
            assert all(a.equal(b) for a, b in zip(found, wanted))


# ---- nothing that could run code


TENSORS = "weights_only=True"  # torch.load unpickles nothing but tensors and plain values then


def calls(file):
    """The dotted name of everything that a file calls or imports, without calls that read tensors only."""
    every = list(ast.walk(ast.parse(file.read_text())))
    harmless = {
        node.func for node in every if isinstance(node, ast.Call) and TENSORS in map(ast.unparse, node.keywords)
    }
    for node in every:
        if isinstance(node, ast.Attribute) and node not in harmless:
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def dangerous(name: str) -> bool:
    loads = ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "shelve.open", "marshal.loads")
    objects = name.rpartition(".")[2]
    return name.endswith(loads) or objects.endswith(("_object", "_object_list"))


def test_nothing_that_comes_from_a_rank_is_unpickled():
    """One place may unpickle: a rank, what its own kernel sends it."""
    package = Path(hybridlab.__file__).parent
    found = {(file.name, name) for file in package.rglob("*.py") for name in calls(file) if dangerous(name)}
    assert found == {("rank.py", "cloudpickle.loads")}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle\npickle.load(f)",
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "dist.all_gather_object(a, b)",
    ],
)
def test_unpickling_would_be_seen(line, tmp_path):
    (tmp_path / "file.py").write_text(line)
    assert any(map(dangerous, calls(tmp_path / "file.py")))
    (tmp_path / "file.py").write_text("torch.load(f, weights_only=True)")
    assert not any(map(dangerous, calls(tmp_path / "file.py")))


def _along_no_axis(comm):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            x = comm.all_reduce(torch.ones(2), "dp")
        comm.for_purpose("sums").all_reduce(torch.ones(2), "dp")
    return x.tolist(), [str(one.message) for one in told]


@on_ranks
def test_an_axis_that_the_mesh_has_not_is_told_once(two):
    (x, told), (_, other) = two.run(_along_no_axis)
    assert x == [1, 1] and other == [], "the first rank says it"
    assert len(told) == 1 and "has no axis dp: along it each rank is alone, and nothing is sent" in told[0]
