"""Streaming causal attention: full, sliding-window, or within a segment, each with persistent tokens.

The attention product itself is PyTorch's ``scaled_dot_product_attention``. This module adds the projections, the masks
and the state kept between calls.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titans_core.checks import at_least
from titans_core.nn.convolution import CausalConv
from titans_core.nn.layers import part_of
from titans_core.nn.rotary import rotate, turns
from titans_core.ops.memory.lengths import at_most


@dataclass(frozen=True)
class AttentionState:
    """Keys and values that later tokens can still attend to.

    Attributes:
        keys: ``[B, H, n, d]``, already rotated to their positions.
        values: ``[B, H, n, d]``.
        tail: last inputs of the convolution, ``[B, conv_size - 1, 3 dim]``, or None.
        position: position of the next token.
    """

    keys: Tensor
    values: Tensor
    tail: Tensor | None
    position: int


@dataclass(frozen=True)
class SegmentState:
    """Keys and values of the current segment.

    Attributes:
        context_keys, context_values: those of the retrieved context, ``[B, H, n, d]``.
        keys, values: those of the segment's tokens, ``[B, H, n, d]``.
        tail: last inputs of the convolution, ``[B, conv_size - 1, 3 dim]``, or None.
    """

    context_keys: Tensor
    context_values: Tensor
    keys: Tensor
    values: Tensor
    tail: Tensor | None

    def ended(self) -> "SegmentState":
        """Return the state at the start of the next segment."""
        empty = self.keys.new_empty(*self.keys.shape[:2], 0, self.keys.shape[3])
        return SegmentState(empty, empty, empty, empty, self.tail)


class _Projections(nn.Module):
    """Query, key, value and output projections, rotary positions and persistent tokens."""

    def __init__(self, dim: int, num_heads: int, num_persistent: int, conv_size: int, base: float) -> None:
        super().__init__()
        if dim % (4 * num_heads):
            raise ValueError(
                f"dim must be a multiple of 4 * num_heads (rotary positions rotate half of each head in pairs), "
                f"got dim={dim} and num_heads={num_heads}."
            )
        self.dim, self.num_heads, self.base = dim, num_heads, base
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.conv = CausalConv(3 * dim, conv_size) if conv_size else None
        self.out = nn.Linear(dim, dim, bias=False)
        self.persistent = nn.Parameter(torch.randn(num_persistent, dim)) if num_persistent else None

    def _tokens(self, x: Tensor, position: int, tail: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Project tokens ``[B, T, dim]`` from ``position`` on: q, k, v ``[B, H, T, d]`` and the convolution tail."""
        qkv = self.qkv(x)
        if self.conv is not None:
            near, tail = self.conv(qkv, tail)
            qkv = qkv + near
        q, k, v = self._heads(qkv, position)
        return q, k, v, tail

    def _heads(self, projected: Tensor, position: int) -> list[Tensor]:
        """Split projected tokens ``[B, T, parts * dim]`` into heads ``[B, H, T, d]``; rotate all parts but the last."""
        T, d = projected.shape[1], self.dim // self.num_heads
        *turning, v = projected.unflatten(-1, (-1, self.num_heads, d)).permute(2, 0, 3, 1, 4)
        positions = torch.arange(T, device=projected.device) + position
        cos, sin = turns(positions, d, self.base, projected.dtype)
        # clone: a view of v would keep the other parts in memory for as long as a state holds v
        return [*(rotate(x, cos, sin) for x in turning), v.clone()]

    def _keys_values(self, x: Tensor) -> Tensor:
        """Project what is only attended to, ``[..., dim]``, to keys and values ``[..., 2 dim]``."""
        return part_of(self.qkv, x, slice(self.dim, None))

    def _prefixed(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Prepend the persistent tokens to keys and values; every query sees them."""
        if self.persistent is None:
            return k, v, mask
        projected = self._keys_values(self.persistent.to(k.dtype))
        pk, pv = projected.unflatten(-1, (2, self.num_heads, -1)).permute(1, 2, 0, 3)
        # persistent tokens have no position, so only the half of their keys that is never rotated is used
        pk = torch.cat((torch.zeros_like(pk[..., : pk.shape[-1] // 2]), pk[..., pk.shape[-1] // 2 :]), dim=-1)
        k, v = (torch.cat((p.to(x.dtype).expand(x.shape[0], -1, -1, -1), x), dim=2) for p, x in ((pk, k), (pv, v)))
        return k, v, None if mask is None else F.pad(mask, (pk.shape[1], 0), value=True)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attend with heads ``[B, H, T, d]`` and return ``[B, T, dim]``. True in the mask means visible."""
        k, v, mask = self._prefixed(k, v, mask)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Attention(_Projections):
    """Causal attention over all tokens, or over the last ``window`` tokens (Eq. 27 and 31; Fig. 3b).

    Args:
        dim: model width; must be a multiple of ``4 * num_heads``.
        num_heads: number of heads.
        window: number of tokens that each token attends to, itself included. None: all earlier tokens.
        num_persistent: number of learned tokens, without position, that every token also attends to (Eq. 19, 26).
        conv_size: length of a causal convolution over time, added to queries, keys and values (section 4.4). 0: none.
        base: base of the rotary frequencies.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window: int | None = None,
        num_persistent: int = 0,
        conv_size: int = 0,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(dim, num_heads, num_persistent, conv_size, base)
        if window is not None:
            at_least("window", window)
        self.window = window

    def forward(self, x: Tensor, state: AttentionState | None = None) -> tuple[Tensor, AttentionState]:
        """Attend over ``x [B, T, dim]``. Returns an output of the same shape and the state after the last token."""
        position = 0 if state is None else state.position
        q, k, v, tail = self._tokens(x, position, None if state is None else state.tail)
        if state is not None:
            k, v = torch.cat((state.keys.to(k.dtype), k), dim=2), torch.cat((state.values.to(v.dtype), v), dim=2)
        # a state holds no more than a token's window
        y = self._all(q, k, v) if self.window is None or x.shape[1] == 1 else self._windows(q, k, v, self.window)
        dropped = 0 if self.window is None else max(0, k.shape[2] - self.window + 1)
        if dropped:  # clone: a view would keep all earlier keys and values in memory
            k, v = k[:, :, dropped:].clone(), v[:, :, dropped:].clone()
        return y, AttentionState(k, v, tail, position + x.shape[1])

    def _all(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        T, before = q.shape[2], k.shape[2] - q.shape[2]
        if T > 1 and before == 0 and self.persistent is None:  # is_causal=True selects the fast kernels
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).flatten(2))
        return self._attend(q, k, v, causal(T, before, q.device))

    def _windows(self, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        """Attend in blocks of half a window of queries, each with the keys its tokens can see: linear in T.

        The first blocks, which see fewer keys than a full block, run one by one. All others share one mask and run side
        by side in the batch.
        """
        T, before = q.shape[2], k.shape[2] - q.shape[2]
        block = at_most(-(-window // 2), T)
        sight = window - 1 + block
        i, j = torch.arange(block, device=q.device)[:, None], torch.arange(sight, device=q.device)
        band = (j >= i) & (j <= i + window - 1)
        done: list[Tensor] = []
        start = 0
        while start < T and start + before < window:
            stop = at_most(start + block, T)
            keys, missing = stop + before, window - 1 - before - start
            mask = band[: stop - start, missing : missing + keys]
            done.append(self._attend(q[:, :, start:stop], k[:, :, :keys], v[:, :, :keys], mask))
            start = stop
        if start < T:
            blocks = -(-(T - start) // block)
            beyond = start + blocks * block - T
            q = F.pad(q[:, :, start:], (0, 0, 0, beyond)).unflatten(2, (blocks, block))
            first = start + before - window + 1
            k, v = (F.pad(x[:, :, first:], (0, 0, 0, beyond)).unfold(2, sight, block).mT for x in (k, v))
            q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
            y = self._attend(q, k, v, band)
            done.append(y.unflatten(0, (-1, blocks)).flatten(1, 2)[:, : T - start])
        return torch.cat(done, dim=1)


class SegmentAttention(_Projections):
    """Causal attention within a segment, with persistent tokens and retrieved context (Eq. 22, 23).

    The input ``[p | h_1 .. h_S | x_1 .. x_S]`` is attended causally. Because h_i is computed from x_i, token t sees
    only h_1 .. h_t. If it saw all of h, it would see later tokens.

    Args:
        dim, num_heads, num_persistent, conv_size, base: as in :class:`Attention`. The convolution runs over tokens only
            and continues from one segment to the next.
        segment: segment length S, in tokens.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        segment: int,
        num_persistent: int = 0,
        conv_size: int = 0,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(dim, num_heads, num_persistent, conv_size, base)
        self.segment = segment

    def forward(self, x: Tensor, context: Tensor, state: SegmentState | None = None) -> tuple[Tensor, SegmentState]:
        """Attend over tokens of one segment and their retrieved context, both ``[B, T, dim]``.

        Returns an output ``[B, T, dim]`` and the state after the last token.
        """
        before = 0 if state is None else state.keys.shape[2]
        ck, cv = self._heads(self._keys_values(context), before)
        q, k, v, tail = self._tokens(x, self.segment + before, None if state is None else state.tail)
        if state is not None:
            kept = (state.context_keys, state.context_values, state.keys, state.values)
            ck, cv, k, v = (torch.cat((a.to(b.dtype), b), dim=2) for a, b in zip(kept, (ck, cv, k, v), strict=True))
        mask = causal(x.shape[1], before, x.device)
        mask = None if mask is None else mask.repeat(1, 2)  # for context and tokens
        y = self._attend(q, torch.cat((ck, k), dim=2), torch.cat((cv, v), dim=2), mask)
        return y, SegmentState(ck, cv, k, v, tail)


def causal(T: int, before: int, device: torch.device) -> Tensor | None:
    """Causal mask ``[T, before + T]`` (True: visible), where ``before`` keys precede the first query.

    None: a single token sees all.
    """
    if T == 1:
        return None
    return torch.ones(T, before + T, dtype=torch.bool, device=device).tril(before)
