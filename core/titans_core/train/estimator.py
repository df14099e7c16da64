"""Base class of the sklearn-style estimators: parameters, seeds, saving and loading."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor
from typing_extensions import Self

from titans_core.archive import ArchiveError, load_archive, save_archive, unpacking
from titans_core.checks import at_least
from titans_core.train.processes import started
from titans_core.train.randomness import borrowed_randomness


class TitansEstimator(BaseEstimator):
    """Base class of the estimators. ``__init__`` of a subclass stores its arguments unchanged; ``fit`` learns the rest.

    A subclass returns what it learned from :meth:`_pack`, as JSON values and tensors, and restores it in
    :meth:`_unpack`.
    """

    def _check_counts(self, *names: str, or_none: tuple[str, ...] = ()) -> None:
        """Raise a ValueError unless these arguments are integers of at least 1; those in ``or_none`` may be None."""
        for name in (*names, *or_none):
            if getattr(self, name) is not None or name not in or_none:
                at_least(name, getattr(self, name))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to the folder ``path`` (JSON and safetensors).

        Raises:
            NotFittedError: if ``fit`` has not been called.
        """
        save_archive(path, type(self).__name__, *self._archived())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a fitted model from a folder written by :meth:`save`. Nothing is unpickled.

        Raises:
            FileNotFoundError: if there is no saved model.
            ArchiveError: if a file is truncated or modified, holds another kind of model, or was saved by an
                incompatible version.
        """
        return cls._restored(path, *load_archive(path, cls.__name__))

    def _archived(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The content and the tensors of an archive of this model."""
        learned, tensors = self._pack()
        params = self.get_params(deep=False)
        seed = params["random_state"]
        params["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
        return {"params": params, "learned": learned}, tensors

    @classmethod
    def _restored(cls, path: str | Path, content: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The model of an archive; ``path`` is for messages."""
        unknown = sorted(set(content["params"]) - set(cls._get_param_names()))
        if unknown:
            raise ArchiveError(
                f"{path} was saved by another version, whose {cls.__name__} has the arguments {unknown}. "
                "Load it with that version, or fit the model again."
            )
        model = cls(**content["params"])
        with unpacking(path), borrowed_randomness():  # networks get random weights before their own are loaded
            model._unpack(content["learned"], tensors)
        return model

    def _seed(self) -> int:
        """Draw a seed from ``random_state``: the same for the same integer, a new one for None.

        Raises:
            ValueError: if ``random_state`` is None and several processes train one model, because each would draw its
                own.
        """
        if self.random_state is None and started() > 1:
            raise ValueError(
                f"{started()} processes of torchrun train one model and need one seed; otherwise each would split and "
                "shuffle the data differently. Give random_state, an integer."
            )
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _pack(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        raise NotImplementedError(f"{type(self).__name__} must implement _pack()")

    def _unpack(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement _unpack()")
