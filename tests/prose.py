"""The numbers that the texts say, each with where it comes from; `course/test_prose.py` compares the texts.

COMPUTED  what a text says, and the same from the package
SET       what a text says, and the piece of code that sets it: the notebook's, or a file's of the package
TOLD      what a text says, and why no code of ours computes it
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

import hybridlab as hl
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.programs import mlp
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs import capstone
from hybridlab.labs.asynchronous.copies import vgg16
from hybridlab.labs.asynchronous.pictures import met
from hybridlab.labs.capstone.tasks import crossing
from hybridlab.labs.context import sizes as long_context
from hybridlab.labs.data_parallel import pictures as data_parallel_pictures
from hybridlab.labs.data_parallel.tasks import WITHIN, best_exposed
from hybridlab.labs.exercises.words import in_words
from hybridlab.labs.experts import uneven as experts
from hybridlab.labs.gpipe import sweeps as gpipe
from hybridlab.labs.hybrid import lost as lost_ranks
from hybridlab.labs.interleaved import thin_stages as interleaved
from hybridlab.labs.megatron import in_pieces
from hybridlab.labs.naive.tasks import LAYER_TIMES
from hybridlab.labs.one_f_one_b import orders
from hybridlab.labs.out_of_core import chains as out_of_core
from hybridlab.labs.out_of_core import links as out_of_core_links
from hybridlab.labs.out_of_core.on_ranks import UNIT as OUT_OF_CORE_UNIT
from hybridlab.labs.sc21 import figures as sc21_figures
from hybridlab.labs.search import sizes as searched
from hybridlab.labs.search import tables as search_tables
from hybridlab.labs.slices import runs as token_slices
from hybridlab.labs.zero import levels
from hybridlab.labs.zero import plan as zero_plan
from hybridlab.labs.zero_bubble import halves as zero_bubble
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.experts import popular
from hybridlab.predict.bytes.memory import MIXED
from hybridlab.predict.papers import sc21
from hybridlab.predict.papers.published import published
from hybridlab.predict.papers.sc21 import A100
from hybridlab.predict.plans import performance
from hybridlab.predict.plans.arithmetic import flops, training_seconds
from hybridlab.predict.plans.branches import compared, speedup
from hybridlab.predict.plans.footprint import ROOM
from hybridlab.predict.plans.partition import partition
from hybridlab.predict.search.chain import chain as best_of_chain
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.one_rule import one_rule
from hybridlab.predict.search.problem import Problem
from hybridlab.predict.time.overlap import Layer, chain, length
from hybridlab.runtime.emulated import EmulatedWork
from hybridlab.runtime.message_driven import NUMBER
from tools.course import books

DAY = 86_400


def played(name, ranks, microbatches, **costs):
    schedule = hl.schedule(name, ranks=ranks, microbatches=microbatches)
    return hl.simulate(schedule, hl.Costs(**(costs or dict(F=1, B=2))))


def units(*arguments, **costs):
    return f"{played(*arguments, **costs).length:g}"


def share(value, digits=1):
    return f"{value:.{digits}%}".replace("%", " %")


def held(name):
    return " ".join(map(str, played(name, 4, 8).peak_live))


def listed(numbers):
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}"


def busy(ranks, digits=0):
    return share(1 - played("naive", ranks, 1).bubble_fraction, digits)


def slots(name):
    return played(name, 3, 3).length / 3


def messages(name, ranks, microbatches):
    return sends(hl.schedule(name, ranks=ranks, microbatches=microbatches))


def sends(schedule):
    return sum(action.kind.startswith("SEND") for program in hl.lower(schedule).program for action in program)


def first_backward(name, microbatches, **costs):
    return min(span.begin for span in played(name, 4, microbatches, **costs).spans if span.action.kind == "B")


def seconds(costs):
    return f"{costs.F * 1e3:g} ms and its backward {costs.B * 1e3:g} ms"


def thinned_sends():
    """Messages of two chunks on each of two ranks, over those of one."""
    two, one = (sends(interleaved.thinned(chunks, ranks=2)) for chunks in (2, 1))
    return two // one


def zero_bubbles():
    return published("zero_bubble_tables")


def printed(parameters, microbatches, column):
    """One number of the zero-bubble paper's tables."""
    (row,) = (one for one in zero_bubbles() if (one["model"], one["microbatches_m"]) == (parameters, microbatches))
    return row[column]


def interleaved_gain():
    """How much more the 14.6B model's GPUs did with three chunks."""
    rates = [printed("14.6B", 48, f"samples_per_gpu_s_{name}") for name in ("1F1B_I", "1F1B")]
    return share(rates[0] / rates[1] - 1, 0)


def interleaved_promise():
    """How much more that would be by the idle shares that the paper computes."""
    idle = [printed("14.6B", 48, f"rate_{name}") for name in ("1F1B", "1F1B_I")]
    return share((1 - idle[1]) / (1 - idle[0]) - 1, 0)


def left_side(chunks, latency):
    """The worked inequality's length of an interleaved step of four ranks and eight microbatches."""
    return (8 + 3 / chunks) * 3 + 2 * (4 * chunks - 1) * latency


def idle_on_a_rank(chunks):
    """Units that every rank of a step of four microbatches is idle."""
    t = hl.simulate(interleaved.thinned(chunks, 4, 4), interleaved.costs(chunks))
    (idle,) = {t.length - busy for busy in t.busy}
    return idle


def trillion_step():
    """Stages, pipelines side by side, and microbatches of a pipeline's step, in Megatron-LM's largest run."""
    row = published("megatron_sc21_table1")[-1]
    stages = row["pipeline_parallel"]
    pipelines = row["gpus"] // (stages * row["tensor_parallel"])
    return stages, pipelines, row["global_batch"] // (pipelines * row["microbatch"])


def late(name, latency):
    """Units that messages of some latency add to a step."""
    took = [orders.with_messages(name, one).length for one in (latency, 0)]
    return took[0] - took[1]


def endless(microbatches):
    """How many times as fast a pipeline of four is that does not flush after so many microbatches."""
    return f"{1 + played('1f1b', 4, microbatches).bubble_overhead:.3g} times"


def planned():
    """The schedules on the plane of notebook 14: lines of its table."""
    (table,) = (cell for cell in books()["14_zero_bubble"].cells if cell.id == "zero_bubble-plane-table")
    return len(table.outputs[0].data["text/plain"].splitlines()) - 1  # without its heads


def taking_turns():
    """The versions that a copy of the first stage and one of the last keep, of three copies and one."""
    schedule = hl.schedule("pipedream", ranks=4, microbatches=12, copies=(3, 1))
    return hl.simulate(schedule).peak("weights")[2:]


def of_last_layers(what: str) -> float:
    """The fraction of VGG-16's time or weights in its last seven layers."""
    layers = [getattr(layer, what) for layer in vgg16()]
    return sum(layers[-7:]) / sum(layers)


def versions(microbatch):
    found = met(hl.schedule("pipedream", ranks=4, microbatches=8))
    of = {(rank, m): version for rank, m, version, _ in found}
    return f"uses version {of[0, microbatch]} on rank 0, version {of[1, microbatch]} on rank 1"


def bubbles(ranks, microbatches):
    """(idle/ideal, idle/total) as fractions."""
    t = played("gpipe", ranks, microbatches)
    return [Fraction(one).limit_denominator(1000) for one in (t.bubble_overhead, t.bubble_fraction)]


def stage_times(layers):
    ends = np.cumsum([0, *layers])
    return [sum(LAYER_TIMES[a:b]) for a, b in zip(ends, ends[1:])]


