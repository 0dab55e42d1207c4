"""The way back: a trained module, its weights as files of other programs, and trainings that begin with such files."""

import json

import pytest
import torch
from few import first, one_in
from safetensors.torch import save_file
from torch import nn
from torch.distributed import checkpoint as dcp

import hybridlab as hl
from hybridlab.training import trained
from hybridlab.training.checkpoints import export as writing
from hybridlab.training.make_job import job_of
from hybridlab.training.run import train

STEPS, ROWS = 4, 8
ADAM = {"optimizer": "adamw", "rate": 0.02, "anneal": "cosine", "betas": (0.8, 0.95), "decay": 0.1}
LAYOUTS = {
    "one process": (hl.Mesh(pp=1), {}),
    "dp=2 pp=2, zero 3": (hl.Mesh(dp=2, pp=2), {"zero": 3}),
    "tp=2 pp=2": (hl.Mesh(tp=2, pp=2), {}),
    "pp=2, zb_v": (hl.Mesh(pp=2), {"schedule": "zb_v"}),
}
DIMS = {"0.weight": "F D", "0.bias": "F", "2.weight": "E F", "4.weight": "G H", "4.bias": "G", "6.weight": "O G"}


def net(seed=0):
    torch.manual_seed(seed)
    parts = [nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 5)]
    return nn.Sequential(*parts).double()


def loss(output, target):
    return (output - target).square().sum()


def data(step, rows):
    x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(step)).double()
    return x, x[:, :5].cumsum(1)


def learn(mesh, **more):
    about = dict(loss=loss, data=data, batch=ROWS, microbatches=2, steps=STEPS, dtype="float64", progress=False)
    return train(mesh, model=more.pop("model", None) or net(), **about | more)


