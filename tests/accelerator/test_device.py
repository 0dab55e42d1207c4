"""The emulated device keeps a GPU's rules: see device.cpp. What runs on it runs on a rank, in another process."""

import threading
import time

import pytest
import torch

import hybridlab as hl

pytestmark = [pytest.mark.long, pytest.mark.ranks]  # an accelerator is built first


def gate():
    """A transfer under way, as a process group would begin one."""
    return torch.classes.emulated_gpu.Gate()


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(3),
        lambda x: x @ torch.ones(3, 3),
        lambda x: torch.zeros(3).add_(x),
        lambda x: torch.zeros(()).add_(x.sum()),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: x + torch.ones(3, device="gpu:5"),
        lambda x: torch.nn.functional.conv1d(x[None, None], torch.ones(1, 1, 1)),
    ],
    ids=["add", "matmul", "into the host", "number into the host", "cat", "other device", "convolution"],
)
def test_devices_do_not_mix(one, mixed):
    with pytest.raises(hl.RankError, match="on the same device"):
        one.run(lambda comm: mixed(torch.ones(3, device=comm.device)).sum().item())


def test_single_numbers_and_indices_may_lie_on_the_host(one):
    def allowed(comm):
        x = torch.arange(3.0, device=comm.device)
        x[torch.tensor([1])] = 5.0
        return (x * torch.tensor(2.0)).tolist(), x[torch.tensor([2, 1])].tolist(), x.to("gpu:3").device.index

    assert one.run(allowed) == [([0.0, 10.0, 4.0], [2.0, 5.0], 3)]


