"""Exercises: how they are asked, answered, kept and graded. What is asked stands in the room of its notebook.

`task` and `solution` are what one exercise is; `all_tasks` and `all_solutions` list those of all rooms. `answer`
replies, `trial` runs an answer that is code, `record` keeps what was answered, `progress` tells it, `grade` grades many
students.
"""
