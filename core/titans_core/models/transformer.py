"""Transformer++: full causal attention with rotary positions, the baseline of the paper's tables."""

from torch import nn

from titans_core.models.config import TitansConfig
from titans_core.nn.attention import Attention


def full_attention(config: TitansConfig) -> nn.Module:
    """Attention over all tokens. Its state grows with the context."""
    return Attention(config.dim, config.num_heads, base=config.rope_base)
