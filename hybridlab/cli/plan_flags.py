"""The flags of the command `plan`, in groups."""

from hybridlab.cli.settings import fields
from hybridlab.cli.sizes import OF_A_PLAN

FIXED = {"pp": "p", "tp": "t", "dp": "d", "microbatch": "b", "chunks": "v", "x": "x", "owners": "z"}
FIXED |= {"cp": "cp", "ep": "ep"}  # flags, and the sizes of a plan that they fix
STARTS = ("megatron", "torchtitan")  # programs for which a plan has lines
MOST_RANKS = 8  # the most ranks that --run starts on this machine


def add_flags(one):
    for title, adds in (
        ("model and machine", _add_question),
        ("what to search", _add_search),
        ("fields of the plan", _add_fixed),
        ("what to do with the best plan", _add_answer),
    ):
        one.begin(title)
        adds(one)


def _add_question(one):
    """The flags for the model and the machine."""
    from hybridlab.predict.plans.software import SOFTWARE

    with one.either():
        one.flag("--model", metavar="NAME", default="gpt3-175b", help="a model from the catalog (default gpt3-175b)")
        one.flag("--config", metavar="FILE", help="a Hugging Face config.json, instead of --model")
    one.flag(
        "--machine",
        metavar="NAME",
        default="a100",
        help="a machine from the catalog: a100 (default), h100, gb200, tpu-v5p, …; or a TOML file that describes one",
    )
    one.flag(
        "--memory",
        type=float,
        metavar="X",
        help="usable memory of one device in bytes, such as 72e9 (default 95%% of its total)",
    )
    one.flag(
        "--pod",
        type=int,
        metavar="N",
        help="number of devices that are connected without the spine network (default all)",
    )
    one.flag(
        "--oversubscription",
        type=float,
        metavar="X",
        help="the pod's aggregate bandwidth divided by its uplink bandwidth (default 1)",
    )
    one.flag("--gpus", type=int, metavar="N", required=True, help="number of GPUs; the plan uses all of them")
    one.flag("--batch", type=int, metavar="N", required=True, help="sequences in the global batch")
    one.flag("--context", type=int, metavar="N", help="tokens in a sequence, instead of the model's own context")
    one.flag("--tokens", type=float, metavar="X", help="total training tokens; also prints days and GPU-hours")
    one.flag("--price", type=float, metavar="X", help="price of one GPU-hour; with --tokens, the cost is printed too")
    one.flag(
        "--software",
        metavar="NAME",
        help=f"the framework whose overlap is assumed (default: the machine's usual one): {', '.join(SOFTWARE)}",
    )
    told = "precision of matmuls with weights: bf16 (default), fp8 or fp4"
    one.flag("--precision", metavar="NAME", default="bf16", help=told)
    one.flag(
        "--took",
        type=fields,
        metavar="SIZES",
        help="calibrate with one step from your logs, such as p=4,t=8,d=2,seconds=9.1",
    )


def _add_search(one):
    """The flags that extend the search."""
    one.flag(
        "--grids",
        action="store_true",
        help="also consider AxoNN grids: the width sharded along x, weights sharded over owners",
    )
    one.flag("--with-cp", action="store_true", dest="contexts", help="also consider context parallelism")
    one.flag("--with-ep", action="store_true", dest="experts", help="also consider expert parallelism")
    told = "set the number of token slices of a row; without N, search for the best number"
    one.flag("--slices", type=int, nargs="?", const=True, metavar="N", help=told)
    one.flag("--uneven", action="store_true", dest="stages", help="also consider stages of unequal length")


def _add_fixed(one):
    """The flags that set fields of the plan; the others are searched."""
    for flag, field in FIXED.items():
        one.flag(f"--{flag}", type=int, metavar="N", help=f"set the number of {OF_A_PLAN[field]}")
    told = "only plans with this schedule: 1f1b, interleaved, seq1f1b or vocabulary_1f1b"
    one.flag("--schedule", metavar="NAME", help=told)
    one.flag("--sums", metavar="NAME", help="local: replicas step alone, and exchange their updates only occasionally")
    one.flag("--sync-every", type=int, metavar="N", help="the same with N steps between two exchanges (default 2)")
    told = "the same with N groups of layers, which are exchanged at different steps (default 1)"
    one.flag("--fragments", type=int, metavar="N", help=told)
    told = "the same with N steps that hide an exchange, before its result is used (default 0)"
    one.flag("--sync-delay", type=int, metavar="N", help=told)
    one.flag("--zero", type=int, metavar="N", help="set the ZeRO stage, 0 to 3")
    one.flag("--recompute", metavar="NAME", help="set what is recomputed: none, selective or full")
    told = "with sequence parallelism: send tp's messages in pieces during their matmuls; the hidden time is predicted"
    one.flag("--overlap", action="store_true", default=None, help=told)
    one.flag("--directions", type=int, metavar="N", help="with --overlap: directions in which pieces travel, 1 or 2")
    told = "set how keys and values reach the queries along cp: gather, ring, ulysses or usp"
    one.flag("--attend", metavar="NAME", help=told)
    told = "set the number of ranks that exchange heads with usp (inside a node)"
    one.flag("--ulysses", type=int, metavar="N", help=told)
    one.flag("--zigzag", action="store_true", default=None, help="balance causal attention along cp (zigzag order)")
    one.flag("--dispatch", metavar="NAME", help="set how tokens are sent to experts along ep: all_to_all or all_gather")
    one.flag("--fold", action="store_true", default=None, help="distribute whole experts over the tp and cp ranks too")
    one.flag("--skew", type=float, metavar="X", help="Zipf exponent of the load of experts (default 0: equal load)")
    with one.either():
        one.flag("--fused", action="store_true", default=None, help="assume fused attention, which stores no scores")
        one.flag("--unfused", action="store_false", dest="fused", help="assume attention that stores its scores")
    one.flag("--spread-head", action="store_true", default=None, help="shard the head over the stages")
    one.flag("--two-levels", action="store_true", default=None, help="with --owners: all replicas shard Adam's state")
    told = "with ZeRO 3: number of neighbouring ranks that share a second copy of the weights"
    one.flag("--secondary", type=int, metavar="N", help=told)
    one.flag("--further", type=int, metavar="N", help="let the model predict N more tokens (default 0)")
    one.flag("--optimizer", metavar="NAME", help="optimizer whose state is counted: adamw (default) or muon")


def _add_answer(one):
    """The flags for using the best plan."""
    one.flag(
        "--run",
        action="store_true",
        help="check a small version of the best plan on this machine: two ranks along each axis, and a small model; "
        f"with more than {MOST_RANKS} ranks, dry-run its first rank",
    )
    one.flag(
        "--trace",
        nargs="+",
        metavar="FILE",
        help="compare the best plan with traces of torch.profiler, from ranks that ran it",
    )
    one.flag("--start", choices=STARTS, help="print the command lines that start the best plan with this framework")
    one.flag(
        "--why",
        type=fields,
        metavar="SIZES",
        help="explain why a plan with these sizes, such as t=16,p=4, is not the best",
    )
    one.flag(
        "--what-if",
        type=fields,
        metavar="SIZES",
        help="change these sizes of the best plan, for example t=4, and as few other fields as possible",
    )
