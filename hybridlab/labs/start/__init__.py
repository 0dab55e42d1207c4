"""Notebooks 00 and 01, the start and the tour. Their exercises are in `tasks`, the solutions in `solutions`."""
