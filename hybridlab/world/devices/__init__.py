"""The devices of ranks, and the backends of their messages.

`driver` asks NVIDIA's driver and torch which GPUs there are, and `gpus` tells which of them can be used. `placement`
says which backend and device each rank gets, and `meet` does it. Where somebody else starts the ranks, `surroundings`
places them by what they find.
"""
