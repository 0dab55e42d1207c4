"""The lab on megatron: its figures and its exercises."""

RIGHT: dict = {}
WRONG: dict = {}
