"""A profiler's trace under its prediction: causes add up to the step, and a message behind work costs nothing."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.predict.launch.traced import CAUSES, laid, traced

NAMES = {  # kernels, as they are called in traces of PyTorch, by what they are
    "products": [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel__5x_cublas",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(flash::Flash_fwd_params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>(cublasLt::cublasSplitKParams<float>)",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_SE_1LDSB0",
    ],
    "other kernels": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>(long)",
        "triton_poi_fused_add_mul_0",
    ],
    "collectives that show": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
    "between stages, and bubble": ["ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"],
}
ORDER = [*NAMES]
SPANS = st.lists(st.tuples(st.sampled_from(ORDER), st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=12)


def kernel(name, begin, length, **more):
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": length, "args": {"stream": 7, **more}}


def mark(number, begin, length, cat="gpu_user_annotation"):
    return {"ph": "X", "cat": cat, "name": f"ProfilerStep#{number}", "ts": begin, "dur": length}


def trace(*events, rank=0):
    return {"distributedInfo": {"backend": "nccl", "rank": rank}, "traceEvents": [{"ph": "M", "name": "x"}, *events]}


@pytest.mark.parametrize("cause, name", [(cause, name) for cause, names in NAMES.items() for name in names])
def test_a_kernel_is_what_its_name_says(cause, name):
    found = traced(trace(kernel(name, 100, 50)))
    assert found.seconds == dict.fromkeys(CAUSES, 0.0) | {cause: 50e-6}
    assert found.total == 50e-6


def test_copies_are_other_work_and_an_all_to_all_is_told_by_its_arguments():
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 0, "dur": 10}
    mine = kernel("ncclDevKernel_SendRecv(x)", 10, 5, **{"Collective name": "all_to_allv"})
    assert traced(trace(copy, mine)).seconds == dict.fromkeys(CAUSES, 0.0) | {
        "other kernels": 10e-6,
        "collectives that show": pytest.approx(5e-6),
    }


@pytest.mark.slow
@given(SPANS, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), max_size=2))
def test_moment_by_moment(spans, steps):
    """Against ticks that are counted one by one."""
    begins, windows = 0, []
    for gap, length in steps:  # one behind the other
        windows.append((begins + gap, begins + gap + length))
        begins = windows[-1][1]
    marks = [mark(number, begin, end - begin) for number, (begin, end) in enumerate(windows)]
    marks += [mark(99, 0, 1000, "user_annotation")] if marks else []  # the host's clock, which the device's outdoes
    kernels = [kernel(NAMES[cause][0], begin, length) for cause, begin, length in spans]
    found = traced(trace(*kernels, *marks))
    counted, hidden = dict.fromkeys(CAUSES, 0), 0
    for begin, end in windows or [(min(b for _, b, _ in spans), max(b + n for _, b, n in spans))]:
        for tick in range(begin, end):
            going = [cause for cause in ORDER if any(c == cause and b <= tick < b + n for c, b, n in spans)]
            counted[going[0] if going else "device idle"] += 1
            hidden += bool(going) and going[0] in ORDER[:2] and going[-1] in ORDER[2:]
    steps = max(len(windows), 1)
    assert found.steps == steps and found.hidden == pytest.approx(hidden / steps / 1e6)
    assert found.seconds == pytest.approx({name: ticks / steps / 1e6 for name, ticks in counted.items()})


def test_a_step_that_the_trace_begins_with_counts():
    found = traced({"traceEvents": [mark(1, 0, 100), kernel(NAMES["products"][0], 0, 50), mark(2, 100, 100)]})
    assert found.steps == 2 and found.seconds["products"] == pytest.approx(25e-6)


def test_gaps_add_up_to_the_whole_gap_of_the_slowest_rank():
    best = hl.plan("gpt-7.5b", "h100", gpus=16, batch=64, p=2, software="megatron-2024").best
    took = [traced(trace(kernel(NAMES["products"][0], 0, 400_000 + 1000 * rank), rank=rank)) for rank in (1, 0)]
    found = laid(best.step, took)
    assert found.ranks == [0, 1] and sum(one for one, _ in found.causes.values()) == pytest.approx(best.step.total)
    assert sum(found.gap.values()) == pytest.approx(0.401 - best.step.total)
    told = str(found).splitlines()
    assert told[0].split() == ["predicted", "rank", "0", "rank", "1", "gap"] and len({*map(len, told)}) == 1
    assert told[-1].startswith("step, ms") and "401.0" in told[-1]


def real(tmp_path):
    """What PyTorch's own profiler writes, on a machine without a GPU."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watched:
        torch.ones(8, 8) @ torch.ones(8, 8)
    watched.export_chrome_trace(str(tmp_path / "real.json"))
    return tmp_path / "real.json"