def slowest_and_mean():
    times = stage_times([3, 3, 2])
    return f"{max(times)}/{sum(times) // len(times)}"


def at_best():
    return listed(sum(LAYER_TIMES[i] for i in stage) for stage in partition(LAYER_TIMES, 3))


def again():
    return hl.simulate(gpipe.again("always"), hl.Costs(F=1, B=2))


def eight():
    return units("gpipe", 4, 8)


def cut_only():
    schedule = zero_bubble.beside(hl.schedule("1f1b", ranks=4, microbatches=8))
    return hl.simulate(schedule, hl.Costs(F=1, I=1, W=1)).length


def ring(megabytes, ranks=4):
    return f"{cost('all_reduce', ranks, megabytes, 'ring').bytes:g} MB"


def collecting():
    """SC'21's run of 145.6B: GB of gradients on a GPU, s in which one GPU collects and returns them, s of a step."""
    row = next(one for one in sc21.table() if round(one.shape.parameters / 1e8) == 1456)
    gpus, each = row.plan.p * row.plan.t * row.plan.d, 2 * 145.6 / (row.plan.p * row.plan.t)
    step = flops(row.shape, row.batch, "full").total / (gpus * row.printed * 1e12)
    return f"{each:.2f} GB", f"{2 * (row.plan.d - 1) * each / 25:.1f} s", f"{step:.1f} s"


def gathers_alone():
    """Seconds of a microbatch of one sequence of 2048 tokens on 1536 GPUs, from table 2's 44 TFLOP/s."""
    return 8 * 174.6e9 * 2048 / 44e12


def gigabytes(stage, policy="mixed, as printed", model="7.5B", ranks=64):
    plan = zero_plan.Plan(model=model, ranks=ranks, owners=ranks, stage=stage, policy=policy)
    return sum(zero_plan.kept(plan).values()) / 1e9


def ladder():
    sizes = [gigabytes(stage) for stage in range(4)]
    return ", ".join(f"{size:.0f}" if size > 100 else f"{size:.1f}" for size in sizes) + " GB"


def all_states():
    """GB that training 175 billion parameters keeps, on one GPU and on each of eight that share it."""
    return [gigabytes(0, model="175B", ranks=1), gigabytes(3, model="175B", ranks=8)]


def sent(stage):
    plan = zero_plan.Plan(stage=stage)
    return sum(one.bytes for one in zero_plan.carried(plan.layout, plan.widths))


def idle_of_h1(**costs):
    t = hl.simulate(hl.schedule("zb_h1", ranks=4, microbatches=8), hl.Costs(**costs))
    return t.length - max(t.busy)


def in_one_piece():
    return data_parallel_pictures.model().sums(data_parallel_pictures.ALL, data_parallel_pictures.ALL)


def tokens_that_hide():
    """Tokens on a GPU of notebook 21 whose backward takes as long as an all-reduce among many ranks."""
    pictures = data_parallel_pictures
    return (2 * 4 * pictures.LINK.beta) / (4 / pictures.FLOPS)


def local_outputs():
    """Those of Llama 3 70B on 8 ranks: of q, k and v, and of gate and up."""
    shape = hl.catalog.model("llama3-70b").shape
    return (shape.query_width + shape.key_width + shape.value_width) // 8, 2 * shape.inside // 8


def megatron(parameters):
    """The row of the published table of Narayanan et al. 2021 for so many billion parameters."""
    (row,) = (one for one in published("megatron_sc21_table1") if one["params_billion"] == parameters)
    return row


def deepest():
    """(stages, microbatches) of the published trillion-parameter model."""
    row = megatron(1008)
    stages, copies = row["pipeline_parallel"], row["gpus"] // (row["pipeline_parallel"] * row["tensor_parallel"])
    return stages, row["global_batch"] // (copies * row["microbatch"])


def torchgpipe(microbatches, partitions=8):
    return f"{gpipe.printed()[microbatches, partitions]:.2f} times"


def days(tokens, parameters, devices, rate):
    return training_seconds(tokens, parameters, devices, rate) / DAY


def trillion(billions):
    return days(450e9, billions * 1e9, 3072, 163e12)


def superlinear():
    """The last row of the published table over its first."""
    rows = published("megatron_sc21_table1")
    gpus, rate = (rows[-1][name] / rows[0][name] for name in ("gpus", "aggregate_pflops"))
    return f"{gpus:.0f} × the GPUs, {rate:.0f} × the PFLOP/s"


def usable():
    memory = machine("a100").memory / 1e9
    return f"{ROOM * memory:.0f} of the {memory:.0f} GB"


FRACTION, OVERHEAD = (lambda: share(float(bubbles(4, 8)[1]))), (lambda: share(float(bubbles(4, 8)[0])))


def table_2(scheme):
    """Days for 300 billion tokens of GPT-3 on 1536 GPUs, as printed."""
    rows = published("megatron_sc21_table2")
    (days,) = (row["days_300B_tokens"] for row in rows
               if (row["scheme"], row["params_billion"], row["gpus"]) == (scheme, 174.6, 1536))  # fmt: skip
    return days


def worked(b, p=4, sequences=32):
    """The worked example of the microbatch's size: a forward and backward of 3 + 9b ms."""
    m, each = sequences // b, 3 + 9 * b
    return f"({m} + {p - 1}) · {each} = {(m + p - 1) * each} ms"


def furthest(*figures):
    return round(100 * max(abs(sc21_figures.off(number).largest) for number in figures))


def hot_rank():
    loads = [100 * one for one in popular(experts.EXPERTS, 1, 0.5)]
    first, mean = experts.by_rank(loads, 4)[0], sum(loads) / 4
    return f"gets {first:.1f} of 100 choices instead of {mean:g}, which is {experts.factor(loads, 4):.2f} times"


def half_a_card():
    """Activations of one long sequence, of a card from the catalog: inputs of all layers, and one layer at work."""
    row, card = long_context.memory((long_context.LONG,)).rows[0], A100.memory / 1e9
    needed = float(row[1]) + float(row[2])
    return f"more than half of an {card:g} GB card" if card / 2 < needed < card else f"{needed} of {card} GB"


def behind():
    """Three of axonn's layers, one message or matmul after the other."""
    whole = length(chain([Layer(2, 2, 2, 1, 1, 1, 1)] * 3, overlapped=False))
    return f"the matmuls and messages take 3 · (3 · 2 + 4 · 1) = {whole:g} ms"


def first_layer():
    """What a layer of 16 channels makes of one of CosmoFlow's samples."""
    return f"They take {16 * 512**3 * 4 / 1e9:.1f} GB in single precision"


def one_after_the_other():
    """A step of the branches of convolution, on one device."""
    return f"(1 + 6 + 1) · 3 = {compared((1, 3, 2), 1, 1)['one device'].length:g} units"


def out_of_core_units(word, copy=1):
    """Of 12 blocks with room for 5, all treated alike."""
    return f"{out_of_core.length([word] * out_of_core.BLOCKS, swap=copy):g}"


def gpt2_on_a_card():
    """(GB that belong to weights, GB of activations of 8 sequences)."""
    one = out_of_core_links.fits(8, 80e9)
    return one.state / 1e9, one.block * out_of_core_links.GPT.layers / 1e9


def best_by_copy():
    best = [out_of_core.length(out_of_core.best(swap=copy), swap=copy) for copy in (1, 2, 3, 6)]
    return "{:g}, {:g}, {:g} and {:g} units".format(*best)


