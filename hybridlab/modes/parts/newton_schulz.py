"""Newton–Schulz: the matrix whose singular vectors are those of a given one, and whose singular values are near 1.

With X = U S Vᵀ, a polynomial of X with odd powers changes only the singular values: five times a·s + b·s³ + c·s⁵ moves
all values between about 0.003 and 1 to between about 0.7 and 1.2. It needs only matmuls, 20 m²n + 10 m³ operations for
m rows and n columns, m ≤ n.

Every element of the result depends on every element of the matrix, so a shard is not enough. But the sum over shards of
the Gram matrix is: for columns X = [X₀ X₁], X Xᵀ = X₀ X₀ᵀ + X₁ X₁ᵀ; for rows, the same with Xᵀ X.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the coefficients are theirs.
Read next: `modes.full_matrices`.
"""

from collections.abc import Callable

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
LEAST = 1e-7  # added to a norm, so that a matrix of zeros stays one


def newton_schulz(x, summed: Callable = lambda partial: partial, wide: bool | None = None):
    """A matrix with the singular vectors of x, and singular values near 1; or several, along the dims before the last
    two.

    x       in any dtype, which is also that of the computation (torch.optim.Muon uses bfloat16)
    summed  a function from the partial sum of this shard to the sum over all shards, if x is a shard
    wide    whether the Gram matrix is X Xᵀ: for shards of columns. Xᵀ X is for shards of rows; None: the smaller one

    >>> import torch
    >>> x = newton_schulz(torch.tensor([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    >>> bool(((0.6 < x.diagonal()) & (x.diagonal() < 1.3)).all()), float(x[0, 1])
    (True, 0.0)
    """
    wide = x.shape[-2] <= x.shape[-1] if wide is None else wide
    x = x if wide else x.mT
    x = x / summed(x.square().sum((-2, -1), keepdim=True)).sqrt().clamp(min=LEAST)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = summed(x @ x.mT)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT
