"""The programs that students write in notebook 30: two sharded layers, attention from latents, a loss over a sharded
vocabulary, and fixed clipping."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.what.catalog import model
from hybridlab.labs.exercises.plain import integer
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.clinic import Clinic

task = partial(Task, notebook="30_megatron")
DEEPSEEK = model("deepseek-v3").shape
FIRST = (
    DEEPSEEK.width + 2
)  # tokens, whose latents are more numbers than a matrix of that width and a scale: see `_tokens`


class On(NamedTuple):
    """A run on some ranks: `how` names its special feature, `shift` is added to the logits, and `part` is the allowed
    fraction of the norm."""

    ranks: int
    how: str = ""
    shift: float = 0.0
    part: float = 0.5

    def __str__(self):
        """
        >>> print(On(4), On(2, "large logits", 1000), sep="; ")
        4 ranks; 2 ranks, large logits
        """
        return f"{self.ranks} ranks{', ' * bool(self.how)}{self.how}"


CAUSES = {  # {letter: why it is not the cause}
    "a": "Then the program would also be wrong without clipping, but it is right.",
    "b": "",
    "c": "Then Z, and with it the first loss, would differ from one process.",
    "d": "Then the ranks would also drift apart without clipping.",
}


def _pair(answer) -> Verdict:
    """All-reduces of Megatron's loss, (forward, backward)."""
    try:
        pair = tuple(map(integer, answer))
    except (TypeError, ValueError):
        pair = ()
    if len(pair) != 2:
        return False, "Answer with two whole numbers: forward, backward."
    if pair == (3, 0):
        return True, (
            "3 forward: the maximum, the logit of the target, the sum of exponentials. None backward: forward saved "
            "the softmax."
        )
    if pair == (2, 0):
        return False, (
            "That is our loss, which stacks two numbers into one all-reduce. Megatron-LM makes one all-reduce for each."
        )
    if pair[1]:
        return False, "Look at backward: which of its lines needs another rank?"
    return False, "Count torch.distributed.all_reduce in forward."


def _tokens(answer) -> Verdict:
    """The verdict on the least number of tokens for which the latents have more numbers than their weights."""
    try:
        tokens = float(answer)
    except (TypeError, ValueError, OverflowError):
        return False, "Answer with a number of tokens."
    if tokens == FIRST:
        told = f"It is {FIRST:,} tokens, for any L. Two sequences of {DEEPSEEK.context:,} tokens have more, and a step"
        return True, f"{told} has thousands."
    if tokens == FIRST - 1:
        return False, f"With {FIRST - 1:,} tokens both send the same: tokens · L = h · L + L."
    if tokens == DEEPSEEK.width:
        return False, "Nearly: which parameter has L numbers, apart from the matrix?"
    return False, "Set the numbers that both send equal: one grows with tokens, the other one does not."


