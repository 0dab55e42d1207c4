"""The numbers that a dry run knows: integers and flags that follow from the batch alone.

A forward may ask for a number: is there padding in this mask? Tensors on torch's meta device have none. But a batch is
real, and its integers and booleans are cheap to compute. So each operation on them is done twice, on the meta device
and on the CPU, and a question is answered from the CPU. Numbers that depend on weights stay unknown.

Relatives: `one_rank`, which enters this mode; `alive`, which counts memory and does not see these tensors.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

ASKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}  # names of operations that may need numbers
INDEX, REPEAT = torch.ops.aten.index.Tensor, torch.ops.aten.repeat_interleave.Tensor  # which do not always
FLAGS = torch.bool, torch.uint8
EMPTY = {  # memory that has no numbers yet, as a buffer for a message
    *(torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided),
    *(torch.ops.aten.new_empty, torch.ops.aten.new_empty_strided),
}
MOST = 1 << 24  # elements of a tensor whose numbers are kept
LEAVES = torch.ops.aten._to_copy.default  # copies to another device
UNKNOWN = object()


class Known(TorchDispatchMode):
    """Keeps the numbers of integer and boolean meta tensors while its `with` block runs.

    >>> with Known():
    ...     mask = torch.tensor([1, 1, 0]).to("meta")
    ...     bool((mask == 1).all()), mask.sum().item()
    (False, 2)
    """

    def __init__(self):
        super().__init__()
        self.numbers = WeakTensorKeyDictionary()
        self.memories: set[int] = set()  # that have held numbers: most changes are elsewhere, and need no search

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(_is_meta(x) for x in tree_flatten((args, kwargs))[0]):
            if _asks(function, args, kwargs):
                return self._answered(function, args, kwargs)
            if function is LEAVES and _is_on(kwargs, "cpu"):
                real = self._real(function, args, kwargs)
                return _refuse(function) if real is UNKNOWN else real
            made = _together(function, args, kwargs)
        else:
            made = function(*args, **kwargs)
        self._follow(function, args, kwargs, made)
        return made

    def _answered(self, function, args, kwargs):
        """The result of an operation that needs numbers.

        raises  ValueError if they are not known
        """
        real = self._real(function, args, kwargs)
        if real is UNKNOWN:
            _refuse(function)
        made = tree_map(lambda x: x.to("meta") if torch.is_tensor(x) else x, real)
        self._keep(made, real)
        return made

    def _follow(self, function, args, kwargs, made):
        """Keep the numbers of a result, if all its inputs are known."""
        every = [x for x in tree_flatten(made)[0] if _is_meta(x)]
        if not every:
            return
        changed = function._schema.is_mutable
        small = all(_is_whole(x) and x.numel() <= MOST for x in every)
        drawn = torch.Tag.nondeterministic_seeded in function.tags
        real = self._real(function, args, kwargs) if small and not drawn else UNKNOWN
        if real is not UNKNOWN and not changed:
            self._keep(made, real)
        elif real is UNKNOWN and changed:
            self._forget(every)

    def _real(self, function, args, kwargs):
        """The same operation on numbers, `UNKNOWN` if some argument has none."""
        if function.overloadpacket in EMPTY:
            return UNKNOWN
        known = lambda x: self.numbers.get(x, UNKNOWN) if _is_meta(x) else x
        args, kwargs = tree_map(known, (args, kwargs))
        if any(x is UNKNOWN for x in tree_flatten((args, kwargs))[0]):
            return UNKNOWN
        if _is_on(kwargs, "meta"):
            kwargs = kwargs | {"device": torch.device("cpu")}
        real = function(*args, **kwargs)
        given = any(real is x for x in args)  # the caller's own tensor may change later
        return real.clone() if given and not function._schema.is_mutable else real

    def _keep(self, made, real):
        for x, numbers in zip(tree_flatten(made)[0], tree_flatten(real)[0]):
            if _is_meta(x):
                self.numbers[x] = numbers
                self.memories.add(x.untyped_storage()._cdata)

    def _forget(self, changed: list):
        """Forget the numbers of changed tensors, and of all tensors that share memory with them."""
        memory = self.memories.intersection(x.untyped_storage()._cdata for x in changed)
        if not memory:
            return
        for x in [x for x in self.numbers if x.untyped_storage()._cdata in memory]:
            del self.numbers[x]


def _asks(function, args, kwargs) -> bool:
    """Whether an operation needs numbers. Indexing by integers does not, since their shape gives that of the result;
    indexing by flags does.
    """
    if function is INDEX:
        return any(x is not None and x.dtype in FLAGS for x in args[1])
    if function is REPEAT:
        return kwargs.get("output_size") is None
    return bool(ASKS & set(function.tags))


def _together(function, args, kwargs):
    """The result of an operation on the meta device, also with a constant that a forward has made on the CPU."""
    if not function._schema.is_mutable or _is_meta(args[0]):
        args, kwargs = tree_map(lambda x: x.to("meta") if torch.is_tensor(x) else x, (args, kwargs))
    return function(*args, **kwargs)


def _refuse(function):
    name = function.__name__.partition(".")[0]
    raise ValueError(
        f"the model reads values of a tensor ({name}) that a dry run does not know: it knows only integers and flags "
        "that follow from the batch alone. Make the forward independent of all other values, or use hl.run"
    )


def _is_meta(x) -> bool:
    return torch.is_tensor(x) and x.device.type == "meta"


def _is_on(kwargs: dict, kind: str) -> bool:
    """Whether an operation is asked to make its result on a device of this kind. Without a device, it stays."""
    return kwargs.get("device") is not None and torch.device(kwargs["device"]).type == kind


def _is_whole(x) -> bool:
    return not (x.is_floating_point() or x.is_complex())
