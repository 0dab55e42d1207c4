"""Notebook 22, ZeRO and FSDP: memory and bytes counted on real ranks (`on_ranks`), what a rank keeps and sends
(`plan`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`.
"""
