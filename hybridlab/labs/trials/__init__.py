"""Trials: a student's program, run on real ranks and checked. The folder of each notebook has its own `trial`.

The right result is computed after the student's function has returned: no frame around it holds the result.

`trial` runs it, on fresh ranks and with a time limit; `cases` runs it in the case that the question names, and then in
others; `clinic` judges a named cause together with the fixed function. On a rank: `against` compares with one device,
step by step, and counts every word; `watched` records the starts and waits of messages; `held` counts the numbers that
objects hold. `table` shows results.
"""
