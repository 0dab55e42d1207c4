"""The public names of hybridlab, for editors. Written by `python -m tools.stub`; a test compares."""

from collections.abc import Callable
from collections.abc import Sequence
from hybridlab.core.dry import DryRun
from hybridlab.core.layer import Layer
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.routing import Routing as Routing
from hybridlab.core.what.shape import Shape as Shape
from hybridlab.core.when.action import Action as Action
from hybridlab.core.when.room import Room as Room
from hybridlab.core.when.schedule import Schedule as Schedule
from hybridlab.core.when.timeline import Timeline as Timeline
from hybridlab.core.where.mesh import Mesh as Mesh
from hybridlab.front import bytes as bytes
from hybridlab.front import catalog as catalog
from hybridlab.front import engine as engine
from hybridlab.front import layouts as layouts
from hybridlab.front import measure as measure
from hybridlab.front import models as models
from hybridlab.front import orders as orders
from hybridlab.front import papers as papers
from hybridlab.front import parallel as parallel
from hybridlab.front import pictures as pictures
from hybridlab.front import plans as plans
from hybridlab.front import ring as ring
from hybridlab.front import seams as seams
from hybridlab.front import search as search
from hybridlab.front import spans as spans
from hybridlab.front import times as times
from hybridlab.front import typed as typed
from hybridlab.measuring.doctor import doctor as doctor
from hybridlab.predict.bytes.live import live as live
from hybridlab.predict.bytes.traffic import traffic as traffic
from hybridlab.predict.plans.footprint import Footprint
from hybridlab.predict.plans.planner import Planned
from hybridlab.predict.plans.rates import Fit
from hybridlab.predict.plans.software import Software
from hybridlab.predict.time.automatic import automatic as automatic
from hybridlab.predict.time.costs import Costs as Costs
from hybridlab.predict.time.out_of_core import fitted as fitted
from hybridlab.predict.time.overlay import predicted_for as predicted_for
from hybridlab.predict.time.simulate import simulate as simulate
from hybridlab.scheduling.lower import lower as lower
from hybridlab.scheduling.out_of_core import recomputed as recomputed
from hybridlab.scheduling.out_of_core import swapped as swapped
from hybridlab.scheduling.registry import schedules as schedules
from hybridlab.scheduling.rendezvous import check_rendezvous as check_rendezvous
from hybridlab.scheduling.rerouted import rerouted as rerouted
from hybridlab.scheduling.sharded import sharded as sharded
from hybridlab.scheduling.validate import validate as validate
from hybridlab.show.live.explorer import explore as explore
from hybridlab.show.live.game import play as play
from hybridlab.show.timelines.draw import draw as draw
from hybridlab.training.checkpoints.export import export as export
from hybridlab.training.checkpoints.stored import weights as weights
from hybridlab.training.models.model import Model as Model
from hybridlab.training.report import Report
from hybridlab.training.reshard import Resharding
from hybridlab.world.devices.placement import placement as placement
from hybridlab.world.explain.faults import RankError as RankError
from hybridlab.world.processes.launch import ranks as ranks
from pathlib import Path
from torch import nn
from typing import Any
from typing import Literal

__version__: str

def schedule(
    name: str,
    ranks: int,
    microbatches: int,
    dp: int = 1,
    *,
    chunks: int | None = None,
    group: int | None = None,
    offloaded: int | None = None,
    waves: int | None = None,
    copies: tuple[int, ...] | None = None,
    window: int | None = None,
    vertical_sync: bool | None = None,
    backward: str | None = None,
    recompute: str | None = None,
    branches: int | None = None,
    slices: int | None = None,
    halves: bool | None = None,
    shared: bool | None = None,
) -> Schedule:
    """The schedule with this name for one pipeline, or for dp copies of it.

    name          one of `hl.schedules()`
    ranks         p, of one pipeline
    microbatches  m, of one pipeline in one step
    dp            data-parallel copies of the pipeline

    chunks         stages on each rank (usually 2); for interleaved, looped_bfs and others
    group          microbatches of a chunk in one turn; for interleaved (usually one per rank) and pipeoffload
                   (two thirds)
    offloaded      chunks of a rank that go to the host (usually half); for pipeoffload
    waves          for hanayo (usually 1): each wave has two stages on every rank
    copies         ranks of each stage, such as (3, 1); for pipedream
    window         microbatches between updates; for pipedream_2bw (usually one per rank)
    vertical_sync  one weight version for a microbatch in all stages; for pipedream
    backward       the order of backwards, 'fifo' or 'lifo'; for gpipe
    recompute      forwards run twice: 'never', 'except_last' or 'always'; for gpipe
    branches       branches between the first stage and the last; for subgraph (usually 2)
    slices         token slices of each row (usually 2); for seq1f1b and terapipe
    halves         each backward in two halves, the weights' later; for seq1f1b and vocabulary_1f1b
    shared         the first stage and the last share a rank; for subgraph

    raises  ValueError for an unknown name or option, or an invalid number

    >>> import hybridlab as hl
    >>> hl.schedule("1f1b", ranks=4, microbatches=8)
    <schedule 1f1b: 4 ranks, 4 stages, 8 microbatches, 64 actions>
    """


