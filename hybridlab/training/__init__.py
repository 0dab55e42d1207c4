"""Training: a job, its ranks, and the check that they give the results of one device.

`asked` describes every argument of a job, and `make_job` makes the `job`; `unused` refuses arguments without effect,
and `affordable` checks the job's size for this machine. `placing` makes the job's layout and `stages` cuts the model.
`run` starts the ranks; `loop` is the training loop of each rank, and `reference` is that of one process without
parallel code. `check` trains both, `compare` finds their `gaps`, `report` prints them. `replay` replaces `reference`
for asynchronous schedules, and `replay_copies` for copies that train alone; `same_on_all_ranks` compares the ranks
among themselves, `elsewhere` one of them with this process, and `formulas` lists their messages. `shards` sends one row
through the shards of a user's model on ranks along tp, and `rehearsal` compares its gradients before it is sharded;
`split_backward` compares those of a backward in two halves. `first_weights` are the initial weights, `trained` is the
result, `rates` gives the learning rate of each step. `optimizers` are the optimizers by name, one of them in `muon`;
`validated` takes their step before the norm is known, and undoes it. `held` counts a rank's memory. `logged` writes
events for TensorBoard. `nans` ends a run at the first nan, `unchanged` at a step that changes a buffer, `stopping` on
request. `resume` saves and resumes a run; `reshard` plans the change to another layout in memory, and `resharded` makes
it on a rank. `out_of_core` fits a job into a given memory capacity. `costs` predicts the times of a job's actions;
`fused_attention` makes torch's meta device save the same tensors as fused kernels. Folders, the lowest first:
`checkpoints` (on the disk), `data` (text and images), `models` (the reference models), and above this folder's own
files `dry` (the dry run).
"""
