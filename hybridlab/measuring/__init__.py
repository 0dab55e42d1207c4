"""What a machine can do, and a record of it. Read `record` first, then a suite; `doctor` looks and advises.

What is timed runs on the device of a rank, by the clocks of `timed`, and each row of a record names that device.
`strategies` times the pieces of a graph of operators, and whole steps.
"""