ABOUT_LAYERS = {  # {words of a reply: the hint about the mistake that it reports}
    "the bias of B 2 times": (
        "g adds the tensors of all ranks. A tensor that is the same on all ranks must be added after the sum."
    ),
    "no bias of B": "MyRow keeps the full bias of its linear layer: add it after g.",
    "What does g do forward": "Each rank's x @ weight.T is a partial sum of Z, since B is cut by its inputs. MyRow "
    "ends with g.",
    "What does f do backward": "Every rank uses x for its own columns, so each rank's backward has a partial sum of "
    "the gradient of x. MyColumn begins with f, which adds them.",
    "g must not sum backward": "After the sum, each rank already has the full gradient of Z. G.backward passes it on.",
    "holds the bias of B divided": "An optimizer adds the full step to a bias. If that bias is a part of the sum, the "
    "steps of all ranks are added too.",
    "you divided the bias": "g makes the sum. After it, every rank adds the full bias, and the gradient of the bias is "
    "full too.",
    "for the bias of B": "Every rank has the same bias, and needs the same gradient for it: add the bias as a "
    "parameter, on all ranks, after the sum.",
    "its shard is": "nn.Linear keeps (outputs, inputs). Columns of A are rows of linear.weight; rows of B are columns.",
    "one all-reduce": (
        "F and G from the previous exercise do all the communication: one all-reduce in the forward, one in the "
        "backward."
    ),
}
ABOUT_LATENT = {
    "a different Z": "A rank's heads give a partial sum of Z, since the output matrix is cut by its inputs: g adds "
    "them.",
    "matrix that makes the latent": "Every rank has that matrix and the scale, but they receive gradients only from "
    "this rank's heads. Where can f be placed so that these gradients are added?",
    "scale of its norm": "The scale is used on all ranks too: its gradient comes from one rank's heads only, unless "
    "f comes after it.",
    "the part of the queries": "Every rank has only the queries for its heads, so their gradients of x must be added: "
    "the queries read f(x).",
    "gradient of x": "x goes two ways: into the queries, which differ from rank to rank, and into the latent. A "
    "gradient that is already full must not go through f again.",
}
ABOUT_LOSS = {
    "as a loss": "Subtract the largest logit of a position from all of its logits, before exp: the loss does not "
    "change.",
    "largest logit of its own shard": (
        "The largest logit is the maximum over all shards: comm.all_reduce(…, op='max')."
    ),
    "exponentials of its own shard": "The sum under the logarithm is over the full vocabulary: all-reduce the sums of "
    "all ranks.",
    "targets that are in other shards": "Only one rank has the logit of a target. The others must add 0: multiply "
    "by a mask.",
    "only where its own shard has it": "A rank that does not have the target's logit needs it too: all-reduce the "
    "masked one.",
    "the gradient of their sum": "Do not divide by the number of positions: every loss has its own softmax.",
    "a wrong gradient": "The gradient with respect to a logit is its softmax, minus 1 only for the target: on the "
    "one rank that has it.",
    "logits were sent": "Maximum, sum of exponentials, the target's logit: three numbers for each position are enough.",
}


