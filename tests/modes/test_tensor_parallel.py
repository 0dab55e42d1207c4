"""Tensor parallelism: ranks that have parts of every matrix give the loss and the gradients of the whole model.

Every case is a model, whole in this process, in parts on two or four ranks. Gradients are compared as boxes of the
whole ones, after those that the layout calls partial are added. Each mutant is one line that somebody has written.
"""

import sys
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import cloudpickle
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import Layout, Param, even
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes import tensor_parallel
from hybridlab.modes.parts import scatter_gather, sequence_parallel, vocabulary_parallel
from hybridlab.predict.bytes import traffic
from hybridlab.runtime.halves import input_half, weight_half
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.gpt import GPT, token_loss
from hybridlab.training.stages import Links, cut, stages_of
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk import typed

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SEQUENCES, ROW, STEP = 3, 6, 2
WAYS = (2, 4)
BASE = dict(layers=2, width=16, heads=4, context=8, vocabulary=24)


class Case(NamedTuple):
    """A model, and how it is cut."""

    shape: Shape
    sequence: bool = False
    stages: int = 1  # with more than one, each rank sends its part of what crosses

    @property
    def context(self):
        return self.shape.context if self.sequence else None


def case(sequence=False, stages=1, **more):
    return Case(Shape(**BASE | more), sequence, stages)


MODELS = {
    "plain": {},
    "heads of keys and values are cut": dict(heads=8, kv_heads=4),
    "heads of keys and values are copied": dict(kv_heads=1),
    "heads of keys and values are cut and copied": dict(kv_heads=2),
    "an uneven vocabulary": dict(vocabulary=251),
    "an odd context": dict(context=31),
    "tied": dict(tied=True, vocabulary=27),
    "without attention": dict(heads=0, width=9),
    "dropout": dict(dropout=0.1),
    "everything odd": dict(layers=3, kv_heads=2, vocabulary=53, context=7, dropout=0.3, tied=True, skips=True),
}
CASES = {
    **{name: case(**more) for name, more in MODELS.items()},
    **{f"{name}, sequence": case(sequence=True, **more) for name, more in MODELS.items()},
    "in stages": case(stages=2, context=7),
    "in stages, with skips": case(stages=3, layers=5, skips=True, dropout=0.1),
}


# ---- one rank


@cache
def batch(shape):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(shape.vocabulary, (2, SEQUENCES, shape.context), generator=generator)


def stirred(shape):
    """A model in which no bias is zero and no norm is one, somewhere in its training."""
    model, generator = GPT(shape, dtype=torch.float64), torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape, dtype=torch.float64, generator=generator)
    model.draws.step, model.draws.row = STEP, ROW
    return model


@cache
def sizes(shape):
    return [(name, tuple(weight.shape)) for name, weight in GPT(shape).named_parameters()]


def laid_out(mesh, one: Case):
    params = (Param(name, shape, pack=number) for number, (name, shape) in enumerate(sizes(one.shape)))
    place = lambda param: tensor_parallel.place(param, one.shape, mesh["tp"], one.sequence)
    return Layout(mesh, tuple(params)).with_params(place).validate()


def links(one: Case):
    return Links.of(cut(one.shape, one.stages), model_of(one.shape).takes(GPT(one.shape))).crossing


def through(model, comm, one: Case):
    """The scores, by way of all stages, here on one rank."""
    edges, crossing = sorted(links(one), key=lambda edge: (edge[1] - edge[0] > 1, edge)), {}
    for number, stage in enumerate(stages_of(model_of(one.shape), model, cut(one.shape, one.stages))):
        entering = [x for edge in edges if edge[1] == number for x in crossing[edge]]
        leaving = tensor_parallel.narrowed(stage, comm, one.shape.context)(*(entering or batch(one.shape)[:1]))
        crossing |= zip([edge for edge in edges if edge[0] == number], leaving)
    return leaving


