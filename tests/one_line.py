"""Mutants of one line: a module's source with one line changed, in the place of the module wherever it is used."""

import inspect
import sys
from itertools import product


def change(monkeypatch, where, line, other):
    """Put functions and methods of `where` as they would be with the other line in the place of its own."""
    source = inspect.getsource(where)
    assert source.count(line) == 1, line
    changed = dict(vars(where))
    exec(compile(source.replace(line, other), where.__file__, "exec"), changed)
    own = lambda kind: [
        (name, one) for name, one in inspect.getmembers(where, kind) if one.__module__ == where.__name__
    ]
    users = [one for name, one in sys.modules.items() if name.startswith(("hybridlab.", "test_"))]
    for (name, one), user in product(own(inspect.isfunction), users):
        if vars(user).get(name) is one:
            monkeypatch.setattr(user, name, changed[name])
    for name, one in own(inspect.isclass):
        for method, does in vars(changed[name]).items():
            if inspect.isfunction(does) or isinstance(does, property):
                monkeypatch.setattr(one, method, does)
