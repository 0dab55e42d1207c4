"""Read published results, as printed, so that predictions can be compared with them."""

import csv
from functools import cache
from pathlib import Path

TABLES = Path(__file__).parent / "tables"
SOURCES = {
    "megatron_sc21_table1": "Narayanan et al. 2021, arXiv:2104.04473, table 1; microbatch and chunks: Megatron-LM, "
    "examples/sc21",
    "sc21_figure_configs": "Narayanan et al. 2021, arXiv:2104.04473, figures 7 and 11 to 18: the configurations, "
    "not the results",
    "sc21_figure_readings": "read off the curves of arXiv:2104.04473, figures 11 to 18, which print no numbers: "
    "uncertain by a few percent; the unit is TFLOP/s per GPU, and for figure 17 sequences per second",
    "megatron_sc21_table2": "Narayanan et al. 2021, arXiv:2104.04473, table 2: ZeRO 3 without model parallelism, and "
    "PTD-P (pipeline, tensor and data parallelism)",
    "zero_memory_7p5B_formula": "Rajbhandari et al. 2020, arXiv:1910.02054, figure 1 and table 1: 7.5 billion weights",
    "zero_bubble_tables": "Qi et al. 2023, arXiv:2401.10241, appendix: measured durations, and rates of Table 5",
    "simumax_b200_memory": "MooreThreads/SimuMax, docs/b200, summary 1.2: peaks of allocated memory on 8 B200s",
    "torchgpipe_amoebanet_speed": "torchgpipe's benchmark page, AmoebaNet-D (18, 256) on Tesla P40s; the last column: "
    "Huang et al. 2019, arXiv:1811.06965, table 2",
    "long_and_sparse_h100": "dgxc: NVIDIA/dgxc-benchmarking, llama3.1 READMEs at tag v25.01, 24.09, BF16. llama3: "
    "Llama Team 2024, arXiv:2407.21783, table 4, from a secondary source; the batch sizes are from memory, not "
    "checked; chunks and zigzag are our choice. mcore: NVIDIA/Megatron-LM, megatron/core/transformer/moe/README.md at "
    "commit 022bcb5: mapping of v0.8, rate of v0.9. folding: arXiv:2504.14960, table 2, without folding, with the "
    "mapping of the README",
    "dgxc_h100": "NVIDIA/dgxc-benchmarking, READMEs of llama3.1 and nemo_megatron at tag v25.01, commit 143b90d",
    "megatron_bridge": "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and -archive.md, commit 067f987",
    "llm_foundry": "mosaicml/llm-foundry, scripts/train/benchmarking/README.md, commit 8c8dd48",
    "torchtitan_a100": "pytorch/torchtitan, docs/performance.md, commit 0413364",
    "llama3_405b": "Llama Team 2024, arXiv:2407.21783, table 4, from a secondary source; the batch sizes are from "
    "memory, not checked",
    "moe_folding": "Liu et al. 2025, arXiv:2504.14960, table 2",
    **{
        f"maxtext_tpu_{chip}": f"AI-Hypercomputer/maxtext, MaxText/configs/{chip}: README at commit {commit}, scripts "
        "at 0777510 or near; sizes: MaxText/configs/base.yml"
        for chip, commit in (("v4", "30cd40a"), ("v5e", "0ed7bd5"), ("v5p", "0ed7bd5"))
    },
    "deepep_v1_h800": "deepseek-ai/DeepEP, docs/legacy.md, commit 0297fc8",
    "deepep_v2": "deepseek-ai/DeepEP, README.md, commit 0297fc8",
    "selective_recomputation": "Korthikanti et al. 2022, arXiv:2205.05198, tables 3 and 5, from memory, not checked",
    "googlenet_modules": "Szegedy et al. 2015, arXiv:1409.4842, table 1: channels of every branch; pixels of a side",
    "on_gpus": "measurements on GPUs by topic of the course; each row names its own source",
    "blocks_h200": "this course, bench/blocks.py on one H200 on 2026-11-27, torch 2.11.0, CUDA 13.0; width 1024, t=1 "
    "and t=2: from another call of the same hour",
    "pipedream_vgg16": "Narayanan et al. 2019, github.com/msr-fiddle/pipedream, commit 11c40c0: the profile of VGG-16, "
    "mini-batches of 128, in the order of the layers, without the input and two reshapes that take no time",
}


@cache
def published(table: str) -> tuple[dict, ...]:
    """The rows of a printed table, with numbers as int or float.

    raises  ValueError for an unknown table

    >>> published("zero_bubble_tables")[0]["rate_ZB_H1"]
    0.1585
    """
    if table not in SOURCES:
        raise ValueError(f"there is no table {table!r}: choose one of {', '.join(SOURCES)}")
    with open(TABLES / f"{table}.csv", newline="") as file:
        return tuple({name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file))


def _number(cell: str):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell
