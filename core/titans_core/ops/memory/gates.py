"""Gates that chunks have, not tokens (Titans, section 3.2, "Parameters as the Function of Chunks")."""

import torch
from torch import Tensor


def chunks_of(tokens: int, offset: int, chunk_size: int) -> int:
    """Of how many chunks these tokens are, the first of which is the ``offset``-th of its chunk."""
    return -(-(offset + tokens) // chunk_size)


def of_tokens(gate: Tensor, tokens: int, offset: int, chunk_size: int) -> Tensor:
    """A gate of each chunk ``[B, chunks, H]`` as one of each token ``[B, T, H]``; one of tokens stays as it is."""
    if gate.shape[1] == tokens:  # of as many chunks as tokens, each has its own
        return gate
    return gate[:, (torch.arange(tokens, device=gate.device) + offset) // chunk_size]