def by_hand():
    """The module that plain PyTorch trains on whole batches, with its own AdamW and its own schedule."""
    module = net()
    weights = [[one for one in module.parameters() if one.dim() == dims] for dims in (2, 1)]
    groups = [{"params": weights[0], "weight_decay": 0.1}, {"params": weights[1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.02, betas=(0.8, 0.95))
    paced = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = data(step, ROWS)
        (loss(module(x), y) / ROWS).backward()
        optimizer.step()
        paced.step()
    return module


def alike(one, other, by=0.0):
    """Whether two state dicts have the same names and numbers."""
    near = (torch.allclose(one[name], other[name], rtol=0, atol=by) for name in other)
    return one.keys() == other.keys() and all(near)


@pytest.mark.ranks
@pytest.mark.parametrize("name", one_in(3, LAYOUTS))
def test_the_model_that_comes_back_is_the_one_that_plain_pytorch_trains(kept, name):
    mesh, more = LAYOUTS[name]
    given = net()
    back = learn(mesh, model=given, dims=DIMS if mesh["tp"] > 1 else None, **ADAM, **more)["model"]
    assert type(back) is nn.Sequential and alike(back.state_dict(), by_hand().state_dict(), by=1e-10)
    assert alike(given.state_dict(), net().state_dict()) and back is not given


@pytest.mark.ranks
def test_what_layers_keep_comes_back_too(kept, tmp_path):
    about = dict(model="conv", microbatches=2, steps=2, checkpoint=tmp_path, progress=False)
    back = train(hl.Mesh(dp=2, pp=2), **about, zero=1)["model"].state_dict()
    assert any("running" in name for name in back) and alike(back, hl.weights(tmp_path))


@pytest.mark.ranks
def test_an_asynchronous_pipeline_gives_its_latest_weights(kept, tmp_path):
    back = learn(hl.Mesh(pp=2), schedule="pipedream", checkpoint=tmp_path)["model"].state_dict()
    assert alike(back, hl.weights(tmp_path)) and not alike(back, net().state_dict(), by=1e-3)


@pytest.mark.ranks
def test_many_bytes_stay_where_they_are(kept, tmp_path, monkeypatch):
    back = learn(hl.Mesh(pp=2))["model"].state_dict()
    monkeypatch.setattr(trained, "AT_HOME", 1000)
    one = learn(hl.Mesh(pp=2))
    assert one._shares == [{}, {}] and len(one["losses"]) == STEPS
    with pytest.raises(ValueError, match="has 0 MB of weights, and at most 0 MB .* give checkpoint=FOLDER"):
        one["model"]
    two = learn(hl.Mesh(pp=2), checkpoint=tmp_path)
    assert two._shares == [{}, {}] and alike(two["model"].state_dict(), back)
    with pytest.raises(KeyError, match="weights"):
        two["weights"]


FORMS = {
    "safetensors": ("safetensors", 5e9, {"model.safetensors"}),
    "several files": ("safetensors", 1500, {"model.safetensors.index.json"}),
    "dcp": ("dcp", 5e9, {".metadata"}),
}


@pytest.mark.ranks
@pytest.mark.parametrize("form", first(1, FORMS))
def test_a_training_goes_on_from_what_was_written_for_others(kept, tmp_path, monkeypatch, form):
    """And begins with just those numbers: its first loss is that of the module by itself."""
    form, most, has = FORMS[form]
    monkeypatch.setattr(writing, "LARGEST", most)
    learn(hl.Mesh(pp=2), checkpoint=tmp_path / "run", **ADAM)
    folder = hl.export(tmp_path / "run", tmp_path / "out", form)
    assert has <= {file.name for file in folder.iterdir()} and not list(tmp_path.glob("*.writing"))
    assert alike(hl.weights(folder), hl.weights(tmp_path / "run"))
    x, y = data(0, ROWS)
    first = float(loss(by_hand()(x), y) / ROWS)
    for mesh, more in ((hl.Mesh(dp=2), {"zero": 3}), (hl.Mesh(tp=2, pp=2), {"dims": DIMS})):
        assert learn(mesh, weights=folder, steps=1, **more)["losses"] == pytest.approx([first], rel=1e-12)


def test_several_files_have_their_index_and_each_at_most_what_was_said(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "LARGEST", 1500)
    folder = hl.export(net(), tmp_path)
    told = json.loads((folder / "model.safetensors.index.json").read_text())
    assert told["metadata"]["total_size"] == sum(x.nbytes for x in net().state_dict().values())
    assert set(told["weight_map"].values()) == {file.name for file in folder.glob("*.safetensors")}
    assert len(set(told["weight_map"].values())) > 1 and alike(hl.weights(folder), net().state_dict())


@pytest.mark.parametrize("form", ["safetensors", "dcp"])
def test_tied_weights_are_written_once_and_read_under_any_of_their_names(tmp_path, form):
    class Tied(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
            self[1].weight = self[0].weight

    module = Tied()
    folder = hl.export(module, tmp_path / "module", form)
    assert hl.weights(folder).keys() == {"0.weight"}
    assert hl.weights(hl.export(module.state_dict(), tmp_path / "dict", form)).keys() == {"0.weight"}
    about = dict(loss=loss, data=lambda step, rows: (torch.zeros(rows, dtype=torch.long), torch.zeros(rows, 6)))
    for name in ("0.weight", "1.weight"):
        job_of(hl.Mesh(pp=1), model=module, weights={name: torch.ones(6, 4)}, **about)


def test_a_checkpoint_of_a_nested_dict_has_its_tensors_and_what_others_keep_stays_out(tmp_path):
    dcp.save({"model": net().state_dict(), "step": 3}, checkpoint_id=tmp_path, no_dist=True)
    found = {name.removeprefix("model."): x for name, x in hl.weights(tmp_path).items()}
    assert alike(found, net().state_dict())


@pytest.mark.ranks
def test_a_proof_with_first_weights_of_zeros_still_sees_them(bench):
    """Zeros are stirred in every proof, wherever they come from."""
    zeros = {name: x * (x.dim() > 1) for name, x in net(3).state_dict().items()}
    about = dict(model=net(), loss=loss, data=data, batch=ROWS, microbatches=2, weights=zeros)
    report = bench.asked(hl.Mesh(dp=2, pp=2), **about)
    assert report.ok and not report.unproved and not report.untouched


OTHERS = {
    "one less": (lambda its: its.pop("4.bias"), "weights has no 4.bias, but the model does"),
    "one more": (lambda its: its.update(head=torch.zeros(2)), "weights has head, but the model does not"),
    "another shape": (
        lambda its: its.update({"4.bias": torch.zeros(2)}),
        r"4.bias has shape \(2,\) in weights, but \(16,",
    ),
    "no tensor": (lambda its: its.update({"4.bias": [0.0]}), r"weights\['4.bias'\] is a list: give a state dict"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_of_another_model_are_refused(name):
    change, says = OTHERS[name]
    its = net().state_dict()
    change(its)
    with pytest.raises(ValueError, match=says):
        job_of(hl.Mesh(pp=1), model=net(), loss=loss, data=data, weights=its)


def _cut(folder):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:40])


def _lost(folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"0.weight": "gone.safetensors"}}))


def _no_index(folder):
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../x.safetensors"}}')


def _two(folder):
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file({"x": torch.zeros(1)}, folder / "b.safetensors")


def _dcp(folder):
    (folder / ".metadata").write_bytes(b"no pickle")


DAMAGED = {
    "cut": (_cut, "model.safetensors is damaged, or is not a safetensors file: "),
    "a file lost": (_lost, "gone.safetensors is missing, but the index names it"),
    "an index that leads out": (_no_index, "index.json is damaged: it does not name the file of each"),
    "two, and none is named": (
        _two,
        "has 2 safetensors files and no model.safetensors.index.json: give the path of one",
    ),
    "no metadata": (_dcp, r"\.metadata cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, name):
    damage, says = DAMAGED[name]
    hl.export(net(), tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=says) as found:
        hl.weights(tmp_path)
    assert "\n" not in str(found.value)


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "mine").write_text("thesis")
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match="exists already: give a new folder"):
            hl.export(net(), place)
    with pytest.raises(ValueError, match="/nowhere does not exist: give the path"):
        hl.export(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ValueError, match="form='gguf' is not a format"):
        hl.export(net(), tmp_path / "out", "gguf")