def on_rank(comm, one: Case, sabotage=None):
    """The loss, the gradient of every box, and the bytes that the modes sent; `sabotage` changes one line first."""
    with pytest.MonkeyPatch.context() as patch:
        if sabotage:
            sabotage(patch, comm)
        layout, door, before = laid_out(comm.mesh, one), comm.for_purpose("inside"), len(comm.ledger)
        comm.open(*layout.groups)
        model = stirred(one.shape)
        tensor_parallel.split(model, door, layout, one.context)
        scores = model(batch(one.shape)[0]) if one.stages == 1 else through(model, door, one)
        loss = tensor_parallel.token_loss(door, one.shape.vocabulary)(scores, batch(one.shape)[1])
        loss.backward()
        sent = sum(row["bytes"] for row in comm.ledger.rows()[before:] if row["purpose"] == "inside")
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        for name, gradient in gradients.items():
            comm.all_reduce(gradient, layout.summed(name, comm.rank))
        return loss.detach(), gradients, sent


def every_case(comm, cases):
    return [on_rank(comm, one) for one in cases]


# ---- the whole model


@cache
def alone(shape):
    model = stirred(shape)
    loss = token_loss(model(batch(shape)[0]), batch(shape)[1])
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters()}


def gaps(one: Case, mesh, homes):
    """The largest difference of the losses and of the gradients, each over the largest entry of its kind."""
    layout = laid_out(mesh, one)
    loss, whole = alone(one.shape)
    scale = max(float(gradient.abs().max()) for gradient in whole.values())
    yield max(float((its - loss).abs() / loss) for its, _, _ in homes)
    for name, gradient in whole.items():
        boxes = [(gradient[layout.box(name, rank)], found[name]) for rank, (_, found, _) in enumerate(homes)]
        yield max(float((a - b).abs().max()) / scale for a, b in boxes)


def worst(one, mesh, homes):
    return max(gaps(one, mesh, homes), key=lambda gap: (gap != gap, gap))


@pytest.fixture(scope="module", params=WAYS)
def pool(request):
    with ranks(Mesh(tp=request.param), timeout=20) as pool:
        yield pool


@pytest.mark.long
@pytest.mark.ranks
def test_every_model_in_parts_is_the_model_and_its_bytes_are_those_of_the_formula(pool):
    homes = pool.run(every_case, list(CASES.values()))
    for number, (name, one) in enumerate(CASES.items()):
        found = [home[number] for home in homes]
        assert worst(one, pool.mesh, found) < 1e-13, name
        terms = traffic.tensor(one.shape, SEQUENCES, pool.size, one.sequence, sum(map(len, links(one).values())))
        assert {sent for _, _, sent in found} == {8 * sum(terms.values())}, name


# ---- mutants


def backward_of_f_without_a_sum(patch, comm):
    right = typed.conjugate
    patch.setattr(typed, "conjugate", lambda arrow: "I->R" if arrow == "I->R" else right(arrow))


def no_g(patch, comm):
    patch.setattr(tensor_parallel.WholeStream, "leave", lambda stream, summand: summand)


def g_as_if_ranks_went_on_with_different_work(patch, comm):
    patch.setattr(tensor_parallel, "all_reduce", lambda *x, to: typed.all_reduce(*x, to="R"))


def no_f_before_the_head(patch, comm):
    right = tensor_parallel.WholeStream.enter
    but_head = lambda stream, module: None if isinstance(module, torch.nn.Linear) else right(stream, module)
    patch.setattr(tensor_parallel.WholeStream, "enter", but_head)


def bias_on_every_rank(patch, comm):
    inside = lambda layer, x: layer.stream.leave(functional.linear(x, layer.weight, layer.bias))
    patch.setattr(tensor_parallel.RowParallel, "forward", inside)


