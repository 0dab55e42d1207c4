"""What a training script brings besides its module: a loss with state, decay, narrow numbers, processes, weights.

The other side is plain PyTorch. The cases are from public reports about other libraries: torch #3805, #6299, #43672,
Lightning #831, maskrcnn-benchmark #625, transformers #16908, #38922, DeepSpeed #5580, safetensors #414, CogLTX #2,
dlrover #1730.
"""

import os
import random
import subprocess
import sys
import time
import types
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from few import first
from owned import PP2, data, squares
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import hybridlab as hl
from hybridlab.training.make_job import job_of
from hybridlab.training.rehearsal import refuse_other_in_parts
from hybridlab.world.processes.launch import SILENCE, lone_rank, training_ranks
from hybridlab.world.processes.parcel import pack

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def around(*middle):
    return nn.Sequential(nn.Linear(6, 6), *middle, nn.Linear(6, 3))


# ---- a loss with state


class Annealed:
    """The weight of a term grows from call to call, far too slowly to be seen in a few of them."""

    def __init__(self):
        self.calls = 0

    def __call__(self, output, target):
        self.calls += 1
        return squares(output, target) + min(1.0, self.calls / 1e9) * output.square().sum()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, output, target):
        self.steps += 1
        return squares(output, target) + float(self.steps > 100)


class Bank(nn.Module):
    """The latest output of each row, as contrastive losses keep it: the second of two equal calls changes nothing."""

    def __init__(self):
        super().__init__()
        self.rows = np.zeros((8, 3))

    def forward(self, output, target):
        number = len(output)
        self.rows[:number] = output.detach().float().numpy()
        return squares(output, target)


def closed():
    calls = 0

    def loss(output, target):
        nonlocal calls
        calls += 1
        return squares(output, target) + (calls > 1000)

    return loss


def of_its_records():
    kept = []

    def loss(output, target):
        kept.append(0)
        return squares(output, target) + 1e-3 * len(kept)

    return loss


def drawing(output, target):
    return squares(output, target) + (random.random() < 1e-9)


STATES = {
    "a counter": (Annealed, "the loss changes calls, but each rank calls the loss a different number of times"),
    "a buffer": (Counting, "the loss changes steps, but each rank calls"),
    "a bank of rows": (Bank, "the loss changes rows, but each rank calls"),
    "a variable outside": (closed, "the loss changes calls"),
    "as many terms as calls": (of_its_records, "the loss returns two numbers for one output"),
    "a draw": (lambda: drawing, "the loss draws random numbers"),
}


@pytest.mark.parametrize("case", STATES)
def test_a_loss_that_keeps_state_is_told_since_ranks_call_it_another_number_of_times(case):
    make, told = STATES[case]
    with pytest.raises(ValueError, match=f"{told}.*(data can return, together|draw them in data)") as found:
        hl.dry_run(PP2, model=around(nn.Tanh()), loss=make(), data=data)
    assert "\n" not in str(found.value)


def test_a_loss_that_only_records_is_as_good_as_another():
    class Recording:
        def __init__(self):
            self.history, self.latest, self.last = [], None, 0.0

        def __call__(self, output, target):
            value = squares(output, target)
            self.history.append(value.item())
            self.latest, self.last = value.detach(), value.item()
            return value

    assert hl.dry_run(PP2, model=around(nn.Tanh()), loss=Recording(), data=data)


# ---- generators in layers


