"""The two central values, schedules and layouts, and the description of a model. Pure: standard library and numpy.

`when`: what happens when, so schedules, the law, timelines. `where`: what lives where, so meshes, layouts, rules.
`what`: what is shared out, so shapes, operators, the catalog of models and machines. Beside these rooms: `dry`, the
result of a dry run; `operations`, the names of a ledger's rows; `afford`, whether this machine can serve a job;
`files`, the checks of file names that users give; `beside`, where notebooks and records are; `amount`, a number or an
array of them; `added`, their sum.
"""
