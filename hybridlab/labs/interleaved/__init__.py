"""Notebook 13, interleaved pipelines: several thin stages per rank, predicted and run (`thin_stages`); the head as the
`longest_stage`; a pipeline as one program for all ranks (`one_program`); its `pictures`.

Its exercises are in `tasks`, their solutions in `solutions`; the program of a head in pieces is tested in `trial`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {
        "thin_stages": "LATENCIES UNIT costs length loses_from sent speed_up sweep thinned",
        "longest_stage": "WAYS head_in_pieces head_last in_blocks overheads",
        "pictures": "gain_and_loss valleys",
        "one_program": "spmd",
    },
)
