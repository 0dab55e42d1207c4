"""The runtime executes a schedule on a rank. It depends on actions and values, and on no mode.

`player` runs a list of actions, with the slots and tags of `wiring`. `message_driven` has no list: it runs each action
when its message has arrived. `work` computes the actions of a stage, and `emulated` waits instead. Work uses `halves`
(of a backward), `versions` (weights of several ages), `predicted` (of later ages), `tallies` (counts of layers during a
step), `masks` (of attention, each made once), `pending` (collectives that overlap with compute). `norms` has the
messages of a norm. `arena` is the memory of a device; `copies` moves parts of it to the host and back, and `loans` to
another rank and back. `links` measures the time of a message on each edge, and `clocks` makes a timeline from the
recorded times of all ranks.
"""
