"""All exercises: what is asked, how an answer is checked, and what to think of next when it is off.

A task's numbers are computed by the package, never typed. Its check returns the reply to one answer: whether it is
right, and one sentence. Hints come one at a time, the next with every wrong answer. Each family stands in a file of its
own; the solutions are in `labs.exercises.all_solutions`.
"""

from hybridlab.labs.asynchronous.tasks import ASYNCHRONOUS_TASKS
from hybridlab.labs.axonn.tasks import AXONN_TASKS
from hybridlab.labs.capstone.tasks import CAPSTONE_TASKS
from hybridlab.labs.choosing.tasks import CHOOSING_TASKS
from hybridlab.labs.collectives.tasks import COLLECTIVE_TASKS
from hybridlab.labs.context.tasks import CONTEXT_TASKS
from hybridlab.labs.convolution.tasks import CONVOLUTION_TASKS
from hybridlab.labs.data_parallel.tasks import DATA_PARALLEL_TASKS
from hybridlab.labs.exercises.task import Task
from hybridlab.labs.experts.tasks import EXPERTS_TASKS
from hybridlab.labs.gpipe.tasks import GPIPE_TASKS
from hybridlab.labs.hybrid.tasks import HYBRID_TASKS
from hybridlab.labs.interleaved.tasks import INTERLEAVED_TASKS
from hybridlab.labs.layouts.tasks import LAYOUT_TASKS
from hybridlab.labs.matmul.tasks import MATMUL_TASKS
from hybridlab.labs.megatron.tasks import MEGATRON_TASKS
from hybridlab.labs.naive.tasks import NAIVE_TASKS
from hybridlab.labs.one_device.tasks import ONE_DEVICE_TASKS
from hybridlab.labs.one_f_one_b.tasks import ONE_F_ONE_B_TASKS
from hybridlab.labs.out_of_core.tasks import OUT_OF_CORE_TASKS
from hybridlab.labs.sc21.tasks import SC21_TASKS
from hybridlab.labs.search.tasks import SEARCH_TASKS
from hybridlab.labs.start.tasks import START_TASKS
from hybridlab.labs.zero.tasks import ZERO_TASKS
from hybridlab.labs.zero_bubble.tasks import ZERO_BUBBLE_TASKS

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
    **OUT_OF_CORE_TASKS,
    **MEGATRON_TASKS,
    **MATMUL_TASKS,
    **EXPERTS_TASKS,
    **CONTEXT_TASKS,
    **CONVOLUTION_TASKS,
    **AXONN_TASKS,
    **LAYOUT_TASKS,
    **HYBRID_TASKS,
    **CHOOSING_TASKS,
    **SC21_TASKS,
    **SEARCH_TASKS,
    **CAPSTONE_TASKS,
}