def link(number):
    return f"{out_of_core_links.LINKS[number].bandwidth / 1e9:g} GB/s"


def uphill():
    one, three = (f"{100 * math.exp(-slower):.0f}" for slower in (1, 3))
    more = f"and a strategy that is slower by 3 ms is accepted {three} times"
    return f"slower by 1 ms is accepted {one} times in 100, {more}"


def out_of_the_valley():
    faster = data_parallel(searched.VALLEY).seconds / best_of_chain(searched.VALLEY).seconds - 1
    return f"{share(faster, 0)} faster than the strategy that they find"


def lengths_of_images():
    return ", ".join(f"{dim} = {length}" for dim, length in searched.IMAGES.graph.sizes.items())


def least_held():
    roomy = Problem(mlp(64, 16, 256, 256), Mesh(i=2), searched.VALLEY.profile)
    last = best_of_chain(replace(roomy, room=0.6 * roomy.bytes(best_of_chain(roomy).strategy)))
    return f"It needs {roomy.bytes(last.strategy) / 1e6:.2f} MB"


def exchange_of_llama() -> str:
    """The bytes that each of two copies sends for 8 billion weights of 2 bytes, and the time at 0.125 GB/s."""
    size = hl.bytes.sent_per_step(8e9, copies=2, every=1, width=2)
    return f"{size / 1e9:.0f} GB in an all-reduce, which takes {size / 0.125e9:.0f} s"


