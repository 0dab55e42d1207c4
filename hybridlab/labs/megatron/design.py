"""The design task: the t that fits a model into the memory of a GPU, and sends little enough."""

from hybridlab.core.what.shape import Shape
from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.megatron.sizes import gigabytes, on_the_wire
from hybridlab.predict.bytes.collectives import Link

PLANNED = Shape(layers=36, width=4608, heads=36, kv_heads=4, context=4096, vocabulary=50257)
SEQUENCES, GPU, SERVER, ALLOWED = 6, 80, 8, 0.5  # sequences in a microbatch, GB, GPUs, seconds
INSIDE, ACROSS = Link(10e-6, 1 / 300e9), Link(20e-6, 1 / 25e9)  # links between GPUs of one server, and of several


def planned(ways: int, sequence: bool) -> tuple[float, float]:
    """(GB on the first rank, seconds in which a microbatch's numbers are sent), for the model of the design task.

    raises  ValueError if the model cannot be cut in this way
    """
    link = INSIDE if ways <= SERVER else ACROSS
    seconds = 2 * on_the_wire(PLANNED, SEQUENCES, ways, sequence) * link.beta
    return sum(gigabytes(PLANNED, SEQUENCES, ways, sequence)), seconds


def judged(answer) -> Verdict:
    """(t, whether the sequence is cut)."""
    if not isinstance(answer, list | tuple) or len(answer) != 2 or not isinstance(answer[1], bool):
        return False, "Answer with two things, as in (2, False): t, and whether the sequence is cut too."
    if isinstance(answer[0], bool) or not isinstance(answer[0], int) or not 1 <= answer[0] <= 1024:
        return False, "t is a whole number of ranks, 1 or more."
    ways, sequence = answer
    try:
        size, seconds = planned(ways, sequence)
    except ValueError as error:
        return False, f"{error}."
    told = f"{size:.1f} GB on the first rank, {1e3 * seconds:.0f} ms of sending"
    if size > GPU:
        return False, f"{told}: a GPU has {GPU} GB."
    if seconds > ALLOWED:
        where = f" across servers of {SERVER}" if ways > SERVER else ""
        return False, f"{told}{where}: {1e3 * ALLOWED:.0f} ms are allowed."
    return True, f"{told}: it fits, with no GPU more than needed."
