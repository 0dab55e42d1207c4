"""The pipeline engine that students write, from the naive loop to thin stages: its toy model, its runs, its checks.

- `toy`: a chain of small layers and its microbatches, the same on every rank; the gradients of one device
- `watched`: a stage that records its calls, and the number of forwards that it holds
- `case`: a run: a schedule as plain lists, and the expected work of each rank
- `rank`: the run of one rank, and its report: gradients, order, forwards held, messages
- `trial`: the check of a pipeline, and the verdict on a run
- `reference`: an interpreter of schedules in twenty lines
- `broken`: the symptoms of a broken pipeline, for the bug clinics
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"case": "lists", "broken": "symptoms"}, "toy reference")
