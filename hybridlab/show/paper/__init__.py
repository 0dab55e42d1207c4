"""Paper: the material of every picture. Colours and fonts (`style`), text and ticks on a sheet of SVG (`sheet`), a
picture that does not move (`still`), and a plotly chart with its twin (`figure`).
"""
