"""Pictures: each is made from a timeline, a layout or plans; each has its words, and a static twin.

`timelines` draws what happens when, bubbles too; `layouts` what lives where; `plans` how good divisions of a model are;
`charts` curves over axes. `live` holds what answers to a click. `paper` is below all of them: colours, text, sheets.
"""
