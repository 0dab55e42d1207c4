"""Measurements of a machine, and their record. Read `record` and `row` first, then a suite; `doctor` examines and
advises.

Suites: `cpu_suite`, `gpu_suite` (`gpu_rank` and `gpu_answers` are its processes), `course_suite` (the notebooks);
`recorded` reads what they left. What is timed runs on the device of a rank, by the clocks of `timed`, and each row of
a record names that device. `machine` says what a machine has, `cards` how its GPUs are set, `startup` how soon ranks
are ready, `links` how long messages take, `here` makes a machine of the catalog of it. `one_device`, `saved`,
`grid_layers` and `strip_layers` time pieces of a step; `strategies` times the pieces of a graph of operators, and whole
steps.
"""
