"""The lab on data_parallel: its figures and its exercises."""

RIGHT: dict = {}
WRONG: dict = {}
