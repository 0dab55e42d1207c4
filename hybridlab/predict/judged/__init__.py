"""Judged: all published runs, predicted without being fitted, and the error of each prediction.

`run` is one row of a table as something to predict. `megatron`, `sharded` and `sc21_runs` read the tables. `calibrated`
fits the one number that a machine and its programs have, on other sources; `scores` adds up the errors, `bars` says how
far off a plan may be, and `explained` names the causes of the largest errors.
"""
