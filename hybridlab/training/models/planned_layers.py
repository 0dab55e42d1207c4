"""The layers of a Hugging Face model: an opening, its blocks, a closing.

The base model's own forward is run twice, with replacements for its blocks:

  opening   records the call of each block: masks, positions and rotary embeddings are computed here, once for each
            microbatch, and passed from block to block
  a block   is called as recorded
  closing   receives the output of the last block: final norm and head follow, and the rest of the forward

Relatives: `huggingface` reads the blocks from the plan; `examination` compares the layers with the model's own forward.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from hybridlab.training.models.trees import flat


@dataclass(frozen=True)
class Slot:
    """The place of a tensor in a recorded call: blocks change tensor 0, and pass the others on unchanged.

    wanted  whether the tensor gets a gradient
    turned  whether it is complex, as some rotary embeddings are: between blocks it has two real numbers for each
    """

    number: int
    wanted: bool
    turned: bool = False


@dataclass(frozen=True)
class Layers:
    """A model's layers in sequence: an opening, its blocks, a closing.

    blocks  the name of the list of blocks in the base model;  tail  the names of the children after them
    calls   for each block, its positional and its named arguments, with slots instead of tensors
    """

    blocks: str
    tail: tuple[str, ...]
    calls: tuple

    def __call__(self, module: nn.Module) -> list[nn.Module]:
        blocks = getattr(module.base_model, self.blocks)
        last = len(blocks) - 1
        between = [Block(block, self.calls[n], carries=n < last) for n, block in enumerate(blocks)]
        return [Opening(module, self.blocks, self.tail), *between, Closing(module, self.blocks, self.tail)]


class Opening(nn.Module):
    """Everything before the first block: (the block's input, *the tensors passed on)."""

    def __init__(self, module, blocks: str, tail: tuple[str, ...]):
        super().__init__()
        self.blocks, self.number = blocks, len(getattr(module.base_model, blocks))
        self.base = twin(module.base_model, **{name: Through() for name in (blocks, *tail)})

    def forward(self, inputs):
        tensors = tensors_of(heard(self.base, self.blocks, self.number, inputs))
        return tuple(torch.view_as_real(x) if x.is_complex() else x for x in tensors)


class Block(nn.Module):
    """One block, called with its recorded arguments. Each block but the last passes its tensors on to the next."""

    def __init__(self, block: nn.Module, call, carries: bool):
        super().__init__()
        self.block, self.call, self.carries = block, call, carries

    def forward(self, arrived):
        args, named = exchanged(self.call, Slot, lambda slot: _used(arrived[slot.number], slot))
        x = self.block(*args, **named)
        return (x, *arrived[1:]) if self.carries else x


class Closing(nn.Module):
    """Everything after the last block, computed by the model's own forward."""

    def __init__(self, module, blocks: str, tail: tuple[str, ...]):
        super().__init__()
        base = module.base_model
        self.blocks = blocks
        self.base = twin(base, **{name: Through() for name in base._pp_plan if name not in tail})
        self.around = None if base is module else twin(module, **{module.base_model_prefix: None})

    def forward(self, x):
        base = twin(self.base, **{self.blocks: nn.ModuleList([Given(x)])})
        whole = twin(self.around, **{self.around.base_model_prefix: base}) if self.around else base
        return called(whole, None, inputs_embeds=x.detach())


class Given(nn.Module):
    """Replaces all blocks: it returns the last block's output."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def forward(self, *_, **__):
        return self.x


class Through(nn.Module):
    """Replaces a missing module: it returns its first argument."""

    def forward(self, x, *_, **__):
        return x


class Hearing(nn.Module):
    """Replaces a block: it records the call, and returns a copy of the tensor that the block would change."""

    def __init__(self, calls: list):
        super().__init__()
        self.calls = calls

    def forward(self, *args, **named):
        x = args[0] if args else next(iter(named.values()))
        self.calls.append((x, args, named, x.view_as(x)))
        return self.calls[-1][-1]


def called(module, inputs, **more):
    """The output of a model: scores of tokens, or without a head the last hidden states."""
    made = module(*(() if inputs is None else flat(inputs)), use_cache=False, **more)
    return made.logits if hasattr(made, "logits") else made.last_hidden_state


def heard(base: nn.Module, blocks: str, number: int, inputs) -> list:
    """The calls of a base model's blocks: (the tensor that each changes, arguments, named arguments, output)."""
    calls = []
    listening = twin(base, **{blocks: nn.ModuleList([Hearing(calls) for _ in range(number)])})
    listening(*flat(inputs), use_cache=False)
    return calls


def tensors_of(calls: list) -> list[torch.Tensor]:
    """The tensors sent between blocks: the first block's input, then all other tensors given to blocks, once each."""
    found = {id(calls[0][0]): calls[0][0]}
    changed = {id(x) for x, *_ in calls[1:]}
    for _, args, named, _ in calls:
        exchanged((args, named), torch.Tensor, lambda x: id(x) in changed or found.setdefault(id(x), x))
    return list(found.values())


def calls_of(module: nn.Module, blocks: str, tail: tuple[str, ...], inputs) -> tuple:
    """The calls of all blocks with slots instead of tensors.

    raises  ValueError if the forward computes anything between two blocks, or if it uses more than the output of the
            last block after the blocks
    """
    kind, every = type(module).__name__, getattr(module.base_model, blocks)
    remedy = "cut it at the names of its modules with hl.Model.traced(model, loss, data, cuts=[…])"
    try:
        calls = heard(module.base_model, blocks, len(every), inputs)
        Closing(module, blocks, tail)(calls[-1][-1])
    except Exception as error:
        raise ValueError(
            f"{kind} has more than one tensor between its embeddings, its {blocks} and its head "
            f"({type(error).__name__}: {error}): {remedy}"
        ) from error
    if len(calls) != len(every):
        raise ValueError(f"{kind} has {len(every)} {blocks}, but calls {len(calls)}: make the numbers equal")
    for number, ((*_, left), (enters, *_)) in enumerate(zip(calls, calls[1:])):
        if left is not enters:
            raise ValueError(
                f"{kind} computes something between {blocks}.{number} and {blocks}.{number + 1}, outside its blocks: "
                f"{remedy}"
            )
    tensors = enumerate(tensors_of(calls))
    slots = {id(x): Slot(number, x.requires_grad, x.is_complex()) for number, x in tensors}
    slots |= {id(x): Slot(0, True) for x, *_ in calls}
    return tuple(exchanged((args, named), torch.Tensor, lambda x: slots[id(x)]) for _, args, named, _ in calls)


def _used(x: torch.Tensor, slot: Slot) -> torch.Tensor:
    x = torch.view_as_complex(x) if slot.turned else x
    return x if slot.wanted else x.detach()


def exchanged(x, kind: type, function):
    """Nested tuples, lists and dicts, with function(one) instead of every value of a kind.

    >>> exchanged({"a": (1, None), "b": "c"}, int, lambda number: number + 1)
    {'a': (2, None), 'b': 'c'}
    """
    if isinstance(x, kind):
        return function(x)
    if isinstance(x, dict):
        return {name: exchanged(one, kind, function) for name, one in x.items()}
    return type(x)(exchanged(one, kind, function) for one in x) if type(x) in (tuple, list) else x


def twin(module: nn.Module, **children) -> nn.Module:
    """The same module with other children; it shares its weights and all other children.

    >>> both = nn.ModuleDict({"up": nn.Linear(2, 3), "down": nn.Linear(3, 2)})
    >>> one = twin(both, down=None)
    >>> one["up"] is both["up"], [name for name, _ in one.named_parameters()]
    (True, ['up.weight', 'up.bias'])
    """
    made = copy.copy(module)
    vars(made)["_modules"] = {**module._modules, **children}
    return made
