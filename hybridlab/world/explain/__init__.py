"""Explanations of failures and hangs: from the ranks' reports to one sentence.

`compare` finds mismatches, `supervise` finds the stuck ranks and their places, `faults` finds the first failure;
`places` names lines of code in the author's terms.
"""
