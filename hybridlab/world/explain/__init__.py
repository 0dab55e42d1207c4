"""Explanations of failures and hangs: from the ranks' reports to one sentence.

`compare` finds mismatches, `supervise` the ranks that are stuck and where, `faults` the rank that failed first;
`places` names lines of code in the author's terms.
"""
