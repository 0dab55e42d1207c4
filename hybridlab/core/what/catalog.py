"""The catalog: models and machines by name, each number with its unit and source."""

from dataclasses import dataclass
from functools import cache

from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.doors import AMOUNT, BYTES, COUNT, POSITIVE, guarded, several


@guarded()
@dataclass(frozen=True)
class Model:
    """A named model: its shape, its common name, and the source of its sizes.

    name    in the catalog
    shape   its sizes
    label   its common name
    source  of its sizes
    """

    name: str
    shape: Shape
    label: str
    source: str


@guarded(node=COUNT, peak=POSITIVE, memory=BYTES, bandwidth=POSITIVE, latency=several(2, AMOUNT))
@dataclass(frozen=True)
class Machine:
    """A kind of machine: nodes of equal devices.

    name              in the catalog
    label             in words
    node              devices in a node
    peak              FLOP/s of one device, dense, 16-bit floating point
    memory            bytes of one device
    bandwidth         bytes/s between a device and its memory
    inside            bytes/s that a device sends to others of its node, one direction
    across            bytes/s that a device sends to other nodes, one direction, when all devices of its node send
    latency           (s inside, s across): before the first byte of a message arrives
    sources           {field: the source of its number}
    eight, four       FLOP/s of one device, dense, in 8 and 4 bits; 0: not supported
    host              bytes/s between a device and its host, one direction, when all devices of its node send
    pod               devices that are connected without the spine network, at the full speed of their links; 0: all of
                      them
    oversubscription  the pod's aggregate bandwidth divided by the bandwidth of its uplinks
    reported          bytes of one device, as its driver reports them; 0: not known
    share             fraction of the peak that matmuls reach in training; 0: not known
    like              the machine from the catalog on which this one is based; "": none

    Each cluster has its own network: `dataclasses.replace(machine("h100"), pod=3072, oversubscription=7.0)` describes
    Llama 3's (arXiv:2407.21783, section 3.3.1).
    """

    name: str
    label: str
    node: int
    peak: float
    memory: float
    bandwidth: float
    inside: float
    across: float
    latency: tuple[float, float]
    sources: dict[str, str]
    eight: float = 0.0
    four: float = 0.0
    host: float = 0.0
    pod: int = 0
    oversubscription: float = 1.0
    reported: float = 0.0
    share: float = 0.0
    like: str = ""

    @property
    def capacity(self) -> float:
        """Bytes of one device, as its driver reports them; `memory` if this is not known, or if `memory` was
        changed."""
        known = self.like in MACHINES and self.memory == MACHINES[self.like].memory
        return (known and self.reported) or self.memory


SC21 = "Narayanan et al. 2021, arXiv:2104.04473"
GPT_VOCABULARY, GPT_CONTEXT = 51200, 2048  # of every model in that paper


def _gpt(layers, width, heads, **more):
    return Shape(layers, width, heads, **({"context": GPT_CONTEXT, "vocabulary": GPT_VOCABULARY, "tied": True} | more))


def _llama(layers, width, heads, inner, context, vocabulary, **more):
    sizes = {"context": context, "vocabulary": vocabulary, "inner": inner, "style": "llama"}
    return Shape(layers, width, heads, **(sizes | more))


