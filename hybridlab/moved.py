"""Keep the old names of moved modules: they can be imported until the next release.

Submissions and students' own copies of notebooks use such names: `from hybridlab.core.action import Action`. Importing
one gives the module in its new place, the same object. `hybridlab.train` and `hybridlab.schedules` were packages and
are now functions. As packages they exist in `sys.modules` only, so that importing their old modules hides no function.
"""

import importlib
import importlib.machinery
import sys
import types

ROOMS = {  # {old folder: its modules, and their new place}; a changed name is written old=new
    ("core", "core.when"): "action completed=inferred critical_path exchange flow gap journeys lanes law lists play "
    "room schedule timeline timeline_file values",
    ("core", "core.where"): "chunks layout mesh packs peers reshard rules seen=attended spans states",
    ("core", "core.what"): "catalog operators programs shape wiring",
    ("labs.asynchronous", "labs.asynchronous"): "check=trial stashing=rank",
    ("labs.axonn", "labs.axonn"): "tried=trial",
    ("labs.collectives", "labs.collectives"): "ring_played=trial",
    ("labs.context", "labs.context"): "tried=trial",
    ("labs.convolution", "labs.convolution"): "tried=trial",
    ("labs.data_parallel", "labs.data_parallel"): "ddp_check=trial ddp_played=rank",
    ("labs.engine", "labs.engine"): "check=trial played=rank symptoms=broken",
    ("labs.exercises", "labs.trials"): "cases clinic trial",
    ("labs.experts", "labs.experts"): "tried=trial",
    ("labs.hybrid", "labs.hybrid"): "one_step=rank",
    ("labs.matmul", "labs.trials"): "table",
    ("labs.megatron", "labs.megatron"): "there_and_back=f_and_g",
    ("labs.out_of_core", "labs.out_of_core"): "tried=trial",
    ("labs.search", "labs.search"): "written=trial",
    ("labs.zero", "labs.trials"): "held",
    ("labs.zero", "labs.zero"): "build_check=trial built=rank",
    ("labs.zero_bubble", "labs.zero_bubble"): "check=trial on_ranks=rank",
    ("modes", "runtime"): "arena clocks copies halves message_driven tallies under_way=pending versions work",
    ("modes", "modes.parts"): "arrivals=token_order crossings=tp_boundaries cut_experts cut_layers dispatch halos "
    "narrowed=scatter_gather pixelwise ring_attention sequence_parallel vocabulary_parallel",
    ("modes", "modes.products"): "channel_splits grid_layer layout_proof layouts matmul operators",
    ("predict.plans", "predict.plans"): "copies=time_of_gradients held=weights_of_rank hot=hot_expert "
    "inside=time_of_context_and_experts sent=bytes_of_rank",
    ("predict.time", "predict.plans"): "branches",
    ("predict.time", "predict.time"): "beside=overlap",
    ("train", "training"): "agreed=same_on_all_ranks alone=reference request=make_job",
    ("train", "training.checkpoints"): "checkpoint checkpoint_index=index",
    ("train", "training.data"): "images text",
    ("train.dry", "training"): "costs",
    ("world.processes", "world.devices"): "meet placement seen=surroundings",
}
PACKAGES = {"train": "training", "schedules": "scheduling"}  # all other modules of these folders have kept their names


def _rooms() -> dict[str, str]:
    pairs = [(old, new, *name.split("=")) for (old, new), names in ROOMS.items() for name in names.split()]
    return {f"hybridlab.{old}.{name}": f"hybridlab.{new}.{(now or [name])[0]}" for old, new, name, *now in pairs}


MOVED = _rooms()


def now(name: str) -> str | None:
    """The name of the module that had this name before, or None.

    >>> now("hybridlab.core.completed"), now("hybridlab.train.models.gpt"), now("hybridlab.core.afford")
    ('hybridlab.core.when.inferred', 'hybridlab.training.models.gpt', None)
    """
    if name in MOVED or not name.startswith("hybridlab."):
        return MOVED.get(name)
    _, first, *rest = name.split(".")
    return ".".join(["hybridlab", PACKAGES[first], *rest]) if first in PACKAGES else None


class _Finder:
    """Finds a module by its old name, and loads the one that is there now: a finder and a loader of `importlib`."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if now(name) else None

    def create_module(self, spec):
        return None  # an empty one, which the import forgets

    def exec_module(self, module):
        sys.modules[module.__name__] = importlib.import_module(now(module.__name__))  # the import takes it from there


def install():
    """Let old names be imported; loads nothing."""
    sys.meta_path.insert(0, _Finder())
    for name in PACKAGES:
        package = sys.modules[f"hybridlab.{name}"] = types.ModuleType(f"hybridlab.{name}")
        package.__path__ = []
