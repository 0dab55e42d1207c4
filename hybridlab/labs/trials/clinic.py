"""The bug clinic: a broken rank program shows its symptoms; the student names the cause, and fixes it."""

from collections.abc import Callable
from dataclasses import dataclass

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import is_code


@dataclass(frozen=True)
class Cause:
    """A check of the letter of a cause.

    causes  {letter: the reply to it}; the reply to the right one is empty here
    right   the reply to the right one

    >>> cause = Cause({"a": "Then all ranks would differ.", "b": ""}, "So it is.")
    >>> cause("a"), cause(" B"), cause(2)[1]
    ((False, 'Then all ranks would differ.'), (True, 'So it is.'), 'Answer with one letter in quotes: one of a, b.')
    """

    causes: dict[str, str]
    right: str

    def __call__(self, answer) -> Verdict:
        letter = str(answer).strip().strip("()").lower()
        if letter not in self.causes:
            return False, f"Answer with one letter in quotes: one of {', '.join(self.causes)}."
        return (False, self.causes[letter]) if self.causes[letter] else (True, self.right)


@dataclass(frozen=True)
class Clinic:
    """A check of (the letter of the cause, the fixed function); `mended` is the check of the function."""

    causes: dict[str, str]
    mended: Callable[[object], Verdict]

    def __call__(self, answer) -> Verdict:
        if not isinstance(answer, list | tuple) or len(answer) != 2:
            return False, 'Answer with the letter of the cause and your function, as in ("a", mended).'
        letter, function = answer
        named, told = Cause(self.causes, "That is the cause.")(letter)
        if not named:
            return False, told
        if not is_code(function):
            return False, f"{told} Now fix it: the second item of the answer is your function."
        right, sentence = self.mended(function)
        return right, sentence if right else f"{told} But: {sentence}"

    def half(self, answer) -> str:
        """The reply to an answer with one right half, if the other half is None; empty for other answers.

        >>> clinic = Clinic({"a": "No.", "b": ""}, lambda function: (True, "It works."))
        >>> clinic.half((None, len)), clinic.half(("b", None))[:18], clinic.half(("a", None))
        ('the function is right; name the letter, then run the cell again.', 'the letter is righ', '')
        """
        letter, function = answer if isinstance(answer, list | tuple) and len(answer) == 2 else (None, None)
        if letter is None and is_code(function) and self.mended(function)[0]:
            return "the function is right; name the letter, then run the cell again."
        if function is None and Cause(self.causes, "")(letter)[0]:
            return "the letter is right; replace None with the fixed function, then run the cell again."
        return ""
