"""Predict when each action of a schedule starts and ends, and so the length of a step and its bubbles.

`costs` are the durations. `simulate` executes the schedule (`compiled` and `events` do so in machine code); `case` is
its input in integer ticks. `bound` is a lower bound on the length of any order, `automatic` searches for an order, and
`out_of_core` determines which activations to keep on the device. `buckets` times gradient reductions during a backward,
`overlap` times messages during matmuls, and `with_experts` times all-to-alls during the other microbatch of a pair.
`ring` gives the number of tokens that hides the messages of ring attention, `pieces` gives the width of a matrix that
hides those of tensor parallelism, and `strips` gives the gain of one more strip of a convolution. `overlay` predicts a
measured run, and `halted` predicts what a schedule does before its deadlock. `operators` counts the FLOPs of ranks,
with repeated work, if operators are sharded. `goodput` is the useful fraction of a long run with failures, checkpoints
and slow ranks.
"""
