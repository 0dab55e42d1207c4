"""Predictions: what a schedule or a plan takes, computed and not run. numpy is all they need.

`time` simulates schedules, `bytes` adds up memory and messages, `plans` divides a model among many devices and searches
for the best division, `search` finds how operators are best cut, `launch` reads a model's config and writes the lines
that start a plan elsewhere. `papers` holds what was published, and `judged` predicts every run of it.
"""
