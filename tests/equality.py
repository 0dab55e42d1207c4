"""The table of combinations: what modes can be joined with what, and a few in which every pair of choices meets.

A *combination* is one choice from every row of `FACTORS`; `legal` says which can be, and `asked` what `hl.check` is
then asked. `pairwise` chooses greedily, always the same: a test that takes its combinations has seen every legal pair.
"""

import functools
import itertools
import operator
import random
from contextlib import contextmanager, nullcontext
from functools import cache, partial

import cloudpickle
import pytest

import hybridlab
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.data_parallel import LOCAL
from hybridlab.modes.full_matrices import blocks_of
from hybridlab.modes.registry import modes
from hybridlab.scheduling.gpipe import gpipe
from hybridlab.scheduling.registry import schedule
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.rerouted import rerouted
from hybridlab.training import check as proof
from hybridlab.training import run as running
from hybridlab.world.processes.launch import Ranks, ranks

FEW = ("1f1b", "recompute", "interleaved", "zb_h1", "chimera", "dualpipe_v", "seq1f1b")
SLICED = ("seq1f1b", "terapipe")  # in token slices
PIECED = ("vocabulary_1f1b",)  # the head in pieces
MOVED = ("pipeoffload", "bpipe")  # saved activations go to the host, or to another rank
LOST = ("lost 1f1b", "lost zb_h1")  # two pipelines, one without a rank: the copy of its stage does the work
ALL = (
    *FEW,
    "gpipe",
    "hanayo",
    "naive",
    "looped_bfs",
    "zb_h2",
    "zb_v",
    "zb_interleaved",
    "v_half",
    "v_min",
    "dualpipe",
    "terapipe",
    "vocabulary_1f1b",
    "pipeoffload",
    "bpipe",
    *LOST,
)
LONE = ("1f1b", "gpipe", "recompute", "interleaved", "zb_h1")  # on one pipeline rank the others are one of these
CHUNKED = (
    *("interleaved", "looped_bfs", "zb_v", "zb_interleaved", "v_half", "v_min", "dualpipe_v", "hanayo"),
    "pipeoffload",
)
WHOLE = (
    "1f1b",
    "interleaved",
    "chimera",
    "gpipe",
    "hanayo",
    "naive",
    "looped_bfs",
    "seq1f1b",
    "terapipe",
    "vocabulary_1f1b",
    LOST[0],
)  # backwards that are not split
NETS = ("conv", "unet", "resnet")  # of pictures
EXPERTS = ("experts", "slots")  # models of experts
NUMBER = 5  # of experts
MIRRORED = ("chimera", "dualpipe")  # two directions: copies of a stage along pp
SLICES = 3
WIDE = ("whole", "scatter")  # streams with all positions
MOST = 8  # ranks
KEPT = 16  # ranks that stay

