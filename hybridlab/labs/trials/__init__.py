"""Trials: a student's program, run on real ranks and checked. The folder of each notebook has its own `trial`.

What is right is made when the student's function has returned: no frame around it holds the result.

`trial` runs it, on fresh ranks and with a time limit; `cases` in the case that the question names, then in others;
`clinic` judges a named cause together with what was mended. On a rank: `against` compares with one device, step by
step, and counts every word; `watched` notes what is begun and waited for; `held` counts what objects hold. `table`
shows results.
"""