class Path_(nn.Module):
    """A layer that is left out once in a million calls, as its own generator says."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.inner = numbers, nn.Linear(6, 6)

    def forward(self, x):
        draw = torch.rand((), generator=self.numbers) if isinstance(self.numbers, torch.Generator) else None
        u = float(draw) if draw is not None else self.numbers.uniform(0, 1)
        return x if u < 1e-6 else x + self.inner(x).tanh()


OWN = {
    "python": lambda: random.Random(0),
    "numpy": lambda: np.random.default_rng(0),
    "numpy of old": lambda: np.random.RandomState(0),
    "torch": lambda: torch.Generator().manual_seed(0),
}


@pytest.mark.parametrize("kind", OWN)
def test_a_layer_that_draws_from_a_generator_of_its_own_is_told(kind):
    with pytest.raises(ValueError, match="a forward changes 1.numbers, but ranks call their layers different numbers"):
        hl.dry_run(PP2, model=around(Path_(OWN[kind]())), loss=squares, data=data)


# ---- rows that are mixed where few rows do not show it


class Packed(nn.Module):
    """Rows of other lengths through an RNN, padded to the longest of those that came together."""

    def __init__(self, total):
        super().__init__()
        self.rnn, self.total = nn.RNN(4, 3, batch_first=True), total

    def forward(self, both):
        x, lengths = both
        y, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(y, batch_first=True, total_length=self.total)[0]


def of_lengths(step, rows):
    x = torch.randn(rows, 6, 4, generator=torch.Generator().manual_seed(step))
    return (x, torch.tensor([4, 4, 6, 1])[torch.arange(rows) // 2 % 4]), x[..., :3]


def until_the_end(output, target):
    return squares(output, target[:, : output.shape[1]])


def test_all_rows_of_a_batch_are_compared_with_its_microbatches_and_not_only_the_first():
    ask = {"loss": until_the_end, "data": of_lengths, "batch": 8, "microbatches": 2}
    with pytest.raises(ValueError, match="the model mixes rows: on 8 rows at once its loss is"):
        job_of(mesh=hl.Mesh(dp=2), model=nn.Sequential(Packed(None)), **ask).between
    assert job_of(mesh=hl.Mesh(dp=2), model=nn.Sequential(Packed(6)), **ask).between


# ---- decay and narrow numbers


class Named(nn.Module):
    """Matrices whose names have the words of norms and biases, and norms whose shapes are those of matrices."""

    def __init__(self):
        super().__init__()
        self.normalized_head, self.unbiased = nn.Linear(6, 6), nn.Linear(6, 6)
        self.scaling = nn.LayerNorm((4, 6))
        self.position_bias_table = nn.Parameter(torch.zeros(4, 6))

    def forward(self, x):
        return self.scaling(self.unbiased(self.normalized_head(x)) + self.position_bias_table)


def test_decay_goes_by_what_a_weight_is_and_not_by_a_word_in_its_name():
    def long(step, rows):
        x = torch.randn(rows, 4, 6, generator=torch.Generator().manual_seed(step))
        return x, x[..., :3]

    job = job_of(mesh=hl.Mesh(), model=around(Named()), loss=squares, data=long, decay=0.5, optimizer="adamw")
    weights = dict(job.model.made(0, torch.float32).named_parameters())
    decaying, _ = job.optimizer_of(weights).param_groups
    names = {name for name, weight in weights.items() if any(weight is one for one in decaying["params"])}
    assert names == {"0.weight", "1.normalized_head.weight", "1.unbiased.weight", "2.weight"}


@pytest.mark.ranks
def test_targets_are_as_wide_as_float32_beside_bfloat16(kept):
    def far(step, rows):
        x, y = data(step, rows)
        return x, 1001.3 + y

    def near(output, target):
        return squares(output.float() + 1001, target)

    torch.manual_seed(0)
    net = around(nn.Tanh())
    x, y = far(0, 8)
    plain = near(net.bfloat16()(x.bfloat16()), y).item() / 8
    net.float()
    ask = {"model": net, "loss": near, "data": far, "batch": 8, "microbatches": 2, "dtype": "bfloat16"}
    found = hl.train(PP2, **ask, steps=1, progress=False)["losses"]
    assert found == pytest.approx([plain], rel=1e-2)


# ---- processes and parcels

SPAWNED = """
import multiprocessing as mp, sys
import torch
from torch import nn
import hybridlab as hl


def loss(output, target):
    return (output - target).square().sum()


class Net(nn.Linear):
    pass


def job(queue):
    data = lambda step, rows: (torch.ones(rows, 6), torch.ones(rows, 3))
    model = nn.Sequential(Net(6, 6), Net(6, 3))
    queue.put(len(hl.train(hl.Mesh(pp=2), model=model, loss=loss, data=data, steps=2, progress=False)["losses"]))


if __name__ == "__main__":
    queue = mp.get_context(sys.argv[1]).Queue()
    mp.get_context(sys.argv[1]).Process(target=job, args=(queue,), daemon=True).start()
    print(queue.get(timeout=60))
"""


@pytest.mark.ranks
@pytest.mark.parametrize("method", first(1, ["spawn", "forkserver"]))
def test_a_process_that_multiprocessing_has_started_trains_what_its_main_program_defines(tmp_path, method):
    """There the main program is called `__mp_main__`, which no rank can import."""
    script = tmp_path / "script.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=300)
    assert done.stdout == "2\n", done.stderr[-2000:]


def test_what_has_no_file_travels_with_its_code_and_shared_generators_stay_shared(monkeypatch):
    module = types.ModuleType("made_by_hand")
    exec("def double(x):\n    return 2 * x\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    parcel = pack(lambda: None, (module.double, random.random, np.random.rand), {}, 1)
    monkeypatch.delitem(sys.modules, "made_by_hand")
    _, (double, draw, draw_of_numpy), _ = cloudpickle.loads(parcel)
    assert double(3) == 6
    random.seed(5), np.random.seed(5)
    numbers = draw(), draw_of_numpy()
    random.seed(5), np.random.seed(5)
    assert numbers == (random.random(), np.random.rand())


def test_ranks_that_train_may_compute_as_long_as_they_may_be_silent():
    assert training_ranks(PP2).hang_s >= SILENCE
    assert (training_ranks(PP2, 300).hang_s, training_ranks(PP2, 300).timeout) == (300, 300)


class Slow(nn.Linear):
    """A layer that takes three seconds on a rank."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.home = os.getpid()

    def forward(self, x):
        if os.getpid() != self.home:
            time.sleep(3)
        return super().forward(x)