_LATENT = {"per_head": 128, "latent": 512, "query_latent": 1536, "rotary": 64}
_DEEPSEEK = {"chosen": 8, "shared": 1, "plain_inner": 18432, "routing": Routing("sigmoid", balance="bias"), **_LATENT}
_MODELS = (
    ("gpt2-1.5b", _gpt(48, 1600, 25, context=1024, vocabulary=50257), "GPT-2", "Radford et al. 2019, table 2"),
    ("gpt-1.7b", _gpt(24, 2304, 24), "1.7B", f"{SC21}, table 1"),
    ("gpt-3.6b", _gpt(30, 3072, 32), "3.6B", f"{SC21}, table 1"),
    ("gpt-5.9b", _gpt(32, 3840, 32), "5.9B", f"{SC21}, figures 14 and 15"),
    ("gpt-7.5b", _gpt(36, 4096, 32), "7.5B", f"{SC21}, table 1"),
    ("gpt-18.4b", _gpt(40, 6144, 48), "18.4B", f"{SC21}, table 1"),
    ("gpt-39.1b", _gpt(48, 8192, 64), "39.1B", f"{SC21}, table 1"),
    ("gpt-76.1b", _gpt(60, 10240, 80), "76.1B", f"{SC21}, table 1"),
    ("gpt-91b", _gpt(32, 15360, 128), "91B", f"{SC21}, figure 16"),
    ("gpt-145.6b", _gpt(80, 12288, 96), "145.6B", f"{SC21}, table 1"),
    ("gpt-161b", _gpt(32, 20480, 128), "161B (printed once as 162.2B)", f"{SC21}, figure 13"),
    ("gpt3-175b", _gpt(96, 12288, 96), "GPT-3", f"{SC21}, figure 12; Brown et al. 2020, arXiv:2005.14165, table 2.1"),
    ("gpt-310.1b", _gpt(96, 16384, 128), "310.1B", f"{SC21}, table 1"),
    ("gpt-529.6b", _gpt(105, 20480, 128), "529.6B", f"{SC21}, table 1"),
    ("gpt-1t", _gpt(128, 25600, 160), "1008B", f"{SC21}, table 1"),
    ("llama2-7b", _llama(32, 4096, 32, 11008, 4096, 32000), "Llama 2 7B", "Touvron et al. 2023, arXiv:2307.09288"),
    (
        "llama3-8b",
        _llama(32, 4096, 32, 14336, 8192, 128256, kv_heads=8),
        "Llama 3 8B",
        "Dubey et al. 2024, arXiv:2407.21783, table 3",
    ),
    (
        "llama3-70b",
        _llama(80, 8192, 64, 28672, 8192, 128256, kv_heads=8),
        "Llama 3 70B",
        "Dubey et al. 2024, arXiv:2407.21783, table 3",
    ),
    (
        "llama3-405b",
        _llama(126, 16384, 128, 53248, 8192, 128256, kv_heads=8),
        "Llama 3 405B",
        "Dubey et al. 2024, arXiv:2407.21783, table 3",
    ),
    (
        "mixtral-8x7b",
        _llama(32, 4096, 32, 14336, 32768, 32000, kv_heads=8, experts=8, chosen=2),
        "Mixtral 8x7B",
        "Jiang et al. 2024, arXiv:2401.04088, table 1",
    ),
    (
        "qwen3-8b",
        _llama(36, 4096, 32, 12288, 40960, 151936, kv_heads=8),
        "Qwen3 8B",
        "Qwen Team 2025, Qwen/Qwen3-8B, config.json",
    ),
    (
        "qwen3-30b-a3b",
        _llama(48, 2048, 32, 768, 40960, 151936, kv_heads=4, per_head=128, experts=128, chosen=8),
        "Qwen3 30B, 3B active",
        "Qwen Team 2025, Qwen/Qwen3-30B-A3B, config.json",
    ),
    (
        "qwen3-235b-a22b",
        _llama(94, 4096, 64, 1536, 40960, 151936, kv_heads=4, per_head=128, experts=128, chosen=8),
        "Qwen3 235B, 22B active",
        "Qwen Team 2025, Qwen/Qwen3-235B-A22B, config.json",
    ),
    (
        "llama2-13b",
        _llama(40, 5120, 40, 13824, 4096, 32000),
        "Llama 2 13B",
        "Touvron et al. 2023, arXiv:2307.09288",
    ),
    (
        "llama2-70b",
        _llama(80, 8192, 64, 28672, 4096, 32000, kv_heads=8),
        "Llama 2 70B",
        "Touvron et al. 2023, arXiv:2307.09288",
    ),
    (
        "mixtral-8x22b",
        _llama(56, 6144, 48, 16384, 65536, 32000, kv_heads=8, experts=8, chosen=2),
        "Mixtral 8x22B",
        "Mistral AI 2024, mistralai/Mixtral-8x22B-v0.1, config.json",
    ),
    (
        "deepseek-v3",
        _llama(61, 7168, 128, 2048, 4096, 129280, experts=256, plain=(0, 1, 2), **_DEEPSEEK),
        "DeepSeek-V3 671B",
        "DeepSeek-AI 2024, arXiv:2412.19437, section 4.2",
    ),
    (
        "kimi-k2",
        _llama(61, 7168, 64, 2048, 4096, 163840, experts=384, plain=(0,), **_DEEPSEEK),
        "Kimi K2 1T",
        "Kimi Team 2025, arXiv:2507.20534, table 2; moonshotai/Kimi-K2-Instruct, config.json",
    ),
)
MODELS = {row[0]: Model(*row) for row in _MODELS}

