"""Layouts: ranks and their slices (`grid_of_ranks`), groups as lines through a box (`box_of_ranks`) and what they do in
a step (`step_in_box`), chunks on a ring (`ring_of_ranks`) and blocks on a grid (`matmul_on_grid`), in steps by
`moving_parts`, matrices cut among ranks (`cuts`), layers cut into devices (`slabs`), images on ranks (`tiles`), bytes
on each rank (`memory_bars`), the parts of a device's memory (`anatomy`), the edges between stages (`stage_graph`), a
layer's messages (`one_layer`), and the messages from one layout to another (`passage_matrix`).
"""
