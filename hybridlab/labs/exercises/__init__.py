"""Exercises: asking, answering, saving and grading. The questions are in the folders of their notebooks.

`task` and `solution` are what one exercise is; `all_tasks` and `all_solutions` list those of all rooms.
Asked and answered: `answer` replies; `student` says whose numbers; `failures` has the hints that follow what failed.
`answers_file` keeps what was answered, in the form of `written`; `progress` tells it.
Code in writing: `source` is a text that makes a function again, which `labs.trials` run; its `parts` are what the
function needs: each a `definition`, one of the `imports`, or a value.
Handed in: `submission` is the file, `grade` grades many, `regrade` checks one again, in the place of its own that
`confined` makes, with a `root` in which there is little.
For several rooms: `pipelines` (predictions in units of F and B), `played` (a game as an answer), `typed_schedule`,
`words` (small numbers as words).
"""