_NCCL = "NCCL, src/graph/tuning.cc, ring of its Simple protocol: 3.4 µs on NVLink, 14 µs on a network"
_LATENCY = (3.4e-6, 14e-6)
REPORTED = {
    "h100": "nvidia-smi, 81 559 MiB: modal-labs/modal-client, pull request 2797",
    "b200": "torch.cuda, 178.35 GiB: messages of PyTorch's allocator on a B200",
    "gb200": "nvidia-smi, 189 471 MiB: printed on several systems with driver 580",
}


def _machine(name, label, node, peak, memory, bandwidth, inside, across, device, network, latency=_NCCL, **more):
    """A row of the table: other facts about the network are in the device's source."""
    known = {"node": network, "across": network, "latency": latency}
    known |= {field: device for field in ("peak", "memory", "bandwidth", "inside", "eight", "four", "host")}
    known["reported"] = REPORTED.get(name, "not known: as sold")
    known["share"] = "not known: as reached by programs of its generation"
    known |= dict.fromkeys(("pod", "oversubscription"), "a choice of each cluster; here it is one pod")
    return Machine(name, label, node, peak, memory, bandwidth, inside, across, _LATENCY, known, like=name, **more)


def _tpu(name, label, pod, peak, memory, bandwidth, links, **more):
    """A slice of a torus is one node: a ring sends over all of a chip's links at once. Slices meet over a network."""
    device = f"Google Cloud, TPU documentation, {label.split(',')[0]}: system architecture"
    network = "Austin et al. 2025, How to Scale Your Model: a data-centre network between slices, 6.25 GB/s for a chip"
    said = "taken from NCCL on NVLink: no separate figure is published"
    return _machine(name, label, pod, peak, memory, bandwidth, links, 6.25e9, device, network, said, **more)


