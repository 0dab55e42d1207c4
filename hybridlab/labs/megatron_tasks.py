"""The exercises of the notebook on megatron. As in `labs.tasks`, the package computes every number."""

from hybridlab.labs.task import Task

MEGATRON_TASKS: dict[str, Task] = {}
