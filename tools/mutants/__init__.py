"""The mutation bench: does a test fail when one line of the package is wrong?

A mutant is the package with one small mistake in one line. The bench draws some hundred of them by a seed, runs the
tests against each, and lists the mutants that no test notices. A survivor is a missing test, or a line that may as
well be the other way: `accepted.toml` names those, each with its reason.

Read in this order: `edits` (the mistakes), `words` (where none is made), `draw` (which are tried), `lanes` (child
processes on copies of the tree), `child` (pytest in one of them), `reach` (which tests execute which functions),
`trial` (the tests against one mutant), `report`.
"""
