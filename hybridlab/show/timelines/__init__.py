"""Pictures of timelines: actions, messages and bubbles of each rank as boxes.

`spans` divides one timeline into its actions and its bubbles, `boxes` lays them out, `drawn` holds the result: boxes in
columns, with their labels. `grid` draws very many boxes as one image. `draw` is the plotly picture, `svg` is the
static one; `picture` is the data for the browser, `twin` is the same as SVG, `needs` has its arrows. `notes` are braces
and outlines that explain a period, `noted` computes their places. `buckets` draws gradient reductions during a
backward, `tracks` draws the compute and the messages of one rank, both on the sheet of `lanes`. `notebook` draws a
timeline at the end of a cell.
"""