COMPUTED = [
    ("40_hybrid", "every 3.1 hours", lambda: f"every {lost_ranks.BETWEEN / 3600:.1f} hours"),
    ("40_hybrid", "in 50,677 hours", lambda: f"in {lost_ranks.BETWEEN * lost_ranks.RANKS / 3600:,.0f} hours"),
    ("README", "33 units", lambda: f"{units('1f1b', 4, 8)} units"),
    ("README", "3/11", lambda: f"{bubbles(4, 8)[1]}"),
    ("README", "3/8", lambda: f"{bubbles(4, 8)[0]}"),
    ("slides", "37.5 %", OVERHEAD),
    ("slides", "27.3 %", FRACTION),
    ("slides", "43.75G", lambda: f"{350 / 8:g}G"),
    ("slides", "16 bytes", lambda: f"{gigabytes(0) / 7.5:g} bytes"),
    ("slides", "gives 83.2", lambda: f"gives {trillion(1000):.1f}"),
    ("01_tour", "27.3 %", FRACTION),
    ("01_tour", "37.5 %", OVERHEAD),
    ("01_tour", "8, 8, 8 and 8", lambda: listed(played("gpipe", 4, 8).peak_live)),
    ("01_tour", "4, 3, 2 and 1", lambda: listed(played("1f1b", 4, 8).peak_live)),
    ("01_tour", "7/24", lambda: f"{bubbles(8, 24)[0]}"),
    ("01_tour", "52 % of its peak", lambda: f"{megatron(1008)['pct_peak']:g} % of its peak"),
    ("02_one_device", "64/153", lambda: f"64/{machine('a100').peak / machine('a100').bandwidth:.0f}"),
    ("02_one_device", "42 %", lambda: share(64 / (machine("a100").peak / machine("a100").bandwidth), 0)),
    ("02_one_device", "numbers of 4 bytes", lambda: f"numbers of {np.dtype(np.float32).itemsize} bytes"),
    ("02_one_device", "4 + 4 + 2·4 bytes", lambda: "4 + 4 + 2·4 bytes" if 4 + 4 + 2 * 4 == 16 else "not 16"),
    ("02_one_device", "2 bytes", lambda: f"{MIXED.value} bytes"),
    ("02_one_device", "16 bytes", lambda: f"{gigabytes(0) / 7.5:g} bytes"),
    ("02_one_device", "take 350 GB", lambda: f"take {175 * MIXED.value} GB"),
    ("02_one_device", "350 / 8 = 43.75 GB", lambda: f"350 / 8 = {350 / 8:g} GB"),
    ("02_one_device", "2800 GB, or 350 GB", lambda: "{:g} GB, or {:g} GB".format(*all_states())),
    ("02_one_device", "also says 350 GB", lambda: f"also says {all_states()[1]:g} GB"),
    ("02_one_device", "training needs 350 GB", lambda: f"training needs {all_states()[1]:g} GB"),
    ("10_naive", "2 units of work", lambda: f"{played('naive', 3, 1, F=1, B=1).busy[0]:g} units of work"),
    ("10_naive", "0.93 times", lambda: torchgpipe(1)),
    ("10_naive", "33 %", lambda: busy(3)),
    ("10_naive", "33.3 %", lambda: busy(3, 1)),
    ("10_naive", "12.5 %", lambda: busy(8, 1)),
    ("10_naive", "9 time slots", lambda: f"{slots('naive'):g} time slots"),
    ("10_naive", "5 on the right", lambda: f"{slots('gpipe'):g} on the right"),
    ("10_naive", "9 and 5 slots", lambda: f"{slots('naive'):g} and {slots('gpipe'):g} slots"),
    ("10_naive", "9 and 5", lambda: f"{slots('naive'):g} and {slots('gpipe'):g}"),
    ("10_naive", "27 on the left and 15", lambda: f"{units('naive', 3, 3)} on the left and {units('gpipe', 3, 3)}"),
    ("10_naive", "27 and 15 units", lambda: f"{units('naive', 3, 3)} and {units('gpipe', 3, 3)} units"),
    ("10_naive", "12 messages", lambda: f"{messages('naive', 3, 3)} messages"),
    ("10_naive", "takes 4 bytes", lambda: f"takes {np.dtype(np.float32).itemsize} bytes"),
    ("10_naive", "30, 50 and 40", lambda: listed(stage_times([3, 3, 2]))),
    ("10_naive", "40, 40 and 40", at_best),
    ("10_naive", "50/40", slowest_and_mean),
    ("11_gpipe", "60 units instead of 33", lambda: f"{units('gpipe', 4, 2, F=4, B=8)} units instead of {eight()}"),
    ("11_gpipe", "0.93 times", lambda: torchgpipe(1)),
    ("11_gpipe", "4.95 times", lambda: torchgpipe(32)),
    ("11_gpipe", "*m* = 512", lambda: f"*m* = {deepest()[1]:g}"),
    ("11_gpipe", "63/512", lambda: f"{deepest()[0] - 1:g}/{deepest()[1]:g}"),
    ("11_gpipe", "12.3 %", lambda: share((deepest()[0] - 1) / deepest()[1])),
    ("11_gpipe", "60/33", lambda: f"{units('gpipe', 4, 2, F=4, B=8)}/{eight()}"),
    ("11_gpipe", "3/8", lambda: f"{bubbles(4, 8)[0]}"),
    ("11_gpipe", "3/11", lambda: f"{bubbles(4, 8)[1]}"),
    ("11_gpipe", "41 units instead of 33", lambda: f"{again().length:g} units instead of {eight()}"),
    (
        "11_gpipe",
        "1 activation held instead of 8",
        lambda: f"{max(again().peak_live)} activation held instead of {held('gpipe')[0]}",
    ),
    ("11_gpipe", "a forward takes only 10 ms", lambda: f"a forward takes only {80 / 8:g} ms"),
    ("11_gpipe", "a forward then takes only 10 ms", lambda: f"a forward then takes only {80 / 8:g} ms"),
    ("12_1f1b", "4 3 2 1", lambda: held("1f1b")),
    ("12_1f1b", "8 8 8 8", lambda: held("gpipe")),
    ("11_gpipe", "at time 7.", lambda: f"at time {first_backward('gpipe', 4, F=1, B=1):g}."),
    (
        "12_1f1b",
        "4 3 2 1 activations instead of 8 8 8 8",
        lambda: f"{held('1f1b')} activations instead of {held('gpipe')}",
    ),
    ("12_1f1b", "a step takes 18 units", lambda: f"a step takes {units('1f1b', 3, 4)} units"),
    ("12_1f1b", "at most 3, 2 and 1", lambda: "at most {}, {} and {}".format(*played("1f1b", 3, 4).peak_live)),
    ("12_1f1b", "Both take 33 units", lambda: f"Both take {units('1f1b', 4, 8)} units"),
    ("12_1f1b", "take 1,152 bytes more", lambda: f"take {3 * 2 * 8 * 3 * NUMBER:,} bytes more"),
    (
        "12_1f1b",
        "each of the 48 messages in a step also carries the number of its microbatch, in 8 bytes",
        lambda: (
            f"each of the {8 * 3 * 2} messages in a step also carries the number of its microbatch, in {NUMBER} bytes"
        ),
    ),
    ("12_1f1b", "at time 4,", lambda: f"at time {first_backward('1f1b', 4, F=1, B=2):g},"),
    ("12_1f1b", "33 units for both", lambda: f"{units('1f1b', 4, 8)} units for both"),
    ("12_1f1b", "into 64 stages", lambda: f"into {trillion_step()[0]} stages"),
    (
        "12_1f1b",
        "six data-parallel replicas processes 512",
        lambda: f"{in_words(trillion_step()[1])} data-parallel replicas processes {trillion_step()[2]}",
    ),
    ("12_1f1b", "3 + 24 + 6 = 33 units", lambda: f"3 + 24 + 6 = {units('1f1b', 4, 8)} units"),
    ("12_1f1b", "12 units pass", lambda: f"{units('1f1b', 4, 1)} units pass"),
    ("12_1f1b", "make GPipe's step 3 units longer", lambda: f"make GPipe's step {late('gpipe', 0.5):g} units longer"),
    ("12_1f1b", "make 1F1B's step 8 units longer", lambda: f"make 1F1B's step {late('1f1b', 0.5):g} units longer"),
    ("13_interleaved", "idle for 25.5 %", lambda: f"idle for {share(printed('14.6B', 48, 'rate_1F1B'))}"),
    ("13_interleaved", "time falls to 11.0 %", lambda: f"time falls to {share(printed('14.6B', 48, 'rate_1F1B_I'))}"),
    ("13_interleaved", "promises 19 % more", lambda: f"promises {interleaved_promise()} more"),
    ("13_interleaved", "rose by only 10 %", lambda: f"rose by only {interleaved_gain()}"),
    (
        "13_interleaved",
        "from 32 to 39 GB",
        lambda: f"from {printed('14.6B', 48, 'mem_GB_1F1B')} to {printed('14.6B', 48, 'mem_GB_1F1B_I')} GB",
    ),
    ("13_interleaved", "1F1B waits for 16 messages", lambda: f"1F1B waits for {late('1f1b', 0.1) / 0.1:.0f} messages"),
    ("13_interleaved", "28.5 + 14*c*", lambda: f"{left_side(2, 0):g} + {left_side(2, 1) - left_side(2, 0):g}*c*"),
    (
        "13_interleaved",
        "up to 0.5, 0.25 and 0.125 units",
        lambda: "up to {:g}, {:g} and {:g} units".format(*(interleaved.costs(v).F for v in (2, 4, 8))),
    ),
    ("13_interleaved", "0.48 for", lambda: f"{(33 - left_side(4, 0)) / (30 - 16):.2f} for"),
    ("13_interleaved", "says 0.38", lambda: f"says {interleaved.loses_from(4):.2f}"),
    ("13_interleaved", "*c* ≥ 1.38", lambda: f"*c* ≥ {interleaved.loses_from(2):.2f}"),
    ("13_interleaved", "idle for 9 units", lambda: f"idle for {idle_on_a_rank(1):g} units"),
    ("13_interleaved", "and for 4.5 with", lambda: f"and for {idle_on_a_rank(2):g} with"),
    ("13_interleaved", "the path has 62 messages", lambda: f"the path has {2 * (8 * 4 - 1)} messages"),
    ("13_interleaved", "7.875/46", lambda: f"{33 - 25.125}/{62 - 16}"),
    ("14_zero_bubble", "idle for 21.7 %", lambda: f"idle for {share(printed('28.3B', 128, 'rate_1F1B'))}"),
    ("14_zero_bubble", "The 0.3 % quoted", lambda: f"The {share(printed('28.3B', 128, 'rate_ZB_2p'))} quoted"),
    ("14_zero_bubble", "idle for 4.9 %", lambda: f"idle for {share(printed('28.3B', 128, 'rate_ZB_H2'))}"),
    ("14_zero_bubble", "finds 6 units", lambda: f"finds {idle_of_h1(F=1, I=2, W=1.5):g} units"),
    ("14_zero_bubble", "idle time to 0.3 %", lambda: f"idle time to {share(printed('28.3B', 128, 'rate_ZB_2p'))}"),
    (
        "14_zero_bubble",
        "74 instead of 43 GB",
        lambda: f"{printed('28.3B', 128, 'mem_GB_ZB_2p')} instead of {printed('28.3B', 128, 'mem_GB_1F1B')} GB",
    ),
    ("14_zero_bubble", "24 units of this step", lambda: f"{played('zb_h1', 4, 8, F=1).busy[0]:g} units of this step"),
    ("15_pipedream", "less than 2 %", lambda: f"less than {math.ceil(100 * of_last_layers('seconds'))} %"),
    ("15_pipedream", "hold 89 %", lambda: f"hold {100 * of_last_layers('weights'):.0f} %"),
    ("15_pipedream", "takes 3 units,", lambda: f"takes {played('pipedream', 4, 12).busy[0] / 12:g} units,"),
    ("15_pipedream", "PipeDream is 4 times", lambda: f"PipeDream is {endless(1)}"),
    ("15_pipedream", "still 1.75 times", lambda: f"still {endless(4)}"),
    (
        "15_pipedream",
        "⌈4/3⌉ = 2 on stage 0, 1 on stage 1",
        lambda: "⌈4/3⌉ = {} on stage 0, {} on stage 1".format(*taking_turns()),
    ),
    ("15_pipedream", "only 1.05 times", lambda: f"only {endless(64)}"),
    ("13_interleaved", "80 ms and its backward 160 ms", lambda: seconds(interleaved.costs(1, 0, interleaved.UNIT))),
    ("13_interleaved", "all nine runs", lambda: f"all {in_words(3 * len(interleaved.LATENCIES))} runs"),
    ("13_interleaved", "has 2048 bytes", lambda: f"has {8 * EmulatedWork(None).elements} bytes"),
    ("13_interleaved", "sends three times the bytes", lambda: f"sends {in_words(thinned_sends())} times the bytes"),
    ("13_interleaved", "up to 32 GPUs", lambda: f"up to {max(row['stages_p'] for row in zero_bubbles())} GPUs"),
    ("14_zero_bubble", "eighteen printed rates", lambda: {18: "eighteen"}[3 * len(zero_bubbles())] + " printed rates"),
    ("14_zero_bubble", "six configurations", lambda: f"{in_words(len(zero_bubbles()))} configurations"),
    ("14_zero_bubble", "W take 40 ms", lambda: f"W take {zero_bubble.UNIT * 1e3:g} ms"),
    ("14_zero_bubble", "twelve schedules", lambda: f"{in_words(planned())} schedules"),
    ("15_pipedream", "uses version 2 on rank 0, version 3 on rank 1", lambda: versions(microbatch=5)),
    ("15_pipedream", "`0F3#0`", lambda: f"`{hl.schedule('pipedream', ranks=4, microbatches=8).program[0][3]}`"),
    ("14_zero_bubble", "24 units of work", lambda: f"{played('1f1b', 4, 8).busy[0]:g} units of work"),
    ("14_zero_bubble", "1F1B takes 33", lambda: f"1F1B takes {units('1f1b', 4, 8)}"),
    ("14_zero_bubble", "takes 6 units on each rank", lambda: f"takes {2 + 3 + 1} units on each rank"),
    ("14_zero_bubble", "backward, which takes 30 units", lambda: f"backward, which takes {cut_only():g} units"),
    ("15_pipedream", "ln 256 = 5.5 nats", lambda: f"ln 256 = {math.log(256):.1f} nats"),
    ("16_slices", "which is 37.5 %", lambda: f"which is {share(token_slices.idle(1))}"),
    ("16_slices", "where it is 37.5 %", lambda: f"where it is {share(token_slices.idle(1))}"),
    (
        "16_slices",
        "idle for 38.4 % of",
        lambda: f"idle for {share(token_slices.idle(token_slices.lengths(4, 'equal')))} of",
    ),
    (
        "16_slices",
        "equal cost it is 9.4 %",
        lambda: f"equal cost it is {share(token_slices.idle(token_slices.lengths(4)))}",
    ),
    ("20_collectives", "4.55 GB", lambda: collecting()[0]),
    ("20_collectives", "8.4 s", lambda: collecting()[1]),
    ("20_collectives", "takes 24.8 s", lambda: f"takes {collecting()[2]}"),
    ("20_collectives", "8 · 10 µs · 25 GB/s = 2 MB", lambda: f"8 · 10 µs · 25 GB/s = {8 * 10e-6 * 25e3:g} MB"),
    ("20_collectives", "less than 2 MB", lambda: f"less than {8 * 10e-6 * 25e3:g} MB"),
    ("20_collectives", "3 · 12 = 36 MB", lambda: f"3 · 12 = {3 * 12} MB"),
    ("20_collectives", "18 MB", lambda: ring(12)),
    ("20_collectives", "2*n* = 24 MB", lambda: f"2*n* = {2 * 12} MB"),
    ("20_collectives", "6 messages", lambda: f"{cost('all_reduce', 4, 12, 'ring').messages} messages"),
    ("21_data_parallel", "takes 28 ms", lambda: f"takes {in_one_piece().end * 1e3:.0f} ms"),
    ("21_data_parallel", "takes 24.6 ms", lambda: f"takes {in_one_piece().sending * 1e3:.1f} ms"),
    ("21_data_parallel", "a fixed cost of 0.42 ms", lambda: f"a fixed cost of {14 * 30e-6 * 1e3:.2f} ms"),
    ("21_data_parallel", "an eighth of 0.64 s", lambda: f"an eighth of {2 * 16 / 50:g} s"),
    ("22_zero_fsdp", "1.05 TB per microbatch", lambda: f"{3 * 2 * 174.6e9 / 1e12:.2f} TB per microbatch"),
    ("22_zero_fsdp", "65 s", lambda: f"{gathers_alone():.0f} s"),
    ("22_zero_fsdp", "each GPU sends 16 GB/s", lambda: f"each GPU sends {3 * 2 * 174.6 / gathers_alone():.0f} GB/s"),
    (
        "22_zero_fsdp",
        "The rate of 2021, 16 GB/s",
        lambda: f"The rate of 2021, {3 * 2 * 174.6 / gathers_alone():.0f} GB/s",
    ),
    ("22_zero_fsdp", "as high as 200 GB/s", lambda: f"as high as {8 * machine('a100').across / 1e9:g} GB/s"),
    ("21_data_parallel", "exposed time is 3.34 ms", lambda: f"exposed time is {1e3 * best_exposed():.2f} ms"),
    ("21_data_parallel", "so 3.84 ms are", lambda: f"so {1e3 * WITHIN * best_exposed():.2f} ms are"),
    ("21_data_parallel", "14 times", lambda: f"{cost('all_reduce', 8, 1, 'ring').messages} times"),
    ("21_data_parallel", "needs 8000 tokens", lambda: f"needs {tokens_that_hide():.0f} tokens"),
    ("21_data_parallel", "16 GB in an all-reduce, which takes 128 s", lambda: exchange_of_llama()),
    ("21_data_parallel", "2 exchanges in 5 steps", lambda: f"{hl.bytes.Rounds(2).number(0, 5)} exchanges in 5 steps"),
    ("21_data_parallel", "0.7 / (1 − 0.9) = 7", lambda: f"0.7 / (1 − 0.9) = {0.7 / (1 - 0.9):.0f}"),
    ("21_data_parallel", "50 GB/s needs 0.64 s", lambda: f"50 GB/s needs {2 * 16 / 50:g} s"),
    ("21_data_parallel", "13.10 s: 1.5 % more", lambda: f"13.10 s: {share(13.10 / 12.91 - 1)} more"),
    ("21_data_parallel", "0.64 s of 13.10 s, 4.9 %", lambda: f"0.64 s of 13.10 s, {share(0.64 / 13.10)}"),
    ("23_out_of_core", "they take 24.9 GB", lambda: f"they take {gpt2_on_a_card()[0]:.1f} GB"),
    ("23_out_of_core", "16 bytes for each", lambda: f"{out_of_core_links.STATE} bytes for each"),
    ("23_out_of_core", "takes another 71.7 GB", lambda: f"takes another {gpt2_on_a_card()[1]:.1f} GB"),
    ("23_out_of_core", "24 units of copies", lambda: f"{2 * out_of_core.BLOCKS} units of copies"),
    (
        "23_out_of_core",
        "48 units instead of 36",
        lambda: f"{out_of_core_units('recompute')} units instead of {out_of_core.length(['keep'] * 12, room=12):g}",
    ),
    (
        "23_out_of_core",
        "a step takes 36 units",
        lambda: f"a step takes {out_of_core.length(['keep'] * 12, room=12):g} units",
    ),
    ("23_out_of_core", "which takes 2 units", lambda: f"which takes {float(out_of_core_units('swap')) - 36:g} units"),
    ("23_out_of_core", "36, 38, 40 and 42 units", best_by_copy),
    (
        "23_out_of_core",
        "they wait 30 ms for each unit",
        lambda: f"they wait {1e3 * OUT_OF_CORE_UNIT:g} ms for each unit",
    ),
    ("23_out_of_core", "PCIe 4.0 carries 32 GB/s", lambda: f"PCIe 4.0 carries {link(0)}"),
    ("23_out_of_core", "PCIe 5.0 carries 64 GB/s", lambda: f"PCIe 5.0 carries {link(1)}"),
    ("23_out_of_core", "Grace Hopper carries 450 GB/s", lambda: f"Grace Hopper carries {link(2)}"),
    ("30_megatron", "*N* is at least 1333", lambda: f"*N* is at least {in_pieces.widest()}"),
    ("30_megatron", "has 7168 local outputs", lambda: f"has {local_outputs()[1]} local outputs"),
    ("30_megatron", "it has 1280", lambda: f"it has {local_outputs()[0]}"),
    ("22_zero_fsdp", "keeps 16 bytes", lambda: f"keeps {gigabytes(0) / 7.5:g} bytes"),
    ("22_zero_fsdp", "120 GB", lambda: f"{gigabytes(0):g} GB"),
    ("22_zero_fsdp", "120, 31.4, 16.6, 1.9 GB", ladder),
    ("22_zero_fsdp", "1.64 GB", lambda: f"{gigabytes(3, 'mixed'):.2f} GB"),
    ("22_zero_fsdp", "512 GPUs in nodes of 8", lambda: f"{levels.GPUS} GPUs in nodes of {levels.NODE}"),
    ("22_zero_fsdp", "14 bytes", lambda: f"{gigabytes(3, 'mixed') * 64 / 7.5:.0f} bytes"),
    ("22_zero_fsdp", "350 GB", lambda: f"{175e9 * 2 / 1e9:g} GB"),
    ("22_zero_fsdp", "1.5 times the bytes", lambda: f"{sent(3) / sent(0):g} times the bytes"),
    ("22_zero_fsdp", "1.5 times as much", lambda: f"{sent(3) / sent(0):g} times as much"),
    ("22_zero_fsdp", "2 bytes", lambda: f"{MIXED.value} bytes"),
    ("41_choosing", "76 of the 80 GB", usable),
    ("41_choosing", "74 days", lambda: f"{table_2('ZeRO-3')} days"),
    ("41_choosing", "23 days", lambda: f"{table_2('PTD-P')} days"),
    ("41_choosing", "300 GB/s", lambda: f"{A100.inside / 1e9:g} GB/s"),
    ("41_choosing", "25 GB/s", lambda: f"{A100.across / 1e9:g} GB/s"),
    ("41_choosing", "(32 + 3) · 12 = 420 ms", lambda: worked(1)),
    ("41_choosing", "(8 + 3) · 39 = 429 ms", lambda: worked(4)),
    ("41_choosing", "(16 + 3) · 21 = 399 ms", lambda: worked(2)),
    ("41_choosing", "within 4 % of the paper", lambda: f"within {furthest(13)} % of the paper"),
    ("50_capstone", "21 days", lambda: f"{capstone.GIVEN.days:g} days"),
    ("50_capstone", "72 GB", lambda: f"{capstone.GIVEN.room / 1e9:g} GB"),
    ("50_capstone", "38.05 s a step", lambda: f"{capstone.GIVEN.longest:.2f} s a step"),
    ("50_capstone", "3 % in half of", lambda: f"{100 * capstone.plans().error.median:.0f} % in half of"),
    ("50_capstone", "15 % in nine of ten", lambda: f"{100 * capstone.plans().error.nine_of_ten:.0f} % in nine of ten"),
    ("50_capstone", "reach 72 % of", lambda: f"reach {100 * capstone.GIVEN.assumed['fit'].multiply:.0f} % of"),
    ("50_capstone", "1024 bytes", lambda: f"{capstone.foreseen_bytes(capstone.chosen(None))['messages']:.0f} bytes"),
    (
        "50_capstone",
        "4 · 1024 = 4096",
        lambda: "4 · {:.0f} = {:.0f}".format(capstone.foreseen_bytes(capstone.chosen(None))["messages"], crossing()),
    ),
    ("50_capstone", "3 · 4 · 4096 = 49,152 bytes", lambda: f"3 · 4 · {crossing():.0f} = {12 * crossing():,.0f} bytes"),
    ("50_capstone", "69.9 GB by", lambda: f"{capstone.plans().best.memory.total / 1e9:.1f} GB by"),
    (
        "50_capstone",
        "125,000 steps in 86,400 s, so each step may take at most 0.69 s",
        lambda: f"{1e9 / 8000:,.0f} steps in 86,400 s, so each step may take at most {86_400 / (1e9 / 8000):.2f} s",
    ),
    ("42_sc21", "52 % of their peak", lambda: f"{published('megatron_sc21_table1')[-1]['pct_peak']} % of their peak"),
    ("42_sc21", "72.5 % of the peak", lambda: f"{100 * performance.FITTED.multiply:.1f} % of the peak"),
    ("42_sc21", "83.7 % of the memory", lambda: f"{100 * performance.FITTED.memory:.1f} % of the memory"),
    ("42_sc21", "2039 GB/s", lambda: f"{A100.bandwidth / 1e9:g} GB/s"),
    ("42_sc21", "3.31 ms", lambda: f"{1e3 * performance.FITTED.launch:.2f} ms"),
    ("42_sc21", "300 GB/s", lambda: f"{A100.inside / 1e9:g} GB/s"),
    ("42_sc21", "25 GB/s", lambda: f"{A100.across / 1e9:g} GB/s"),
    ("42_sc21", "16 bytes for each score", lambda: f"{performance.SCORE_BYTES} bytes for each score"),
    ("42_sc21", "30 bytes for each weight", lambda: f"{performance.ADAM_BYTES} bytes for each weight"),
    ("42_sc21", "predictions are within 4 %", lambda: f"predictions are within {furthest(13)} %"),
    ("42_sc21", "*t* is 55 % too high", lambda: f"*t* is {100 * sc21_figures.off(15).largest:.0f} % too high"),
    ("42_sc21", "*p* is within 12 %", lambda: f"*p* is within {furthest(14)} %"),
    ("42_sc21", "predictions are within 12 %", lambda: f"predictions are within {furthest(11, 12)} %"),
    ("42_sc21", "96 × the GPUs, 114 × the PFLOP/s", superlinear),
    (
        "42_sc21",
        "33.9 and 83.2",
        lambda: f"{days(300e9, 175e9, 1024, 140e12):.1f} and {days(450e9, 1000e9, 3072, 163e12):.1f}",
    ),
    ("32_experts", "gets 41.8 of 100 choices instead of 25, which is 1.67 times", hot_rank),
    ("33_context", "more than half of an 80 GB card", half_a_card),
    ("34_convolution", "They take 8.6 GB in single precision", first_layer),
    ("34_convolution", "(1 + 6 + 1) · 3 = 24 units", one_after_the_other),
    (
        "34_convolution",
        "Three ranks are 1.6 times as fast",
        lambda: f"Three ranks are {speedup((1, 3, 2), 1, 1):g} times as fast",
    ),
    ("36_axonn", "the matmuls and messages take 3 · (3 · 2 + 4 · 1) = 30 ms", behind),
    ("42_sc21", "83.9", lambda: f"{days(450e9, 1008e9, 3072, 163e12):.1f}"),
    (
        "43_search",
        "The best of all legal tables takes 5.164 ms",
        lambda: f"The best of all legal tables takes {search_tables.ms(one_rule(searched.IMAGES).seconds)}",
    ),
    (
        "43_search",
        "On 2 × 2 ranks, this search would take 3,600 times as long",
        lambda: f"On 2 × 2 ranks, this search would take {searched.IMAGES.count:,} times as long",
    ),
    (
        "43_search",
        "slower by 1 ms is accepted 37 times in 100, and a strategy that is slower by 3 ms is accepted 5 times",
        uphill,
    ),
    ("43_search", "6 % faster than the strategy that they find", out_of_the_valley),
    ("43_search", "B = 512, P = 64, C = 2048, E = 64, F = 4096, G = 1024", lengths_of_images),
    ("43_search", "It needs 4.19 MB", least_held),
]

