"""Examples: three commands for each verb, shown above its flags. A test reads each of them as `main` does."""

EXAMPLES = {  # {command: the words after its name}
    "": (
        ("check --dp 2 --pp 2 --zero 1", "does this layout give the results of one device?"),
        ("simulate --schedule gpipe --svg gpipe.svg", "draw a schedule"),
        ("plan --gpus 1024 --batch 1536", "how to divide GPT-3 among 1,024 GPUs"),
    ),
    "doctor": (("", "what works on this machine"), ("--json", "the same as JSON")),
    "schedule": (
        ("--schedule gpipe", "GPipe on 4 ranks, with 8 microbatches"),
        ("--schedule interleaved --chunks 2 --lower", "two stages on each rank, with all messages"),
        ("mine.txt --csv mine.csv", "read and check your own schedule"),
    ),
    "simulate": (
        ("--schedule zb_h1 --I 1 --W 1", "a backward in two halves, of one unit each"),
        ("--schedule gpipe --latency 0.5 --svg gpipe.svg", "draw it, with messages of half a unit"),
        ("mine.txt --html mine.html", "draw your own schedule on a web page"),
    ),
    "run": (
        ("--schedule gpipe", "four processes that wait instead of computing"),
        ("--schedule 1f1b --F 0.05 --B 0.1 --save run.json", "a forward takes 50 ms"),
        ("--work model --ranks 2 --width 64", "two processes that compute a small transformer"),
    ),
    "check": (
        ("--dp 2 --pp 2", "two replicas of a pipeline with two stages"),
        ("--dp 2 --tp 2 --zero 3 --sequence", "FSDP together with tensor parallelism"),
        ("--pp 4 --schedule zb_h1 --model resnet", "a zero-bubble schedule for another model"),
    ),
    "train": (
        ("--pp 2 --steps 50", "a small GPT on two pipeline ranks"),
        ("--dp 2 --pp 2 --steps 50 --checkpoint run", "with a checkpoint at the end"),
        ("--tp 4 --steps 99 --checkpoint run --resume", "continue that run under a different layout"),
    ),
    "reshard": (
        ("--pp 4 --to tp=4", "from four stages to four shards of each layer"),
        ("--pp 4 --to tp=4 --check", "continue training, and compare with one device"),
        ("--dp 4 --zero 1 --to dp=2,tp=2,zero=0 --svg moves.svg", "draw who sends what to whom"),
    ),
    "dry-run": (
        ("--dp 2 --pp 2 --zero 1", "the first rank of four"),
        (
            "--model gpt3-175b --tp 8 --pp 8 --dp 48 --batch 1536 --microbatches 32 --zero 1 --rank 17",
            "one rank of 3,072",
        ),
        (
            "--model gpt3-175b --tp 8 --pp 16 --batch 32 --microbatches 32 --machine h100 --recompute full",
            "does it fit into an H100?",
        ),
    ),  # fmt: skip
    "plan": (
        ("--gpus 1024 --batch 1536", "GPT-3 on A100s"),
        ("--gpus 64 --batch 256 --model mixtral-8x7b --machine h100 --with-ep", "with expert parallelism"),
        ("--gpus 1024 --batch 1536 --why t=16", "why not 16 tensor-parallel ranks?"),
    ),
    "measure": (
        ("", "run the CPU suite, and save its record in results/"),
        ("--suite course --only 01_tour", "run one notebook"),
        ("--suite machine --out here", "write a file for plan --machine here/….toml"),
    ),
    "demo": (
        ("", "write build/report.html"),
        ("--steps 20", "train for fewer steps"),
        ("--data mine.txt --out mine.html", "train on your own text"),
    ),
    "notebooks": (
        ("", "copy the notebooks into mine/"),
        ("course", "copy them into course/"),
        ("course --json", "what was copied and what was kept, as JSON"),
    ),
    "grade": (
        ("submissions", "grade all files in a folder"),
        ("submissions --seconds 60", "at most a minute for each submission"),
        ("submissions --jobs 4 --assignment 11_gpipe --csv grades.csv", "grade one notebook for a class"),
    ),
}


def shown(command: str) -> str:
    """The examples of a command as text; for "", those of all commands.

    >>> print(shown("doctor"))
    examples:
      hybridlab doctor         what works on this machine
      hybridlab doctor --json  the same as JSON
    """
    lines = [(" ".join(filter(None, ("hybridlab", command, typed))), told) for typed, told in EXAMPLES[command]]
    width = min(60, max(len(line) for line, _ in lines))
    return "\n".join(["examples:", *(f"  {_line(line, told, width)}" for line, told in lines)])


def _line(line: str, told: str, width: int) -> str:
    return f"{line.ljust(width)}  {told}" if len(line) <= width else f"{line}\n{' ' * (width + 4)}{told}"
