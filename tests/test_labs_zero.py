"""The lab on zero: its figures and its exercises."""

RIGHT: dict = {}
WRONG: dict = {}