TIMES = "F=0.04, B=0.08"
CLUSTER = "labs/search/sizes.py: CLUSTER = Rated(multiply=1e13, memory=5e11, launch=1e-5, links=Link(5e-5, 1 / 10e9))"
IN_QUESTION = "Layer(2, 2, 2, 1, 1, 1, 1)] * 3"
IN_PICTURES = "labs/data_parallel/pictures.py: Link(alpha=30e-6, beta=1 / 25e9)"
IN_THIN_STAGES = "labs/interleaved/thin_stages.py: UNIT = 0.08"
IN_PLAN = "labs/zero/plan.py: Link(0, 1 / 100e9), Link(0, 1 / 12.5e9)"
WITH_GATHERS = "40 ms forward and 80 ms backward; a gather and a reduce-scatter take 30 ms each"
SET = [
    ("30_megatron", "waits 4 ms", "labs/megatron/in_pieces.py: wait: float = 4e-3"),
    ("30_megatron", "600 TFLOP/s", "labs/megatron/in_pieces.py: RATE = 6e14"),
    ("30_megatron", "450 GB/s. With 2 bytes", "core/what/catalog.py: 450e9, 50e9,"),
    (
        "43_search",
        "multiplies at 10 TFLOP/s, reads and writes memory at 500 GB/s, and takes 10 µs to start an operator",
        CLUSTER,
    ),
    ("43_search", "A message takes 50 µs to start, and is then sent at 10 GB/s", CLUSTER),
    ("43_search", "six times 50 µs", CLUSTER),
    ("01_tour", "40 ms per forward and 80 ms per backward", TIMES),
    ("10_naive", "a rank waits 40 ms in a forward and 80 ms in a backward", TIMES),
    ("10_naive", "within 5 %", 'faster.length, "{:.2f}", 0.05'),
    ("11_gpipe", "1 unit to start, plus 1 unit per sequence", "F=1 + b, B=2 * (1 + b)"),
    ("11_gpipe", "within 15 %", "within=0.15"),
    ("11_gpipe", "80 ms forward and 160 ms backward", "labs/gpipe/sweeps.py: WHOLE = 0.08"),
    ("11_gpipe", "a rank waits 40 ms in a forward and 80 ms in a backward", TIMES),
    ("12_1f1b", "4 ms per forward", "labs/one_f_one_b/orders.py: SHORT = hl.Costs(F=0.004"),
    ("12_1f1b", "Messages of 0.5 units", "latency in (0, 0.1, 0.5)"),
    ("13_interleaved", "takes 1 unit, and a backward takes 2", "hl.Costs(F=1, B=2)"),
    ("13_interleaved", "takes 1 unit and its backward 2", "hl.Costs(F=1, B=2)"),
    ("14_zero_bubble", "take 2, 3 and 1 units", "F=2, I=3, W=1"),
    ("13_interleaved", "a rank's forward takes 80 ms and its backward 160 ms", IN_THIN_STAGES),
    ("13_interleaved", "in units of 80 ms", IN_THIN_STAGES),
    ("13_interleaved", "has 2048 bytes", "* 2048"),
    ("14_zero_bubble", "F, I and W take 1 unit each", "F=1, I=1, W=1"),
    ("14_zero_bubble", "40 ms each", "labs/zero_bubble/halves.py: UNIT = 0.04"),
    ("14_zero_bubble", "take 3 units, and then 2", "for fused in (3, 2)"),
    ("15_pipedream", "40 ms for F, 80 ms for B", TIMES),
    ("15_pipedream", "links of 10 MB/s", "(4, 1e7)"),
    ("16_slices", "100 ms for the forward of a whole row, 200 ms for its backward", "unit=0.1"),
    ("16_slices", "a forward of a row takes 1 unit", "labs/slices/runs.py: unit: float = 1.0"),
    ("16_slices", "at least 0.2 units", "labs/slices/runs.py: FEW, LATENCY = 3, 0.2"),
    ("16_slices", "a unit is 100 ms", "labs/slices/runs.py: UNIT = 0.1"),
    ("16_slices", "I and W take 1 unit each", "I=1 / 4"),
    ("20_collectives", "holds 12 MB of gradients", "3_000_000"),
    ("20_collectives", "Now 12 MB, three million numbers", "3_000_000"),
    ("20_collectives", "all-reduce of 12 MB", "3_000_000"),
    ("21_data_parallel", "α = 30 µs and 1/β = 25 GB/s", IN_PICTURES),
    ("21_data_parallel", "the limit of 1 MiB", "bucket_cap_mb=1"),
    ("21_data_parallel", "64 times the learning rate", "64 * rate"),
    ("22_zero_fsdp", WITH_GATHERS, "F=0.04, B=0.08, gather=0.03, reduce=0.03"),
    ("23_out_of_core", "A copy takes 1 unit", 'lab.step(["swap"] * 12, swap=1)'),
    ("23_out_of_core", "copies that take 1 unit", 'lab.step(["swap"] * 12, swap=1)'),
    ("23_out_of_core", "Copies take 2 units", "room=5, swap=2"),
    ("23_out_of_core", "If a copy takes 2 units", "room=5, swap=2"),
    ("23_out_of_core", "copies that take 2 units", 'lab.emulated(["swap"] * 12, swap=2)'),
    (
        "23_out_of_core",
        "A gather takes 1 unit, and copying a block's gradients out also takes 1 unit",
        "gather=1, reduce=1",
    ),
    ("22_zero_fsdp", "a link of 25 GB/s", "/ 25e9"),
    ("22_zero_fsdp", "100 GB/s, and between nodes it sends 12.5 GB/s", IN_PLAN),
    (
        "32_experts",
        "takes 1 unit, the experts take 2, and an all-to-all takes 1",
        "attention=1, experts=2, exchange=sent",
    ),
    ("32_experts", "a forward waits 20 ms; an all-to-all takes 20 ms", "attention=0.02, experts=0.02, exchange=0.02"),
    ("33_context", "waits 0.4 ms for each pair", "pair_seconds=0.4e-3"),
    ("34_convolution", "waits 2 ms for each output row", "row=0.002"),
    ("34_convolution", "(4 ms in the backward)", "labs/convolution/on_ranks.py: _taking(2 * ctx.seconds,"),
    ("34_convolution", "held back until 12 ms after", "link=0.012"),
    ("34_convolution", "takes 1 unit, the branches take 1, 3 and 2, and the join takes 1", "F=(1, 1, 3, 2, 1)"),
    ("34_convolution", "with 20 ms for a unit", "F=(0.02, 0.02, 0.06, 0.04, 0.02)"),
    ("34_convolution", "takes 6 units to add up", "labs/convolution/sizes.py: reduce: float = 6.0"),
    ("36_axonn", "Each matmul takes 2 ms. Each layer sends four messages of 1 ms", IN_QUESTION),
    ("36_axonn", "instead of computing a matmul, a rank waits 12 ms", "waits=0.012"),
    (
        "36_axonn",
        "Each matmul takes 3 ms, an all-reduce of dX takes 2 ms, and each of the other messages takes 1 ms",
        "gather=1, sum_y=1, sum_x=2",
    ),
    (
        "40_hybrid",
        "takes 20 ms, its backward takes 40 ms, and the all-reduce of gradients takes 30 ms",
        "F=0.02, B=0.04, reduce=0.03",
    ),
    (
        "30_megatron",
        "300 GB/s; across servers through one network card, with 25 GB/s",
        "core/what/catalog.py: 300e9, 25e9,",
    ),
    ("40_hybrid", "Predict: if a save takes 60 s", "labs/hybrid/lost.py: save=60"),
    ("40_hybrid", "fails once in 50,000 hours", "labs/hybrid/lost.py: device_hours=50_000"),
    ("40_hybrid", "a step takes 10 s", "labs/hybrid/lost.py: STEP, STEPS = 10.0"),
    ("40_hybrid", "a save 60 s", "labs/hybrid/lost.py: save=60"),
    ("40_hybrid", "takes 15 minutes", "labs/hybrid/lost.py: restart=15 * 60"),
    ("40_hybrid", "rerouting 30 s", "labs/hybrid/lost.py: reroute=30"),
    ("40_hybrid", "a repair 4 hours", "labs/hybrid/lost.py: repair=4 * 3600"),
    ("40_hybrid", "takes 16/15 times as long", "labs/hybrid/lost.py: copies=16"),
    ("40_hybrid", "25 GB/s for each GPU between nodes, and 300 GB/s inside", "beta=1 / 300e9"),
]

