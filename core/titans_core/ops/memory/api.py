"""Public entry point of the neural memory: checks the arguments, selects a backend, and casts to float32 or float64."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from titans_core.ops.memory.activations import ACTIVATIONS
from titans_core.ops.memory.dispatch import backend_of, resolve_backend
from titans_core.ops.memory.gates import chunks_of, of_tokens
from titans_core.ops.memory.gradient import refuse_transforms, without_autocast
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
    """Write a sequence to a neural memory and read the memory at each token (Titans, Eq. 10-18).

    Each token is written first and read afterwards, so output t depends on tokens up to and including t. All inner
    gradients of a chunk are taken at the weights at the start of the chunk. ``chunk_size=1`` is online gradient
    descent.

    Args:
        q: queries ``[B, T, H, K]``.
        k: keys ``[B, T, H, K]``.
        v: values ``[B, T, H, V]``.
        alpha: forget gate in [0, 1], ``[B, T, H]``; 1 erases the previous memory. None disables forgetting.
        eta: momentum in [0, 1], ``[B, T, H]``. None disables momentum.
        theta: inner learning rate >= 0, ``[B, T, H]``. All gates may instead be given per chunk (section 3.2),
            ``[B, chunks, H]``, with one entry for each chunk that the tokens touch, including a first chunk begun in an
            earlier call. With backend "chunk" this is cheaper.
        weights: the learned initial memory ``M_0``: L tensors ``[H, d_in, d_out]`` that map K to V. A single tensor is
            a linear memory.
        state: state returned by an earlier call. Its memory replaces ``weights``, which still define the shapes and,
            with ``forget_to="start"``, the target of forgetting. Pass the same ``weights`` in every call on one
            sequence.
        chunk_size: number of tokens whose gradients are taken at the same weights (b in Eq. 16). It must be the same in
            every call on one sequence.
        activation: activation between the layers: "silu", "gelu" or "relu".
        forget_to: what forgetting pulls the memory towards: "zero" (Eq. 13), or "start":
            ``M_t = (1 - alpha_t) M_{t-1} + alpha_t M_0 + S_t``. Near zero the inner gradient of a deep memory vanishes
            and the memory stops learning. Near the learned ``M_0`` it does not.
        backend: one of

            - "naive": the reference definition. Slow, but has second derivatives and works with ``torch.func``. Its
              backward pass follows autocast if that is on.
            - "chunk": exact and fast, in plain PyTorch on every device. First derivatives only.
            - "triton": CUDA kernels with float32 or bf16 products. First derivatives only. A one-layer memory with
              ``chunk_size=1`` has no kernel for several tokens; such calls run blocks in plain PyTorch.
            - "auto": "triton" on CUDA where it can run, else "chunk".

    Returns:
        The output ``[B, T, H, V]`` in the dtype of ``v``, and the :class:`MemoryState` after the last token. Arithmetic
        and state are float32 (float64 for float64 inputs), also under autocast. In the backward pass, parts that
        autograd differentiates line by line follow autocast: "naive", a one-layer memory with ``chunk_size=1`` or
        ``forget_to="start"``, and :func:`read_memory`. As PyTorch advises, call ``backward`` outside autocast.

    Raises:
        ValueError: if a shape, device, chunk size, activation or backend does not fit; the message names it.
        TypeError: if an argument has the wrong type or dtype.
        RuntimeError: if ``torch.func`` transforms a backend other than "naive".
    """
    weights = _layers("weights", weights)
    _check(q, k, v, alpha, eta, theta, weights, state, chunk_size, activation)
    check_forget_to(forget_to)
    backend = resolve_backend(backend, q, weights, chunk_size)
    refuse_transforms(backend)

    # at least float32: bf16 cannot represent the product of many (1 - alpha). Kernels read bf16, accumulate in float32.
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    tokens = q.dtype if backend == "triton" and q.dtype == torch.bfloat16 else dtype
    with without_autocast(q):
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
        memory: ``state.weights``, L tensors ``[B, H, d_in, d_out]``, or a learned initial memory, ``[H, d_in, d_out]``.
        activation: as in :func:`neural_memory`.

    Returns:
        ``[B, T, H, V]`` in the dtype of ``q``. Arithmetic is in the dtype of the memory.

    Raises:
        ValueError: if a shape, device or activation does not fit; the message names it.
        TypeError: if the queries are not floating point, or ``memory`` is not a sequence of tensors.
    """
    memory = _layers("memory", memory)
    check_activation(activation)
    if not isinstance(q, Tensor) or q.ndim != 4:
        raise ValueError(f"q must be a tensor [B, T, H, K], got {tuple(q.shape) if isinstance(q, Tensor) else q!r}.")
    if not q.is_floating_point():
        raise TypeError(f"q must have a floating-point dtype, got {q.dtype}.")
    B, _, H, d_in = q.shape
    for i, w in enumerate(memory):
        if w.ndim not in (3, 4) or w.shape[:-1] not in ((B, H, d_in), (H, d_in)):
            raise ValueError(
                f"memory[{i}] must be [B, H, d_in, d_out] or [H, d_in, d_out] with B = {B}, H = {H} and d_in = {d_in}, "
                f"got shape {tuple(w.shape)}."
            )
        if w.device != q.device:
            raise ValueError(f"all tensors must be on one device: q is on {q.device}, memory[{i}] is on {w.device}.")
        d_in = w.shape[-1]
    with without_autocast(q):
        out = read(memory, q.transpose(1, 2).to(memory[0].dtype), ACTIVATIONS[activation])
    return out.transpose(1, 2).to(q.dtype)


