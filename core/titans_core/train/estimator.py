"""What the sklearn-style estimators share: parameters, seeds, saving and loading."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor
from typing_extensions import Self

from titans_core.archive import ArchiveError, load_archive, save_archive
from titans_core.checks import at_least
from titans_core.train.processes import started
from titans_core.train.randomness import borrowed_randomness


class TitansEstimator(BaseEstimator):
    """Base of the estimators. ``__init__`` of a subclass stores its arguments unchanged; ``fit`` learns the rest.

    A subclass says what it learned with :meth:`_pack`, as JSON values and tensors, and takes it back
    with :meth:`_unpack`.
    """

    def _check_counts(self, *names: str, or_none: tuple[str, ...] = ()) -> None:
        """Raises ValueError where an argument is no integer of at least 1; those of ``or_none`` may be None."""
        for name in (*names, *or_none):
            if getattr(self, name) is not None or name not in or_none:
                at_least(name, getattr(self, name))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to the folder ``path`` (JSON and safetensors).

        Raises:
            NotFittedError: before ``fit``.
        """
        learned, tensors = self._pack()
        params = self.get_params(deep=False)
        seed = params["random_state"]
        params["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
        save_archive(path, type(self).__name__, {"params": params, "learned": learned}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted model from the folder that :meth:`save` wrote. Nothing is unpickled.

        Raises:
            FileNotFoundError: no saved model there.
            ArchiveError: a truncated or changed file, another kind of model, or one with arguments of another version.
        """
        content, tensors = load_archive(path, cls.__name__)
        unknown = sorted(set(content["params"]) - set(cls._get_param_names()))
        if unknown:
            raise ArchiveError(
                f"{path} was saved by another version, whose {cls.__name__} has the arguments {unknown}. "
                "Load it with that version, or fit it again."
            )
        model = cls(**content["params"])
        try:
            with borrowed_randomness():  # networks are made with random weights before they get their own
                model._unpack(content["learned"], tensors)
        except (KeyError, TypeError, RuntimeError) as error:
            raise ArchiveError(
                f"{path} was saved by another version, or it was changed ({type(error).__name__}: {error}). Load it "
                "with that version, or fit it again."
            ) from error
        return model

    def _seed(self) -> int:
        """A seed drawn from ``random_state``: the same for the same integer, fresh for None.

        Raises:
            ValueError: None, and several processes train one model: each would draw its own.
        """
        if self.random_state is None and started() > 1:
            raise ValueError(
                f"{started()} processes of torchrun train one model and need one seed, or each would split and shuffle "
                "the data in its own way. Give random_state, an integer."
            )
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        raise NotImplementedError(f"{type(self).__name__} must say what it learned")

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must take back what it learned")
