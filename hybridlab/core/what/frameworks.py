"""The frameworks of the lecture's table: the parallelism of each, its largest run, and the notebook that teaches it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """A row of the lecture's table: the kinds of parallelism, the largest number of accelerators, the largest network,
    and the notebook that runs its technique."""

    name: str
    parallelism: str
    accelerators: int
    kind: str
    parameters: float
    notebook: str


FRAMEWORKS_SOURCE = "Abhinav Bhatele, Parallel Training, table of frameworks (the first count is marked * there)"
FRAMEWORKS = (
    Framework("FlexFlow", "hybrid", 64, "GPUs", 24e6, "43_search"),
    Framework("PipeDream", "pipeline", 16, "GPUs", 138e6, "15_pipedream"),
    Framework("DDP", "data", 256, "GPUs", 345e6, "21_data_parallel"),
    Framework("GPipe", "pipeline", 8, "GPUs", 557e6, "11_gpipe"),
    Framework("Mesh-TensorFlow", "tensor", 512, "TPUv2 cores", 4.9e9, "35_layouts"),
    Framework("Megatron-LM", "tensor", 512, "GPUs", 8.3e9, "30_megatron"),
    Framework("TorchGPipe", "pipeline", 8, "GPUs", 15.8e9, "11_gpipe"),
    Framework("KARMA", "data", 2048, "GPUs", 17e9, "23_out_of_core"),
    Framework("LBANN", "data", 3072, "CPUs", 78.6e9, "34_convolution"),
    Framework("ZeRO", "data", 400, "GPUs", 100e9, "22_zero_fsdp"),
)
