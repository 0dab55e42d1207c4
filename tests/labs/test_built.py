"""What students build in notebooks 21 and 22: what torch itself does, and an answer that comes back from its source."""

import linecache

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.labs.data_parallel import build_solutions as data_parallel
from hybridlab.labs.exercises.all_solutions import SOLUTIONS
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.written import read, write
from hybridlab.labs.trials.held import numbers, tensors
from hybridlab.labs.zero import build_solutions as zero
from hybridlab.labs.zero import clinic

pytestmark = pytest.mark.ranks

BUILT = ["collectives.ring", "data_parallel.ddp", "data_parallel.mended", "zero_fsdp.one", "zero_fsdp.unit"]


@pytest.fixture(scope="module")
def pair():
    with hl.ranks(2) as pool:
        yield pool


def buckets(comm):
    """How many buckets torch's DDP has, with defaults, in its first backward and after that."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(4))))
    told = []
    for _ in range(3):
        model(torch.ones(1, 600)).sum().backward()
        about = model._get_ddp_logging_data()
        told.append(len(about.get("rebuilt_bucket_sizes", about["bucket_sizes"]).split(",")))
    return told


@pytest.mark.long
def test_ddp_makes_one_sum_in_its_first_backward_and_more_when_it_has_rebuilt_its_buckets(pair):
    first, *_, last = pair.run(buckets)[0]
    assert first == TASKS["data_parallel.reducer"].check.right and last > 1


def gathers(comm, blocks):
    """How many all-gathers torch's FSDP2 makes in a step of so many blocks and a head that the root takes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(blocks + 1)))
    for unit in (*model[:blocks], model):
        fully_shard(unit, mesh=init_device_mesh("cpu", (comm.size,)))
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        model(torch.ones(2, 8)).sum().backward()
    return next(event.count for event in seen.key_averages() if event.key == "gloo:all_gather")


def test_fsdp2_keeps_the_root_and_gathers_every_block_twice(pair):
    again = TASKS["zero_fsdp.root"].check.right
    assert pair.run(gathers, blocks=4)[0] == 5 + again


def made(cell):
    """What a solution's cell answers with, its function or class; the source is known."""
    body, _, answer = cell.rpartition("\nlabs.answer(")
    file = f"<made {abs(hash(cell))}>"
    linecache.cache[file] = len(body), None, body.splitlines(keepends=True), file
    names = {"__name__": "__main__", "torch": torch}
    exec(compile(body, file, "exec"), names)
    return names[answer.rpartition(", ")[2].rstrip(")\n")]


@pytest.mark.parametrize("task", one_in(4, BUILT))
def test_what_is_built_is_right_when_it_comes_back_from_a_submission(task):
    again = read(write(made(SOLUTIONS[task].cell)))
    assert TASKS[task].check(again)[0], TASKS[task].check(again)


def test_the_patient_of_the_notebook_is_the_one_whose_mistakes_are_known():
    from tools.course import books

    (cell,) = (one for one in books()["21_data_parallel"].cells if one.id == "data_parallel-clinic-patient")
    assert cell.source.replace("def patient", "def mended") == data_parallel.PATIENT.rpartition("\n\nlabs")[0]


def test_the_patient_of_notebook_22_is_right_with_one_microbatch_and_counts_earlier_ones_again_with_more(pair):
    from tools.course import books

    (cell,) = (one for one in books()["22_zero_fsdp"].cells if one.id == "zero_fsdp-clinic-patient")
    assert cell.source.replace("def broken", "def mended") == zero.PATIENT.rpartition("\n\nlabs")[0]
    one, *more = clinic.symptoms(pair, made(zero.PATIENT))
    assert one == (1, "1.00", "0.000", "0.000")
    for count, first, off, apart in more:
        assert float(first) == pytest.approx((count + 1) / 2, abs=0.2) and float(off) > 0.1 and apart == "0.000"
    assert {row[1:] for row in clinic.symptoms(pair, made(zero.MENDED))} == {("1.00", "0.000", "0.000")}


def test_what_an_object_holds_is_found_in_its_attributes_lists_optimizers_and_closures():
    class Something:
        pass

    one, weight = Something(), torch.nn.Parameter(torch.ones(8))
    adam = torch.optim.Adam([weight])
    weight.grad = torch.ones(8)
    adam.step()
    one.parts, one.hook = [{"adam": adam}], lambda: whole
    whole = torch.ones(100)
    assert numbers(tensors(one)) == 8 + 8 + 2 * 8 + 1 + 100
    assert numbers(tensors(one), beside=[weight]) == 8 + 2 * 8 + 1 + 100
    whole.untyped_storage().resize_(0)
    assert numbers(tensors(one), beside=[weight]) == 8 + 2 * 8 + 1
