"""Predictions: what a schedule or a plan takes, computed and not run. numpy is all they need.

`time` simulates schedules, `bytes` adds up memory and messages, `plans` divides a model among many devices and searches
for the best division, `papers` holds what was published, to compare with.
"""