def run(
    schedule: Schedule,
    *,
    work: Literal['emulated', 'model'] = 'emulated',
    costs: Costs = ...,
    latency: float = 0.0,
    jitter: float = 0.0,
    room: Room | None = None,
    on_event: Callable | None = None,
    live: bool = False,
    hang_s: float | None = None,
    mesh: Mesh | None = None,
    batch: int | None = None,
    slices: int | Sequence[int] | None = None,
    slicing: Literal['equal', 'cost'] | None = None,
    cut: str | Sequence = 'layers',
    ahead: int = 0,
    active: int = 2,
    driven: bool = False,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 3,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'sgd',
    rate: float | Callable = 0.1,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    validated: Literal['before', 'after'] | None = None,
    stash: bool = True,
    predict_weights: bool = False,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'float32',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> Timeline:
    """The measured timeline of a schedule, run by real processes that exchange real messages.

    schedule  the schedule of one pipeline, or with its dp copies
    work      "emulated": each action waits instead of computing; "model": a model is trained, and the timeline is that
              of the first rank of each stage
    costs     the lengths of the waits in seconds, for emulated work
    latency   minimum seconds of every message;  jitter  relative standard deviation of the waits
    room      memory capacity of each device, for emulated work; an action that would not fit waits for copies to the
              host
    on_event  called as on_event(rank, event): after each step with its number
    live      also report the end of each compute action: step, index in the rank's lowered program, begin and end (ns
              on the clock of this machine)
    hang_s    seconds that one layer of a model, or one wait for another rank, may take; None: 60

    mesh             ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    batch            rows (sequences or images) in the global batch; None: `rows` per microbatch
    slices           token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe
    slicing          with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later
                     slices shorter
    cut              how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of
                     numbers or ranges, or Megatron-LM's letters such as 'Ett|tL'
    ahead            number of receives posted in advance
    active           with zero=3: stages whose gathered weights a rank holds at the same time
    driven           message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed
                     order
    model            your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                     'FILE.py:name'; None: the transformer of `shape`
    loss             loss(output, target), the sum over a microbatch; for your own module
    weights          initial weights: a state dict, or files that hl.weights reads; None: the model's
    data             data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                     a text file
    shape            sizes of the transformer to train when no model is given
    skips            skip connections, {layer: earlier layer whose output it also takes}
    takes            branches and joins, {layer: earlier layers whose outputs it takes}
    dims             names of the dimensions of parameters, {parameter: 'F D'}
    sizes            lengths of combined dimensions, {letter: length}
    terms            loss terms in one row (default 1)
    enters           names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets          names of the dimensions of targets (default 'B')
    steps            optimizer steps
    rows             rows in one microbatch, if no batch is given
    accumulate       runs of the schedule for one optimizer step (gradient accumulation)
    optimizer        the optimizer
    rate             the learning rate, or a function of the step that returns it
    warmup           steps in which the learning rate grows linearly to its full size
    anneal           the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas            decay rates of AdamW's two running averages
    decay            weight decay; not applied to norms and biases
    clip             gradient clipping: the largest global gradient norm
    validated        with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a
                     step that must be clipped
    stash            weight stashing; False: an asynchronous schedule keeps only one version of its weights
    predict_weights  an asynchronous schedule computes with weights predicted for the time of its update: the
                     last update is repeated once for each update that is still missing
    seed             random seed of the initial weights, dropout and batches
    dtype            data type of the computation
    sums             when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                     never, since copies update on their own and exchange their updates only occasionally
    sum_dtype        data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype     data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload          keep the optimizer and its state in host memory
    sync_every       with sums=local: steps between two exchanges of a weight
    fragments        with sums=local: groups of layers that are exchanged at different steps
    sync_delay       with sums=local: steps that hide an exchange, before its result is used
    mix              with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate       with sums=local: learning rate of the outer step
    outer_momentum   with sums=local: Nesterov momentum of the outer step
    zero             ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3
                     weights)
    owners           with zero: number of ranks in each sharding group; None: all replicas
    two_levels       with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary        with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                     the first
    attend           with cp: how keys and values reach the queries
    ulysses          with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                     these groups; if not given, usp takes 2
    zigzag           with cp: each rank has one part from the front and one from the back, which balances causal
                     attention
    zigzag_over      with zigzag: distribute the parts of each packed document, or of the full row
    dispatch         with ep: how tokens are sent to their experts
    fold             with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies    with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                     0@1,0@2
    sequence         with tp: shard norms and residuals along the sequence
    overlap          with sequence: send in pieces, each during the matmul of another piece
    directions       with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter          with tp: send only a shard of each activation between stages
    recompute        what to recompute in each layer during the backward
    device_memory    memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                     size
    make_room        with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time        with device_memory: time to copy one stage's activations one way, in units of one forward
    muon             with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                     'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                     different optimizer

    Emulated work uses only `mesh` (default: one pipeline of the schedule's ranks), `steps` (all are measured, after an
    extra step that is not), `ahead` and `driven`. The other arguments are for a model.

    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> real = hl.run(hl.schedule("1f1b", ranks=2, microbatches=2), steps=1)  # starts ranks
    >>> real.schedule.ranks, real.origin["work"]
    (2, 'emulated')
    """


def check(
    mesh: Mesh | None = None,
    schedule: str | Schedule = '1f1b',
    microbatches: int = 4,
    batch: int | None = None,
    *,
    hang_s: float | None = None,
    sabotage: Callable | None = None,
    chunks: int | None = None,
    copies: tuple[int, ...] | None = None,
    slices: int | Sequence[int] | None = None,
    slicing: Literal['equal', 'cost'] | None = None,
    cut: str | Sequence = 'layers',
    ahead: int = 0,
    active: int = 2,
    driven: bool = False,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 3,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'sgd',
    rate: float | Callable = 0.1,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    validated: Literal['before', 'after'] | None = None,
    stash: bool = True,
    predict_weights: bool = False,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'float64',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> Report:
    """Check that a layout gives the results of one device: both train a few steps, and the results are compared.

    The check compares the loss, every gradient, their norm, the weights and the buffers. A mode must account for
    every byte sent.

    mesh             ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    schedule         a name from hl.schedules(), or your own schedule
    microbatches     microbatches of one pipeline in one run of the schedule
    batch            rows (sequences or images) in the global batch; None: `rows` per microbatch
    chunks           stages on each rank, for schedules with this option
    copies           ranks of each stage, such as (3, 1); only for pipedream
    slices           token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe
    slicing          with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later
                     slices shorter
    cut              how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of
                     numbers or ranges, or Megatron-LM's letters such as 'Ett|tL'
    ahead            number of receives posted in advance
    active           with zero=3: stages whose gathered weights a rank holds at the same time
    driven           message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed
                     order
    model            your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                     'FILE.py:name'; None: the transformer of `shape`
    loss             loss(output, target), the sum over a microbatch; for your own module
    weights          initial weights: a state dict, or files that hl.weights reads; None: the model's
    data             data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                     a text file
    shape            sizes of the transformer to train when no model is given
    skips            skip connections, {layer: earlier layer whose output it also takes}
    takes            branches and joins, {layer: earlier layers whose outputs it takes}
    dims             names of the dimensions of parameters, {parameter: 'F D'}
    sizes            lengths of combined dimensions, {letter: length}
    terms            loss terms in one row (default 1)
    enters           names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets          names of the dimensions of targets (default 'B')
    steps            optimizer steps
    rows             rows in one microbatch, if no batch is given
    accumulate       runs of the schedule for one optimizer step (gradient accumulation)
    optimizer        the optimizer
    rate             the learning rate, or a function of the step that returns it
    warmup           steps in which the learning rate grows linearly to its full size
    anneal           the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas            decay rates of AdamW's two running averages
    decay            weight decay; not applied to norms and biases
    clip             gradient clipping: the largest global gradient norm
    validated        with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a
                     step that must be clipped
    stash            weight stashing; False: an asynchronous schedule keeps only one version of its weights
    predict_weights  an asynchronous schedule computes with weights predicted for the time of its update: the
                     last update is repeated once for each update that is still missing
    seed             random seed of the initial weights, dropout and batches
    dtype            data type of the computation
    sums             when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                     never, since copies update on their own and exchange their updates only occasionally
    sum_dtype        data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype     data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload          keep the optimizer and its state in host memory
    sync_every       with sums=local: steps between two exchanges of a weight
    fragments        with sums=local: groups of layers that are exchanged at different steps
    sync_delay       with sums=local: steps that hide an exchange, before its result is used
    mix              with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate       with sums=local: learning rate of the outer step
    outer_momentum   with sums=local: Nesterov momentum of the outer step
    zero             ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3
                     weights)
    owners           with zero: number of ranks in each sharding group; None: all replicas
    two_levels       with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary        with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                     the first
    attend           with cp: how keys and values reach the queries
    ulysses          with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                     these groups; if not given, usp takes 2
    zigzag           with cp: each rank has one part from the front and one from the back, which balances causal
                     attention
    zigzag_over      with zigzag: distribute the parts of each packed document, or of the full row
    dispatch         with ep: how tokens are sent to their experts
    fold             with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies    with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                     0@1,0@2
    sequence         with tp: shard norms and residuals along the sequence
    overlap          with sequence: send in pieces, each during the matmul of another piece
    directions       with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter          with tp: send only a shard of each activation between stages
    recompute        what to recompute in each layer during the backward
    device_memory    memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                     size
    make_room        with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time        with device_memory: time to copy one stage's activations one way, in units of one forward
    muon             with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                     'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                     different optimizer
    hang_s         seconds that one layer, or one wait for another rank, may take; None: 60
    sabotage       a function called on every rank before the first step, to show that the check can fail

    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> report = hl.check(hl.Mesh(dp=2, pp=2), "1f1b", zero=1)  # starts ranks
    >>> report.ok, report.largest_gap < 1e-11
    (True, True)
    """


def train(
    mesh: Mesh | None = None,
    schedule: str | Schedule = '1f1b',
    microbatches: int = 4,
    batch: int | None = None,
    *,
    checkpoint: str | Path | None = None,
    every: int = 0,
    resume: bool = False,
    async_save: bool = False,
    log: str | Path | None = None,
    progress: bool = True,
    on_event: Callable | None = None,
    hang_s: float | None = None,
    chunks: int | None = None,
    copies: tuple[int, ...] | None = None,
    slices: int | Sequence[int] | None = None,
    slicing: Literal['equal', 'cost'] | None = None,
    cut: str | Sequence = 'layers',
    ahead: int = 0,
    active: int = 2,
    driven: bool = False,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 20,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'adamw',
    rate: float | Callable = 0.002,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    validated: Literal['before', 'after'] | None = None,
    stash: bool = True,
    predict_weights: bool = False,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'float32',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> dict:
    """Train any model, or the reference GPT on real text, over a mesh. Steps and losses are shown during training.

    mesh             ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    schedule         a name from hl.schedules(), or your own schedule
    microbatches     microbatches of one pipeline in one run of the schedule
    batch            rows (sequences or images) in the global batch; None: `rows` per microbatch
    chunks           stages on each rank, for schedules with this option
    copies           ranks of each stage, such as (3, 1); only for pipedream
    slices           token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe
    slicing          with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later
                     slices shorter
    cut              how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of
                     numbers or ranges, or Megatron-LM's letters such as 'Ett|tL'
    ahead            number of receives posted in advance
    active           with zero=3: stages whose gathered weights a rank holds at the same time
    driven           message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed
                     order
    model            your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                     'FILE.py:name'; None: the transformer of `shape`
    loss             loss(output, target), the sum over a microbatch; for your own module
    weights          initial weights: a state dict, or files that hl.weights reads; None: the model's
    data             data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                     a text file
    shape            sizes of the transformer to train when no model is given
    skips            skip connections, {layer: earlier layer whose output it also takes}
    takes            branches and joins, {layer: earlier layers whose outputs it takes}
    dims             names of the dimensions of parameters, {parameter: 'F D'}
    sizes            lengths of combined dimensions, {letter: length}
    terms            loss terms in one row (default 1)
    enters           names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets          names of the dimensions of targets (default 'B')
    steps            optimizer steps
    rows             rows in one microbatch, if no batch is given
    accumulate       runs of the schedule for one optimizer step (gradient accumulation)
    optimizer        the optimizer
    rate             the learning rate, or a function of the step that returns it
    warmup           steps in which the learning rate grows linearly to its full size
    anneal           the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas            decay rates of AdamW's two running averages
    decay            weight decay; not applied to norms and biases
    clip             gradient clipping: the largest global gradient norm
    validated        with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a
                     step that must be clipped
    stash            weight stashing; False: an asynchronous schedule keeps only one version of its weights
    predict_weights  an asynchronous schedule computes with weights predicted for the time of its update: the
                     last update is repeated once for each update that is still missing
    seed             random seed of the initial weights, dropout and batches
    dtype            data type of the computation
    sums             when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                     never, since copies update on their own and exchange their updates only occasionally
    sum_dtype        data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype     data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload          keep the optimizer and its state in host memory
    sync_every       with sums=local: steps between two exchanges of a weight
    fragments        with sums=local: groups of layers that are exchanged at different steps
    sync_delay       with sums=local: steps that hide an exchange, before its result is used
    mix              with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate       with sums=local: learning rate of the outer step
    outer_momentum   with sums=local: Nesterov momentum of the outer step
    zero             ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3
                     weights)
    owners           with zero: number of ranks in each sharding group; None: all replicas
    two_levels       with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary        with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                     the first
    attend           with cp: how keys and values reach the queries
    ulysses          with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                     these groups; if not given, usp takes 2
    zigzag           with cp: each rank has one part from the front and one from the back, which balances causal
                     attention
    zigzag_over      with zigzag: distribute the parts of each packed document, or of the full row
    dispatch         with ep: how tokens are sent to their experts
    fold             with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies    with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                     0@1,0@2
    sequence         with tp: shard norms and residuals along the sequence
    overlap          with sequence: send in pieces, each during the matmul of another piece
    directions       with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter          with tp: send only a shard of each activation between stages
    recompute        what to recompute in each layer during the backward
    device_memory    memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                     size
    make_room        with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time        with device_memory: time to copy one stage's activations one way, in units of one forward
    muon             with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                     'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                     different optimizer
    checkpoint     a folder: the run is saved there at its end, even if Ctrl-C, SIGTERM, a closed
                   terminal or an exception in on_event ends it
    every          number of steps between saves; 0: only at the end; the two newest checkpoints are kept
    resume         continue from the newest checkpoint in the folder, under any layout, with its batch size if none is
                   given
    async_save     continue training while files are written; until then each rank holds a copy of its part
    log            a folder for TensorBoard event files: loss, learning rate and tokens per second of each step
    progress       show a line that counts steps
    on_event       instead of that line: on_event(rank, event) after every step, with its number, loss and
                   tokens_per_second; with resume, first on_event(0, {"resumed": …}) with the first step
    hang_s         seconds that one layer, or one wait for another rank, may take before the run ends; None: 60

    returns {"losses": one per step done, "timeline": measured, of the last 100 steps, or None if none was done,
             "memory": bytes of weights, gradients and optimizer state on each rank, "end": the first step not done,
             "model": the module with the trained weights, made when it is first used: above 64 MiB it is read
             from the checkpoint}
    raises  ValueError for invalid arguments; RankError if a rank fails

    >>> import hybridlab as hl
    >>> trained = hl.train(hl.Mesh(pp=2), steps=2, progress=False)  # starts ranks
    >>> len(trained["losses"]), trained["end"], type(trained["model"]).__name__
    (2, 2, 'GPT')
    """


def reshard(
    mesh: Mesh | None = None,
    schedule: str | Schedule = '1f1b',
    microbatches: int = 4,
    batch: int | None = None,
    *,
    to: Mesh | dict,
    chunks: int | None = None,
    copies: tuple[int, ...] | None = None,
    slices: int | Sequence[int] | None = None,
    slicing: Literal['equal', 'cost'] | None = None,
    cut: str | Sequence = 'layers',
    ahead: int = 0,
    active: int = 2,
    driven: bool = False,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 3,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'adamw',
    rate: float | Callable = 0.002,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    validated: Literal['before', 'after'] | None = None,
    stash: bool = True,
    predict_weights: bool = False,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'float32',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> Resharding:
    """The messages that move a training run from one layout to another while its ranks keep running, and their bytes.

    Each rank takes from the others what it needs under the second layout and does not have yet: weights, and the state
    of the optimizer, ZeRO's shards included. If several ranks have a piece, they send in turn. The plan can be drawn,
    run (`train`) and checked (`check`). A common use is reinforcement learning: training under one layout, evaluation
    or generation of text under another. For a schedule without a flush, the newest version of the weights is used.

    mesh             ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    schedule         a name from hl.schedules(), or your own schedule
    microbatches     microbatches of one pipeline in one run of the schedule
    batch            rows (sequences or images) in the global batch; None: `rows` per microbatch
    chunks           stages on each rank, for schedules with this option
    copies           ranks of each stage, such as (3, 1); only for pipedream
    slices           token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe
    slicing          with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later
                     slices shorter
    cut              how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of
                     numbers or ranges, or Megatron-LM's letters such as 'Ett|tL'
    ahead            number of receives posted in advance
    active           with zero=3: stages whose gathered weights a rank holds at the same time
    driven           message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed
                     order
    model            your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                     'FILE.py:name'; None: the transformer of `shape`
    loss             loss(output, target), the sum over a microbatch; for your own module
    weights          initial weights: a state dict, or files that hl.weights reads; None: the model's
    data             data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                     a text file
    shape            sizes of the transformer to train when no model is given
    skips            skip connections, {layer: earlier layer whose output it also takes}
    takes            branches and joins, {layer: earlier layers whose outputs it takes}
    dims             names of the dimensions of parameters, {parameter: 'F D'}
    sizes            lengths of combined dimensions, {letter: length}
    terms            loss terms in one row (default 1)
    enters           names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets          names of the dimensions of targets (default 'B')
    steps            optimizer steps
    rows             rows in one microbatch, if no batch is given
    accumulate       runs of the schedule for one optimizer step (gradient accumulation)
    optimizer        the optimizer
    rate             the learning rate, or a function of the step that returns it
    warmup           steps in which the learning rate grows linearly to its full size
    anneal           the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas            decay rates of AdamW's two running averages
    decay            weight decay; not applied to norms and biases
    clip             gradient clipping: the largest global gradient norm
    validated        with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a
                     step that must be clipped
    stash            weight stashing; False: an asynchronous schedule keeps only one version of its weights
    predict_weights  an asynchronous schedule computes with weights predicted for the time of its update: the
                     last update is repeated once for each update that is still missing
    seed             random seed of the initial weights, dropout and batches
    dtype            data type of the computation
    sums             when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                     never, since copies update on their own and exchange their updates only occasionally
    sum_dtype        data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype     data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload          keep the optimizer and its state in host memory
    sync_every       with sums=local: steps between two exchanges of a weight
    fragments        with sums=local: groups of layers that are exchanged at different steps
    sync_delay       with sums=local: steps that hide an exchange, before its result is used
    mix              with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate       with sums=local: learning rate of the outer step
    outer_momentum   with sums=local: Nesterov momentum of the outer step
    zero             ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3
                     weights)
    owners           with zero: number of ranks in each sharding group; None: all replicas
    two_levels       with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary        with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                     the first
    attend           with cp: how keys and values reach the queries
    ulysses          with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                     these groups; if not given, usp takes 2
    zigzag           with cp: each rank has one part from the front and one from the back, which balances causal
                     attention
    zigzag_over      with zigzag: distribute the parts of each packed document, or of the full row
    dispatch         with ep: how tokens are sent to their experts
    fold             with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies    with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                     0@1,0@2
    sequence         with tp: shard norms and residuals along the sequence
    overlap          with sequence: send in pieces, each during the matmul of another piece
    directions       with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter          with tp: send only a shard of each activation between stages
    recompute        what to recompute in each layer during the backward
    device_memory    memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                     size
    make_room        with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time        with device_memory: time to copy one stage's activations one way, in units of one forward
    muon             with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                     'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                     different optimizer
    to             the second layout: a mesh, or a dict of the arguments above that differ, such as {"mesh":
                   hl.Mesh(tp=4), "zero": 1}; with another schedule, predict_weights and stash take their defaults
                   unless they are given here

    returns a `Resharding`: `moves`, `bytes` and `there` (both by weights and state), `total`, `pairs`
    raises  ValueError for invalid arguments, or if the second job cannot continue the first

    >>> import hybridlab as hl
    >>> plan = hl.reshard(hl.Mesh(pp=2), to=hl.Mesh(tp=2), shape=hl.Shape(layers=2, width=8, heads=2))
    >>> print(plan)
    Mesh(pp=2) → Mesh(tp=2): 2 messages, 38,880 bytes
      weights: 12,960 bytes sent, 12,960 there already
      state: 25,920 bytes sent, 25,920 there already
    """


def dry_run(
    mesh: Mesh | None = None,
    schedule: str | Schedule = '1f1b',
    microbatches: int = 4,
    batch: int | None = None,
    *,
    rank: int = 0,
    machine: str = 'a100',
    memory: float | None = None,
    chunks: int | None = None,
    copies: tuple[int, ...] | None = None,
    slices: int | Sequence[int] | None = None,
    slicing: Literal['equal', 'cost'] | None = None,
    cut: str | Sequence = 'layers',
    ahead: int = 0,
    active: int = 2,
    driven: bool = False,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 3,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'adamw',
    rate: float | Callable = 0.1,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    validated: Literal['before', 'after'] | None = None,
    stash: bool = True,
    predict_weights: bool = False,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'bfloat16',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> DryRun:
    """A dry run: one rank of any job in one training step, without arithmetic, with the real bytes held and sent.

    It runs the training program on tensors with shapes but without numbers, and without the other ranks. So one rank of
    a job with thousands of ranks takes less than a minute.

    mesh             ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    schedule         a name from hl.schedules(), or your own schedule
    microbatches     microbatches of one pipeline in one run of the schedule
    batch            rows (sequences or images) in the global batch; None: `rows` per microbatch
    chunks           stages on each rank, for schedules with this option
    copies           ranks of each stage, such as (3, 1); only for pipedream
    slices           token slices of each row, or their lengths, such as (12, 9, 7); for seq1f1b and terapipe
    slicing          with a number of slices: 'equal' lengths (default), or lengths of equal 'cost', later
                     slices shorter
    cut              how layers are divided into stages: equal 'layers', 'parameters' or 'time', a list of
                     numbers or ranges, or Megatron-LM's letters such as 'Ett|tL'
    ahead            number of receives posted in advance
    active           with zero=3: stages whose gathered weights a rank holds at the same time
    driven           message-driven: each rank computes a microbatch as soon as it has arrived, in no fixed
                     order
    model            your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                     'FILE.py:name'; None: the transformer of `shape`
    loss             loss(output, target), the sum over a microbatch; for your own module
    weights          initial weights: a state dict, or files that hl.weights reads; None: the model's
    data             data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                     a text file
    shape            sizes of the transformer to train when no model is given
    skips            skip connections, {layer: earlier layer whose output it also takes}
    takes            branches and joins, {layer: earlier layers whose outputs it takes}
    dims             names of the dimensions of parameters, {parameter: 'F D'}
    sizes            lengths of combined dimensions, {letter: length}
    terms            loss terms in one row (default 1)
    enters           names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets          names of the dimensions of targets (default 'B')
    steps            optimizer steps
    rows             rows in one microbatch, if no batch is given
    accumulate       runs of the schedule for one optimizer step (gradient accumulation)
    optimizer        the optimizer
    rate             the learning rate, or a function of the step that returns it
    warmup           steps in which the learning rate grows linearly to its full size
    anneal           the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas            decay rates of AdamW's two running averages
    decay            weight decay; not applied to norms and biases
    clip             gradient clipping: the largest global gradient norm
    validated        with clip: ranks learn the norm 'before' the optimizer step, or 'after' it, and then undo a
                     step that must be clipped
    stash            weight stashing; False: an asynchronous schedule keeps only one version of its weights
    predict_weights  an asynchronous schedule computes with weights predicted for the time of its update: the
                     last update is repeated once for each update that is still missing
    seed             random seed of the initial weights, dropout and batches
    dtype            data type of the computation
    sums             when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                     never, since copies update on their own and exchange their updates only occasionally
    sum_dtype        data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype     data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload          keep the optimizer and its state in host memory
    sync_every       with sums=local: steps between two exchanges of a weight
    fragments        with sums=local: groups of layers that are exchanged at different steps
    sync_delay       with sums=local: steps that hide an exchange, before its result is used
    mix              with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate       with sums=local: learning rate of the outer step
    outer_momentum   with sums=local: Nesterov momentum of the outer step
    zero             ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3
                     weights)
    owners           with zero: number of ranks in each sharding group; None: all replicas
    two_levels       with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary        with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                     the first
    attend           with cp: how keys and values reach the queries
    ulysses          with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                     these groups; if not given, usp takes 2
    zigzag           with cp: each rank has one part from the front and one from the back, which balances causal
                     attention
    zigzag_over      with zigzag: distribute the parts of each packed document, or of the full row
    dispatch         with ep: how tokens are sent to their experts
    fold             with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies    with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                     0@1,0@2
    sequence         with tp: shard norms and residuals along the sequence
    overlap          with sequence: send in pieces, each during the matmul of another piece
    directions       with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter          with tp: send only a shard of each activation between stages
    recompute        what to recompute in each layer during the backward
    device_memory    memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                     size
    make_room        with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time        with device_memory: time to copy one stage's activations one way, in units of one forward
    muon             with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                     'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                     different optimizer
    rank           the index of the rank to run, in the mesh
    machine        a name in the catalog, or a TOML file, to predict times and to compare the memory with its device
    memory         bytes of a device, instead of the machine's

    raises  ValueError for invalid arguments, and for a job that would hang

    >>> import hybridlab as hl
    >>> one = hl.dry_run(hl.Mesh(dp=24, pp=2), model=hl.Shape(layers=2), rank=17, zero=1)
    >>> one.actions[:2], one.fits, one.bytes["messages"]
    (('1F32@8', '1B32@8'), True, 16384)
    """


def dry_layer(
    mesh: Mesh | None = None,
    *,
    rank: int = 0,
    microbatches: int = 4,
    batch: int | None = None,
    ahead: int = 0,
    active: int = 2,
    model: nn.Module | Model | Shape | Callable | str | None = None,
    loss: Callable | None = None,
    weights: str | Path | dict | None = None,
    data: Any = None,
    shape: Shape | None = None,
    skips: dict[int, int] | None = None,
    takes: dict | None = None,
    dims: dict[str, str] | None = None,
    sizes: dict[str, int] | None = None,
    terms: int | None = None,
    enters: str | None = None,
    targets: str | None = None,
    steps: int = 3,
    rows: int = 2,
    accumulate: int = 1,
    optimizer: Literal['sgd', 'adamw', 'muon'] = 'adamw',
    rate: float | Callable = 0.1,
    warmup: int = 0,
    anneal: Literal['constant', 'cosine', 'linear'] = 'constant',
    betas: tuple[float, ...] = ...,
    decay: float = 0.0,
    clip: float | None = None,
    seed: int = 0,
    dtype: Literal['float32', 'float64', 'bfloat16'] = 'bfloat16',
    sums: Literal['after', 'each', 'buckets', 'local'] | None = None,
    sum_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    master_dtype: Literal['float32', 'float64', 'bfloat16'] | None = None,
    offload: bool = False,
    sync_every: int = 2,
    fragments: int = 1,
    sync_delay: int = 0,
    mix: float = 0.0,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    zero: int = 0,
    owners: int | None = None,
    two_levels: bool = False,
    secondary: int = 0,
    attend: Literal['gather', 'ring', 'ulysses', 'usp'] = 'gather',
    ulysses: int = 1,
    zigzag: bool = False,
    zigzag_over: Literal['documents', 'row'] = 'documents',
    dispatch: Literal['all_to_all', 'all_gather'] = 'all_to_all',
    fold: bool = False,
    expert_copies: dict[int, int | tuple[int, ...]] | str | None = None,
    sequence: bool = False,
    overlap: bool = False,
    directions: int = 1,
    scatter: bool = False,
    recompute: Literal['none', 'selective', 'full'] = 'none',
    device_memory: str | float | None = None,
    make_room: Literal['swap', 'recompute', 'mixture'] = 'swap',
    copy_time: float = 1.0,
    muon: Literal['gather', 'gram', 'blockwise'] = 'gather',
) -> Layer:
    """One transformer layer of a job on one rank, and its messages, from the ledger of a dry run.

    mesh            ranks along named axes, such as hl.Mesh(dp=2, pp=4); None: 4 pipeline ranks
    microbatches    microbatches of one pipeline in one run of the schedule
    batch           rows (sequences or images) in the global batch; None: `rows` per microbatch
    ahead           number of receives posted in advance
    active          with zero=3: stages whose gathered weights a rank holds at the same time
    model           your own module (with loss and data), a Model, a Shape, the name of a reference model, or
                    'FILE.py:name'; None: the transformer of `shape`
    loss            loss(output, target), the sum over a microbatch; for your own module
    weights         initial weights: a state dict, or files that hl.weights reads; None: the model's
    data            data(step, rows) -> (inputs, targets), a Dataset, DataLoader or list of batches; for a GPT,
                    a text file
    shape           sizes of the transformer to train when no model is given
    skips           skip connections, {layer: earlier layer whose output it also takes}
    takes           branches and joins, {layer: earlier layers whose outputs it takes}
    dims            names of the dimensions of parameters, {parameter: 'F D'}
    sizes           lengths of combined dimensions, {letter: length}
    terms           loss terms in one row (default 1)
    enters          names of the dimensions of inputs (default 'B'); for images 'B C Y X'
    targets         names of the dimensions of targets (default 'B')
    steps           optimizer steps
    rows            rows in one microbatch, if no batch is given
    accumulate      runs of the schedule for one optimizer step (gradient accumulation)
    optimizer       the optimizer
    rate            the learning rate, or a function of the step that returns it
    warmup          steps in which the learning rate grows linearly to its full size
    anneal          the rate after the warm-up; 'cosine' and 'linear' fall to 0 by the last step
    betas           decay rates of AdamW's two running averages
    decay           weight decay; not applied to norms and biases
    clip            gradient clipping: the largest global gradient norm
    seed            random seed of the initial weights, dropout and batches
    dtype           data type of the computation
    sums            when gradients are all-reduced; None: after the backward, or in buckets with zero; local:
                    never, since copies update on their own and exchange their updates only occasionally
    sum_dtype       data type of gradient reductions; None: dtype, or float32 if that is bfloat16
    master_dtype    data type of the optimizer's weights; None: dtype, or float32 if that is bfloat16
    offload         keep the optimizer and its state in host memory
    sync_every      with sums=local: steps between two exchanges of a weight
    fragments       with sums=local: groups of layers that are exchanged at different steps
    sync_delay      with sums=local: steps that hide an exchange, before its result is used
    mix             with sums=local: fraction of a copy's weights in the mix after an exchange
    outer_rate      with sums=local: learning rate of the outer step
    outer_momentum  with sums=local: Nesterov momentum of the outer step
    zero            ZeRO stage 0 to 3: what is sharded over replicas (1 optimizer state, 2 gradients, 3 weights)
    owners          with zero: number of ranks in each sharding group; None: all replicas
    two_levels      with owners: shard the optimizer state over all replicas, the weights over the owners
    secondary       with zero=3: neighbours that keep a second copy of the weights, for a step's gathers after
                    the first
    attend          with cp: how keys and values reach the queries
    ulysses         with attend usp: the number of ranks that exchange heads, inside a node; a ring connects
                    these groups; if not given, usp takes 2
    zigzag          with cp: each rank has one part from the front and one from the back, which balances causal
                    attention
    zigzag_over     with zigzag: distribute the parts of each packed document, or of the full row
    dispatch        with ep: how tokens are sent to their experts
    fold            with tp or cp: distribute whole experts over these ranks too, as over ep
    expert_copies   with ep or fold: ranks that also compute an expert, {expert: ranks}; on the command line
                    0@1,0@2
    sequence        with tp: shard norms and residuals along the sequence
    overlap         with sequence: send in pieces, each during the matmul of another piece
    directions      with overlap: send pieces to the next rank (1), or to both neighbours (2)
    scatter         with tp: send only a shard of each activation between stages
    recompute       what to recompute in each layer during the backward
    device_memory   memory for saved activations on a device: 64MiB, a number of bytes, or a fraction of their
                    size
    make_room       with device_memory: how to save memory: swap, recompute, or the best mixture found
    copy_time       with device_memory: time to copy one stage's activations one way, in units of one forward
    muon            with optimizer muon, for a matrix that is sharded inside a stage: 'gather' collects it,
                    'gram' all-reduces its Gram matrices, and 'blockwise' updates each shard separately, as a
                    different optimizer
    rank  the index of the rank in the mesh

    The layer is in the middle of the model and forms a stage by itself. So there is no order of actions and no division
    into stages: no `schedule`, `chunks`, `copies`, `slices`, `slicing`, `cut` and `driven`. `microbatches` and
    `accumulate` only say how many rows of a `batch` one microbatch has. Weights that ZeRO 3 gathers are gathered as
    often as in a breadth-first schedule.

    raises  ValueError for invalid arguments, or a model other than a transformer; TypeError for unknown arguments

    >>> import hybridlab as hl
    >>> print(hl.dry_layer(hl.Mesh(tp=2)))
    one layer on rank 0 (tp=0), ...
    """


def plan(
    model: str | Shape,
    machine: str | Machine,
    gpus: int,
    batch: int,
    fit: Fit | None = None,
    software: str | Software | None = None,
    precision: str = 'bf16',
    grids: bool = False,
    contexts: bool = False,
    experts: bool = False,
    stages: bool = False,
    slices: bool = False,
    schedule: str | None = None,
    sums: str | None = None,
    *,
    p: int | None = None,
    t: int | None = None,
    d: int | None = None,
    b: int | None = None,
    v: int | None = None,
    recompute: str | None = None,
    zero: int | None = None,
    sequence: bool | None = None,
    scatter: bool | None = None,
    x: int | None = None,
    z: int | None = None,
    cp: int | None = None,
    attend: str | None = None,
    ulysses: int | None = None,
    zigzag: bool | None = None,
    ep: int | None = None,
    dispatch: str | None = None,
    fold: bool | None = None,
    uneven: bool | None = None,
    n: int | None = None,
    skew: float | None = None,
    fused: bool | None = None,
    redone: float | None = None,
    offload: float | None = None,
    spread_head: bool | None = None,
    two_levels: bool | None = None,
    secondary: int | None = None,
    further: int | None = None,
    optimizer: str | None = None,
    sync_every: int | None = None,
    fragments: int | None = None,
    sync_delay: int | None = None,
    overlap: bool | None = None,
    directions: int | None = None,
) -> Planned:
    """All plans for a model on `gpus` devices of a machine, with a global batch of `batch` sequences.

    model, machine  names in the catalog, or a Shape and a Machine;  gpus, batch  devices, and sequences in a batch
    fit        the three fitted numbers of a machine; None: those fitted to published runs, see `plans.usual`
    software   overlap and fusion of the program: a name in SOFTWARE, or its terms; None: the machine's usual one
    precision  of matmuls with weights: "bf16", "fp8", "fp4"
    grids      also search AxoNN's grids: x shards of the width, z copies that shard; implied by x=2 or more, or z
    contexts   also search context parallelism: cp and its method of attention; implied by cp=2 or more
    experts    also search expert parallelism: ep and its dispatch; implied by ep=2 or more
    stages     also search values of p·v that do not divide the number of layers; implied by such p and v, or by
               uneven=True
    slices     also search token slices of rows: n of equal cost, none shorter than 2,048 tokens on average; implied by
               n=2 or more
    schedule   only plans that run with it: 1f1b, interleaved, seq1f1b or vocabulary_1f1b; None: the one that the other
               fields imply
    sums       "local", as for a job: copies train alone; without sync_every, they sum their updates every 2 steps. With
               fragments and sync_delay, it is streaming DiLoCo

    Fields of a plan that you give are fixed; the others are searched:

    p            stages of the pipeline
    t            ranks of tensor parallelism
    d            data-parallel copies
    b            sequences in a microbatch
    v            chunks of layers on each rank
    recompute    activations that are computed twice: 'none', 'selective' or 'full'
    zero         ZeRO's stage, 0 to 3: what the copies shard between steps
    sequence     sequence parallelism, with t
    scatter      each rank along t sends only its shard to the next stage, which gathers the shards
    x            ranks that shard the width: with t, AxoNN's grid
    z            copies that shard the weights in ZeRO's stage 3; 0: all
    cp           ranks that shard the sequence
    attend       method of attention with cp: 'gather', 'ring', 'ulysses' or 'usp'
    ulysses      neighbouring ranks that exchange heads with usp
    zigzag       balanced causal attention along cp
    ep           ranks that shard the experts, b sequences on each
    dispatch     method of sending tokens to experts with ep: 'all_to_all' or 'all_gather'
    fold         whole experts are distributed over t and cp too
    uneven       stages may differ by one block, if p·v does not divide the layers
    n            token slices of a row, of equal cost, without cp, sequence and scatter
    skew         Zipf's exponent of the popularity of experts; 0: equal
    fused        attention is one kernel, which stores no scores
    redone       the fraction of the layers that `recompute` applies to
    offload      the fraction of the layers whose saved activations are stored on the host
    spread_head  the head is sharded over the stages: vocabulary parallelism, without v and sequence
    two_levels   with z: all copies shard the optimizer's state
    secondary    neighbours that have a second copy of the weights, only with ZeRO's stage 3; 0: none
    further      further tokens predicted at each position: multi-token prediction, on the last stage
    optimizer    'adamw' or 'muon', which determines the state of each weight
    sync_every   local steps: steps between two sums over the copies; 0: gradients are summed in every step
    fragments    local steps: groups of layers that are exchanged at different steps
    sync_delay   local steps: steps that hide an exchange, before its result is used
    overlap      tp's messages are sent in pieces, each during the matmul of another piece, with sequence
                 parallelism
    directions   with overlap: directions in which pieces travel, 1 or 2

    raises  ValueError for an unknown name, or if no plan is legal or none fits; the error names what is missing

    >>> import hybridlab as hl
    >>> planned = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0, recompute="full")
    >>> planned.best.plan.t, planned.machine.node
    (4, 8)
    >>> planned.why(p=1)
    'p=1 does not fit: at least 88 GB on one device, most of it optimizer, and 76 of 80 GB may be used'
    """


def memory(
    model: str | Shape,
    batch: int,
    software: str | Software | None = None,
    precision: str = 'bf16',
    machine: str | Path | Machine = 'a100',
    *,
    p: int | None = None,
    t: int | None = None,
    d: int | None = None,
    b: int | None = None,
    v: int | None = None,
    recompute: str | None = None,
    zero: int | None = None,
    sequence: bool | None = None,
    scatter: bool | None = None,
    x: int | None = None,
    z: int | None = None,
    cp: int | None = None,
    attend: str | None = None,
    ulysses: int | None = None,
    zigzag: bool | None = None,
    ep: int | None = None,
    dispatch: str | None = None,
    fold: bool | None = None,
    uneven: bool | None = None,
    n: int | None = None,
    skew: float | None = None,
    fused: bool | None = None,
    redone: float | None = None,
    offload: float | None = None,
    spread_head: bool | None = None,
    two_levels: bool | None = None,
    secondary: int | None = None,
    further: int | None = None,
    optimizer: str | None = None,
    sync_every: int | None = None,
    fragments: int | None = None,
    sync_delay: int | None = None,
    overlap: bool | None = None,
    directions: int | None = None,
) -> Footprint:
    """Bytes on the device that needs the most memory while a model trains with one plan.

    model  a name in the catalog, or a Shape;  batch  sequences in the global batch
    software   the program: a name in SOFTWARE, or its terms; it determines the bytes of gradients; None: the machine's
               usual one, see `plans.usual`
    precision  of matmuls with weights: "bf16", "fp8", "fp4"; it determines the bytes of their saved inputs
    machine    a name in the catalog, a TOML file, or a Machine; it determines the usual software, and whether attention
               is fused if `fused` is not given

    p            stages of the pipeline
    t            ranks of tensor parallelism
    d            data-parallel copies
    b            sequences in a microbatch
    v            chunks of layers on each rank
    recompute    activations that are computed twice: 'none', 'selective' or 'full'
    zero         ZeRO's stage, 0 to 3: what the copies shard between steps
    sequence     sequence parallelism, with t
    scatter      each rank along t sends only its shard to the next stage, which gathers the shards
    x            ranks that shard the width: with t, AxoNN's grid
    z            copies that shard the weights in ZeRO's stage 3; 0: all
    cp           ranks that shard the sequence
    attend       method of attention with cp: 'gather', 'ring', 'ulysses' or 'usp'
    ulysses      neighbouring ranks that exchange heads with usp
    zigzag       balanced causal attention along cp
    ep           ranks that shard the experts, b sequences on each
    dispatch     method of sending tokens to experts with ep: 'all_to_all' or 'all_gather'
    fold         whole experts are distributed over t and cp too
    uneven       stages may differ by one block, if p·v does not divide the layers
    n            token slices of a row, of equal cost, without cp, sequence and scatter
    skew         Zipf's exponent of the popularity of experts; 0: equal
    fused        attention is one kernel, which stores no scores
    redone       the fraction of the layers that `recompute` applies to
    offload      the fraction of the layers whose saved activations are stored on the host
    spread_head  the head is sharded over the stages: vocabulary parallelism, without v and sequence
    two_levels   with z: all copies shard the optimizer's state
    secondary    neighbours that have a second copy of the weights, only with ZeRO's stage 3; 0: none
    further      further tokens predicted at each position: multi-token prediction, on the last stage
    optimizer    'adamw' or 'muon', which determines the state of each weight
    sync_every   local steps: steps between two sums over the copies; 0: gradients are summed in every step
    fragments    local steps: groups of layers that are exchanged at different steps
    sync_delay   local steps: steps that hide an exchange, before its result is used
    overlap      tp's messages are sent in pieces, each during the matmul of another piece, with sequence
                 parallelism
    directions   with overlap: directions in which pieces travel, 1 or 2

    For a plan that `hl.plan` finds for this machine, it is the same number. It is the largest amount that a program
    allocates; CUDA's context, NCCL's buffers and gaps between tensors need additional memory. `fits` of the result
    leaves 5 % of a device for them.

    raises  ValueError if the catalog lacks the model or the machine, or the plan is not valid, or there is no such
            software

    >>> import hybridlab as hl
    >>> print(f"{hl.memory('gpt3-175b', batch=96, p=12, t=8, recompute='full').total / 1e9:.0f} GB")
    36 GB
    >>> found = hl.memory("llama3-70b", batch=256, machine="h100", p=4, t=8, d=4, zero=1, sequence=True)
    >>> print(f"{found.total / 1e9:.0f} GB", found.fits("h100"))
    43 GB True
    """

