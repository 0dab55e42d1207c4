"""Pictures of timelines: actions, messages and bubbles of each rank as boxes.

`spans` cuts one timeline into its actions and its bubbles, `boxes` lays them out, `drawn` is what comes of it: boxes in
columns, with their labels. `grid` makes cells of very many. `draw` is the plotly picture, `svg` the static one;
`picture` is what the browser gets, `twin` the same as SVG, `needs` its arrows. `notes` are braces and outlines that
explain a stretch of time, `noted` computes their places. `buckets` draws gradient reductions during a backward,
`tracks` what one rank computes and sends, both on the sheet of `lanes`. `notebook` draws a timeline at the end of a
cell.
"""
