"""Sampling text from a model of bytes, one byte after another.

Relatives: `gpt` (the model), `training.data.text` (its training bytes).
"""

import numpy as np
import torch

from hybridlab.training.models.gpt import GPT


@torch.no_grad()
def sample(module: GPT, prompt: str, length: int = 200, temperature: float = 0.7, seed: int = 0) -> str:
    """Text sampled from a model of bytes after a prompt.

    module       the model, for example with the `hl.weights` of a training run
    prompt       its first input;  length  number of bytes to sample
    temperature  divisor of the logits: near 0, always the most likely byte; 1: the model's probabilities
    seed         of the draws

    Bytes that cannot be printed are shown as ·.
    raises  ValueError for an empty prompt, or one that is not ASCII

    >>> from hybridlab import Shape
    >>> text = sample(GPT(Shape(layers=1, width=16, heads=2, context=8)), "A rank", length=5)
    >>> text[:6], len(text)
    ('A rank', 11)
    """
    if not prompt or not prompt.isascii():
        raise ValueError(f"the prompt {prompt!r} is not ASCII text: give a few English words")
    letters, chance = list(prompt.encode()), np.random.default_rng(seed)
    for _ in range(length):
        scores_V = module(torch.tensor([letters[-module.shape.context :]]))[0, -1].double() / temperature
        until_V = scores_V.softmax(0).cumsum(0).numpy()
        letters.append(int(np.searchsorted(until_V, chance.random() * until_V[-1])))
    return "".join(chr(letter) if 32 <= letter < 127 or letter == 10 else "·" for letter in letters)
