"""Gates per chunk instead of per token (Titans, section 3.2, "Parameters as the Function of Chunks")."""

import torch
from torch import Tensor


def chunks_of(tokens: int, offset: int, chunk_size: int) -> int:
    """Number of chunks that ``tokens`` tokens touch, if the first is token ``offset`` of its chunk."""
    return -(-(offset + tokens) // chunk_size)


def of_tokens(gate: Tensor, tokens: int, offset: int, chunk_size: int) -> Tensor:
    """Expand a gate per chunk ``[B, chunks, H]`` to one per token ``[B, T, H]``; return a gate per token unchanged."""
    if gate.shape[1] == tokens:  # per token, or every chunk has one token
        return gate
    return gate[:, (torch.arange(tokens, device=gate.device) + offset) // chunk_size]
