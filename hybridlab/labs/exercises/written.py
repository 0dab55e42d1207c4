"""An answer as JSON, and back. A submission contains the answers, not the verdicts."""

import json
import math
from decimal import Decimal
from fractions import Fraction

from hybridlab.labs.exercises.source import Source, source_of
from hybridlab.labs.exercises.words import a_kind

LONGEST = 200_000  # letters of one answer
NO_WRITING = "not an answer written by labs.export: export it again"
LONGEST_NUMBER = 10**4000  # Python reads numbers of some 4,300 digits


def write(answer):
    """An answer as JSON; a value that cannot be written becomes a sentence under "unwritten".

    >>> write((8, 3 / 8)), write({"gelu"}), write({"mesh": 3})
    ([8, 0.375], {'set': ['gelu']}, {'dict': [['mesh', 3]]})
    >>> write(object())["unwritten"]
    'an object cannot be stored'
    """
    try:
        written = _write(answer)
        letters = len(json.dumps(written, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return {"unwritten": "it contains a lone surrogate (half a character)"}
    except ValueError as error:
        return {"unwritten": str(error)}
    except RecursionError:
        return {"unwritten": "it contains itself, or is nested too deeply"}
    if letters > LONGEST:
        return {"unwritten": f"it has more than {LONGEST} characters"}
    return written


def _write(answer):
    from hybridlab.core.when.schedule import Schedule
    from hybridlab.core.where.mesh import Mesh

    if isinstance(answer, int) and abs(answer) > LONGEST_NUMBER:
        raise ValueError("it has a number with more than 4,000 digits")
    if answer is None or isinstance(answer, bool | str | int):
        return answer
    if isinstance(answer, float):
        return answer if math.isfinite(answer) else {"float": repr(float(answer))}
    if isinstance(answer, list | tuple):
        return [_write(one) for one in answer]
    if isinstance(answer, set | frozenset):
        return {"set": sorted(map(_write, answer), key=str)}
    if isinstance(answer, dict):
        return {"dict": [[_write(key), _write(value)] for key, value in answer.items()]}
    if isinstance(answer, Mesh):
        return {"mesh": dict(answer.axes)}
    if isinstance(answer, Schedule):
        return {"schedule": answer.to_csv()}
    if isinstance(answer, Source):
        return {"function": {"name": answer.name, "source": answer.text}}
    if isinstance(answer, Fraction | Decimal):
        return _write(float(answer))
    if hasattr(answer, "tolist"):  # numpy's numbers and arrays, and torch's
        return _write(answer.tolist())
    if isinstance(getattr(answer, "schedule", None), Schedule):  # a game; an unfinished one has no valid schedule
        return _write(answer.schedule) if getattr(answer, "finished", True) else {"unwritten": "it was not finished"}
    if callable(answer):
        return _write(source_of(answer))
    raise ValueError(f"{a_kind(answer)} cannot be stored")


def has_code(written) -> bool:
    """Whether there is a function in a written answer."""
    return (
        any(map(has_code, written))
        if isinstance(written, list)
        else isinstance(written, dict) and "function" in written
    )


def unwritten(written) -> str:
    """The reason why an answer could not be written down; "" if it was."""
    return written.get("unwritten", "") if isinstance(written, dict) else ""


def read(written):
    """The answer that was written; a tuple comes back as a list, a function as its `Source`.

    raises  ValueError for a value that could not be written, or was not written by `write`

    >>> read(write({"mesh": (1, {2})}))
    {'mesh': [1, {2}]}
    """
    try:
        return _read(written)
    except (TypeError, RecursionError):  # for example a list in a set
        raise ValueError(NO_WRITING) from None


def _read(written):
    from hybridlab.core.when.schedule import Schedule
    from hybridlab.core.where.mesh import Mesh

    if isinstance(written, list):
        return [_read(one) for one in written]
    if not isinstance(written, dict):
        return written
    match written:
        case {"set": list(items)}:
            return {_read(one) for one in items}
        case {"dict": list(items)} if all(isinstance(one, list) and len(one) == 2 for one in items):
            return {_read(key): _read(value) for key, value in items}
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"mesh": dict(axes)}:
            return Mesh(**axes)
        case {"schedule": str(text)}:
            return Schedule.from_csv(text)
        case {"function": {"name": str(name), "source": str(text)}}:
            return Source(text, name)
        case {"unwritten": str(reason)}:
            raise ValueError(f"the answer could not be stored: {reason}")
    raise ValueError(NO_WRITING)
