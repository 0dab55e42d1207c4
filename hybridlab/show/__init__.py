"""Pictures of timelines, layouts and plans, each with a description in words and a static twin.

`timelines` draws actions and bubbles over time, `layouts` draws tensors on ranks, `plans` draws the speed of each
division of a model, and `charts` draws curves. `live` holds the interactive pictures. `paper` is below all of them,
with colours, text and sheets.
"""
