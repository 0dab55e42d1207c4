"""Exercises: how they are asked, answered, kept and graded. What is asked stands in the room of its notebook.

`task` and `solution` are what one exercise is; `all_tasks` and `all_solutions` list those of all rooms.
Asked and answered: `answer` replies; `student` says whose numbers; `source` carries code to the ranks, where
`labs.trials` run it; `failures` has
the hints that follow what failed. `answers_file` keeps what was answered, in the form of `written`; `progress` tells
it.
Handed in: `submission` is the file, `grade` grades many, `regrade` checks one again, in the place of its own that
`confined` makes, with a `root` in which there is little.
For several rooms: `pipelines` (predictions in units of F and B), `played` (a game as an answer), `typed_schedule`,
`words` (small numbers as words).
"""
