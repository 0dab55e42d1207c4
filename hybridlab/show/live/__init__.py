"""Live: interactive pictures in a notebook or a browser; all JavaScript and CSS.

`explorer` (timelines with sliders), `game` (you are the scheduler; `board`
is its static picture), `chooser` (a picture with buttons), `stepper`
(pictures in turn), `pressed` (a picture with parts to press), `replay` (parts that appear one after another),
`rank_box` (a rank highlights its groups), `moving` (chunks that move around a ring, blocks on a grid), pictures
`linked` with words (`bubble_formula`, `cut_model`), a `calculator` of memory and time; those from `rank_box` on are
`shown` without a kernel too. `quickly` simulates a schedule, `attempt` shows a run on real ranks while it goes on,
`typed_text` reads a schedule that a student types, `module` joins the JavaScript. `page` and `report` write files that
need no server; `embedded` puts live pictures into such a page.
"""
