"""The packages beside ours are those of the lock."""

import importlib.metadata
import pathlib

import pytest

LOCK = pathlib.Path(__file__).parents[2] / "requirements-peers.lock"
PINNED = [line.split("==") for line in LOCK.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("package, version", PINNED)
def test_a_peer_is_the_one_of_the_lock(package, version):
    assert importlib.metadata.version(package).split("+")[0] == version


def test_the_peers_can_be_imported():
    import timm
    import transformers

    assert timm.create_model("resnet18", num_classes=2) is not None
    assert transformers.LlamaConfig().model_type == "llama"
