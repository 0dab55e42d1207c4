"""The law: what each kind of action takes, and what it makes. Everything else about order follows from it.

An action may run when every value that it takes has been made. That one sentence decides whether a schedule is
valid, when an action is ready, how much memory is held, which messages are sent and where the arrows are drawn.
Nothing else in this project may say it a second time.

Read a row of `LAW` aloud: *F takes the activations that come in and the whole weights; it makes the activations that go
out, what the input half will need, and what the weight half will need.*

Values
    activation        what a stage hands on; it lives on an edge of the stage graph
    gradient          the loss's derivative by that activation; on the same edge, going back. On the last edge,
                      behind the model, the gradient *is* the activation: the loss turns one into the other
    saved             what F keeps for the input half; I (or B) frees it
    input             what F keeps for the weight half; W (or B) frees it. `peak_live` counts these
    kept              what I keeps for W
    weight_gradient   the one of a single microbatch
    summed            their sum over the update window
    weights           the weights at rest, one value per version
    whole             the weights as computing needs them: gathered where a stage is sharded, else `weights` itself

Marks
    <  on every edge into the stage     >  on every edge out of it     ~  on the edge of this message
    ^  on the wire                      *  of the whole window         +  of the next version
"""

LAW = {
    "F": "activation< whole | activation> saved input",
    "C": "activation< whole | activation>",
    "R": "activation< whole | saved input",
    "B": "activation< saved input gradient> whole | gradient< weight_gradient",
    "I": "saved gradient> whole | gradient< kept",
    "W": "activation< input kept | weight_gradient",
    "SEND_F": "activation~ | ^activation~",
    "RECV_F": "^activation~ | activation~",
    "SEND_B": "gradient~ | ^gradient~",
    "RECV_B": "^gradient~ | gradient~",
    "UNSHARD": "weights | whole",
    "RESHARD": "whole | ",
    "REDUCE_GRAD": "weight_gradient* | summed",
    "OPT": "summed weights | weights+",
}