FACTORS = {
    "axes": (
        *("dp", "tp", "pp", "x", "dp pp", "dp tp", "pp tp", "dp x", "pp x", "x tp"),
        *("dp pp tp", "pp x tp", "dp x tp"),
        *("cp", "dp cp", "cp pp", "cp tp", "cp pp tp"),
        *("ep", "dp ep", "ep pp", "cp ep", "ep tp", "dp ep pp"),
    ),
    "first": (0, 1, 2),  # which of them varies slowest, that is how far the axes are turned
    "grown": ("", "dp3", "dp4", "pp3", "pp4", "tp4", "cp4"),  # the axis that is longer than two
    **{name: choices for mode in modes() for name, choices in mode.factors.items()},  # zero, stream, sums
    "schedule": ALL,
    "order": ("written", "ahead", "driven"),
    "model": ("plain", "tied", "skips", "tied skips", "experts", "slots"),
    "norm": ("apart", "before", "after"),  # of gradients; or in the schedule, before the optimizer step, or after it
    "copies": ("together", "alone"),  # alone: each takes its own steps
    "keys": (4, 2, 1, 0),  # heads of keys and values, of four heads of queries; 0: no attention
    "style": ("gpt", "llama", "latent"),
    "optimizer": ("sgd", "adamw", "muon", "muon gram"),
    "dropout": (0.0, 0.1),
    "accumulate": (1, 2),
    "clip": (None, 0.05),
    "sizes": ("even", "odd"),
}
SHARDED = {  # what stands behind a stage of ZeRO, for four replicas
    " of 2": {"owners": 2},
    " of 2 twice": {"owners": 2, "two_levels": True},
    " near 2": {"secondary": 2},
}
EXCHANGES = {  # of copies that step alone, for each choice of sums
    "after": {"sync_every": 1},
    "each": {"sync_every": 2},
    "buckets": {"sync_every": 2, "fragments": 2, "sync_delay": 1, "mix": 0.5},
}
LOOSE = 100.0  # no gradient is so long: a norm in the schedule never clips by it
PLACED = ("axes", "first", "grown")  # which make the mesh
OTHERS = ("zero", "stream", "attend", "zigzag", "dispatch", "fold", "recompute", "schedule", "order", "model")
OTHERS += ("sizes", "norm", "copies")
BOUND = PLACED + OTHERS  # of which `legal` speaks
FREE = tuple(name for name in FACTORS if name not in BOUND)
FACTORS = {name: FACTORS[name] for name in (*BOUND, *FREE)}
OF_TESTS = FACTORS | {
    "axes": ("dp", "tp", "pp", "dp pp", "pp tp", "pp x", "cp pp", "dp pp tp", "dp x tp", "dp cp")
    + ("ep", "dp ep", "ep pp", "cp ep", "ep tp"),
    "model": ("plain", "tied skips", "experts", "slots"),
    "schedule": FEW,
    "zero": ("0", "1", "2", "3", "3 of 2", "3 of 2 twice", "3 near 2"),
    "grown": ("", "dp4", "pp4", "tp4", "cp4"),
}
OF_NETS = (
    OF_TESTS
    | {  # what does not say anything of a net has one choice
        "axes": ("h", "w", "h w", "dp h", "w pp", "h w pp", "dp w h", "dp pp h"),
        "model": NETS,
        "schedule": tuple(name for name in FEW if name not in (*SLICED, *PIECED)),
        "grown": ("", "dp4", "pp4", "h4", "w3"),
        "order": ("written", "ahead"),
        "optimizer": ("sgd", "adamw"),  # no net of pictures has a hidden matrix
        **{
            name: FACTORS[name][:1]
            for name in ("stream", "attend", "zigzag", "dispatch", "fold", "keys", "style", "dropout", "sizes")
        },
    }
)

# What a model with latents has in place of fewer heads of keys; without attention it has a narrow MLP.
LATENTS = {
    4: {"latent": 6, "rotary": 4},
    2: {"latent": 6, "rotary": 2, "query_latent": 10},
    1: {"latent": 7, "rotary": 2, "query_latent": 5, "per_head": 6},
    0: {"inner": 24},
}
OF_FURTHER = OF_TESTS | {"schedule": ("terapipe", *PIECED, *LOST)}
TABLES = {"texts": OF_TESTS, "pictures": OF_NETS, "further schedules": OF_FURTHER}
ONLY = {"further schedules": "schedule"}  # of a table, only the pairs with this factor: the others meet in another one


def mesh_of(one: dict) -> Mesh:
    """The mesh of a combination."""
    return _mesh(*(one[name] for name in PLACED))


@cache
def _mesh(names: str, first: int, grown: str) -> Mesh:
    axes = names.split()
    axes = axes[first:] + axes[:first]
    return Mesh(**{axis: int(grown[-1]) if grown[:-1] == axis else 2 for axis in axes})


@cache
def _plays(name: str, pp: int) -> bool:
    if name in LOST:
        return pp == 4  # two pipelines of two ranks
    try:
        schedule("gpipe" if name == "recompute" else name, pp, microbatches_of(name, pp))
    except ValueError:
        return False
    return pp > 1 or name in LONE


