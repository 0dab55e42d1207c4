"""Exercises: `labs.answer("naive.utilisation", 0.25)` replies at once; `labs.progress()` shows how far you are."""

from hybridlab.labs.answer import answer, question
from hybridlab.labs.progress import progress, reset
from hybridlab.labs.student import student
from hybridlab.labs.submission import export

__all__ = ["answer", "export", "progress", "question", "reset", "student"]