def test_a_real_trace_of_a_host_alone_says_what_is_missing(tmp_path):
    """And with a kernel added to it, it is read."""
    path = real(tmp_path)
    with pytest.raises(ValueError, match="this trace contains no work on a device"):
        traced(path)
    said = json.loads(path.read_text())
    said["traceEvents"].append(kernel(NAMES["products"][0], said["traceEvents"][0].get("ts", 0), 7))
    path.write_bytes(gzip.compress(json.dumps(said).encode()))
    assert traced(path).seconds["products"] == pytest.approx(7e-6)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"a": 1}', b"\x1f\x8b", b"\xff\xfe"])
def test_what_is_no_trace_is_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match="is not a profiler's trace"):
        traced(tmp_path / "file")


def test_the_same_rank_twice_is_refused():
    one = traced(trace(kernel("gemm", 0, 1)))
    with pytest.raises(ValueError, match=r"the traces are of ranks \[0, 0\]"):
        laid(hl.plan("gpt-7.5b", "h100", gpus=16, batch=64).best.step, [one, one])


T0 = 1_700_000_000_000_000  # microseconds since 1970, as profilers write them
USELESS = {
    "begins at 0": {"ts": 0},
    "no begin": {"ts": None},
    "times as text": {"ts": str(T0 + 60), "dur": "1"},
    "no duration": {"dur": None},
    "ends before it begins": {"dur": -5},
    "lasts for ever": {"dur": float("inf")},
    "lasts for no number": {"dur": float("nan")},
    "lasts for days": {"dur": 2e11},
}


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("field", USELESS)
def test_an_event_without_a_usable_time_is_left_out_and_counted(field, marked):
    marks = [mark(3, T0, 100)] if marked else []
    work = [kernel("my_gemm", T0, 40), kernel("ncclDevKernel_AllReduce", T0 + 60, 40)]
    plain = traced(trace(*marks, *work))
    found = traced(trace(*marks, *work, kernel("my_gemm", T0 + 60, 1) | USELESS[field]))
    assert found.left_out == 1 and found._replace(left_out=0) == plain and plain.total == pytest.approx(1e-4)
    best = hl.plan("gpt-7.5b", "h100", gpus=16, batch=64).best
    assert "\n1 events without a usable time are left out" in str(laid(best.step, [found]))


def test_an_event_whose_words_are_missing_is_other_work():
    for more in ({"name": None}, {"name": 7}, {"args": None}, {"args": []}):
        assert traced(trace(kernel("x", T0, 10) | more)).seconds["other kernels"] == pytest.approx(1e-5)


def test_the_categories_of_older_profilers_are_read():
    old = [{"ph": "X", "cat": "Kernel", "name": "volta_sgemm", "ts": T0, "dur": 9}]
    old += [{"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD", "ts": T0 + 9, "dur": 1}]
    old += [{"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "ts": T0, "dur": 20}]
    found = traced(trace(*old))
    told = {"products": 9e-6, "other kernels": 1e-6, "device idle": 10e-6}
    assert found.seconds == pytest.approx(dict.fromkeys(CAUSES, 0.0) | told)


def test_several_traces_of_which_one_names_no_rank_are_refused_and_one_is_laid():
    best = hl.plan("gpt-7.5b", "h100", gpus=16, batch=64).best
    nameless = [
        traced(trace(kernel("gemm", 0, 1)) | {"distributedInfo": told}) for told in (None, [], {}, {"rank": "first"})
    ]
    assert {one.rank for one in nameless} == {None}
    with pytest.raises(ValueError, match="a trace does not name its rank: give traces with distributedInfo, which a"):
        laid(best.step, nameless[:2])
    assert str(laid(best.step, nameless[:1])).split()[:2] == ["predicted", "traced"]
    assert traced(trace(kernel("gemm", 0, 1), rank="3")).rank == 3


@pytest.mark.slow
def test_the_command_line_lays_traces_under_the_plan(tmp_path, capsys):
    for rank in (0, 1):
        (tmp_path / f"{rank}.json").write_text(json.dumps(trace(kernel("my_gemm", 0, 300_000), rank=rank)))
    asked = ["plan", "--model", "gpt-7.5b", "--gpus", "16", "--batch", "64", "--trace"]
    assert main([*asked, str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--json"]) == 0
    told = capsys.readouterr().out
    assert "rank 1" in told and json.loads(told.splitlines()[-1])["trace"]["ranks"] == [0, 1]
    assert main([*asked, str(tmp_path / "none.json")]) == 2
    assert "cannot read the trace" in capsys.readouterr().err
