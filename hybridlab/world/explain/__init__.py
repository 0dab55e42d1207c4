"""Why a run failed or hangs: from what the ranks said to one sentence.

`compare` finds what does not fit, `supervise` who is stuck and where, `faults` who failed first; `places` names lines
of code as their author would.
"""
