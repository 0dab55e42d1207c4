"""The command line: the same verbs as the package. Each command prints text, and with --json one object at the end.

`main` turns what was typed into an exit code. `commands` has them all, `plan` the largest of them; `flags` are those
that several commands share, `sizes` says what sizes mean, and `parser` shows flags in groups, below the `examples`.
`exports` writes files, and `output` the rest, so that neither fails late.
"""
