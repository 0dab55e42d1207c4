"""Exercises: asking, answering, saving and grading. The questions are in the folders of their notebooks.

One exercise is a `task` and a `solution`; `all_tasks` and `all_solutions` list those of all notebooks.
Asking and answering: `answer` replies; `plain` reads the numbers of an answer; `student` chooses the numbers of a
question; `failures` has the hints for a known mistake. Saving: `answers_file` stores answers, in the form of `written`;
`progress` reports them. Code as text: `source` is a text that defines a function again, so that `labs.trials` can run
it; its `parts` are the names that the function needs: each a `definition`, one of the `imports`, or a value. Grading:
`submission` is the file, `grade` grades many of them, `graded_before` keeps their rows, `class_reports` has the reports
of a class, `regrade` checks one again in the sandbox made by `confined`, with a minimal `root`. For several notebooks:
`pipelines` (predictions in units of F and B), `played` (a game as an answer), `typed_schedule`, `words` (small numbers
as words).
"""