@pytest.mark.ranks
def test_a_layer_that_takes_longer_than_hang_s_is_named_with_the_remedy_and_a_longer_one_lets_it_run():
    """Without the argument, a layer of more than a minute could not be trained at all."""
    ask = {"model": around(Slow(6, 6)), "loss": squares, "data": data}
    ask |= {"mesh": PP2, "steps": 1, "batch": 4, "microbatches": 2, "progress": False}
    with pytest.raises(hl.RankError, match="in forward.*give .*hl.train.* a larger hang_s"):
        hl.train(**ask, hang_s=1)
    assert len(hl.train(**ask, hang_s=20)["losses"]) == 1


@pytest.mark.long
def test_a_measured_timeline_of_a_model_allows_for_as_much():
    ask = {"model": around(Slow(6, 6)), "loss": squares, "data": data, "steps": 1, "batch": 4, "work": "model"}
    schedule = hl.schedule("1f1b", ranks=2, microbatches=2)
    with pytest.raises(hl.RankError, match="in forward.*a larger hang_s"):
        hl.run(schedule, **ask, hang_s=1)
    assert hl.run(schedule, **ask, hang_s=20).length > 6


def test_how_long_a_layer_may_take_is_asked_for_a_model_only():
    with pytest.raises(ValueError, match="hang_s applies only to a model"):
        hl.run(hl.schedule("1f1b", ranks=2, microbatches=2), hang_s=20)


def test_a_rehearsal_of_shards_allows_for_as_much(monkeypatch):
    """A layer too slow for the usual minute would have failed there, before the training that allows for it."""
    asked, equal = [], types.SimpleNamespace(wrong=False)
    report = lambda mesh, **more: asked.append(more["hang_s"]) or equal
    monkeypatch.setattr("hybridlab.training.rehearsal.check", report)
    dims = {"0.weight": "F D", "0.bias": "F", "2.weight": "E F", "2.bias": "E"}
    job = job_of(hl.Mesh(tp=2), model=around(nn.Tanh()), loss=squares, data=data, dims=dims, microbatches=2)
    refuse_other_in_parts(job, hang_s=300)
    assert asked == [300]


def test_one_device_that_computes_a_whole_batch_may_be_silent_for_many_layers():
    assert lone_rank(7).timeout == lone_rank(7).hang_s == 10 * 7
    assert lone_rank().timeout == 10 * SILENCE


TRAINS_WHEN_IMPORTED = """
import torch
from torch import nn
import hybridlab as hl

class Half(nn.Linear):
    pass

def data(step, rows):
    return torch.ones(rows, 4), torch.ones(rows, 4)

def loss(output, target):
    return (output - target).square().sum()

hl.train(hl.Mesh(dp=2), model=nn.Sequential(Half(4, 4)), data=data, loss=loss, batch=8, steps=1, progress=False)
"""


@pytest.mark.ranks
def test_a_module_that_trains_when_it_is_imported_is_named_instead_of_starting_ranks_on_ranks(tmp_path):
    """It ended after a minute of silence, as a layer that takes too long would."""
    (tmp_path / "trains.py").write_text(TRAINS_WHEN_IMPORTED)
    ask = [sys.executable, "-c", "import trains"]
    done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    *_, last = done.stderr.splitlines()
    assert "a rank tried to start ranks" in last and "__main__" in last, done.stderr[-2000:]


# ---- stored weights


def test_the_names_of_a_wrapper_and_the_files_of_torch_are_told_with_the_remedy(tmp_path):
    net = around(nn.Tanh())
    ask = {"mesh": PP2, "model": net, "loss": squares, "data": data}
    for prefix in ("module.", "_orig_mod.module."):
        with pytest.raises(ValueError, match=f"has no 0.weight, but the model does: take '{prefix}' off its names"):
            job_of(**ask, weights={prefix + name: x for name, x in net.state_dict().items()})
    for new in (True, False):
        file = Path(tmp_path, "net.pt")
        torch.save(net.state_dict(), file, _use_new_zipfile_serialization=new)
        with pytest.raises(ValueError, match=r"is a file of torch.save: read it with torch\.load\(.*weights_only=True"):
            job_of(**ask, weights=file)
