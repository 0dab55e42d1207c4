"""Exercises: `labs.answer("naive.utilisation", 0.25)` replies at once; `labs.progress()` shows how far you are."""

from hybridlab.labs.exercises.answer import answer, question
from hybridlab.labs.exercises.progress import progress, reset
from hybridlab.labs.exercises.student import student
from hybridlab.labs.exercises.submission import export

__all__ = ["answer", "export", "progress", "question", "reset", "student"]
