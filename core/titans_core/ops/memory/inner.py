"""The inner gradient of single tokens (Eq. 12 and 17). It has rank one in each layer, so it is never formed."""

from torch import Tensor

from titans_core.ops.memory.activations import Activation
from titans_core.ops.memory.pieces import Layers


def rank_one(
    k: Tensor, v: Tensor, weights: Layers | tuple[Tensor, ...], phi: Activation
) -> list[tuple[Tensor, Tensor]]:
    """For each layer x ``[..., T, d]`` and delta ``[..., T, d']``; the gradient at token t is ``x_t^T delta_t``.

    Args:
        k, v: keys and values ``[..., T, .]``.
        weights: weights at which the gradient is taken, ``[..., d, d']`` per layer.
        phi: activation between the layers.
    """
    x, slopes = [k], []
    for A in weights[:-1]:
        h, slope = phi.with_slope(x[-1] @ A)
        x.append(h)
        slopes.append(slope)
    deltas = [x[-1] @ weights[-1] - v]
    for slope, A in zip(reversed(slopes), reversed(weights[1:]), strict=True):
        deltas.append((deltas[-1] @ A.mT) * slope)
    return list(zip(x, reversed(deltas), strict=True))
