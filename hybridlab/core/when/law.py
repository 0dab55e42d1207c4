"""The law: the values that each kind of action consumes and produces. Everything else about order follows from it.

An action may run when every value that it consumes has been produced. That one sentence determines whether a schedule
is valid, when an action is ready, how much memory is held, which messages are sent and where the arrows are drawn. It
is stated nowhere else in this project.

Read a row of `KIND` aloud: *F consumes the incoming activations and the full weights; it produces the outgoing
activations, and the saved activations for the input half and for the weight half.* The other fields of a row are the
remaining facts about its kind. Every list of kinds in this project is read from this table.

Values
    activation        the output of a stage; it lives on an edge of the stage graph
    gradient          the derivative of the loss with respect to that activation; on the same edge, in reverse. On the
                      last edge, after the model, the gradient *is* the activation: the loss turns one into the other
    saved             what F saves for the input half; I (or B) frees it
    input             what F saves for the weight half; W (or B) frees it. `peak_live` counts these
    kept              what I saves for W
    weight_gradient   that of a single microbatch
    summed            their sum over the update window
    weights           the weights between steps, one value per version
    whole             the full weights: gathered if a stage is sharded, else `weights` itself
    room              memory of the device that a swap has freed; an action that would not fit without it takes it
                      (`core.when.room`)
    squares           the sum of the squares of all gradients on this rank and on the ranks before it
    norm              the total of the squares, on its way back; after the last rank it *is* the squares

Marks
    <  on every edge into the stage     >  on every edge out of it     ~  on the edge of this message
    ^  on the wire, or on the host      *  of the whole window         +  the next one: of the next version of the
                                                                          weights, or after one more journey
    Squares and norm go from rank to rank: < is between this rank and the one before it, > between it and the next one.

A list with NORM says when its norm is known. If VALID comes before OPT, every rank waits for the total: a barrier. If
OPT comes first, it needs only the squares so far, and VALID may undo it (`scheduling.norms`).

Saved activations may move to the host (`SWAP_OUT`) and back (`SWAP_IN`), and are another value after each move. After
an odd number of moves they are on the host, and no action makes the value on the device.

They may also be lent to another rank, which has memory to spare, by four moves of the same two kinds. For stage 0 and
the rank of stage 3: `0SWAP_OUT0>3` on the rank of stage 0, `0SWAP_IN0>3` on that of stage 3; later back, `0SWAP_OUT0>3`
there and `0SWAP_IN0>3` here. So the law holds for a loan without another row.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of action.

    law         values that it takes | values that it makes
    meaning     a description in words
    cost        the field of `Costs` with its duration; "" if it takes no time
    lane        "compute" keeps the rank busy. All others overlap with it: "send", "receive", "reduce", and the copies
                "out" to the host and "in" from it, each on a separate engine
    microbatch  whether it works on one microbatch; else on the weights of a stage
    """

    law: str
    meaning: str
    cost: str = ""
    lane: str = "compute"
    microbatch: bool = True


# The law of a row stays on one line.
# fmt: off
KIND = {
    "F": Kind("activation< whole | activation> saved input",
        "forward", cost="F"),
    "B": Kind("activation< saved input gradient> whole | gradient< weight_gradient",
        "whole backward", cost="B"),
    "I": Kind("saved gradient> whole | gradient< kept",
        "input half of the backward (zero-bubble papers call it B)", cost="I"),
    "W": Kind("activation< input kept | weight_gradient",
        "weight half of the backward", cost="W"),
    "C": Kind("activation< whole | activation>",
        "forward that keeps only its input (checkpointed)", cost="F"),
    "R": Kind("activation< whole | saved input",
        "recomputation of a checkpointed forward", cost="recompute"),
    "OPT": Kind("summed weights squares> | weights+",
        "optimizer step", cost="optimizer", microbatch=False),
    "NORM": Kind("summed* squares< | squares>",
        "add this rank's squared gradients to those of the ranks before", microbatch=False),
    "VALID": Kind("norm> | norm<",
        "learn the norm, clip, and undo an optimizer step taken without it", microbatch=False),
    "SEND_F": Kind("activation~ | ^activation~",
        "send an activation", cost="post", lane="send"),
    "RECV_F": Kind("^activation~ | activation~",
        "receive an activation", cost="post", lane="receive"),
    "SEND_B": Kind("gradient~ | ^gradient~",
        "send a gradient", cost="post", lane="send"),
    "RECV_B": Kind("^gradient~ | gradient~",
        "receive a gradient", cost="post", lane="receive"),
    "UNSHARD": Kind("weights | whole",
        "gather the weights of a stage", cost="gather", lane="reduce", microbatch=False),
    "RESHARD": Kind("whole | ",
        "let the gathered weights go", lane="reduce", microbatch=False),
    "REDUCE_GRAD": Kind("weight_gradient* | summed",
        "sum the weight gradients over the copies of a stage", cost="reduce", lane="reduce", microbatch=False),
    "SWAP_OUT": Kind("saved input | ^saved+ ^input+ room",
        "copy what F keeps to the host, and free it on the device", cost="swap", lane="out"),
    "SWAP_IN": Kind("^saved ^input | saved+ input+",
        "copy what F keeps back from the host", cost="swap", lane="in"),
}
# fmt: on

LAW = {name: kind.law for name, kind in KIND.items()}


def takes(kind: str) -> list[str]:
    """The values that a kind of action takes, with their marks.

    >>> takes("W")
    ['activation<', 'input', 'kept']
    """
    return LAW[kind].split("|")[0].split()


def makes(kind: str) -> list[str]:
    """The values that a kind of action makes, with their marks.

    >>> makes("B")
    ['gradient<', 'weight_gradient']
    """
    return LAW[kind].split("|")[1].split()


def makers(value: str) -> tuple[str, ...]:
    """The kinds of action that make a value.

    >>> makers("weight_gradient"), makers("activation>")
    (('B', 'W'), ('F', 'C'))
    """
    return tuple(kind for kind in LAW if value in makes(kind))
