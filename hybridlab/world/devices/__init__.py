"""The devices of ranks, and the backends of their messages.

`driver` queries NVIDIA's driver and torch for the GPUs, and `gpus` determines which of them can be used. `placement`
chooses the backend and the device of each rank, and `meet` applies it. If another program starts the ranks,
`surroundings` places them by the devices that they see.
"""
