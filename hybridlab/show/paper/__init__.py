"""Paper: the material of every picture. Colours and fonts (`style`), their values on dark pages (`theme`, and
`themed_chart` for plotly), text and ticks on a sheet of SVG (`sheet`), a static picture with its description (`still`),
and a plotly chart with its static twin (`figure`)."""
