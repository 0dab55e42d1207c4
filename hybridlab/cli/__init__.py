"""The command line: the same verbs as the package. Each command prints text, and with --json one object at the end.

`main` turns what was typed into an exit code. `commands` has them all, `plan` the largest of them; `flags` are those
that several commands share, and `parser` shows them in groups. `output` writes what comes of it, so that it cannot fail
late.
"""
