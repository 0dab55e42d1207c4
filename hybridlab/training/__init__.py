"""Training: a job, its ranks, and the check that they train as one device does.

`asked` describes every argument of a job, and `make_job` makes the `job`; `affordable` judges it for this machine.
`placing` makes the job's layout and `stages` cuts the model. `run` starts the ranks; `loop` is the life of each, and
`reference` that of one process without machinery. `check` compares them by their `gaps` and makes a `report`; `replay`
stands in for `reference` where the schedule is asynchronous, `same_on_all_ranks` compares the ranks among themselves,
`formulas` says what they send. `shards` takes one row through a user's model as ranks along tp hold it, and `rehearsal`
compares its gradients before it is trained in parts. `first_weights` are those that it begins with, `trained` is what
it gives back, `rates` has the learning rate of each step. `logged` writes what a run says for TensorBoard. `nans` ends
a run whose numbers are none, `stopping` one that is asked to. `resume` saves and goes on; `out_of_core` fits a job into
a stated room. `costs` prices a job's actions, `fused_attention` has torch's meta device keep what fused kernels keep.
Rooms, the lowest first: `checkpoints` (folders on the disk), `data` (text and images), `models` (the reference models),
and above this folder's own files `dry` (the dry run).
"""
