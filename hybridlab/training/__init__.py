"""Training: a job, its ranks, and the check that they train as one device does.

`asked` describes every argument of a job, and `make_job` makes the `job`; `unused` refuses arguments without effect,
and `affordable` checks the job's size for this machine. `placing` makes the job's layout and `stages` cuts the model.
`run` starts the ranks; `loop` is the training loop of each rank, and `reference` is that of one process without
parallel code. `check` compares them by their `gaps` and makes a `report`. `replay` replaces `reference` for
asynchronous schedules, and `replay_copies` for copies that step alone; `same_on_all_ranks` compares the ranks among
themselves, and `formulas` lists their messages. `shards` sends one row through a user's model as the ranks along tp
hold it, and `rehearsal` compares its gradients before it is sharded. `first_weights` are the initial weights, `trained`
is the result, `rates` gives the learning rate of each step. `optimizers` are the optimizers by name, one of them in
`muon`; `validated` takes their step before the norm is known, and undoes it. `held` counts a rank's memory. `logged`
writes events for TensorBoard. `nans` ends a run at the first nan, `stopping` ends it on request. `resume` saves and
resumes a run; `reshard` plans the way to another layout in memory, and `resharded` takes it on a rank. `out_of_core`
fits a job into a given memory capacity. `costs` predicts the times of a job's actions; `fused_attention` makes torch's
meta device save the same tensors as fused kernels. Folders, the lowest first: `checkpoints` (on the disk), `data` (text
and images), `models` (the reference models), and above this folder's own files `dry` (the dry run).
"""
