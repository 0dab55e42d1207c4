"""Checkpoints: saved under any layout, loaded under any other, element for element; whole or refused, never a mixture.

Most tests play the ranks as threads of one process; the last ones use real ranks, and kill them.
"""

import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from hybridlab.core.where.layout import Cut, Layout, Param, even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.reshard import Piece, overlap, stretches
from hybridlab.training.checkpoints import checkpoint, index
from hybridlab.training.checkpoints.checkpoint import load, save
from hybridlab.training.checkpoints.folder import alone_in, newest, steps_of
from hybridlab.training.checkpoints.stored import weights
from hybridlab.world.processes.launch import RankError, ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])


# ---- ranks that are threads


class Actor:
    """A rank that is a thread: as much of a Comm as checkpoints use."""

    device = "cpu"

    def __init__(self, rank, size, told, meeting):
        self.rank, self.size, self._told, self._meeting = rank, size, told, meeting

    def barrier(self):
        self._meeting.wait(30)

    def all_gather(self, x, sizes=None):
        self._told[self.rank] = x
        self.barrier()
        joined = torch.cat(self._told)
        self.barrier()
        return joined


def together(size, function) -> list:
    """The results of function(comm) on all ranks; the error of the one that failed."""
    told, meeting = [None] * size, threading.Barrier(size)

    def act(rank):
        try:
            return function(Actor(rank, size, told, meeting))
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(size) as threads:
        running = [threads.submit(act, rank) for rank in range(size)]
    errors = [one.exception() for one in running if one.exception()]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [one.result() for one in running]


ALONE = Actor(0, 1, [None], threading.Barrier(1))


# ---- what is saved: every element of every parameter is a number of its own


def test_a_folder_that_a_host_does_not_share_is_refused_before_there_is_work(tmp_path):
    for name in ("one host", "another"):
        (tmp_path / name).mkdir()

    def of_two_hosts(comm):
        with pytest.raises(
            ValueError, match="is a different folder on the hosts of ranks 2, 3: give one that all hosts share"
        ):
            checkpoint.refuse_unshared(comm, tmp_path / ("one host" if comm.rank < 2 else "another"))

    together(4, of_two_hosts)
    together(4, lambda comm: checkpoint.refuse_unshared(comm, tmp_path / "another"))
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def whole(param, step=0):
    """A parameter and its optimizer's state, all of it."""
    numbers = torch.arange(np.prod(param.shape)).reshape(param.shape) + 1000 * step
    return {"value": numbers.float(), "exp_avg": (numbers % 251).bfloat16(), "step": torch.tensor(float(step))}


def kept(layout, rank, step=0):
    """What a rank keeps of it at rest."""
    return {
        name: {
            kind: x[layout.box(name, rank)].flatten()[layout.share(name, rank)] if x.ndim else x
            for kind, x in whole(layout[name], step).items()
        }
        for name in layout.held(rank)
    }


def store(folder, layout, step=0, pieces=kept, **how):
    """Save it, on all ranks of the layout's mesh."""
    notes = {"step": step, "task": "three layers"}
    return together(
        layout.mesh.size, lambda comm: save(comm, folder, layout, pieces(layout, comm.rank, step), notes, **how)
    )[0]


def same(some, others) -> bool:
    """Whether pieces are equal in names, order, kinds, dtypes, lengths and every bit."""
    return [(name, list(kinds)) for name, kinds in some.items()] == [(n, list(k)) for n, k in others.items()] and all(
        x.dtype == others[name][kind].dtype and torch.equal(x, others[name][kind])
        for name, kinds in some.items()
        for kind, x in kinds.items()
    )


def stored_once(path, layout) -> bool:
    """Whether the files hold as many elements as the model has: together with equal values, each of them once."""
    count = 0
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            count += sum(opened.get_tensor(key).numel() for key in opened.keys() if key.endswith("/value"))
    return count == sum(np.prod(param.shape, dtype=int) for param in layout.params)


def equal_under(path, layout, step=0) -> bool:
    """Whether every rank of a layout gets from a checkpoint what it should keep."""
    got = together(layout.mesh.size, lambda comm: load(comm, path, layout))
    return all(
        same(pieces, kept(layout, rank, step)) and notes == {"step": step, "task": "three layers"}
        for rank, (pieces, notes) in enumerate(got)
    )


# ---- layouts

