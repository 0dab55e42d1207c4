"""Layouts: what lives where. Ranks and their slices (`grid_of_ranks`), groups as lines through a box (`box_of_ranks`),
matrices cut among ranks (`cuts`), images on ranks (`tiles`), bytes on each rank (`memory_bars`), what fills a card
(`anatomy`), and which stage takes from which (`stage_graph`).
"""
