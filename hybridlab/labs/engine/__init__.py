"""The pipeline engine that students write, from the naive loop to thin stages: its toy model, its runs, its checks.

- `toy`: a chain of small layers and its microbatches, alike on every rank; the gradients of one device
- `watched`: a stage that notes what is asked of it, and how many forwards it holds
- `case`: a run: a schedule as plain lists, and what these ask of each rank
- `rank`: what one rank does in a run, and what it tells: gradients, order, forwards held, messages
- `trial`: the check of a pipeline, and the verdict on a run
- `broken`: what a broken pipeline shows, for the bug clinics
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"case": "lists", "broken": "symptoms"}, "toy")
