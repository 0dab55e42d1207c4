"""Exercises: `labs.answer("naive.utilisation", 0.25)` replies at once."""

from hybridlab.labs.answer import answer, question

__all__ = ["answer", "question"]