def cut_otherwise(word, change):
    """The spans of parameters with this in their names are others."""

    def mutant(patch, comm):
        right = tensor_parallel.placed

        def wrong(param, *how, **more):
            found = right(param, *how, **more)
            if word not in param.name or "shard" not in found:
                return found
            cut = found["shard"]["tp"]
            return found | {"shard": {"tp": cut._replace(spans=change(cut.spans))}}

        patch.setattr(tensor_parallel, "placed", wrong)

    return mutant


def heads_of_queries_in_another_order(patch, comm):
    cut_otherwise(".q.", lambda spans: spans[::-1])(patch, comm)


def heads_of_keys_dealt_in_turn(patch, comm):
    dealt = lambda spans: tuple((sorted(set(spans)) * len(spans))[: len(spans)])
    cut_otherwise(".k.", dealt)(patch, comm)
    cut_otherwise(".v.", dealt)(patch, comm)


def not_partial(word):
    """The gradients of parameters with this in their names are not added up."""

    def mutant(patch, comm):
        right = tensor_parallel.place
        wrong = lambda param, *how: right(param, *how) | ({"partial": ()} if word in param.name else {})
        patch.setattr(tensor_parallel, "place", wrong)

    return mutant


def everything_is_a_summand(patch, comm):
    right = tensor_parallel.place
    patch.setattr(tensor_parallel, "place", lambda param, *how: right(param, *how) | {"partial": ("tp",)})


def tokens_of_others_are_embedded(patch, comm):
    found = lambda layer, row: layer.stream.leave(functional.embedding(row, layer.weight))
    rows = lambda layer, tokens: vocabulary_parallel._rows(tokens, *layer.tokens)[1]
    patch.setattr(vocabulary_parallel.VocabularyEmbedding, "forward", lambda layer, x: found(layer, rows(layer, x)))


def targets_of_others_are_scored(patch, comm):
    right, loss = vocabulary_parallel._rows, vocabulary_parallel._CrossEntropy.forward

    def wrong(*x):
        patch.setattr(vocabulary_parallel, "_rows", lambda *x: (torch.ones_like(x[0]).bool(), right(*x)[1]))
        value = loss(*x)
        patch.setattr(vocabulary_parallel, "_rows", right)
        return value

    patch.setattr(vocabulary_parallel._CrossEntropy, "forward", staticmethod(wrong))


def every_rank_has_a_largest_score_of_its_own(patch, comm):
    right = comm.all_reduce
    patch.setattr(comm, "all_reduce", lambda x, axis=None, op="sum": x if op == "max" else right(x, axis, op))


