"""Predictions: the time, memory and bytes of a schedule or a plan, computed with numpy only.

`time` simulates schedules. `bytes` computes memory and messages. `plans` searches for the best division of a model
among many devices. `search` finds the best sharding of each operator. `launch` reads a model's config and writes the
command that starts a plan in another program. `papers` has published results, and `judged` predicts every published
run.
"""