TASKS: dict[str, Task] = {
    "megatron.layers": task(
        "Write column- and row-parallel linear layers as two classes. Both are made with `(linear, comm)` from the "
        "same full `nn.Linear` on every rank, and keep only this rank's shards, in the parameters `weight` and `bias`. "
        "When they are the layers of an MLP with GELU, they must give the same output and gradients as one process, "
        "with one all-reduce in the forward and one in the backward. Your code is tested on 2 ranks, then on 4.",
        OnCases(
            "megatron.layers:try_layers",
            first_found,
            (On(2), On(4)),
            "Output and all gradients are those of one process, with one all-reduce forward and one backward.",
            names=("MyColumn", "MyRow"),
        ),
        (
            "A by columns: rows of linear.weight, and the same entries of the bias. B by rows: columns of "
            "linear.weight. One of the two classes begins with f, the other one ends with g.",
            "linear.weight.chunk(comm.size, dim)[comm.rank] is a shard; make it a torch.nn.Parameter. The bias of B "
            "has no shards: every rank keeps all of it. Where may it be added, so that it is added once?",
            "MyColumn: torch.nn.functional.linear(F.apply(x, self.comm), self.weight, self.bias). MyRow: G.apply(x @ "
            "self.weight.T, self.comm) + self.bias.",
        ),
        about=ABOUT_LAYERS,
        objective="Write the two layers of tensor parallelism.",
        difficulty=3,
        minutes=12,
    ),
    "megatron.latent": task(
        "Write `my_attention(x, own, f, g)`: attention from latents, cut between heads. `own` holds this rank's "
        "weights: `latent` and `scale` are full on every rank; `q`, `k`, `v` and `out` are those of this rank's heads. "
        "f and g are the two operators; each takes one tensor. Return Z on all ranks. Its backward must give the "
        "gradients of one process on every rank: the full ones for `latent`, `scale` and `x`. Your code is tested on 2 "
        "ranks, then on 4.",
        OnCases(
            "megatron.latents:try_latent",
            first_found,
            (On(2), On(4)),
            "Z and all gradients are those of one process, with one all-reduce forward.",
        ),
        (
            "x = f(x) at the beginning, as for every pair, gives a right Z. Which gradients are then only partial "
            "sums?",
            "f changes nothing in the forward, and adds the gradients in the backward. It may be placed wherever a "
            "full tensor enters work on a rank's own heads; a weight can be such a tensor too.",
            "Queries: f(x) @ own.q.T. For the latent, one way is c = f(latents.norm(x @ own.latent.T, own.scale)), "
            "with the plain x; another is f(x), f(own.latent) and f(own.scale).",
        ),
        about=ABOUT_LATENT,
        objective="Say which gradients are partial sums when all heads read one latent, and add them.",
        difficulty=2,
        minutes=6,
    ),
    "megatron.latent_sums": task(
        f"DeepSeek-V3 has h = {DEEPSEEK.width} and latents of L = {DEEPSEEK.latent}. First way: f after the norm "
        "all-reduces the gradients of the latents, in every microbatch. Second way: the gradients of the latent's "
        "matrix and of its scale are all-reduced, once per step. What is the smallest number of tokens per step with "
        "which the second way sends less?",
        _tokens,
        (
            "A token's latent has L numbers. How many numbers do the matrix and the scale have?",
            "First way: tokens · L numbers. Second way: h · L + L numbers.",
            "tokens · L > (h + 1) · L; the answer is the smallest whole number of tokens for which this is true.",
        ),
        objective="Choose between adding gradients of activations and of weights.",
        difficulty=1,
        minutes=3,
    ),
    "megatron.loss": task(
        "Write the cross-entropy over a sharded vocabulary: `my_loss(logits, targets, comm)`. `logits` are this rank's "
        "columns, (positions, tokens of this rank); the first token of rank r is r · `logits.shape[1]`. `targets` are "
        "token indices in the full vocabulary. Return the loss of each position, and the gradient of their sum with "
        "respect to this rank's logits. A rank may send a few numbers for each position, and no logits. Your code is "
        "tested on 2 ranks, then on 4, then with large logits.",
        OnCases(
            "megatron.vocabulary:try_loss",
            first_found,
            (On(2), On(4), On(2, "large logits", 1000.0), On(4, "very negative logits", -1000.0)),
            "Losses and gradients are those of one process, with large logits too, and no logits were sent.",
        ),
        (
            "The loss of a position is log Σ exp(logit) - logit of the target. Which of these are sums over ranks?",
            "First subtract the largest logit of the position, over all ranks: comm.all_reduce(x, op='max'). The "
            "target of another rank adds 0 here: use a mask, and a valid index.",
            "here = (targets >= first) & (targets < first + tokens); row = (targets - first).clamp(0, tokens - 1). "
            "The gradient is exp(logit) / total, minus 1 at row where here is true.",
        ),
        about=ABOUT_LOSS,
        objective="Compute a loss from logits that no rank has in full.",
        difficulty=3,
        minutes=15,
    ),
    "megatron.source": task(
        "Read the class `_VocabParallelCrossEntropy` in Megatron-LM's "
        "`megatron/core/tensor_parallel/cross_entropy.py`. How many all-reduces does it make in `forward`, and how "
        "many in `backward`? Give a pair.",
        _pair,
        (
            "Search the file for all_reduce.",
            "Your loss needs a maximum, a sum of exponentials and the logit of the target. Theirs needs the same three "
            "numbers, one by one.",
            "There are three calls in forward. backward uses the tensors that forward saved.",
        ),
        objective="Read the loss of Megatron-LM and count what it sends.",
        difficulty=1,
        minutes=4,
    ),
    "megatron.clinic": task(
        "What is wrong with `clip`? (a) f is missing before A. (b) Each rank takes the norm of only its own gradients. "
        "(c) The bias of B is added on both ranks before the sum. (d) The learning rate differs from rank to rank. "
        "Answer with the letter and the fixed function. The function scales gradients in place, so that the norm of "
        "the full gradient is at most its argument `most`, as on one process. Your code is tested on 2 ranks, then on "
        "4, then with gradients that are small enough already.",
        Clinic(
            CAUSES,
            OnCases(
                "megatron.clinic:try_clip",
                first_found,
                (On(2), On(4), On(2, "small gradients", part=2.0)),
                "All ranks multiply by the factor of one process, and send one number to find it.",
            ),
        ),
        (
            "With clipping off everything is right. The bias of B is the same on all ranks, and so is its gradient: "
            "what multiplies it?",
            "The square of the full norm is a sum of squares over all numbers of the model, each counted once. "
            "Squares of shards are added over the ranks, those of copies are not.",
            "total = comm.all_reduce(sum of squares of shards) + sum of squares of copies; the norm is its root.",
        ),
        objective="Find why ranks drift apart, and clip by a norm on which all of them agree.",
        difficulty=2,
        minutes=8,
    ),
}
