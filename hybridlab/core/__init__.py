"""The two central values, schedules and layouts, and the description of a model. Pure: standard library and numpy.

`when` has schedules, the law and timelines. `where` has meshes, layouts and rules. `what` has the shapes of models,
operators, and the catalog of models and machines. There are also some files: `dry` (the result of a dry run), `layer`
(one layer's messages), `operations` (the names of a ledger's rows), `afford` (whether this machine can run a job),
`files` (checks of the user's file names), `beside` (the folders of notebooks and records), `amount` (a number or an
array), `added` (their sum).
"""