def check_forget_to(forget_to: str) -> None:
    """Raise a ValueError unless ``forget_to`` is one of ``FORGET_TO``."""
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
        raise TypeError("theta (the inner learning rate) is required; only alpha and eta may be None.")
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}.")
        if not x.is_floating_point():
            raise TypeError(f"{name} must have a floating-point dtype, got {x.dtype}.")
        if x.device != q.device:
            raise ValueError(f"all tensors must be on one device: q is on {q.device}, {name} is on {x.device}.")
        if (x.dtype == torch.float64) != (q.dtype == torch.float64):
            raise TypeError(f"use float64 for all tensors or for none: q is {q.dtype}, {name} is {x.dtype}.")

    if q.ndim != 4:
        raise ValueError(f"q must be [B, T, H, K], got shape {tuple(q.shape)}.")
    B, T, H, K = q.shape
    if B == 0 or T == 0:
        raise ValueError(f"batch and sequence must not be empty, got q with shape {tuple(q.shape)} ([B, T, H, K]).")
    if k.shape != q.shape:
        raise ValueError(f"k must have the shape of q, {tuple(q.shape)} ([B, T, H, K]), got {tuple(k.shape)}.")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise TypeError(f"q, k and v must have the same dtype, got {q.dtype}, {k.dtype}, {v.dtype}.")
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
        raise ValueError(f"the last layer must have d_out = V = {v.shape[3]} (last dimension of v), got {d_in}.")

    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size must be an integer >= 1, got {chunk_size!r}.")
    check_activation(activation)
    if state is not None:
        _check_state(state, q, weights, chunk_size)
    # compared one by one: a set or tuple of lengths would specialise a compiled graph to one length
    N = chunks_of(T, 0 if state is None else state.offset, chunk_size)
    there = {name: gate for name, gate in gates.items() if gate is not None}
    for name, gate in there.items():
        if gate.ndim != 3 or gate.shape[0] != B or gate.shape[2] != H or (gate.shape[1] != T and gate.shape[1] != N):
            raise ValueError(
                f"{name} must be [B, T, H] = {(B, T, H)}, or per chunk [B, {N}, H], got shape {tuple(gate.shape)}."
            )
    for name, gate in there.items():
        if gate.shape[1] != theta.shape[1]:
            raise ValueError(
                f"all gates must be per token or all per chunk: {name} has shape {tuple(gate.shape)}, theta has "
                f"{tuple(theta.shape)}."
            )


def _layers(name: str, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Convert any sequence of at least one tensor to a tuple."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Iterable):
        raise TypeError(f"{name} must be a sequence of tensors, one per layer, got {type(tensors).__name__}.")
    layers = tuple(tensors)
    if not layers:
        raise ValueError(f"{name} must contain at least one tensor [H, d_in, d_out].")
    for i, w in enumerate(layers):
        if not isinstance(w, Tensor):
            raise TypeError(f"{name}[{i}] must be a torch.Tensor, got {type(w).__name__}.")
    return layers


def check_activation(activation: str) -> None:
    """Raise a ValueError unless ``activation`` names an activation of the memory."""
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
                raise ValueError(f"state.{name} is on {t.device}, but q is on {q.device}: use state.to(q.device).")
    if state.chunk_size is not None and state.chunk_size != chunk_size:
        raise ValueError(
            f"state comes from a call with chunk_size={state.chunk_size}, but this call has {chunk_size}: "
            "use the same chunk_size in all calls on one sequence."
        )
    if not 0 <= state.offset < chunk_size:
        raise ValueError(
            f"state.offset is {state.offset}, which does not fit chunk_size={chunk_size}: "
            "use the same chunk_size in all calls on one sequence."
        )