def microbatches_of(name: str, pp: int) -> int:
    """As many microbatches as the schedule can have; an odd number where it does not mind."""
    return (
        3
        if name in (*SLICED, *PIECED, "1f1b", "gpipe", "recompute", "naive", "looped_bfs", "zb_h1", "zb_h2")
        else 2 * pp
    )


# What a mesh leaves of a choice, whatever the others are.
ON_MESH = {
    "zero": lambda mesh, zero: (
        zero == "0"
        or (mesh["dp"] * mesh["cp"] * mesh["ep"] * mesh["h"] * mesh["w"] > 1 and (len(zero) == 1 or mesh["dp"] == 4))
    ),
    "stream": lambda mesh, stream: stream == "whole" or (mesh["tp"] > 1 and (stream != "scatter" or mesh["pp"] > 1)),
    "attend": lambda mesh, attend: attend == "gather" or mesh["cp"] > (2 if attend == "usp" else 1),
    "zigzag": lambda mesh, zigzag: not zigzag or mesh["cp"] > 1,
    "dispatch": lambda mesh, dispatch: dispatch == "all_to_all" or mesh["ep"] > 1,
    "fold": lambda mesh, fold: not fold or _folds(mesh),
    "model": lambda mesh, model: (
        mesh["x" if model in EXPERTS else "ep"] == 1 and (model in NETS) == (mesh["h"] * mesh["w"] > 1)
    ),
    "schedule": lambda mesh, name: _plays(name, mesh["pp"]) and (name not in LOST or mesh["dp"] == 1),
    "order": lambda mesh, order: order == "written" or mesh["pp"] > 1,
    "copies": lambda mesh, copies: copies == "together" or mesh["dp"] > 1,
}


def legal(one: dict) -> bool:
    """Whether these choices can be joined, and are not the same as others."""
    on_mesh = all(fits(mesh_of(one), one[what]) for what, fits in ON_MESH.items()) if _placed(one) else False
    return on_mesh and _together(one) and fills(one)


def fills(one: dict) -> bool:
    """Whether the free choices can be joined with the others: each pair of them can, but not all of three."""
    return not (one["norm"] == "after" and "muon" in one["optimizer"] and mesh_of(one).inside)


def _placed(one) -> bool:
    axes = one["axes"].split()
    return one["first"] < len(axes) and one["grown"][:-1] in ("", *axes) and mesh_of(one).size <= MOST


def _together(one) -> bool:
    mesh = mesh_of(one)
    rules = (
        one["stream"] == "whole" or mesh["cp"] == 1 or one["sizes"] == "even",  # both cut the positions
        one["attend"] != "usp" or one["sizes"] == "even",  # its groups have equal parts
        one["model"] != "slots" or (mesh["cp"] == 1 and one["stream"] in WIDE),  # slots are for whole sequences
        not one["fold"] or (one["model"] == "experts" and one["dispatch"] == "all_to_all"),
        one["recompute"] == "none" or one["schedule"] in WHOLE,
        one["stream"] != "overlap" or (mesh["x"] == 1 and one["schedule"] in (*WHOLE, "recompute")),
        one["schedule"] not in SLICED or _in_slices(one, mesh),
        one["schedule"] not in PIECED or _in_pieces(one, mesh),
        one["schedule"] not in MOVED or (one["stream"] in WIDE and mesh["ep"] == 1 and not one["fold"]),
        one["schedule"] != "bpipe" or mesh["pp"] > 3,  # fewer ranks make no loan
        one["order"] != "driven" or _one_chain(one, mesh),
        one["norm"] == "apart" or one["order"] != "driven",
        one["norm"] != "after" or _undone(one),
        one["copies"] == "together" or (one["zero"] == "0" and one["norm"] == "apart"),
    )
    return all(rules)


def _folds(mesh):
    """Whether whole experts can be distributed over tp and cp too."""
    further = mesh["tp"] * mesh["cp"]
    return further > 1 and mesh["ep"] * further <= NUMBER


def _undone(one):
    """A step may be undone: every rank has its whole optimizer, and the norm comes from one end of the pipeline."""
    return one["zero"] == "0" and one["schedule"] not in (*SLICED, *MOVED, *MIRRORED, *LOST)


