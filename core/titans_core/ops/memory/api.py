"""The one door to the neural memory: checks what came in, chooses a backend, hands over float32 or better."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.dispatch import backend_of, resolve_backend
from titans_core.ops.memory.gates import chunks_of, of_tokens
from titans_core.ops.memory.gradient import refuse_transforms
from titans_core.ops.memory.naive import read
from titans_core.ops.memory.state import MemoryState

FORGET_TO = ("zero", "start")


def neural_memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    weights: tuple[Tensor, ...],
    state: MemoryState | None = None,
    chunk_size: int = 64,
    activation: str = "silu",
    forget_to: str = "zero",
    backend: str = "auto",
) -> tuple[Tensor, MemoryState]:
    """Read a sequence into a neural memory and, at each token, read the memory back (Titans, Eq. 10-18).

    Token t is written first and read afterwards, so output t depends on tokens up to and including t. All inner
    gradients of a chunk are taken at the weights with which the chunk starts; ``chunk_size=1`` is online
    gradient descent.

    Args:
        q: queries ``[B, T, H, K]``.
        k: keys ``[B, T, H, K]``.
        v: values ``[B, T, H, V]``.
        alpha: forget gate in [0, 1], ``[B, T, H]``; 1 erases what was there before. None switches forgetting off.
        eta: momentum in [0, 1], ``[B, T, H]``. None switches momentum off.
        theta: inner learning rate >= 0, ``[B, T, H]``. Gates may also be of chunks (section 3.2), ``[B, chunks, H]``,
            all of them: one of each that the tokens are of, the first of which may have begun in an earlier call.
            That is cheaper on "chunk", as all depends on the distance of two tokens then.
        weights: the learned initial memory ``M_0``: L tensors ``[H, d_in, d_out]``, K to V. One is a linear memory.
        state: where an earlier call stopped; its memory replaces ``weights``, which still give the shapes, and with
            ``forget_to="start"`` what is forgotten towards: give the same in every call on one sequence.
        chunk_size: tokens that share one gradient point (b in Eq. 16); the same in every call on one sequence.
        activation: between the layers: "silu", "gelu" or "relu".
        forget_to: what forgetting draws the memory to: "zero" (Eq. 13), or "start",
            ``M_t = (1 - alpha_t) M_{t-1} + alpha_t M_0 + S_t``. Near zero the inner gradient of a deep memory vanishes,
            and it learns no more; near ``M_0``, where the outer loop has put it, it does.
        backend: "naive" (the definition, slow; its backward pass follows autocast where that is on, it has second
            derivatives, and ``torch.func`` can transform it), "chunk" (exact and fast in plain PyTorch, on every
            device; first derivatives only), "triton" (kernels for CUDA, with products of float32 or bf16; first
            derivatives only), or "auto": "triton" on CUDA where it can run, else "chunk". A memory of one layer that is
            fresh at every token (``chunk_size=1``) has no kernel: longer calls run blocks in plain PyTorch, for
            "triton" too.

    Returns:
        out ``[B, T, H, V]`` in the dtype of ``v``, and the :class:`MemoryState` after the last token. Arithmetic and
        state are float32 (float64 where the inputs are), also under autocast. Of the backward pass that holds but for
        what autograd differentiates line by line: "naive", a memory of one layer that is fresh at every token or drawn
        to its start, and :func:`read_memory`. Call ``backward`` outside autocast, as PyTorch advises.

    Raises:
        ValueError: a shape, device, chunk size, activation or backend that does not fit; the message names it.
        TypeError: an argument of the wrong type or dtype.
        RuntimeError: a transform of ``torch.func`` over another backend than "naive".
    """
    weights = _layers("weights", weights)
    _check(q, k, v, alpha, eta, theta, weights, state, chunk_size, activation)
    check_forget_to(forget_to)
    backend = resolve_backend(backend, q, v, weights, chunk_size)
    refuse_transforms(backend)

    # float32 or better: bf16 loses the product of many (1 - alpha). The kernels read bf16, and sum up in float32.
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    tokens = q.dtype if backend == "triton" and q.dtype == torch.bfloat16 else dtype
    with torch.autocast(q.device.type, enabled=False):
        alpha, eta = (None if g is None else g.to(dtype) for g in (alpha, eta))
        start = tuple(w.to(dtype) for w in weights)
        if state is None:
            state = MemoryState.initial(start, q.shape[0])
        if backend == "naive":
            place = (q.shape[1], state.offset, chunk_size)
            alpha, eta = (None if g is None else of_tokens(g, *place) for g in (alpha, eta))
            theta = of_tokens(theta, *place)
        base = start if forget_to == "start" and alpha is not None else None
        out, state = backend_of(backend)(
            q.to(tokens), k.to(tokens), v.to(tokens), alpha, eta, theta.to(dtype), state, chunk_size, activation, base
        )
    return out.to(v.dtype), replace(state, chunk_size=chunk_size)


def read_memory(q: Tensor, memory: tuple[Tensor, ...], activation: str = "silu") -> Tensor:
    """Read a memory without writing to it: ``y_t = M*(q_t)`` (Eq. 15).

    Args:
        q: queries ``[B, T, H, K]``.
        memory: ``state.weights``, L tensors ``[B, H, d_in, d_out]``, or a learned start, ``[H, d_in, d_out]``.
        activation: as in :func:`neural_memory`.

    Returns:
        ``[B, T, H, V]`` in the dtype of ``q``; arithmetic in the dtype of the memory.

    Raises:
        ValueError: a shape, device or activation that does not fit; the message names it.
        TypeError: queries of no floating dtype, or a memory that is not a sequence of tensors.
    """
    memory = _layers("memory", memory)
    check_activation(activation)
    if not isinstance(q, Tensor) or q.ndim != 4:
        raise ValueError(f"q must be a tensor [B, T, H, K], got {tuple(q.shape) if isinstance(q, Tensor) else q!r}.")
    if not q.is_floating_point():
        raise TypeError(f"q must be of a floating dtype, got {q.dtype}.")
    B, _, H, d_in = q.shape
    for i, w in enumerate(memory):
        if w.ndim not in (3, 4) or w.shape[:-1] not in ((B, H, d_in), (H, d_in)):
            raise ValueError(
                f"memory[{i}] must be [B, H, d_in, d_out] or [H, d_in, d_out] with B = {B}, H = {H} and d_in = {d_in}, "
                f"got shape {tuple(w.shape)}."
            )
        if w.device != q.device:
            raise ValueError(f"all tensors must be on one device: q is on {q.device}, memory[{i}] on {w.device}.")
        d_in = w.shape[-1]
    with torch.autocast(q.device.type, enabled=False):
        out = read(memory, q.transpose(1, 2).to(memory[0].dtype), ACTIVATIONS[activation])
    return out.transpose(1, 2).to(q.dtype)


def check_forget_to(forget_to: str) -> None:
    """Raises a ValueError for what forgetting cannot draw a memory to."""
    if forget_to not in FORGET_TO:
        raise ValueError(f"forget_to must be one of {FORGET_TO}, got {forget_to!r}.")


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | None,
    eta: Tensor | None,
    theta: Tensor,
    weights: tuple[Tensor, ...],
    state: MemoryState | None,
    chunk_size: int,
    activation: str,
) -> None:
    gates = {"alpha": alpha, "eta": eta, "theta": theta}
    layers = {f"weights[{i}]": w for i, w in enumerate(weights)}
    named = {"q": q, "k": k, "v": v, **{n: g for n, g in gates.items() if g is not None}, **layers}
    if theta is None:
        raise TypeError("theta (the inner learning rate) is required; None is only for alpha and eta.")
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}.")
        if not x.is_floating_point():
            raise TypeError(f"{name} must be of a floating dtype, got {x.dtype}.")
        if x.device != q.device:
            raise ValueError(f"all tensors must be on one device: q is on {q.device}, {name} on {x.device}.")
        if (x.dtype == torch.float64) != (q.dtype == torch.float64):
            raise TypeError(f"float64 must be used throughout or not at all: q is {q.dtype}, {name} is {x.dtype}.")

    if q.ndim != 4:
        raise ValueError(f"q must be [B, T, H, K], got shape {tuple(q.shape)}.")
    B, T, H, K = q.shape
    if B == 0 or T == 0:
        raise ValueError(
            f"the batch and the sequence must not be empty, got q of shape {tuple(q.shape)} ([B, T, H, K])."
        )
    if k.shape != q.shape:
        raise ValueError(f"k must have q's shape {tuple(q.shape)} ([B, T, H, K]), got {tuple(k.shape)}.")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise TypeError(f"q, k and v must share one dtype, got {q.dtype}, {k.dtype}, {v.dtype}.")
    if v.ndim != 4 or v.shape[:3] != q.shape[:3]:
        raise ValueError(f"v must be [B, T, H, V] with [B, T, H] = {(B, T, H)}, got shape {tuple(v.shape)}.")

    d_in = K
    for name, w in layers.items():
        if w.ndim != 3 or w.shape[0] != H or w.shape[1] != d_in:
            raise ValueError(
                f"{name} must be [H, d_in, d_out] with H = {H} and d_in = {d_in}, got shape {tuple(w.shape)}."
            )
        d_in = w.shape[2]
    if d_in != v.shape[3]:
        raise ValueError(f"the last layer must end in V = {v.shape[3]} (v's last dimension), got {d_in}.")

    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size must be an integer >= 1, got {chunk_size!r}.")
    check_activation(activation)
    if state is not None:
        _check_state(state, q, weights, chunk_size)
    # compared one by one: a set or a tuple of them would bind a compiled graph to one length
    N = chunks_of(T, 0 if state is None else state.offset, chunk_size)
    there = {name: gate for name, gate in gates.items() if gate is not None}
    for name, gate in there.items():
        if gate.ndim != 3 or gate.shape[0] != B or gate.shape[2] != H or (gate.shape[1] != T and gate.shape[1] != N):
            raise ValueError(
                f"{name} must be [B, T, H] = {(B, T, H)}, or of chunks [B, {N}, H], got shape {tuple(gate.shape)}."
            )
    for name, gate in there.items():
        if gate.shape[1] != theta.shape[1]:
            raise ValueError(
                f"gates must be all of tokens or all of chunks: {name} is {tuple(gate.shape)}, theta is "
                f"{tuple(theta.shape)}."
            )


def _layers(name: str, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A tuple of at least one tensor, whatever sequence they came in."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
        raise TypeError(f"{name} must be a sequence of tensors, one a layer, got {type(tensors).__name__}.")
    layers = tuple(tensors)
    if not layers:
        raise ValueError(f"{name} must hold at least one tensor [H, d_in, d_out].")
    for i, w in enumerate(layers):
        if not isinstance(w, Tensor):
            raise TypeError(f"{name}[{i}] must be a torch.Tensor, got {type(w).__name__}.")
    return layers


def check_activation(activation: str) -> None:
    """Raises a ValueError for a function that cannot stand between the layers of a memory."""
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}.")


def _check_state(state: MemoryState, q: Tensor, weights: tuple[Tensor, ...], chunk_size: int) -> None:
    if not isinstance(state, MemoryState):
        raise TypeError(f"state must be a MemoryState, got {type(state).__name__}.")
    expected = [(q.shape[0], *w.shape) for w in weights]
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    for name in ("weights", "momentum", "anchor"):
        part = getattr(state, name)
        shapes = [tuple(t.shape) for t in part]
        if shapes != expected:
            raise ValueError(f"state.{name} must have shapes {expected} ([B, H, d_in, d_out] per layer), got {shapes}.")
        for t in part:
            if t.dtype != dtype:
                raise TypeError(f"state.{name} must be {dtype} for inputs of {q.dtype}, got {t.dtype}.")
            if t.device != q.device:
                raise ValueError(f"state.{name} is on {t.device}, q on {q.device}; use state.to(q.device).")
    if state.chunk_size is not None and state.chunk_size != chunk_size:
        raise ValueError(
            f"state is that of a call with chunk_size={state.chunk_size}, this one has {chunk_size}: "
            "a sequence must keep one chunk_size in all calls."
        )
    if not 0 <= state.offset < chunk_size:
        raise ValueError(
            f"state.offset is {state.offset} but chunk_size is {chunk_size}: "
            "a sequence must keep one chunk_size in all calls."
        )