def vocabulary_cut_as_if_it_were_even(patch, comm):
    wrong = lambda vocabulary, comm: [(k := vocabulary // comm.size) * comm.rank, k * comm.rank + k]
    patch.setattr(vocabulary_parallel, "_span", wrong)


def gathered_as_if_ranks_went_on_alike(patch, comm):
    patch.setattr(sequence_parallel, "all_gather", lambda *x, to, **how: typed.all_gather(*x, to="I", **how))


def boundary_gathered_as_if_ranks_did_different_work(patch, comm):
    patch.setattr(scatter_gather, "all_gather", lambda *x, to, **how: typed.all_gather(*x, to="R", **how))


def boundary_cut_as_if_gradients_were_summands(patch, comm):
    patch.setattr(scatter_gather, "split", lambda *x, of, **how: typed.split(*x, of="R", **how))


def after_placing(change):
    """Something is changed when the model has been told which positions are here."""

    def mutant(patch, comm):
        right = sequence_parallel.CutStream.place

        def wrong(stream, model, entered):
            right(stream, model, entered)
            change(comm, model)

        patch.setattr(sequence_parallel.CutStream, "place", wrong)

    return mutant


@after_placing
def dropout_seed_of_each_rank(comm, model):
    model.draws.seed += comm.rank


@after_placing
def dropout_forgets_where_its_positions_begin(comm, model):
    for dropout in model.dropouts:
        dropout.first = 0


@after_placing
def positions_begin_at_zero(comm, model):
    model.embed.first = 0


def gathered_again_another_part(patch, comm):
    right = sequence_parallel.GatheredAgain.__init__
    wrong = lambda again, stream, part, whole: right(again, stream, part.roll(1, 1), whole)
    patch.setattr(sequence_parallel.GatheredAgain, "__init__", wrong)


MUTANTS = {  # the case in which it must be seen: the mutants
    "plain": [backward_of_f_without_a_sum, no_g, g_as_if_ranks_went_on_with_different_work, no_f_before_the_head,
              bias_on_every_rank, heads_of_queries_in_another_order, everything_is_a_summand,
              tokens_of_others_are_embedded, targets_of_others_are_scored, every_rank_has_a_largest_score_of_its_own],
    "plain, sequence": [bias_on_every_rank, gathered_as_if_ranks_went_on_alike, gathered_again_another_part,
                        positions_begin_at_zero, tokens_of_others_are_embedded,
                        *map(not_partial, ("attention_norm", "head.norm", "out.bias", "down.bias", "position"))],
    "heads of keys and values are copied": [not_partial(".k."), not_partial(".v.")],
    "an uneven vocabulary": [vocabulary_cut_as_if_it_were_even],
    "dropout, sequence": [dropout_seed_of_each_rank, dropout_forgets_where_its_positions_begin],
    "in stages": [boundary_gathered_as_if_ranks_did_different_work, boundary_cut_as_if_gradients_were_summands],
}  # fmt: skip
ON_FOUR = {"heads of keys and values are cut and copied": [heads_of_keys_dealt_in_turn]}  # on two, no rank has a copy


def every_mutant(comm, mutants):
    return [on_rank(comm, CASES[name], mutant) for name, its in mutants.items() for mutant in its]


@pytest.mark.long
@pytest.mark.ranks
def test_every_mutant_is_caught(pool):
    mutants = MUTANTS | (ON_FOUR if pool.size == 4 else {})
    homes = zip(*pool.run(every_mutant, mutants))
    for name, mutant in [(name, mutant) for name, its in mutants.items() for mutant in its]:
        assert not worst(CASES[name], pool.mesh, next(homes)) < 1e-3, (name, mutant)


# ---- what sequence parallelism keeps


def keeps_the_whole(patch, comm):
    patch.setattr(sequence_parallel.GatheredAgain, "keep", lambda again, tensor: tensor.detach())


def gathers_for_every_matrix(patch, comm):
    right = sequence_parallel.GatheredAgain.keep

    def wrong(again, tensor):
        kept, again.readers = right(again, tensor), 1
        return kept

    patch.setattr(sequence_parallel.GatheredAgain, "keep", wrong)


def still_there(comm, one, sabotage=None):
    """How many of the gathered inputs exist when the forward is over, and how many there were."""
    seen = []

    def watched(*x, **how):
        whole = typed.all_gather(*x, **how)
        seen.append(StorageWeakRef(whole.untyped_storage()))
        return whole

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_parallel, "all_gather", watched)
        if sabotage:
            sabotage(patch, comm)
        model = stirred(one.shape)
        tensor_parallel.split(model, comm, laid_out(comm.mesh, one), one.context)
        scores = model(batch(one.shape)[0])
        return sum(not storage.expired() for storage in seen), len(seen), scores.shape[2]


@pytest.mark.ranks
def test_gathered_inputs_are_not_kept_but_gathered_once_more(pool):
    one = CASES["plain, sequence"]
    assert {home[:2] for home in pool.run(still_there, one)} == {(0, 5)}  # before two pairs of two blocks, and the head
    assert {home[:2] for home in pool.run(still_there, one, keeps_the_whole)} == {(5, 5)}
    formula = 8 * sum(traffic.tensor(one.shape, SEQUENCES, pool.size, True).values())
    gathered = 8 * SEQUENCES * one.shape.context * one.shape.width
    for sabotage, more in ((keeps_the_whole, -5), (gathers_for_every_matrix, 4)):  # q, k, v: two more in each block
        assert {sent for _, _, sent in pool.run(on_rank, one, sabotage)} == {formula + more * gathered}


def in_halves(comm, one):
    """Whether a block's gradients from its two halves are those of a whole backward; and the gathers of each."""
    found, gathers = [], []
    for whole in (True, False):
        model = stirred(one.shape)
        tensor_parallel.split(model, comm, laid_out(comm.mesh, one), one.context)
        before = comm.ledger.total("all_gather")[0]
        x_BTD = model.embed(batch(one.shape)[0]).detach().requires_grad_()
        y_BTD = model.blocks[0](x_BTD)
        if whole:
            y_BTD.backward(torch.ones_like(y_BTD))
            by_x = x_BTD.grad
        else:
            (by_x,), kept = input_half([y_BTD], [torch.ones_like(y_BTD)], [x_BTD])
            weight_half(kept)
        gathers.append(comm.ledger.total("all_gather")[0] - before)
        found.append([by_x, *(weight.grad for weight in model.blocks[0].parameters())])
    return all(torch.equal(a, b) for a, b in zip(*found)), gathers


@pytest.mark.ranks
def test_a_backward_in_two_halves_is_the_same_and_gathers_again_in_both(pool):
    more = traffic.tensor_of_layer(CASES["plain"].shape, 1, 1, 2, sequence=True)["blocks", "again"] // (8 * 16)
    for name, gathers in (("plain", [0, 0]), ("plain, sequence", [6, 6 + more])):  # 2 before pairs, 2 behind, 2 again
        assert pool.run(in_halves, CASES[name]) == [(True, gathers)] * pool.size


# ---- the loss


def loss_on_rank(comm, shape, scale, sabotage=None):
    with pytest.MonkeyPatch.context() as patch:
        if sabotage:
            sabotage(patch, comm)
        low, high = even(shape.vocabulary, comm.size)[comm.rank]
        scores = (scale * scored(shape))[..., low:high].clone().requires_grad_()
        loss = tensor_parallel.token_loss(comm, shape.vocabulary)(scores, batch(shape)[1])
        (2 * loss).backward()
        return loss.detach(), scores.grad, comm.ledger.total()


def scored(shape):
    size = (SEQUENCES, shape.context, shape.vocabulary)
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def without_the_largest(patch, comm):
    right = comm.all_reduce
    wrong = lambda x, axis=None, op="sum": x.zero_() if op == "max" else right(x, axis, op)
    patch.setattr(comm, "all_reduce", wrong)


@pytest.mark.ranks
@pytest.mark.parametrize("scale", [1, 1e4])
def test_the_loss_of_cut_scores_is_the_loss(pool, scale):
    shape = Shape(**BASE | {"vocabulary": 29})
    scores = (scale * scored(shape)).requires_grad_()
    loss = token_loss(scores, batch(shape)[1])
    (2 * loss).backward()
    homes = pool.run(loss_on_rank, shape, scale)
    assert all(torch.allclose(its, loss.detach(), rtol=1e-14) for its, _, _ in homes)
    assert torch.allclose(torch.cat([gradient for _, gradient, _ in homes], 2), scores.grad, atol=1e-14)
    assert {counted for _, _, counted in homes} == {(2, 3 * 8 * SEQUENCES * shape.context)}
    if scale > 1:
        assert not any(loss.isfinite() for loss, _, _ in pool.run(loss_on_rank, shape, scale, without_the_largest))


# ---- on no rank: records, refusals, parts


def seat(rank=0, **axes):
    """What a door says of where it is; nothing can be sent through it."""
    mesh = Mesh(**axes)
    return SimpleNamespace(mesh=mesh, rank=rank, coordinates=mesh.coordinates(rank))


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.long
def test_every_element_has_a_place_and_counts_once(name, ways):
    one = CASES[name]
    layout = laid_out(Mesh(tp=ways), one)
    counted = [layout.size(name, r) for name in layout.named for r in range(ways) if layout.counts(name, r)]
    assert sum(counted) == one.shape.parameters


def test_only_copies_that_see_different_data_are_summed():
    summed = lambda sequence, **more: {
        name.split(".")[-2]
        for one in [case(sequence, **more)]
        for name, param in laid_out(Mesh(tp=4), one).named.items()
        if param.partial
    }
    assert summed(False) == set()
    assert tensor_parallel.place(Param("blocks.0.mlp.down.bias", (32,)), Shape(), ways=2) == {}
    assert summed(False, kv_heads=2) == {"k", "v"}
    assert summed(True) == {"position", "attention_norm", "mlp_norm", "norm", "out", "down"}


@pytest.mark.parametrize(
    "ways, sequence, more, message",
    [
        (
            3,
            False,
            {},
            r"tp=3 cannot share out heads=4 and kv_heads=4: it must divide heads.* choose one of \[1, 2, 4\]",
        ),
        (3, False, dict(heads=12, width=24, kv_heads=4), r"choose one of \[1, 2, 4, 12\]"),
        (8, False, {}, "tp=8 cannot share out heads=4"),
        (4, False, dict(vocabulary=3), "tp=4 cannot divide 3 tokens of the vocabulary: choose tp up to 3"),
        (8, False, dict(heads=0, width=1), "tp=8 cannot divide 4 hidden units"),
        (4, True, dict(context=3), "tp=4 cannot divide 3 positions"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(ways, sequence, more, message):
    with pytest.raises(ValueError, match=message):
        tensor_parallel.refuse_misfits(Shape(**BASE | more).sizes, ways, sequence)


def test_what_fits_is_not_refused():
    for ways in WAYS:
        for one in CASES.values():
            tensor_parallel.refuse_misfits(one.shape.sizes, ways, one.sequence)
    tensor_parallel.refuse_misfits(Shape(**BASE | {"context": 3}).sizes, 4)


@pytest.mark.parametrize("sequence", [False, True])
def test_names_and_identities_stay_and_other_stages_are_left_alone(sequence):
    model, mesh = GPT(CASES["tied"].shape), Mesh(pp=2, tp=2)
    before = dict(model.named_parameters())
    at = lambda name: (1,) if name.startswith("blocks.1") else (0,)
    place = lambda param: tensor_parallel.place(param, CASES["tied"].shape, 2, sequence)
    params = [Param(name, tuple(weight.shape), at={"pp": at(name)}) for name, weight in before.items()]
    layout = Layout(mesh, tuple(params)).with_params(place)
    tensor_parallel.split(model, seat(1, pp=2, tp=2), layout, CASES["tied"].shape.context if sequence else None)
    after = dict(model.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)
    assert after["blocks.0.mlp.up.weight"].shape == (32, 16)
    assert after["blocks.1.mlp.up.weight"].shape == (64, 16)
    assert model.head.scores.weight is model.embed.token.weight


@pytest.mark.parametrize("stream", ["scatter", "sequence"])
def test_rooms_are_as_long_as_parts(stream):
    job = job_of(Mesh(pp=2, tp=4), shape=Shape(**BASE | {"context": 7, "vocabulary": 256}), **{stream: True})
    assert [job.rooms(rank)[0][0].shape for rank in range(4)] == [(2, length, 16) for length in (2, 2, 2, 1)]


@pytest.mark.ranks
def test_heads_may_have_a_width_of_their_own():
    """Wider together than the stream, as in Qwen 3: equal to one device, byte for byte."""
    shape = Shape(layers=1, width=16, heads=4, kv_heads=2, per_head=8, context=8, style="llama")
    assert shape.query_width == 32 and shape.key_width == 16
    assert hl.check(hl.Mesh(tp=2), model=shape, batch=4, steps=1).ok