def _in_slices(one, mesh):
    """The positions of a row may be cut into slices: nothing else cuts them, and nothing counts them."""
    whole = mesh["cp"] == 1 and one["stream"] == "whole"
    return whole and one["model"] not in (*NETS, "slots")


def _in_pieces(one, mesh):
    """The head may be cut into pieces: they read all positions, and a tied embedding of them is not sharded."""
    return one["model"] not in NETS and one["stream"] in WIDE and (mesh["x"] == 1 or "tied" not in one["model"])


def _one_chain(one, mesh):
    """Messages can drive it: one stage on each rank, none of them shared, no skip over a stage."""
    chain = one["schedule"] not in (*CHUNKED, *MIRRORED, *SLICED, *PIECED, *MOVED, *LOST) and (
        mesh["pp"] == 2 or "skips" not in one["model"]
    )
    return chain and not mesh.inside and one["zero"][0] != "3"


def shape_of(one: dict) -> Shape:
    """A small model; an odd one has a context, a vocabulary and a depth that nothing divides."""
    mesh, odd = mesh_of(one), one["sizes"] == "odd"
    stages = mesh["pp"] * (2 if one["schedule"] in CHUNKED else 1)
    experts = {}
    if one["model"] in EXPERTS:
        routing = Routing(balance="bias") if one["model"] == "experts" else Routing("sigmoid", capacity=1.0)
        experts = {"experts": NUMBER, "chosen": 2, "shared": 1, "inner": 16, "routing": routing}
    keys = one["keys"] or 4 * (one["schedule"] in SLICED)  # slices need attention
    heads, latents = 4 if one["keys"] else 2 * keys, LATENTS[keys] if one["style"] == "latent" else {}
    if one["attend"] == "usp" and keys % (2 * mesh["tp"]):  # two ranks exchange heads
        heads, keys = 8, 8 // keys
    return Shape(
        layers=max(4 if "skips" in one["model"] else 2, stages) + odd,
        width=16,
        heads=heads,
        kv_heads=None if latents else keys or None,
        context=31 if odd else 8,
        vocabulary=259 if odd else 256,
        tied="tied" in one["model"],
        skips="skips" in one["model"],
        dropout=one["dropout"],
        style="gpt" if one["style"] == "gpt" else "llama",
        **experts | latents,
    )