TOLD = [
    ("where", "2.8 GB and needs 5.3 GB", "a download, and a folder on disk: torch 2.13.0 built with CUDA 13.0"),
    ("43_search", "up to 3.8 times as fast", "FlexFlow's abstract, arXiv:1807.05358"),
    ("43_search", "adds 1 ms to the cost for each MB", "flexflow/FlexFlow, src/runtime/simulator.cc, simulate_runtime"),
    ("43_search", "more than 20 %", "bench/strategies.py: APART"),
    ("21_data_parallel", "0.19 s", "13.10 s less 12.91 s"),
    ("21_data_parallel", "with 8 copies", "the abstract of arXiv:2311.08105"),
    ("21_data_parallel", "communicating 500 times less", "the abstract of arXiv:2311.08105"),
    ("21_data_parallel", "step takes 12.91 s, as in", "the first paragraph"),
    ("21_data_parallel", "0.125 GB/s (1 Gbit/s)", "an example"),
    ("21_data_parallel", "Each gradient takes 2 bytes", "half precision"),
    ("21_data_parallel", "η = 0.7 and μ = 0.9", "arXiv:2311.08105, and its reproduction arXiv:2407.07852"),
    ("21_data_parallel", "With η = 1 and μ = 0", "a special case"),
    ("21_data_parallel", "than with *H* = 1", "an end of the list in the cell"),
    ("README", "0.3 GB", "a download"),
    ("README", "1.3 GB", "a folder on disk"),
    ("README", "3 GB", "a download"),
    ("README", "at most 50 minutes", "held by tests/course/test_notebooks.py"),
    ("slides", "350 GB", "the slide's"),
    ("slides", "33 %", "the slide's"),
    ("slides", "34 days, 84 days, 288 years", "the slide's"),
    ("slides", "84 days", "the slide's"),
    ("00_start", "54 days", "Llama Team 2024, section 3.3.4"),
    ("40_hybrid", "in 54 days", "Llama Team 2024, section 3.3.4"),
    ("40_hybrid", "more than 90 % effective training time", "Llama Team 2024, section 3.3.4"),
    ("40_hybrid", "train for 90 % of the time", "what that run had"),
    ("40_hybrid", "so less than 90 %", "what that run had"),
    ("40_hybrid", "If a save takes 60 s", "the notebook's own loop sets it"),
    ("00_start", "466 times, 419 of them", "Llama Team 2024, section 3.3.4"),
    ("00_start", "10 minutes with NCCL, and after 30 minutes", "documentation of torch's init_process_group"),
    ("11_gpipe", "≤ 1/4", "what the example asks for"),
    ("11_gpipe", "less than 1/4", "what the task below the formula asks for"),
    ("02_one_device", "288 years", "Narayanan et al. 2021, section 1; 42_sc21 says which rate it implies"),
    ("02_one_device", "58.2 %", "torchtitan, docs/performance.md"),
    ("02_one_device", "51.7 %", "torchtitan, docs/performance.md"),
    ("02_one_device", "the 80 GB of a card", "the slide's"),
    ("02_one_device", "8 cards of 80 GB", "the slide's"),
    ("15_pipedream", "up to 5.3 times as fast", "PipeDream's abstract: Narayanan et al. 2019, SOSP"),
    ("16_slices", "1.14 times", "Seq1F1B's abstract, arXiv:2406.03488"),
    ("11_gpipe", "The sweep takes about 15 seconds", "a measurement, to say how long to wait"),
    ("20_collectives", "carries 25 GB/s", "eight links of 200 Gb/s in a node of eight GPUs: SC'21, section 5"),
    ("20_collectives", "α = 10 µs and 1/β = 25 GB/s", "an example"),
    ("21_data_parallel", "a step takes 12.91 s", "NVIDIA, dgxc-benchmarking v25.01, llama3.1/README_8b.md"),
    ("21_data_parallel", "16 GB in half precision", "2 bytes for each of 8 billion weights"),
    ("21_data_parallel", "the measured difference is 1.5 %", "13.10 s over 12.91 s"),
    ("21_data_parallel", "25 MiB by default, and 1 MiB for the first one", "PyTorch's setting"),
    ("21_data_parallel", "numbers of 4 bytes", "float32"),
    ("21_data_parallel", "gradient takes 4 bytes", "float32"),
    ("23_out_of_core", "A card has 80 GB", "an A100 or H100"),
    ("23_out_of_core", "an 80 GB card", "an A100 or H100"),
    ("23_out_of_core", "A forward takes 1 unit", "the unit"),
    ("23_out_of_core", "1.52 times the speed", "KARMA's abstract, arXiv:2008.11421"),
    ("22_zero_fsdp", "12 bytes", "Adam in single precision: master copy and two averages"),
    ("22_zero_fsdp", "cards of 25 GB/s", "eight links of 200 Gb/s in a node of eight GPUs: SC'21, section 5"),
    ("22_zero_fsdp", "3 · 2 bytes per weight", "two gathers and a reduce-scatter of numbers in half precision"),
    ("22_zero_fsdp", "less than 80 GB", "the slide's"),
    ("22_zero_fsdp", "single precision: 4 bytes", "float32"),
    ("31_matmul", "26 %", "AxoNN's abstract, arXiv:2305.13525"),
    ("34_convolution", "64 times as large as before", "Oyama et al. 2020: 512 in place of 128 points each way"),
    ("36_axonn", "1423 PFLOP/s on 6144 H100 GPUs, and at 1381 PFLOP/s", "AxoNN at SC'24, arXiv:2502.08145"),
    ("30_megatron", "numbers of 2 bytes", "half precision"),
    ("42_sc21", "288 years", "the paper's; the notebook says which rate it implies"),
    ("41_choosing", "of 80 GB each", "arXiv:2407.21783, section 3.3.1: H100s with 80 GB"),
    ("41_choosing", "49 to 50 %", "NVIDIA/dgxc-benchmarking v25.01, nemo_megatron/README_175b.md"),
    ("42_sc21", "49 to 50 %", "NVIDIA/dgxc-benchmarking v25.01, nemo_megatron/README_175b.md"),
    ("50_capstone", "16 bytes", "weights 2, gradients 2, Adam in single precision 12"),
    ("50_capstone", "113 GB", "a dry run: tests/labs/test_labs_capstone.py plays it"),
    ("02_one_device", "only 32 GB", "a V100's memory, from its data sheet"),
    ("42_sc21", "up to 11 % more", "the paper's"),
    ("42_sc21", "52 % MFU", "pytorch/torchtitan, docs/performance.md (old version): 51.7"),
]
