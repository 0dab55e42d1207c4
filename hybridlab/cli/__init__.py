"""The command line: the same verbs as the package. Each command prints text, and with --json one object at the end.

`main` turns a command line into an exit code. `commands` has all commands, except the largest, `plan`, `reshard` and
`grading`. `flags` has the flags that several commands share, `plan_flags` those of `plan`; `lists` reads the lists
among them, and `settings` values such as p=4,t=8. `sizes` has the help texts of sizes, and `parser` shows flags in
groups, below the `examples`. `exports` writes files, and `output` prints.
"""
