"""From a panel to the standardised numbers that the network sees."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from titans_ts.exogenous import Columns, calendar_features
from titans_ts.frame import Panel
from titans_ts.windows import Table


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of everything in the training rows.

    Attributes:
        columns: the exogenous columns, with the calendar made definite.
        mean, scale: of each series, ``[N]``.
        exogenous: for "hist", "futr" and "stat" mean and deviation of each column, ``[2, X]``.
    """

    columns: Columns
    mean: np.ndarray
    scale: np.ndarray
    exogenous: dict[str, np.ndarray]

    @classmethod
    def of(cls, panel: Panel, columns: Columns) -> "Scaling":
        """Of the rows of a panel."""
        mean, scale = level_of(panel.values)
        tables = {"hist": panel.hist, "futr": panel.futr, "stat": panel.stat}
        exogenous = {
            name: np.stack(level_of(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))) for name, x in tables.items()
        }
        return cls(columns, mean, scale, exogenous)

    def table(self, panel: Panel, mean: np.ndarray, scale: np.ndarray) -> Table:
        """A panel whose series are standardised by ``mean`` and ``scale`` ``[N]``."""
        return Table(
            tensor((panel.values - mean) / scale),
            self.columns_of("hist", panel.hist),
            self.future(panel.index, panel.futr),
            self.columns_of("stat", panel.stat),
        )

    def future(self, index: pd.Index, futr: np.ndarray) -> Tensor | None:
        """The columns that are known ahead: those of the frame ``[T, N, F]`` and the calendar, ``[T, N or 1, F']``."""
        calendar = tensor(calendar_features(index, self.columns.calendar))[:, None]
        given = self.columns_of("futr", futr)
        if given is None:
            return calendar if calendar.shape[-1] else None
        return torch.cat((given, calendar.expand(-1, given.shape[1], -1)), dim=-1)

    def columns_of(self, name: str, values: np.ndarray) -> Tensor | None:
        """The exogenous columns of a kind, standardised; None where there is none."""
        if not values.shape[-1]:
            return None
        mean, scale = self.exogenous[name]
        # what is not known counts as the mean
        return tensor((values - mean) / scale).nan_to_num(0.0)


def level_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column, NaN left out; 1 for one that does not change."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    deviation = np.sqrt(np.square(np.where(known, values - mean, 0.0)).sum(axis=0) / count)
    return mean, np.where(deviation > 0, deviation, 1.0)


def tensor(values: np.ndarray) -> Tensor:
    """float32, and always laid out alike: the last digits of a forecast depend on the strides of its input."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
