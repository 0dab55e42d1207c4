"""Judged: all published runs, predicted without being fitted, and the error of each prediction.

`run` is one row of a table as something to predict. `megatron`, `sharded` and `sc21_runs` read the tables. `calibrated`
fits the one number that a machine and its programs have, on other sources; `scores` adds up the errors, and `explained`
says of the largest what they come from.
"""
