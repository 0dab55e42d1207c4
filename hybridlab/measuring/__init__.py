"""Measure a machine, and record the results.

Read `record` and `row` first, then a suite. `doctor` examines a machine and gives advice.

Suites: `cpu_suite`, `gpu_suite` (`gpu_rank` and `gpu_answers` are its processes), `course_suite` (the notebooks), and
`machine_suite` (a file for `hl.plan`); `recorded` reads the records of the course. The clocks of `timed` measure work
on the device of a rank, and each row of a record names that device. `machine` has the facts about a machine, `cards`
has the settings of its GPUs. `startup` measures the time until ranks are ready, `links` measures the time of messages,
and `here` turns the results into a `Machine` as in the catalog. `one_device`, `saved`, `grid_layers` and `strip_layers`
measure parts of a step; `strategies` measures the pieces of a graph of operators, and full steps.
"""