MACHINES = {
    one.name: one
    for one in (
        _machine(
            "v100", "V100 32 GB, 8 in a node with 4 InfiniBand links of 100 Gb/s",
            8, 125e12, 32e9, 900e9, 150e9, 6.25e9,
            "NVIDIA, Tesla V100 data sheet 2018 (SXM2): NVLink 300 GB/s both ways", "NVIDIA, DGX-1 data sheet",
            host=6e9,
        ),
        _machine(
            "a100", "A100 80 GB, 8 in a node with 8 InfiniBand links of 200 Gb/s",
            8, 312e12, 80e9, 2039e9, 300e9, 25e9,
            "NVIDIA, A100 data sheet 2021 (SXM 80 GB): NVLink 600 GB/s both ways", f"{SC21}, section 5: Selene",
            host=12.5e9,
        ),
        _machine(
            "h100", "H100 80 GB, 8 in a node with 8 InfiniBand links of 400 Gb/s",
            8, 989.4e12, 80e9, 3350e9, 450e9, 50e9,
            "NVIDIA, H100 white paper 2022 (SXM5), without sparsity: NVLink 900 GB/s both ways",
            "NVIDIA, DGX H100 data sheet", eight=1978.9e12, host=50e9, reported=81_559 * 2**20,
        ),
        _machine(
            "h200", "H200 141 GB, 8 in a node with 8 InfiniBand links of 400 Gb/s",
            8, 989.4e12, 141e9, 4800e9, 450e9, 50e9,
            "NVIDIA, H200 data sheet 2024 (SXM), without sparsity: NVLink 900 GB/s both ways",
            "NVIDIA, DGX H200 data sheet", eight=1978.9e12, host=50e9,
        ),
        _machine(
            "b200", "B200 180 GB, 8 in a node with 8 InfiniBand links of 400 Gb/s",
            8, 2250e12, 180e9, 8000e9, 900e9, 50e9,
            "NVIDIA, DGX B200 data sheet 2024, without sparsity: NVLink 1.8 TB/s both ways",
            "NVIDIA, DGX B200 data sheet", eight=4500e12, four=9000e12, host=50e9, reported=178.35 * 2**30,
        ),
        _machine(
            "b300", "B300 288 GB, 8 in a node with 8 InfiniBand links of 800 Gb/s",
            8, 2250e12, 288e9, 8000e9, 900e9, 100e9,
            "NVIDIA, DGX B300 data sheet 2025, without sparsity: NVLink 1.8 TB/s both ways",
            "NVIDIA, DGX B300 data sheet", eight=4500e12, four=13500e12, host=50e9,
        ),
        _machine(
            "gb200", "GB200 NVL72, 72 GPUs of 186 GB in one NVLink domain, one link of 400 Gb/s each",
            72, 2500e12, 186e9, 8000e9, 900e9, 50e9,
            "NVIDIA, GB200 NVL72 data sheet 2024, without sparsity: NVLink 1.8 TB/s both ways",
            "NVIDIA, GB200 NVL72 data sheet", eight=5000e12, four=10000e12, host=225e9,
            reported=189_471 * 2**20,
        ),
        _machine(
            "gb300", "GB300 NVL72, 72 GPUs of 288 GB in one NVLink domain, one link of 800 Gb/s each",
            72, 2500e12, 288e9, 8000e9, 900e9, 100e9,
            "NVIDIA, GB300 NVL72 data sheet 2025, without sparsity: NVLink 1.8 TB/s both ways",
            "NVIDIA, GB300 NVL72 data sheet", eight=5000e12, four=15000e12, host=225e9,
        ),
        _machine(
            "mi300x", "MI300X 192 GB, 8 in a node with 8 links of 400 Gb/s",
            8, 1307.4e12, 192e9, 5300e9, 448e9, 50e9,
            "AMD, Instinct MI300X data sheet 2023, without sparsity: 7 links of 128 GB/s both ways",
            "AMD, Instinct MI300X platform data sheet", eight=2614.9e12, host=50e9,
        ),
        _tpu("tpu-v4", "TPU v4, pods of 4096 chips", 4096, 275e12, 32e9, 1228e9, 300e9, reported=32 * 2**30),
        _tpu("tpu-v5e", "TPU v5e, pods of 256 chips", 256, 197e12, 16e9, 819e9, 200e9),
        _tpu("tpu-v5p", "TPU v5p, pods of 8960 chips", 8960, 459e12, 95e9, 2765e9, 600e9),
        _tpu("tpu-v6e", "TPU v6e, pods of 256 chips", 256, 918e12, 32e9, 1640e9, 448e9),
    )
}  # fmt: skip


@cache
def model(name: str) -> Model:
    """The model with this name.

    raises  ValueError when the catalog has no such model

    >>> model("gpt3-175b").shape.parameters
    174615846912
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r} in the catalog: choose one of {', '.join(MODELS)}")
    return MODELS[name]


@cache
def machine(name: str) -> Machine:
    """The machine with this name.

    raises  ValueError when the catalog has no such machine

    >>> machine("a100").peak
    312000000000000.0
    """
    if name not in MACHINES:
        raise ValueError(f"there is no machine {name!r} in the catalog: choose one of {', '.join(MACHINES)}")
    return MACHINES[name]


def shape_of(model_or_name: str | Shape) -> Shape:
    """The shape of the model with this name; a `Shape` is returned unchanged.

    model_or_name  a `Shape`, or a model's name in the catalog

    raises  ValueError for a name that is not in the catalog
    """
    return model_or_name if isinstance(model_or_name, Shape) else model(model_or_name).shape