SHAPES = {"wte": (7, 4), "qkv": (6, 4), "bias": (5,), "cube": (3, 4, 6)}


@st.composite
def spans(draw, length, parts):
    """Even, uneven, or shared by several coordinates."""
    way = draw(st.sampled_from(["even", "uneven", "copied"]))
    if way == "even":
        return even(length, parts)
    if way == "uneven":
        ends = [0, *sorted(draw(st.lists(st.integers(0, length), min_size=parts - 1, max_size=parts - 1))), length]
        return tuple(zip(ends, ends[1:]))
    copies = draw(st.sampled_from([n for n in range(1, parts + 1) if parts % n == 0]))
    return tuple(span for span in even(length, parts // copies) for _ in range(copies))


@st.composite
def layouts(draw):
    """Any layout of the four parameters on a mesh of up to eight ranks; in packs of one, or all in one pack."""
    axes = draw(st.permutations(["dp", "pp", "tp"]))
    sizes = draw(st.sampled_from([s for s in itertools.product((1, 2, 3, 4), repeat=3) if np.prod(s) <= 8]))
    mesh = Mesh(**dict(zip(axes, sizes)))
    held = st.sets(st.integers(0, mesh["pp"] - 1), min_size=1).map(lambda at: {"pp": tuple(sorted(at))})
    owners = st.sampled_from([n for n in (1, 2, 4) if mesh["dp"] % n == 0])
    one_pack = (draw(held), draw(owners)) if draw(st.booleans()) else None
    params = []
    for pack, (name, shape) in enumerate(SHAPES.items()):
        at, sharers = one_pack or (draw(held), draw(owners))
        dim = draw(st.integers(0, len(shape) - 1))
        shard = {"tp": Cut(dim, draw(spans(shape[dim], mesh["tp"])))} if draw(st.booleans()) else {}
        params.append(Param(name, shape, shard, at, ("dp",), 0 if one_pack else pack, sharers, rest=1))
    return Layout(mesh, tuple(params)).validate()


def layout_of(mesh, owners=1, copied=False):
    """A layout as a pipeline with tensor parallelism and ZeRO has it: a tied embedding, unevenly cut; two blocks."""
    tp, last = mesh["tp"], mesh["pp"] - 1
    columns = tuple(span for span in even(8, max(tp // 2, 1)) for _ in range(min(tp, 2))) if copied else even(8, tp)
    rest = {"owners": owners, "rest": 1 if owners > 1 else 0, "partial": ("dp",)}
    params = (
        Param("wte", (13, 6), {"tp": Cut(0, even(13, tp))}, {"pp": tuple({0, last})}, pack=0, **rest),
        Param("first", (6, 8), {"tp": Cut(1, columns)}, {"pp": (0,)}, pack=1, **rest),
        Param("bias", (5,), {}, {"pp": (0,)}, pack=1, **rest),
        Param("second", (8, 6), {"tp": Cut(0, columns)}, {"pp": (last,)}, pack=2, **rest),
    )
    return Layout(mesh, params).validate()


ONE = layout_of(Mesh(dp=1))
SHARED = layout_of(Mesh(dp=4), owners=4)
HYBRID = layout_of(Mesh(dp=2, pp=2, tp=2), owners=2)
OTHERS = {
    "one": ONE,
    "tp=4": layout_of(Mesh(tp=4)),
    "tp=4, copied": layout_of(Mesh(tp=4), copied=True),
    "dp=4, shared by two": layout_of(Mesh(dp=4), owners=2),
    "dp=4, shared by four": SHARED,
    "pp=2, dp=2": layout_of(Mesh(pp=2, dp=2), owners=2),
}


# ---- resharding


def test_a_piece_is_in_stretches_that_hold_something():
    box, share = (slice(1, 3), slice(0, 4)), slice(4, 8)  # the second of the two lines of the box, and no empty first
    assert [one.tolist() for one in stretches((4, 6), Piece(box, share))] == [[12], [0], [4]]


@st.composite
def pieces_of(draw, shape):
    """Any share of any box."""
    box = tuple(slice(*sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)
    size = int(np.prod([span.stop - span.start for span in box]))
    return Piece(box, slice(*sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))))


@given(st.data())
@settings(max_examples=300)
@pytest.mark.long
def test_pieces_meet_in_the_elements_that_both_have(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=3)))
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    there, here = data.draw(pieces_of(shape)), data.draw(pieces_of(shape))
    theirs, ours = (numbers[piece.box].ravel()[piece.share] for piece in (there, here))
    pairs = [(theirs[a + i], ours[b + i]) for a, b, count in overlap(shape, there, here) for i in range(count)]
    assert [a for a, b in pairs] == [b for a, b in pairs] == np.intersect1d(theirs, ours).tolist()


@given(layouts(), layouts())
@settings(max_examples=60)
@pytest.mark.long
def test_every_element_of_any_layout_comes_from_one_place_of_any_other(before, after):
    of = lambda layout, name, rank: Piece(layout.box(name, rank), layout.share(name, rank))
    for name, shape in SHAPES.items():
        writers = [of(before, name, rank) for rank in range(before.mesh.size) if before.counts(name, rank)]
        for rank in range(after.mesh.size):
            if after.box(name, rank) is not None:
                here = of(after, name, rank)
                found = [b + i for there in writers for _, b, n in overlap(shape, there, here) for i in range(n)]
                assert sorted(found) == list(range(here.share.stop - here.share.start))


@given(layouts(), layouts())
@settings(max_examples=25)
@pytest.mark.long
def test_saved_under_any_layout_and_loaded_under_any_other(before, after):
    with tempfile.TemporaryDirectory() as folder:
        path = store(folder, before)
        assert stored_once(path, before)
        assert equal_under(path, after)


@pytest.mark.parametrize("after", OTHERS.values(), ids=OTHERS)
@pytest.mark.long
def test_a_hybrid_layout_and_others_both_ways(tmp_path, after):
    assert equal_under(store(tmp_path / "there", HYBRID), after)
    assert equal_under(store(tmp_path / "back", after), HYBRID)


def test_a_rank_that_counts_nothing_writes_no_file(tmp_path):
    path = store(tmp_path, layout_of(Mesh(dp=2)))
    assert sorted(file.name for file in path.iterdir()) == ["checkpoint.json", "rank-000.safetensors"]


class Counted:
    """A file, or a tensor in it, that notes how many elements are read."""

    def __init__(self, inner, read):
        self.inner, self.read = inner, read
        self.get_shape = getattr(inner, "get_shape", None)

    def __enter__(self):
        return Counted(self.inner.__enter__(), self.read)

    def __exit__(self, *_):
        self.inner.__exit__(*_)

    def get_slice(self, key):
        return Counted(self.inner.get_slice(key), self.read)

    def __getitem__(self, span):
        self.read.append(self.inner[span].numel())
        return self.inner[span]


def test_only_what_is_needed_is_read(tmp_path, monkeypatch):
    path, read = store(tmp_path, ONE), []
    monkeypatch.setattr(checkpoint, "safe_open", lambda *how: Counted(safe_open(*how), read))
    pieces, _ = load(Actor(3, 4, [None], threading.Barrier(1)), path, SHARED)
    assert sum(read) == sum(x.numel() for kinds in pieces.values() for x in kinds.values())


# ---- mutants: one line is wrong, and the comparison above sees it


def swapped(layout, name, rank, right=Layout.share_number):
    return layout[name].owners - 1 - right(layout, name, rank)


def off_by_one(layout, rank, name, kinds, right=index._of_piece):
    told = right(layout, rank, name, kinds)
    return told | {"share": [end + 1 for end in told["share"]]}


@pytest.mark.slow
def test_mutant_shards_swapped_on_load_are_seen(tmp_path, monkeypatch):
    path = store(tmp_path, SHARED)
    with monkeypatch.context() as wrong:
        wrong.setattr(Layout, "share_number", swapped)
        got = together(4, lambda comm: load(comm, path, SHARED)[0])
    assert not all(same(pieces, kept(SHARED, rank)) for rank, pieces in enumerate(got))


def test_mutant_a_share_recorded_one_too_late_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_of_piece", off_by_one)
    with pytest.raises(
        ValueError, match=r"is damaged \(rank-003.safetensors has a piece of .* that lies outside of it"
    ):
        equal_under(store(tmp_path, SHARED), ONE)


def test_mutant_every_copy_written_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(Layout, "counts", lambda layout, name, rank: layout.box(name, rank) is not None)
    assert not stored_once(store(tmp_path, HYBRID), HYBRID)


def test_mutant_padding_stored_is_seen(tmp_path, monkeypatch):
    def padded(layout, rank, step):
        length = lambda name: layout.piece(layout[name].pack, rank)
        fill = lambda x, name: torch.nn.functional.pad(x, (0, length(name) - len(x))) if x.ndim else x
        pieces = kept(layout, rank, step)
        return {name: {kind: fill(x, name) for kind, x in kinds.items()} for name, kinds in pieces.items()}

    with pytest.raises(ValueError, match=r"value of \w+ has shape \(.*\), but rank . owns .* without padding"):
        store(tmp_path, SHARED, pieces=padded)
    monkeypatch.setattr(checkpoint, "_share", lambda layout, rank, name, kind, tensor: tensor)
    assert not stored_once(store(tmp_path, SHARED, pieces=padded), SHARED)


# ---- the folder


def test_a_folder_has_one_run_at_a_time_and_is_free_at_its_end_or_death(tmp_path):
    with alone_in(tmp_path):
        with pytest.raises(ValueError, match=f"another run is saving into {tmp_path}: wait for its end, or save"):
            with alone_in(tmp_path):
                pass
        with alone_in(None):
            pass
    assert not list(tmp_path.iterdir())
    words = "import sys; from hybridlab.training.checkpoints.folder import alone_in; from pathlib import Path\n"
    words += "with alone_in(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", words, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    with pytest.raises(ValueError, match="another run"):
        with alone_in(tmp_path):
            pass
    other.kill()
    with alone_in(tmp_path, patience=10.0):
        assert other.wait() == -signal.SIGKILL


def test_the_newest_stay_and_what_a_killed_run_left_goes(tmp_path):
    (tmp_path / "step-000002.writing").mkdir()
    (tmp_path / "step-000001.deleting").mkdir()
    (tmp_path / "step-000003.writing").write_text("")  # a file of this name had failed the save of step 3
    (tmp_path / "results").mkdir()
    assert newest(tmp_path) is None
    for step in (3, 9, 10):
        store(tmp_path, ONE, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "step-000009", "step-000010"]
    assert newest(tmp_path) == tmp_path / "step-000010"


def test_what_is_no_checkpoint_or_was_set_aside_by_hand_stays(tmp_path):
    store(tmp_path, ONE, 1).rename(tmp_path / "step-000001.old")
    (tmp_path / "step-000002").mkdir()
    (tmp_path / "step-000002" / "thesis.txt").write_text("mine")
    for step in (3, 4, 5):
        store(tmp_path, ONE, step)
    assert sorted(path.name[-5:] for path in tmp_path.iterdir()) == ["00002", "00004", "00005", "1.old"]


def test_beside_a_damaged_checkpoint_the_whole_one_before_it_is_named(tmp_path):
    for step in (1, 2):
        store(tmp_path, ONE, step)
    for name, says in (("rank-000.safetensors", "has 0 bytes"), ("checkpoint.json", "is damaged")):
        os.truncate(tmp_path / "step-000002" / name, 0)
        with pytest.raises(ValueError, match=f"{says}.*; .*/step-000001 is complete: delete .*/step-000002 to contin"):
            weights(tmp_path)
    os.truncate(tmp_path / "step-000001" / "rank-000.safetensors", 0)
    with pytest.raises(ValueError, match=r"is damaged \(it is not JSON"):
        weights(tmp_path)


def test_a_million_steps_are_newer_than_the_last_before(tmp_path):
    for step in (999_998, 999_999, 1_000_000):
        store(tmp_path, ONE, step)
    assert newest(tmp_path).name == "step-1000000"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_that_goes_back_keeps_what_it_saves_and_the_later_ones(tmp_path):
    for step in (8, 9):
        store(tmp_path, ONE, step)
    store(tmp_path, ONE, 5, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000005", "step-000008", "step-000009"]


@pytest.mark.slow
def test_a_step_is_not_written_twice(tmp_path):
    store(tmp_path, HYBRID, 4)
    with pytest.raises(ValueError, match="step-000004 already exists: delete it, or save into another folder"):
        store(tmp_path, HYBRID, 4)
    assert equal_under(newest(tmp_path), ONE, 4)


def test_notes_of_any_json_come_back(tmp_path):
    notes = {"step": 1, "random": [2**63, 0.1], "by rank": {3: None, 10: "é"}, "nested": {"b": True, "a": float("inf")}}
    path = save(ALONE, tmp_path, ONE, kept(ONE, 0), notes)
    assert load(ALONE, path, ONE)[1] == json.loads(json.dumps(notes))


@pytest.mark.slow
def test_the_record_says_which_layout_wrote_it(tmp_path):
    record = json.loads((store(tmp_path, HYBRID) / index.NAME).read_text())
    assert record["mesh"] == HYBRID.mesh.axes
    assert record["shapes"] == {param.name: list(param.shape) for param in HYBRID.params}
    assert len(record["files"]) > 1


# ---- refused


@pytest.fixture
def stored(tmp_path):
    """A checkpoint of eight ranks that a test may damage."""
    return store(tmp_path, HYBRID)


def changed(path, **values):
    """Write other values into a record, signed again: what another version or program could have written."""
    record = index.read(path) | values
    record["sha256"] = index._signature(record)
    (path / "checkpoint.json").write_text(json.dumps(record))


def forged(record, change):
    """A record in which something is otherwise: change(the record, one file's entry, one piece of it)."""
    record = json.loads(json.dumps(record))
    entry = next(iter(record["files"].values()))
    change(record, entry, next(iter(entry["pieces"].values())))
    return record


def without(name):
    return lambda record, entry, piece: [one.pop(name, None) for one in (record, entry, piece)]


FORGED = {
    "a piece too few": (lambda r, e, p: e["pieces"].pop(next(iter(e["pieces"]))), "do not make up|no file has"),
    "a piece twice": (lambda r, e, p: [*r["files"].values()][-1]["pieces"].update(e["pieces"]), "make up|overlap"),
    "a share that is shorter": (lambda r, e, p: p["share"].__setitem__(1, p["share"][1] - 1), "do not make up"),
    "a box that is shorter": (lambda r, e, p: p["box"][0].__setitem__(1, p["box"][0][1] - 1), "outside|make up"),
    "a box outside": (lambda r, e, p: p["box"][0].__setitem__(1, 10**9), "lies outside of it"),
    "a box below": (lambda r, e, p: p["box"][0].__setitem__(0, -1), "lies outside of it"),
    "a box of words": (lambda r, e, p: p.update(box=["a", "b"]), "lies outside of it"),
    "a box of no dim": (lambda r, e, p: p.update(box=[]), "lies outside of it"),
    "a share of three": (lambda r, e, p: p.update(share=[0, 1, 2]), "lies outside of it"),
    "a share that is true": (lambda r, e, p: p.update(share=[False, True]), "lies outside of it"),
    "no kinds": (lambda r, e, p: p.update(kinds={}), "tells no kinds"),
    "kinds of their own": (lambda r, e, p: p["kinds"].update(value="nn.Module"), "tells no kinds"),
    "another kind": (lambda r, e, p: p["kinds"].update(more="float32"), "differ in kind|has no more of"),
    "a piece of nothing": (lambda r, e, p: e["pieces"].update(other=p), "has a piece of other, which has no shape"),
    "a shape more": (lambda r, e, p: r["shapes"].update(other=[2]), "do not make up other|no file has other"),
    "a shape of words": (lambda r, e, p: r["shapes"].update(other="ab"), "the shape of other is ab"),
    "a shape below 0": (lambda r, e, p: r["shapes"].update(other=[-1]), r"the shape of other is \[-1\]"),
    "a file elsewhere": (lambda r, e, p: r["files"].update({"../x": e}), "it names a file '../x'"),
    "a file that is a list": (lambda r, e, p: r["files"].update(x=[]), "it names a file 'x'"),
    "a length of words": (lambda r, e, p: e.update(bytes="8"), "has no length or digest"),
    "notes that are a list": (lambda r, e, p: r.update(notes=[1]), "its notes have no step"),
    "a step of words": (lambda r, e, p: r["notes"].update(step="3"), "its notes have no step"),
    "a version of words": (lambda r, e, p: r.update(version="1"), r"is damaged \(its version is not a number"),
    "no version": (without("version"), r"is damaged \(its version is not a number"),
    "no notes": (without("notes"), "its notes have no step"),
    "no files": (without("files"), "it has no table of shapes and files"),
    "no shapes": (without("shapes"), "it has no table of shapes and files"),
    "no pieces": (without("pieces"), "has no table of pieces"),
    "no box": (without("box"), "lies outside of it"),
    "no digest": (lambda r, e, p: e.pop("sha256"), "has no length or digest"),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("layout", [HYBRID, SHARED], ids=["boxes", "shares"])
def test_a_record_that_cannot_be_is_refused_in_a_sentence(tmp_path, name, layout):
    """Signed anew, so that its digest fits."""
    change, says = FORGED[name]
    path = store(tmp_path, layout)
    record = forged(index.read(path), change)
    record["sha256"] = index._signature({name: value for name, value in record.items() if name != "sha256"})
    (path / "checkpoint.json").write_text(json.dumps(record))
    for read in (partial(load, ALONE, path, ONE), partial(weights, path)):
        with pytest.raises(ValueError, match=says) as found:
            read()
        assert "is damaged" in str(found.value) and "\n" not in str(found.value)


def test_a_record_that_is_nested_without_end_is_no_json(stored):
    (stored / "checkpoint.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"is damaged \(it is not JSON"):
        load(ALONE, stored, ONE)


@pytest.mark.slow
def test_another_layout_of_the_same_model_is_no_other_model(stored):
    assert equal_under(stored, OTHERS["tp=4"])


def other_model(change):
    return replace(ONE, params=tuple(change(list(ONE.params))))


@pytest.mark.parametrize(
    "model, says",
    {
        "more": (lambda params: [*params, Param("lm_head", (2,))], "it has no parameter lm_head"),
        "less": (lambda params: params[:-1], "it has a parameter second, which this one lacks"),
        "shape": (
            lambda params: [replace(params[0], shape=(14, 6), shard={}), *params[1:]],
            r"wte has shape \(13, 6\) there and \(14, 6\) here",
        ),
    }.values(),
    ids=["more", "less", "shape"],
)
def test_another_model_is_refused_by_parameter(stored, model, says):
    with pytest.raises(ValueError, match=rf"^{stored} is a checkpoint of a different model \({says}\): give"):
        load(ALONE, stored, other_model(model))


def test_the_advice_about_a_damaged_file_comes_after_three_names_of_many(tmp_path):
    """An error of a rank is shortened: the checkpoint to go on from must not be what is left out."""
    (tmp_path / "f").write_bytes(b"")
    record = {"files": {"f": {"bytes": 1, "pieces": dict.fromkeys((f"blocks.{k}.weight" for k in range(96)), {})}}}
    with pytest.raises(
        ValueError, match=r"parts of blocks.0.weight, blocks.1.weight, blocks.2.weight and 93 more: copy"
    ):
        index.refuse_damage(tmp_path, record)


def test_a_missing_file_is_refused_by_name(stored):
    (stored / "rank-002.safetensors").unlink()
    with pytest.raises(ValueError, match="rank-002.safetensors is missing, and it contains parts of second"):
        equal_under(stored, ONE)


@pytest.mark.parametrize("left", [0, 7, 500])
def test_a_truncated_file_is_refused_by_name(stored, left):
    os.truncate(stored / "rank-001.safetensors", left)
    with pytest.raises(ValueError, match=f"rank-001.safetensors has {left} bytes, but had .*, and it contains parts"):
        equal_under(stored, ONE)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_damaged_file_is_refused_by_name_on_however_many_ranks(stored, size):
    file = stored / "rank-003.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"rank-003.safetensors is damaged \(.*SHA-256.*\), and it contains parts of"):
        equal_under(stored, layout_of(Mesh(dp=size)))


def test_nobody_loads_what_one_rank_finds_damaged(stored):
    content = (stored / "rank-002.safetensors").read_bytes()
    (stored / "rank-002.safetensors").write_bytes(content[:-1] + b"!")
    loaded = []
    with pytest.raises(ValueError, match="rank-002.safetensors is damaged"):
        together(4, lambda comm: loaded.append(load(comm, stored, SHARED)))
    assert not loaded


@pytest.mark.slow
def test_any_flipped_bit_is_refused_or_changes_nothing(stored):
    choose = random.Random(1)
    for file in sorted(stored.iterdir()) * 12:
        content = file.read_bytes()
        at = choose.randrange(len(content))
        file.write_bytes(content[:at] + bytes([content[at] ^ 1 << choose.randrange(8)]) + content[at + 1 :])
        try:
            unchanged = equal_under(stored, ONE)
        except ValueError as error:
            assert file.name in str(error)
        else:
            assert unchanged and file.suffix == ".json"  # another white space
        file.write_bytes(content)


@pytest.mark.parametrize(
    "text, says",
    {
        '{"format": "pt", "version": 1}': "is not of the format 'hybridlab checkpoint'",
        "[1, 2]": "is not of the format 'hybridlab checkpoint'",
        '{"format": "hybr': r"is damaged \(it is not JSON",
        "\udcff": r"is damaged \(it is not JSON",
        '{"format": "hybridlab checkpoint", "version": 1}': r"is damaged \(it does not match its SHA-256",
    }.items(),
)
def test_a_foreign_record_is_refused(stored, text, says):
    (stored / "checkpoint.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=f"checkpoint.json {says}"):
        load(ALONE, stored, ONE)


def test_a_foreign_folder_and_none_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(
            ValueError, match=f"^{folder} is not a checkpoint, because it has no checkpoint.json: give a"
        ):
            load(ALONE, folder, ONE)


def test_a_later_version_is_refused(stored):
    changed(stored, version=2)
    with pytest.raises(ValueError, match="has version 2, but this hybridlab reads 1: install a newer hybridlab"):
        load(ALONE, stored, ONE)


# ---- ended while saving


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    store(tmp_path, ONE, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most, says in ((100, r"rank-000.safetensors: .*; earlier checkpoints are complete"), (1500, "too large")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))  # no file grows beyond that
        try:
            with pytest.raises(OSError, match=says):
                save(ALONE, tmp_path, ONE, kept(ONE, 0, 2), {"step": 2})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert newest(tmp_path).name == "step-000001" and equal_under(newest(tmp_path), ONE, 1)
    assert equal_under(store(tmp_path, ONE, 2), ONE, 2)


class Ended(BaseException):
    """The end of a process, as a test can have it at a chosen line."""


def ends_at(line, function) -> bool:
    """Whether calling the function reaches so many lines of the checkpoint's code, where it is ended."""
    lines = itertools.count()

    def trace(frame, event, _):
        if frame.f_code.co_filename not in (checkpoint.__file__, index.__file__):
            return None
        if event == "line" and next(lines) == line:
            raise Ended
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except Ended:
        return True
    finally:
        sys.settrace(former)
    return False


@pytest.mark.long
def test_ended_at_any_line_of_saving_there_is_the_old_checkpoint_or_the_new(tmp_path):
    small = replace(ONE, params=ONE.params[2:3])
    for step in (1, 2):
        store(tmp_path / "before", small, step)
    third, seen = {"step": 3, "task": "three layers"}, []
    for line in itertools.count():
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(line))
        ended = ends_at(line, partial(save, ALONE, folder, small, kept(small, 0, 3), third))
        seen.append(int(newest(folder).name[-1]))
        assert equal_under(newest(folder), small, seen[-1])
        store(folder, small, 4)
        assert not list(folder.glob("*.*")) and newest(folder).name == "step-000004"
        if not ended:
            break
    assert seen == sorted(seen) and set(seen) == {2, 3} and len(seen) > 50


def test_ended_while_an_old_checkpoint_is_deleted_it_is_none(tmp_path, monkeypatch):
    def in_part(folder):
        next(folder.iterdir()).unlink()
        raise Ended

    for step in (1, 2):
        store(tmp_path, ONE, step)
    with monkeypatch.context() as patched, pytest.raises(Ended):
        patched.setattr(shutil, "rmtree", in_part)
        save(ALONE, tmp_path, ONE, kept(ONE, 0, 3), {"step": 3, "task": "three layers"})
    assert all(equal_under(path, ONE, step) for step, path in steps_of(tmp_path).items())


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    flushed, handles, flush, rename = [], [], os.fsync, pathlib.Path.rename
    place = lambda path: path.stat().st_ino

    def look(path, target):
        assert sorted(flushed) == sorted(map(place, [path, *path.iterdir()]))
        return rename(path, target)

    def noted(handle):
        flush(handle)
        flushed.append(os.fstat(handle).st_ino)
        handles.append(handle)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(pathlib.Path, "rename", look)
    store(tmp_path, HYBRID)
    assert flushed[-1] == place(tmp_path) and len(flushed) > 3
    for handle in set(handles):
        with pytest.raises(OSError):
            os.fstat(handle)  # closed: a long run saves more often than it may have files open


# ---- real ranks


def on_rank(comm, layout, folder):
    return str(save(comm, folder, layout, kept(layout, comm.rank), {"step": 0, "task": "three layers"}))


def again(comm, layout, path):
    pieces, notes = load(comm, path, layout)
    return same(pieces, kept(layout, comm.rank)) and notes["step"] == 0


@pytest.mark.ranks
def test_eight_real_ranks_save_and_others_load(tmp_path):
    with ranks(HYBRID.mesh) as pool:
        (path,) = set(map(pathlib.Path, pool.run(on_rank, HYBRID, tmp_path)))
    assert stored_once(path, HYBRID)
    for name in ("one", "tp=4", "dp=4, shared by four"):
        with ranks(OTHERS[name].mesh) as pool:
            assert all(pool.run(again, OTHERS[name], path))


@pytest.mark.ranks
def test_damage_that_one_rank_finds_ends_all(tmp_path):
    layout = layout_of(Mesh(tp=4))
    path = store(tmp_path, layout)
    os.truncate(path / "rank-002.safetensors", 0)
    with ranks(layout.mesh) as pool, pytest.raises(RankError, match="rank-002.safetensors has 0 bytes"):
        pool.run(again, layout, path)


def saved_beside(comm, layout, folder):
    write = checkpoint._write_file

    def slowly(*about, **more):
        time.sleep(0.3)
        return write(*about, **more)

    checkpoint._write_file = slowly
    about = comm, folder, layout, kept(layout, comm.rank, 7), {"step": 7, "task": "three layers"}
    return str(checkpoint.Writing(*about, aside=True).finish())


@pytest.mark.ranks
def test_the_end_of_a_save_waits_for_files_that_are_still_written(tmp_path):
    layout = layout_of(Mesh(dp=2), owners=2)
    with ranks(layout.mesh) as pool:
        (path,) = set(pool.run(saved_beside, layout, tmp_path))
    assert equal_under(pathlib.Path(path), ONE, 7)


def seconds_of_a_save(comm, layout, folder):
    for step in (1, 2, 3):  # the first one creates the folder
        begin = time.perf_counter()
        save(comm, folder, layout, kept(layout, comm.rank, step), {"step": step, "task": "three layers"})
    return time.perf_counter() - begin


def saves_for_ever(comm, layout, folder, first, victim, aside):
    under_way = None
    for step in itertools.count(first):
        if comm.rank == victim and step == first:
            comm.emit(pid=os.getpid())
        if under_way:
            under_way.finish()
            comm.emit(step=step - 1)
        about = comm, folder, layout, kept(layout, comm.rank, step), {"step": step, "task": "three layers"}
        under_way = checkpoint.Writing(*about, aside=aside)
        if not aside:
            under_way.finish()
            comm.emit(step=step)
            under_way = None


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.parametrize("aside, kills", [(False, 20), (True, 100)], ids=["before the next step", "beside the steps"])
def test_killed_at_any_moment_there_is_always_a_whole_checkpoint(tmp_path, aside, kills):
    """The newest is the last one that was told, or a later one, whole; and it is never an older one."""
    layout, moments, saved = layout_of(Mesh(dp=2), owners=2), random.Random(2), [0]

    def told(rank, event):
        if "step" in event:
            saved.append(event["step"])
        else:
            threading.Timer(moments.uniform(0, most), os.kill, (event["pid"], signal.SIGKILL)).start()

    store(tmp_path, layout, 0)
    with ranks(layout.mesh, on_event=told) as pool:
        most = 12 * pool.run(seconds_of_a_save, layout, tmp_path / "timed")[0]  # so that most come after some saves
        for moment in range(kills):
            first = int(newest(tmp_path).name.removeprefix("step-")) + 1
            with pytest.raises(RankError):
                pool.run(saves_for_ever, layout, tmp_path, first, moment % 2, aside)
            step = int(newest(tmp_path).name.removeprefix("step-"))
            assert saved[-1] <= step  # what a rank has told last may be lost with it
            assert equal_under(newest(tmp_path), ONE, step)
    assert len(saved) > kills, "most kills came after some checkpoints"


def test_nothing_here_can_unpickle():
    for module in (checkpoint, index):
        text = pathlib.Path(module.__file__).read_text()
        assert not any(word in text for word in ("import pickle", "torch.load", "np.load", "eval("))
