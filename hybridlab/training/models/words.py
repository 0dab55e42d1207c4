"""Errors of torch, and tensors, in words of one sentence."""

from hybridlab.training.models.trees import flat

OF_ONE_DTYPE = (
    "constants must take the dtype of the numbers that they meet, constant.to(x.dtype), and integers that of a weight, "
    'x.to(weight.dtype) for x.float(); or give dtype="float32"'
)
REMEDIES = {  # words in torch's errors that name a wrong cause
    "does not require grad": "layers also run without gradients, so use torch.enable_grad() around torch.autograd.grad",
    "expected scalar type": OF_ONE_DTYPE,
    "must have the same dtype": OF_ONE_DTYPE,
}


def said(error) -> str:
    """An error in words, with the remedy if torch's words name another cause."""
    told = str(error).splitlines()[0] if str(error) else ""
    remedy = next((f"; {remedy}" for words, remedy in REMEDIES.items() if words in told), "")
    return f"{type(error).__name__}: {told}{remedy}"


def shapes(arrived) -> str:
    """Tensors in words: the shape and dtype of each."""
    return ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for one in arrived for x in flat(one))
