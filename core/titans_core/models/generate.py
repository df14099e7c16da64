"""Text generation from a recurrent state."""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from titans_core.checks import at_least

if TYPE_CHECKING:
    from titans_core.models.state import LMState


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each module has its own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class Generation:
    """Mixin with ``read``, ``stream`` and ``generate`` for a model with ``model(ids, state) -> (logits, state)``."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def hidden(self, ids: Tensor, state: "LMState | None" = None) -> "tuple[Tensor, LMState]": ...

    @torch.no_grad()
    def read(self, ids: Tensor, state: "LMState | None" = None, piece: int = 4096) -> "LMState":
        """Read ``ids [B, T]`` of any length and return the state after them.

        Tokens are read in pieces of ``piece`` tokens, so for all architectures but "transformer", memory use does not
        grow with T.
        """
        _check_ids(ids)
        at_least("piece", piece, 1)
        for part in ids.split(int(piece), dim=1):  # torch takes no number of NumPy
            _, state = self.hidden(part, state)
        assert state is not None
        return state

    @torch.no_grad()
    def stream(
        self,
        ids: Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Collection[int] | None = (),
        state: "LMState | None" = None,
        generator: torch.Generator | None = None,
    ) -> "Iterator[tuple[Tensor, LMState]]":
        """Yield each new token ``[B]`` and the state before that token is read: :meth:`generate` step by step.

        A finished sequence repeats its stop token. Iteration ends when all sequences are finished.
        """
        _check(max_new_tokens, temperature, top_k, top_p)
        _check_ids(ids)
        stops = torch.tensor(_stop_ids(stop), device=ids.device, dtype=ids.dtype)
        if ids.shape[1] > 1:
            state = self.read(ids[:, :-1], state)
        token = ids[:, -1]
        ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        for _ in range(max_new_tokens):
            logits, state = self(token[:, None], state)
            drawn = draw(logits[:, -1].float(), temperature, top_k, top_p, generator).to(ids.dtype)
            token = torch.where(ended, token, drawn)
            ended = ended | torch.isin(token, stops)
            yield token, state
            if bool(ended.all()):
                return

    def generate(self, ids: Tensor, max_new_tokens: int = 100, **options: Any) -> Tensor:
        """Continue ``ids [B, T]``. Returns the prompt and up to ``max_new_tokens`` new tokens, ``[B, T + n]``.

        The model is in evaluation mode during the call. For all architectures but "transformer", memory per step does
        not grow with the text read.

        Args:
            ids: the prompt, or with ``state``, the text that follows what the state has read.
            max_new_tokens: maximum number of new tokens; fewer if every sequence reaches a stop token.
            temperature: 0 (the default) always takes the most likely token; otherwise logits are divided by it.
            top_k: sample only from the k most likely tokens.
            top_p: sample only from the smallest set of most likely tokens whose total probability reaches this value.
            stop: token ids that end a sequence. A finished sequence repeats its stop token.
            state: an :class:`LMState` to continue from. It is not modified and can be reused.
            generator: random number generator on the model's device.

        Raises:
            ValueError: if the prompt is empty, ids or options are out of range, or the state belongs to another model
                or batch size.
        """
        assert isinstance(self, nn.Module)
        with evaluating(self):
            new = [token for token, _ in self.stream(ids, max_new_tokens, **options)]
        return torch.cat((ids, torch.stack(new, dim=1)), dim=1)


def draw(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Tensor:
    """Draw one token for each row of logits ``[B, V]``."""
    if temperature < torch.finfo(torch.float32).tiny:  # dividing by it could give 0 / 0
        return logits.argmax(-1)
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature  # max is 0, so nothing overflows to +inf
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p is not None and top_p < 1:  # at 1, a rounded cumulative sum could exclude tokens
        ordered, order = logits.sort(dim=-1, descending=True)
        probability = ordered.softmax(-1)
        # keep a token while the more likely ones sum to less than top_p; the most likely is always kept
        beyond = probability.cumsum(-1) - probability >= top_p
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), float("-inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def _check_ids(ids: Tensor) -> None:
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids must be a tensor [B, T], such as torch.tensor([[1, 2]]), got {type(ids).__name__}.")
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"ids must be [B, T] with at least one token, got shape {tuple(ids.shape)}.")


def _stop_ids(stop: Collection[int] | None) -> list[int]:
    try:
        return sorted(index(token) for token in ([] if stop is None else stop))
    except TypeError as error:
        such = [stop] if isinstance(stop, int) else [257]
        raise TypeError(f"stop must be a collection of token ids, such as {such}, got {stop!r}.") from error


def _check(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    at_least("max_new_tokens", max_new_tokens, 1)
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be at least 0 (0 takes the most likely token), got {temperature!r}.")
    if top_k is not None:
        at_least("top_k", top_k, 1)
    if top_p is not None and (not isinstance(top_p, Real) or not 0 < top_p <= 1):
        raise ValueError(f"top_p must be in (0, 1], got {top_p!r}.")
