"""Who makes a tensor says where. Else it lies on the CPU, and where ranks have GPUs two devices meet."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hybridlab"
MAKE = {
    "arange", "as_tensor", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand", "randint",
    "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip

# How many calls of a file make a tensor on the CPU, as it should be: what the host counts or draws, what travels by
# gloo, weights that move later, labs that have no device. Who mends one lowers the number; nobody raises it lightly.
ON_THE_CPU = {
    "labs/interleaved/one_program.py": 7,
    "labs/data_parallel/far_apart.py": 4,
    "labs/zero_bubble/stepping.py": 1,
    "training/resharded.py": 1,
    "labs/collectives/on_ranks.py": 2,
    "labs/collectives/trial.py": 1,
    "labs/context/clinic.py": 3,
    "labs/context/on_ranks.py": 2,
    "labs/context/pictures.py": 2,
    "labs/context/trial.py": 3,
    "labs/convolution/on_ranks.py": 4,
    "labs/data_parallel/rank.py": 1,
    "labs/engine/toy.py": 3,
    "labs/experts/clinic.py": 2,
    "labs/experts/lending.py": 6,  # emulated work
    "labs/experts/on_ranks.py": 6,
    "labs/gpipe/sweeps.py": 2,
    "labs/hybrid/rank.py": 1,
    "labs/megatron/f_and_g.py": 2,
    "labs/megatron/latents.py": 2,
    "labs/megatron/layers.py": 2,
    "labs/megatron/on_ranks.py": 2,
    "labs/megatron/pair.py": 1,
    "labs/megatron/vocabulary.py": 3,
    "labs/one_device/counting.py": 1,
    "labs/out_of_core/trial.py": 1,
    "labs/trials/against.py": 1,
    "labs/zero/rank.py": 1,
    "labs/zero_bubble/rank.py": 1,
    "measuring/gpu_answers.py": 13,
    "measuring/grid_layers.py": 1,
    "measuring/here.py": 2,
    "measuring/links.py": 1,
    "measuring/startup.py": 1,
    "measuring/strategies.py": 2,
    "measuring/strip_layers.py": 1,
    "modes/context_parallel.py": 1,
    "modes/parts/cut_experts.py": 1,
    "modes/parts/dispatch.py": 3,
    "modes/parts/lent_experts.py": 4,  # indices, from counts of choices
    "modes/parts/token_order.py": 2,
    "modes/products/layout_proof.py": 1,
    "modes/recomputation.py": 1,
    "runtime/arena.py": 1,
    "runtime/emulated.py": 8,
    "runtime/links.py": 4,
    "runtime/message_driven.py": 3,
    "runtime/player.py": 1,
    "training/checkpoints/checkpoint.py": 1,
    "training/compare.py": 1,
    "training/job.py": 1,
    "training/models/batch_norm.py": 4,
    "training/models/counting.py": 1,
    "training/models/draws.py": 2,
    "training/models/experts.py": 5,
    "training/models/sampling.py": 1,
    "training/optimizers.py": 1,
    "training/reference.py": 2,
    "training/run.py": 1,
    "world/processes/frames.py": 1,
    "world/processes/torchrun.py": 2,
    "world/talk/message.py": 1,
    "world/talk/offset.py": 4,
}

# Where the host waits for a device in so many words; other waits are counted by tests/accelerator/test_waits.py.
SYNCHRONIZE = {
    "measuring/timed.py": 1,  # seconds of what a device has done
    "modes/on_host.py": 1,  # the hosts sum gradients that have come
    "modes/parts/replicated.py": 1,  # so does an optimizer on the host
    "runtime/copies.py": 1,  # whoever waits for a copy on the host
    "world/talk/clock.py": 3,  # the zero of the clock, before the first step, and times that are read behind a step
}


def calls(text: str):
    """(module, function, words) of the calls of attributes in a file: torch.zeros(…)."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value), node.func.attr, {one.arg for one in node.keywords}


def without_device(text: str) -> int:
    """How many calls make a tensor and do not say where; **words may say it."""
    return sum(where == "torch" and what in MAKE and not words & {"device", None} for where, what, words in calls(text))


@cache
def files() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def test_who_says_where_is_not_counted():
    assert without_device("torch.zeros(3); torch.tensor([1], dtype=x); x.zeros(3); np.zeros(3); torch.add(x, y)") == 2
    assert without_device("torch.zeros(3, device=x.device); torch.rand(**how); torch.zeros_like(x)") == 0


@pytest.mark.slow
def test_who_makes_a_tensor_says_where_or_is_counted_here():
    found = Counter({name: without_device(text) for name, text in files().items()})
    more, fewer = +(found - Counter(ON_THE_CPU)), +(Counter(ON_THE_CPU) - found)
    assert not more, f"say device=, or these make tensors on the CPU: {dict(more)}"
    assert not fewer, f"fewer than are listed, so lower these numbers: {dict(fewer)}"


@pytest.mark.slow
def test_nobody_waits_for_a_device_in_other_words_than_these():
    waits = lambda text: sum(what == "synchronize" for _, what, _ in calls(text))
    assert +Counter({name: waits(text) for name, text in files().items()}) == SYNCHRONIZE


@pytest.mark.slow
def test_who_draws_aside_names_the_devices():
    """Without, torch opens every GPU of the machine to keep its state, in every rank."""
    draws = lambda text: any(what == "fork_rng" and not words for _, what, words in calls(text))
    assert not [name for name, text in files().items() if draws(text)]