def trained(device):
    """Weights, gradients and running averages of a little net after a step."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 3)
    net = torch.nn.Sequential(*layers)
    x = torch.randn(5, 1, 4, 4)
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    torch.nn.functional.cross_entropy(net(x.to(device)), torch.arange(5, device=device) % 3).backward()
    optimizer.step()
    return [one.detach().cpu() for one in (*net.state_dict().values(), *(w.grad for w in net.parameters()))]


def test_its_numbers_are_the_cpus(one):
    (both,) = one.run(lambda comm: [trained(comm.device), trained("cpu")])
    assert len(both[0]) == 15 and all(torch.equal(mine, its) for mine, its in zip(*both))


def changed_in_place(device):
    """Views with gaps, each changed in place by another kind of operator."""
    found = []
    for change in (
        lambda view: view.add_(1.0),
        lambda view: view.mul_(view),
        lambda view: view.fill_(3.0),
        lambda view: torch.sub(view, 2.0, out=view),
        lambda view: view.copy_(view + 1.0),
    ):
        for cut in (lambda x: x[:, :3], lambda x: x[:, 1], lambda x: x[..., 1], lambda x: x.transpose(0, 2)[:1]):
            x = torch.arange(24.0, device=device).reshape(2, 6, 2)
            view = cut(x)
            before = view.stride()
            change(view)
            found.append((x.flatten().tolist(), view.stride() == before))
    return found


def test_a_view_is_changed_in_place_and_nothing_beside_it(one):
    ((here, there),) = one.run(lambda comm: (changed_in_place(comm.device), changed_in_place("cpu")))
    assert here == there and all(kept for _, kept in here)


def test_float32_is_exact_on_a_rank_with_a_device(one):
    """A fresh process of torch lets convolutions round to TF32; a rank that has taken its device does not."""

    def rounds(comm):
        from torch import backends  # a module that cannot be sent

        return comm and comm.device.type, backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32

    assert one.run(rounds) == [("gpu", False, False)] and rounds(None)[1]


def test_random_numbers_can_be_drawn_aside(one):
    def drawn(comm):
        torch.manual_seed(1)
        with torch.random.fork_rng():
            first = torch.rand(3, device=comm.device)
        return torch.equal(first, torch.rand(3, device=comm.device))

    assert one.run(drawn) == [True]


def test_to_keeps_weights_tied(one):
    def tied(comm):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
        net[1].weight = net[0].weight
        return net.to(comm.device)[0].weight is net[1].weight

    assert one.run(tied) == [True]


def test_memory_is_counted_and_let_go(one):
    def counted(comm):
        memory = torch.accelerator
        memory.reset_peak_memory_stats()
        before = memory.memory_allocated()
        x = torch.zeros(1000, device=comm.device)
        found = [memory.memory_allocated() - before]
        x.untyped_storage().resize_(0)
        found.append(memory.memory_allocated() - before)
        x.untyped_storage().resize_(4000)
        found += [memory.memory_allocated() - before, x.fill_(2).tolist() == [2.0] * 1000]
        del x
        return [*found, memory.memory_allocated() - before, memory.max_memory_allocated() - before]

    assert one.run(counted) == [[4000, 0, 4000, True, 0, 4000]]


def test_backward_runs_in_a_thread_of_the_device(one):
    def backward(comm):
        said = []
        x = torch.ones(2, device="gpu:3", requires_grad=True)
        x.register_hook(lambda _: said.append((threading.get_ident(), torch.accelerator.current_device_index())))
        (x * 2).sum().backward()
        return said[0][0] != threading.get_ident(), said[0][1], x.grad.device.index

    assert one.run(backward) == [(True, 3, 3)]


def test_events_tell_the_time_between_them(one):
    def timed(comm):
        first, second = (torch.Event(device=comm.device, enable_timing=True) for _ in "12")
        first.record()
        time.sleep(0.05)
        second.record()
        return first.elapsed_time(second), second.query()

    ((elapsed, over),) = one.run(timed)
    assert 49 < elapsed < 500 and over


def test_a_stream_is_current_while_it_is_entered(one):
    def entered(comm):
        usual, other = torch.accelerator.current_stream(), torch.Stream(device=comm.device)
        with other:
            inside = torch.accelerator.current_stream()
        return inside == other, torch.accelerator.current_stream() == usual, usual != other

    assert one.run(entered) == [(True, True, True)]


def test_what_comes_is_rubbish_until_its_stream_has_waited(one):
    def waited(comm):
        transfer = gate()
        x, n = torch.zeros(2, device=comm.device), torch.zeros(2, dtype=torch.int64, device=comm.device)
        transfer.expect(x, torch.ones(2))
        transfer.expect(n, torch.ones(2, dtype=torch.int64))
        before = x.isnan().all().item(), n.min().item() > 10**9
        threading.Timer(0.2, transfer.open, [""]).start()
        begin = time.monotonic()
        transfer.wait(comm.device.index)
        said = time.monotonic() - begin
        with torch.Stream(device=comm.device):
            elsewhere = x.isnan().all().item(), time.monotonic() - begin
        return before, said, elsewhere, (x + n).tolist(), time.monotonic() - begin

    ((before, said, (unseen, soon), sums, late),) = one.run(waited)
    assert before == (True, True) and said < 0.1  # the host goes on
    assert unseen and soon < 0.1  # another stream has not waited
    assert sums == [2.0, 2.0] and late > 0.15  # this one has, and so does whoever gives it work


def test_events_and_other_streams_wait_as_their_stream_does(one):
    def waited(comm):
        transfer, x = gate(), torch.zeros(2, device=comm.device)
        transfer.expect(x, torch.ones(2))
        start, event = (torch.Event(device=comm.device, enable_timing=True) for _ in "12")
        start.record()
        with torch.Stream(device=comm.device):
            transfer.wait(comm.device.index)
            event.record()
        before = event.query()
        threading.Timer(0.1, transfer.open, [""]).start()
        torch.accelerator.current_stream().wait_event(event)
        return before, x.sum().item(), event.query(), start.elapsed_time(event)

    ((before, total, after, elapsed),) = one.run(waited)
    assert not before and total == 2.0 and after and 90 < elapsed < 1000


def test_a_host_that_has_waited_for_an_event_finds_what_came(one):
    def waited(comm):
        transfer, x = gate(), torch.zeros(2, device=comm.device)
        transfer.expect(x, torch.ones(2))
        event = torch.Event(device=comm.device)
        with torch.Stream(device=comm.device):
            transfer.wait(comm.device.index)
            event.record()
        threading.Timer(0.1, transfer.open, [""]).start()
        event.synchronize()
        return x.sum().item()

    assert one.run(waited) == [2.0]


def test_waiting_leaves_other_threads_the_interpreter(one):
    def counted(comm):
        transfer, x, over = gate(), torch.zeros(2, device=comm.device), []
        transfer.expect(x, torch.ones(2))
        transfer.wait(comm.device.index)

        def count():
            for number in range(20):
                time.sleep(0.005)
                over.append(number)
            transfer.open("")

        threading.Thread(target=count).start()
        return x.sum().item(), len(over)

    assert one.run(counted) == [(2.0, 20)]


@pytest.mark.parametrize("by", ["a kernel", "letting go"])
@pytest.mark.parametrize("way", ["expect", "watch"])
def test_a_tensor_on_its_way_must_be_left_alone(one, way, by):
    def misused(comm):
        transfer, x = gate(), torch.zeros(2, device=comm.device)
        transfer.expect(x, torch.ones(2)) if way == "expect" else transfer.watch(x)
        x.fill_(3) if by == "a kernel" else x.untyped_storage().resize_(0)
        transfer.open("")
        transfer.wait(comm.device.index)

    with pytest.raises(hl.RankError, match="changed, or let go"):
        one.run(misused)


def test_a_transfer_that_failed_is_told_where_it_is_waited_for(one):
    def failed(comm):
        transfer, x = gate(), torch.zeros(2, device=comm.device)
        transfer.expect(x, torch.ones(2))
        transfer.wait(comm.device.index)
        transfer.open("the other rank has gone")
        return x.sum().item()

    with pytest.raises(hl.RankError, match="the other rank has gone"):
        one.run(failed)
