"""Placement: the ranks of a mesh, and the part of each parameter on every rank.

Read in this order: `mesh` (ranks along named axes), `layout` (one record for each parameter), `rules` (a mode's table
{dim: axis}, from which records follow) and `peers` (the ranks that hold the same part, or add its gradients). `spans`
are intervals of a dim, `chunks` those of a sequence, `packs` are sent together. `dealing`
assigns full parameters to owners, `matrices` tells which ones some optimizers need in full, and `legal` refuses records
that do not fit a mesh. `slots` are places of experts on ranks, also of lent ones. `attended` says which positions a
position looks at. `states` are the states of one tensor along an axis. `reshard` compares the pieces of two layouts,
`moves` lists the elements that ranks exchange to go from one to the other, and a `passage` adds up their bytes.
"""
