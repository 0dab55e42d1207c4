"""The registry of modes: one line for each mode, the file that defines its `MODE`.

A job uses the modes that its mesh and its options require. They are applied in this order: stages before copies, copies
before divisions inside a stage. A mode from outside the package is added with `register`. It then comes after the
others, its options become flags, and it is checked like them.
"""

import math
from importlib import import_module

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.mode import Mode, Option
from hybridlab.signatures import renew

FILES = ("pipeline", "data_parallel", "local_steps", "zero", "on_host")  # stages, copies
FILES += ("grid_parallel", "context_parallel", "expert_parallel", "copied_experts")
FILES += ("tensor_parallel", "spatial_parallel")
FILES += ("recomputation", "out_of_core")  # saved activations
FILES += ("full_matrices",)  # for the optimizer
_added: list[Mode] = []


def modes() -> list[Mode]:
    """Every mode."""
    return [*(import_module(f"hybridlab.modes.{file}").MODE for file in FILES), *_added]


def register(mode: Mode) -> Mode:
    """Add a mode.

    raises  ValueError if it does not name the purpose of its bytes, or another mode has its purpose or an option
    """
    if not mode.purpose:
        raise ValueError(
            f"{mode.name or type(mode).__name__} has no `purpose`, under which its bytes are counted: give it one"
        )
    for other in modes():
        if other.purpose == mode.purpose or other.name == mode.name:
            raise ValueError(f"{other.name} already has the purpose {other.purpose}: give {mode.name} a different one")
        if both := mode.options.keys() & other.options.keys():
            raise ValueError(f"{other.name} already has an option {min(both)}: rename the option of {mode.name}")
    _added.append(mode)
    renew()
    return mode


def unregister(mode: Mode):
    """Remove an added mode."""
    _added.remove(mode)
    renew()


def options() -> dict[str, Option]:
    """All options, by name."""
    return {name: option for mode in modes() for name, option in mode.options.items()}


def chosen_of(mesh: Mesh, said: dict, dtype: str) -> dict:
    """{option: the given value, or one that follows from the others or the computation's dtype, or the default}.

    raises  ValueError for a value that is not one of an option's choices, that cannot be converted, or that has no
            effect without an axis or another option
    """
    every = options()
    said = {name: every[name].read(value) for name, value in said.items() if value is not None}
    for name, value in said.items():
        choices = every[name].choices
        if choices and value not in choices:
            raise ValueError(f"there is no {name} {value!r}: choose one of {', '.join(map(str, choices))}")
        least = every[name].least
        if least is not None and not least <= value < math.inf:
            raise ValueError(f"{name}={value} is not possible: give a number, {least} or more")
        if value != every[name].usual and (lacking := missing(name, mesh, said)):
            raise ValueError(f"{name}={value!r} has no effect without {lacking}: {too(lacking)}, or leave out {name}")
    chosen = {name: option.usual for name, option in every.items()} | said
    for mode in modes():
        chosen |= {name: value for name, value in mode.completed(mesh, chosen, dtype).items() if name not in said}
    return chosen


def missing(name: str, mesh: Mesh, said: dict) -> str:
    """The axis, or the other option, without which an option has no effect; "" if it is given.

    >>> missing("sequence", Mesh(dp=2), {}), missing("sequence", Mesh(tp=2), {}), missing("owners", Mesh(), {"zero": 0})
    ('tp', '', 'zero')
    >>> missing("fold", Mesh(ep=2), {}), missing("fold", Mesh(cp=2), {})
    ('tp or cp', '')
    >>> missing("mix", Mesh(dp=2), {"sums": "each"}), missing("mix", Mesh(dp=2), {"sums": "local"})
    ('sums=local', '')
    """
    every = options()

    def there(one):
        name, _, value = one.partition("=")
        if name not in every:
            return mesh[name] > 1
        has = said.get(name, every[name].usual)
        return has == value if value else has != every[name].usual

    return "" if any(there(one) for one in every[name].beside.split(" or ") if one) else every[name].beside


def too(lacking: str) -> str:
    """The advice in an error message, for the result of `missing`."""
    return "give one of them" if " or " in lacking else "give both"


def taking_part(mesh: Mesh, chosen: dict) -> tuple[Mode, ...]:
    """The modes that are active in a job.

    chosen  the options, and "optimizer"

    raises  ValueError for an axis that no mode uses
    """
    every = modes()
    known = {axis: mode.name for mode in every for axis in mode.axes}
    for axis, length in mesh.axes.items():
        if axis not in known and length > 1:
            raise ValueError(f"{mesh} has an axis {axis}, which no mode uses: choose from {', '.join(known)}")
    return tuple(mode for mode in every if mode.takes_part(mesh, chosen))
