"""Explanations of failures and hangs: from the ranks' reports to one sentence.

`compare` finds what does not fit, `supervise` who is stuck and where, `faults` who failed first; `places` names lines
of code as their author would.
"""