def asked(one: dict) -> tuple[Mesh, dict]:
    """(mesh, the other arguments of `hl.check`) of a combination."""
    mesh, name = mesh_of(one), one["schedule"]
    number = microbatches_of(name, mesh["pp"])
    if name == "recompute":
        again = gpipe(mesh["pp"], number, recompute="except_last")
        name = replicate(again, mesh.played) if mesh["dp"] > 1 else again
    if name in LOST:
        name = rerouted(schedule(name.split()[1], mesh["pp"] // 2, number), dp=2, lost=[1])
        number = None
    zero = one["zero"][0]
    more = {
        what: one[what]
        for what in ("sums", "attend", "zigzag", "dispatch", "fold", "recompute", "optimizer", "accumulate", "clip")
    }
    more |= SHARDED.get(one["zero"][1:], {})
    if one["optimizer"] == "muon gram":
        more |= {"optimizer": "muon", "muon": "gram"}
    if one["norm"] != "apart":
        more |= {"validated": one["norm"], "clip": one["clip"] or LOOSE}
    if one["copies"] == "alone":
        more |= {"sums": LOCAL} | EXCHANGES[one["sums"]]
    ways = {"ahead": 2 * (one["order"] == "ahead"), "driven": one["order"] == "driven"}
    streams = {what: one["stream"] == what for what in ("sequence", "scatter", "overlap")}
    streams["sequence"] |= streams["overlap"]
    if name in SLICED:
        more["slices"] = SLICES
    rate = 0.1 if one["optimizer"] == "sgd" else 0.01
    more["model"] = one["model"] if one["model"] in NETS else shape_of(one)
    if one["model"] in NETS and one["optimizer"] == "adamw":
        more["steps"] = 1  # Adam's bound does not know how batch norms make the noise of one step grow in the next
    return mesh, dict(schedule=name, microbatches=number, zero=int(zero), rate=rate, **more, **ways) | streams


def name_of(one: dict) -> str:
    """A combination in one word: what is not as usual."""
    mesh = "-".join(f"{axis}{length}" for axis, length in mesh_of(one).axes.items())
    words = [mesh, one["schedule"], f"zero{one['zero']}".replace(" ", "") * (one["zero"] != "0"), one["model"]]
    words += [one[what] for what in ("stream", "attend", "recompute", "order", "copies", "optimizer", "sizes", "style")]
    words += [one["sums"] * (one["sums"] != "after"), f"norm {one['norm']}" * (one["norm"] != "apart")]
    words += [f"kv{one['keys']}", "zigzag" * one["zigzag"], "folded" * one["fold"]]
    words += [f"{what}{one[what]}" for what in ("dropout", "accumulate", "clip") if one[what] not in (0.0, 1, None)]
    usual = ("", "plain", "whole", "gather", "written", "none", "sgd", "even", "gpt", "kv4", "apart", "together")
    return ",".join(word for word in words if word not in usual).replace(" ", "+")


# ---- all of them, and few of them


def cores(factors=FACTORS) -> list[dict]:
    """Every legal choice of the factors that depend on each other; those of `FREE` go with all of them."""
    plain, found = {name: factors[name][0] for name in factors}, []
    for where in itertools.product(*(factors[name] for name in PLACED)):
        if _placed(here := plain | dict(zip(PLACED, where))):
            fits = lambda name, choice: name not in ON_MESH or ON_MESH[name](mesh_of(here), choice)
            left = [[choice for choice in factors[name] if fits(name, choice)] for name in OTHERS]
            found += [one for values in itertools.product(*left) if _together(one := here | dict(zip(OTHERS, values)))]
    return found


def pairs_of(one: dict, names) -> set:
    """The pairs of choices that meet in a combination."""
    return set(itertools.combinations([(name, one[name]) for name in names], 2))


def wanted(table: str, pair) -> bool:
    """Whether a table has to have this pair of choices."""
    return table not in ONLY or ONLY[table] in dict(pair)


class Bits(dict):
    """A number for each pair of choices: sets of pairs are then bits of an integer, many times as fast."""

    def __missing__(self, pair):
        self[pair] = 1 << len(self)
        return self[pair]

    def of(self, one: dict, names) -> int:
        return sum(map(self.__getitem__, itertools.combinations([(name, one[name]) for name in names], 2)))


@cache
def pairwise(table: str, tries: int = 20) -> list[dict]:
    """Combinations of one of `TABLES` in which every legal pair of choices meets, of `ONLY` one factor's: greedily,
    always the same.

    Where choices bring as many new pairs as each other, the one on fewer ranks, and then the usual one, is taken:
    it is the quickest to run.
    """
    chance, factors, bits = random.Random(0), TABLES[table], Bits()
    legal_ones = cores(factors)
    met = [bits.of(one, BOUND) for one in legal_ones]
    left = functools.reduce(operator.or_, met)
    for a, b in itertools.combinations(factors, 2):
        for x, y in itertools.product(factors[a], factors[b]):
            left |= bits[(a, x), (b, y)] if b in FREE else 0
    left &= sum(bit for pair, bit in bits.items() if wanted(table, pair))
    found = []
    while left:
        gains = [(pairs & left).bit_count() for pairs in met]
        top = max(gains)
        most = [one for one, gain in zip(legal_ones, gains) if gain == top]
        if not top:  # only pairs with a free choice are left: take those that have one side of them
            sides = {side for pair, bit in bits.items() if bit & left for side in pair if side[0] in BOUND}
            most = [one for one in most if any(one[name] == choice for name, choice in sides)] or most
        least = min(mesh_of(one).size for one in most)
        most = [one for one in most if mesh_of(one).size == least]
        candidates = [_filled(dict(chance.choice(most)), factors, left, bits, chance) for _ in range(tries)]
        best = max(candidates, key=lambda one: (bits.of(one, factors) & left).bit_count())
        left &= ~bits.of(best, factors)
        found.append(best)
    return found


def _filled(one, factors, left, bits, chance):
    """The free factors chosen one after the other, each for the most pairs with what is chosen so far."""
    chosen = list(BOUND)
    for name in chance.sample(FREE, len(FREE)):
        chosen.append(name)
        names = [what for what in factors if what in chosen]
        can = [value for value in factors[name] if fills(one | {name: value})]
        one[name] = max(can, key=lambda value: (bits.of(one | {name: value}, names) & left).bit_count())
    return one


# ---- checks that keep their ranks


def _mended(on_rank, comm, job, sabotage):
    """What a check does on a rank, and then what `sabotage(patch)` has changed is as it was."""
    with pytest.MonkeyPatch.context() as patch:
        return on_rank(comm, job, partial(sabotage, patch))


class Bench:
    """Checks, one after the other, on ranks that stay: those of the latest meshes, `KEPT` of them together."""

    def __init__(self):
        self.pools: dict[Mesh, Ranks] = {}  # the latest one last
        self.proved: dict[str, bool] = {}
        self.references: dict[bytes, dict] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pool in self.pools.values():
            pool.stop()

    def check(self, one: dict, **more):
        """The report on one combination."""
        mesh, arguments = asked(one)
        return self.asked(mesh, **arguments | more)

    def asked(self, mesh, **arguments):
        """`hl.check`, on ranks that stay; a sabotage is given a pytest.MonkeyPatch."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proof, "lone_rank", lambda hang_s: nullcontext(self.pool(1)))
            patch.setattr(proof, "training_ranks", lambda mesh, hang_s: nullcontext(self.pool(mesh)))
            patch.setattr(proof, "_reference", partial(self.reference, proof._reference))
            if "sabotage" in arguments:  # else ranks need not import pytest
                patch.setattr(proof, "_on_rank", partial(_mended, proof._on_rank))
            return proof.check(mesh, **arguments)

    def reference(self, alone, job) -> dict:
        """What one device makes of a job, kept for other layouts of it. Only here: between two checks of a user's, the
        text, a file or a function may have changed."""
        about = [job.model, job.microbatches, job.tokens]
        about += [] if job.flushes else [job.bounds, job.schedule.rows.tolist()]
        if job["sums"] == LOCAL:
            about += [job.schedule.dp, *(job[name] for name in job.keeper.options)]
        fields = ("rows", "steps", "optimizer", "rate", "warmup", "anneal", "betas", "seed", "dtype", "clip", "decay")
        fields += ("predict_weights",)
        about += [getattr(job, name) for name in fields] + [job["sum_dtype"], job["master_dtype"], blocks_of(job)]
        key = cloudpickle.dumps(about)
        if key not in self.references:
            self.references = dict(list(self.references.items())[-3:]) | {key: alone(job)}
        return self.references[key]

    def right(self, mesh, **arguments) -> bool:
        """Whether a check finds everything equal where nothing is changed; it is made once for all its mutants."""
        key = f"{mesh} {arguments}"
        if key not in self.proved:
            self.proved[key] = self.asked(mesh, **arguments).ok
        return self.proved[key]

    @contextmanager
    def lent(self):
        """While this lasts, hl.run, hl.train and labs find their ranks here."""
        with pytest.MonkeyPatch.context() as patch:
            for room, name in ((hybridlab, "ranks"), (running, "ranks"), (running, "training_ranks")):
                patch.setattr(room, name, lambda mesh, hang_s=None: nullcontext(self.pool(mesh)))
            yield

    def pool(self, mesh: Mesh | int):
        """The ranks of a mesh; those that have waited longest end where there would be too many."""
        mesh = mesh if isinstance(mesh, Mesh) else Mesh(world=mesh)
        pool = self.pools.pop(mesh, None) or ranks(mesh)
        while sum(one.size for one in self.pools) + mesh.size > KEPT:
            self.pools.pop(next(iter(self.pools))).stop()
        self.pools[mesh] = pool
        return pool
