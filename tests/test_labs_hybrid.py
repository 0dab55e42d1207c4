"""The lab on hybrid: its figures and its exercises."""

RIGHT: dict = {}
WRONG: dict = {}
