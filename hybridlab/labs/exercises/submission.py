"""A submission: one JSON file with a student's answers; `python -m hybridlab grade` checks them again.

    {"form": 1, "student": "Ada" or 17 or null, "seed": 0, "versions": {"hybridlab": …, "python": …},
     "answers": {"tour.bubble": 0.2258, "1f1b.order": {"function": {"name": …, "source": …}}, …}}

It contains no verdicts, no times and no facts about the machine. `labs.exercises.written` writes the answers.
"""

import json
import platform
from pathlib import Path

import hybridlab
from hybridlab.core.files import put, regular
from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.student import seed_of
from hybridlab.labs.exercises.written import unwritten

FORM = 1
LARGEST = 5_000_000  # bytes
NO_JSON = "damaged, not JSON: export it again"


def export(path: str | Path) -> Path:
    """Write a submission with everything that was answered; a right answer counts before a later wrong one.

    raises  ValueError when nothing was answered, or the file cannot be written
    """
    kept = answers_file.read()
    answers = {name: one["answer"] for name, one in kept["tasks"].items()}
    if not answers:
        raise ValueError("there is nothing to export: answer an exercise first")
    versions = {"hybridlab": hybridlab.__version__, "python": platform.python_version()}
    seed = seed_of(kept["student"])
    submission = {"form": FORM, "student": kept["student"], "seed": seed, "versions": versions, "answers": answers}
    path = Path(path).expanduser()
    put(path, json.dumps(submission, indent=1, ensure_ascii=False))
    for name, written in answers.items():
        if reason := unwritten(written):
            print(f"{name} is not in it: {reason}")
    return path


def load(path: Path) -> dict:
    """A submission, read from a file and checked for its form.

    raises  ValueError in one sentence for a file that is not a submission
    """
    try:
        text = regular(path, most=LARGEST).read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(NO_JSON) from None
    found = _parsed(text)
    if not isinstance(found, dict) or found.get("form") != FORM or not isinstance(found.get("answers"), dict):
        raise ValueError("not a submission written by labs.export: export it again")
    student = found.get("student")
    if isinstance(student, bool) or not isinstance(student, str | int | None):
        raise ValueError("its student is neither a name nor a number, so labs.export did not write it: export it again")
    if found.get("seed") != seed_of(student):
        raise ValueError("its seed does not belong to its student: export it again")
    return found


def _parsed(text: str):
    """The content of a JSON text.

    raises  ValueError in one sentence
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(NO_JSON) from None
    except UnicodeEncodeError:
        raise ValueError("damaged: it contains a lone surrogate (half a character); export it again") from None
    except ValueError:
        raise ValueError("damaged: it has a number with more than 4,000 digits; export it again") from None
