"""The solutions of all exercises, for tests and for the instructor's edition. Who learns reads them last."""

from hybridlab.labs.asynchronous import solutions as asynchronous
from hybridlab.labs.axonn import solutions as axonn
from hybridlab.labs.capstone import solutions as capstone
from hybridlab.labs.choosing import solutions as choosing
from hybridlab.labs.collectives import solutions as collectives
from hybridlab.labs.context import solutions as context
from hybridlab.labs.convolution import solutions as convolution
from hybridlab.labs.data_parallel import solutions as data_parallel
from hybridlab.labs.exercises.solution import Cell, Solution
from hybridlab.labs.experts import solutions as experts
from hybridlab.labs.gpipe import solutions as gpipe
from hybridlab.labs.hybrid import solutions as hybrid
from hybridlab.labs.interleaved import solutions as interleaved
from hybridlab.labs.layouts import solutions as layouts
from hybridlab.labs.matmul import solutions as matmul
from hybridlab.labs.megatron import solutions as megatron
from hybridlab.labs.naive import solutions as naive
from hybridlab.labs.one_device import solutions as one_device
from hybridlab.labs.one_f_one_b import solutions as one_f_one_b
from hybridlab.labs.out_of_core import solutions as out_of_core
from hybridlab.labs.sc21 import solutions as sc21
from hybridlab.labs.search import solutions as search
from hybridlab.labs.start import solutions as start
from hybridlab.labs.zero import solutions as zero
from hybridlab.labs.zero_bubble import solutions as zero_bubble

__all__ = ["SOLUTIONS", "Cell", "Solution"]

FAMILIES = (
    start, one_device, naive, gpipe, one_f_one_b, interleaved, zero_bubble, asynchronous, collectives, data_parallel,
    zero, out_of_core, megatron, matmul, experts, context, convolution, axonn, layouts, hybrid, choosing, sc21,
    search, capstone,
)  # fmt: skip
SOLUTIONS: dict[str, Solution] = {task: one for family in FAMILIES for task, one in family.SOLUTIONS.items()}
