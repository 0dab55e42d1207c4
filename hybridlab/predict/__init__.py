"""Predictions: the time, memory and bytes of a schedule or a plan, computed with numpy only.

`time` simulates schedules, `bytes` adds up memory and messages, `plans` divides a model among many devices and searches
for the best division, `search` finds how operators are best cut, `launch` reads a model's config and writes the lines
that start a plan elsewhere. `papers` holds what was published, and `judged` predicts every run of it.
"""
