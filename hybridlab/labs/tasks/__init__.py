"""All exercises: what is asked, how an answer is checked, and what to think of next when it is off.

A task's numbers are computed by the package, never typed. Its check returns the reply to one answer: whether it is
right, and one sentence. Hints come one at a time, the next with every wrong answer. Each family stands in a file of its
own; the solutions are in `labs.solutions`.
"""

from hybridlab.labs.exercises.task import Task
from hybridlab.labs.tasks.asynchronous import ASYNCHRONOUS_TASKS
from hybridlab.labs.tasks.choosing import CHOOSING_TASKS
from hybridlab.labs.tasks.collectives import COLLECTIVE_TASKS
from hybridlab.labs.tasks.data_parallel import DATA_PARALLEL_TASKS
from hybridlab.labs.tasks.gpipe import GPIPE_TASKS
from hybridlab.labs.tasks.hybrid import HYBRID_TASKS
from hybridlab.labs.tasks.interleaved import INTERLEAVED_TASKS
from hybridlab.labs.tasks.megatron import MEGATRON_TASKS
from hybridlab.labs.tasks.naive import NAIVE_TASKS
from hybridlab.labs.tasks.one_device import ONE_DEVICE_TASKS
from hybridlab.labs.tasks.one_f_one_b import ONE_F_ONE_B_TASKS
from hybridlab.labs.tasks.sc21 import SC21_TASKS
from hybridlab.labs.tasks.start import START_TASKS
from hybridlab.labs.tasks.zero import ZERO_TASKS
from hybridlab.labs.tasks.zero_bubble import ZERO_BUBBLE_TASKS

TASKS: dict[str, Task] = {
    **START_TASKS,
    **ONE_DEVICE_TASKS,
    **NAIVE_TASKS,
    **GPIPE_TASKS,
    **ONE_F_ONE_B_TASKS,
    **INTERLEAVED_TASKS,
    **ZERO_BUBBLE_TASKS,
    **ASYNCHRONOUS_TASKS,
    **COLLECTIVE_TASKS,
    **DATA_PARALLEL_TASKS,
    **ZERO_TASKS,
    **MEGATRON_TASKS,
    **HYBRID_TASKS,
    **CHOOSING_TASKS,
    **SC21_TASKS,
}
