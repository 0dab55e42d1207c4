"""Predict all published runs without fitting them, and compute the error of each prediction.

`run` is one row of a table with the inputs of its prediction. `megatron`, `sharded`, `sc21_runs` and `on_tpus` read the
tables. `calibrated` fits one number for a machine and its programs on other sources. `scores` summarizes the errors,
`bars` gives the error of a new prediction, and `explained` gives the reasons of the largest errors. `held_out` tests
errors and bars on sources from which they were not computed, and `others` has runs of other tables and other
predictors. `peaks` compares measured memory with its prediction. `on_gpus` lists the published measurements for each
notebook, `points` has their predictions, and `blocks` has those of a block that we measured.
"""
