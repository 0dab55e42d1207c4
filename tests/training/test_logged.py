"""Curves for TensorBoard, where it is not installed; what it reads where it is, tests/peers says."""

import sys

import pytest

import hybridlab as hl


def test_without_tensorboard_a_sentence_says_so_before_a_rank_starts(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it could not be imported
    monkeypatch.setattr("hybridlab.training.run.training_ranks", lambda mesh: pytest.fail("ranks were started"))
    with pytest.raises(ValueError, match="log=.*curves needs tensorboard, which is not installed: pip install"):
        hl.train(hl.Mesh(pp=2), steps=1, log=tmp_path / "curves", progress=False)
    assert not list(tmp_path.iterdir())
