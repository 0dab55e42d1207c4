"""The code that students write in notebook 34: a halo exchange there and back, a strip's layer, a split of channels."""

from functools import partial
from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Span
from hybridlab.labs.convolution.trial import try_halo, try_layer, try_split
from hybridlab.labs.exercises.task import Task
from hybridlab.labs.trials.cases import OnMeshes, first_found
from hybridlab.predict.bytes.convolution import Conv

task = partial(Task, notebook="34_convolution")


class Cut(NamedTuple):
    """Pictures of two channels in strips; `have` has the rows of each rank."""

    have: tuple[Span, ...]
    kernel: int
    stride: int = 1

    @property
    def ranks(self) -> Mesh:
        return Mesh(h=len(self.have))

    @property
    def conv(self) -> Conv:
        return Conv(2, 2, 3, self.have[-1][1], 5, self.kernel, self.stride, padding=self.kernel // 2)

    def __str__(self):
        """
        >>> print(Cut(((0, 4), (4, 8)), kernel=5, stride=2))
        strips of 4, 4 rows, kernel 5 and stride 2
        """
        lengths = ", ".join(str(high - low) for low, high in self.have)
        return f"strips of {lengths} rows, kernel {self.kernel} and stride {self.stride}"


class Split(NamedTuple):
    """Channels cut into c parts, filters into f."""

    c: int
    f: int
    channels: int = 8
    filters: int = 4
    stride: int = 1

    @property
    def ranks(self) -> Mesh:
        return Mesh(c=self.c, f=self.f)

    @property
    def conv(self) -> Conv:
        return Conv(2, self.channels, self.filters, 6, 5, stride=self.stride)

    def __str__(self):
        """
        >>> print(Split(2, 2))
        c × f = 2 × 2 ranks with 8 channels and 4 filters
        """
        return f"c × f = {self.c} × {self.f} ranks with {self.channels} channels and {self.filters} filters"


HALOS = (
    Cut(even(12, 3), 3),
    Cut(even(16, 4), 5, stride=2),
    Cut(((0, 6), (6, 7), (7, 12)), 7),  # a halo that reaches beyond the neighbour
    Cut(((0, 5), (5, 5), (5, 9)), 3),  # a rank without rows
    Cut(((0, 6),), 3),
)
LAYERS = (
    Cut(even(12, 3), 5),
    Cut(even(16, 4), 5, stride=2),
    Cut(even(7, 3), 7),  # two ranks see beyond the same border
    Cut(even(6, 2), 1),
)
SPLITS = (Split(2, 2), Split(4, 1, filters=8), Split(1, 3, channels=6, filters=3), Split(3, 1, 3, 6, stride=2))


ABOUT_HALOS = {  # {words of a reply: the hint about the mistake that it reports}
    "wrong: where does it belong": "Rows are counted in the full image: row y has index y - want[me][0] in your "
    "result, and y - have[r][0] on the rank r that has it.",
    "have used it, so add their": "my_fold adds. Start with your own piece, and add_ each received piece.",
    "only its own partial sum": "Receive the gradients that other ranks have for your rows, and add all of them.",
    "some of them empty": "overlap may be empty: then there is nothing to send, and nothing to receive.",
    "is right, but sent": (
        "A halo may reach beyond the neighbour: check every rank, not only the two next to this one."
    ),
    "does not fit": "Sender and receiver must compute the same overlap: have of the sender, want of the receiver.",
}
ABOUT_A_LAYER = {
    "its part of Y has": "The convolution itself must not pad. Pad before it: above and below only at the border of "
    "the image, left and right everywhere.",
    "that of its strip alone": "W and b are the same on all ranks, and each rank uses them for its own rows: their "
    "gradients are partial sums. How does the backward of typed.enter treat them?",
    "rows of outputs wrong": "Inside the image a strip sees its neighbour's rows; at the border it sees zeros. "
    "Compare sees[me] with want[me].",
    "must return to their rank": "Rows from a neighbour have gradients: fetch them with a typed collective, whose "
    "backward folds.",
}
ABOUT_CHANNELS = {
    "What type is that": "After the gather each rank has all channels of its block, for its own filters: their "
    'gradients are partial sums, so the gathered tensor enters as "R".',
    "which sum runs over an axis": "A filter sums over all channels, and those are cut along c: add the partial sums "
    "there.",
    "words forward; ": "Use one gather along f and one reduce-scatter along c: an all-reduce sends twice as much.",
    "its part of Y has": "A reduce-scatter leaves each rank its part of the filters; dim 1 is that of channels.",
}

TASKS: dict[str, Task] = {
    "convolution.halo": task(
        "Write `my_fetch(comm, x, have, want)`: `x` holds this rank's rows, `have[comm.rank]`; return all rows of "
        "`want[comm.rank]`. And write its backward, `my_fold(comm, g, have, want)`: `g` is a gradient for the rows of "
        "`want[comm.rank]`; return the gradient for the rows of `have[comm.rank]`, including the contributions of "
        "other ranks. Send only the rows that are needed, and only to ranks that need some. Your code is tested on "
        f"{HALOS[0]}, then on uneven ones.",
        OnMeshes(
            try_halo,
            first_found,
            HALOS,
            "Rows arrive, gradients return and are added, and no extra word is sent.",
            ("my_fetch", "my_fold"),
        ),
        (
            "Rank a sends overlap(have[a], want[b]) to rank b. A rank receives one such piece from every rank with a "
            "nonempty overlap, and sends one to every such rank.",
            "First start all receives, then all sends, then wait for all. Your own piece is not sent: it is rows(x, "
            "have[me], overlap(have[me], want[me])).",
            "my_fold is the same with have and want swapped: it adds a received piece, room.add_(piece); my_fetch "
            "copies it, room.copy_(piece).",
        ),
        about=ABOUT_HALOS,
        objective="Exchange halos on real ranks, and send their gradients back to the owners.",
        difficulty=3,
        minutes=10,
    ),
    "convolution.layer": task(
        "Complete `my_layer(comm, x, w, b, have, want, sees, stride)`: this rank's outputs of a convolution with the "
        "square kernel `w` and `kernel // 2` pixels of padding on all sides of the image. `sees[r]` are the rows that "
        "the outputs of rank r see, including rows beyond the border. dX, dW and db must equal those of one device. "
        f"Your code is tested on {LAYERS[0]}, then on other strips.",
        OnMeshes(try_layer, first_found, LAYERS, "Y, dX, dW and db are those of one device."),
        (
            "Two steps are missing between the rows and the convolution. Where does the image end? And which other "
            "ranks use w and b?",
            "sees[me] and want[me] differ at the border of the image: above by want[me][0] - sees[me][0] rows. "
            "functional.pad(x, (left, right, above, below)) puts zeros.",
            'Every rank uses w and b for its own rows, so both enter: w = typed.enter(comm, w, "h"), and the same '
            "for b. Then functional.conv2d(x, w, b, stride).",
        ),
        about=ABOUT_A_LAYER,
        objective="Write the convolution of a strip, with the gradients of one device.",
        difficulty=2,
        minutes=5,
    ),
    "convolution.split": task(
        "Write `my_conv(comm, x, w, convolve)`. `x` has this rank's channels: they are cut over all ranks, first along "
        "c, then along f. `w` is its block of W: its filters along f, its channels along c. `convolve(x, w)` computes "
        "a convolution. Return this rank's part of Y, whose filters are cut first along f, then along c. Use two typed "
        f"collectives, and send no extra word. Your code is tested on {SPLITS[0]}, then on other grids.",
        OnMeshes(
            try_split, first_found, SPLITS, "Y, dX and dW are right; with c or f of 1 you have written all three forms."
        ),
        (
            "Ranks along f have different channels of the same block, and each needs all of them. Ranks along c sum "
            "over different channels: what does a rank have after its convolution?",
            'First an all-gather of x along "f", then the convolution, then a reduce-scatter of its result along "c". '
            "Both along dim 1.",
            'x = typed.all_gather(comm, x, "f", 1, to="R"); return typed.reduce_scatter(comm, convolve(x, w), "c", 1).',
        ),
        about=ABOUT_CHANNELS,
        objective="Cut channels and filters with two typed collectives, in all three forms.",
        difficulty=2,
        minutes=5,
    ),
}
