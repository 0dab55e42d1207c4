"""The runtime: executes a schedule on a rank. It depends on actions and values, and on no mode.

`player` runs a list of actions; `message_driven` plays without one, and does what has arrived. `work` says what a stage
does when its turn comes: compute for real, or wait. Parts of it: `halves` (a backward in two halves), `versions`
(weights of several ages), `tallies` (what layers count during a step), `masks` (of attention, made once), `pending`
(collectives that overlap with compute). `arena` is the memory of a device, `copies` carries parts of it to the host and
back. `clocks` makes a timeline from the notes of all ranks.
"""
