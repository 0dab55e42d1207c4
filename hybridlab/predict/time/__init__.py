"""Time: the begin and end of each action of a schedule, from costs, and so its bubbles and its length.

`costs` are the durations, `simulate` executes the schedule (`compiled` does so in machine code, `events`), `bound` is a
length that no order beats, `automatic` finds an order itself, `out_of_core` what to keep on the device. `buckets` times
gradient reductions during a backward, `overlap` messages during matmuls, `with_experts` all-to-alls during the other
microbatch of a pair; `ring` says from how many tokens ring attention hides its messages, `strips` when one more strip
of a convolution is worth it. `overlay` predicts a run that was measured. `operators` tells what ranks compute, and
compute twice, where operators are shared out. `goodput` is what failures, saves and slow ranks leave of a long run.
"""
