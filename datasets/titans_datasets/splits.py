"""Train, validation and test rows of the long-term forecasting benchmark.

    ETTh     train 0:8640, val 8640:11520, test 11520:14400    12 / 4 / 4 months of 30 days, later rows unused
    ETTm     four times those
    others   train int(0.7 N), test int(0.2 N) at the end, val the rows between

Source: the protocol of Time-Series-Library and iTransformer (arXiv:2310.06625). Rows are counted from 0, ends are
exclusive, windows have stride 1, and every window is scored.
"""

import operator
from dataclasses import dataclass
from typing import Any, Literal

from titans_datasets import registry

__all__ = ["Split", "n_windows", "protocol_split"]

_ETT_HOURLY = (8640, 11520, 14400)
_ETT_ROWS_PER_HOUR = {"etth1": 1, "etth2": 1, "ettm1": 4, "ettm2": 4}


@dataclass(frozen=True)
class Split:
    """Target rows of each part: ``frame.iloc[split.test]``. The parts are adjacent and do not overlap."""

    train: slice
    val: slice
    test: slice

    def rows(self, part: Literal["train", "val", "test"], input_size: int) -> slice:
        """Rows to read for one part: its targets, and for val and test also the ``input_size`` rows before them.

        So for any lookback, the first target of val and test is the first row of that part, and different lookbacks
        have the same targets. Nothing precedes train, so its first ``input_size`` rows are inputs only.

        Raises:
            ValueError: if the part is unknown, or fewer than ``input_size`` rows precede it.
        """
        if part == "train":
            return self.train
        if part not in ("val", "test"):
            raise ValueError(f"part must be 'train', 'val' or 'test', got {part!r}.")
        targets: slice = getattr(self, part)
        if not 0 <= _integer("input_size", input_size) <= targets.start:
            raise ValueError(
                f"input_size={input_size}, but only rows 0:{targets.start} precede {part}; "
                f"use an input_size of 0 to {targets.start}."
            )
        return slice(targets.start - input_size, targets.stop)


def protocol_split(name: str, n_rows: int | None = None) -> Split:
    """The benchmark's split of a set.

    Args:
        name: one of ``list_datasets("ts")``; case is ignored.
        n_rows: number of rows of the frame. None: that of the published set. The ETT split does not depend on it.

    Raises:
        ValueError: if the name is unknown, or there are too few rows for three parts.
    """
    info = registry.series_info(name)
    n = info.shape[0] if n_rows is None else _integer("n_rows", n_rows)
    per_hour = _ETT_ROWS_PER_HOUR.get(info.name.lower())
    if per_hour is not None:
        train_end, val_end, test_end = (per_hour * border for border in _ETT_HOURLY)
        if n < test_end:
            raise ValueError(f"the split of {info.name} needs at least {test_end} rows, got n_rows={n}.")
    else:
        train_end, val_end, test_end = int(0.7 * n), n - int(0.2 * n), n
        if not 0 < train_end < val_end < test_end:
            raise ValueError(f"{n} rows are too few to split into train, val and test; at least 5 are needed.")
    return Split(train=slice(0, train_end), val=slice(train_end, val_end), test=slice(val_end, test_end))


def n_windows(rows: slice | int, h: int, input_size: int = 0) -> int:
    """Number of windows of stride 1: first targets from which ``h`` steps stay within ``rows``.

    Args:
        rows: a slice with start and stop, or a number of rows.
        h: horizon, steps per window, at least 1.
        input_size: number of first rows that are inputs only. Use 0 with ``split.test``, and the same ``input_size``
            with ``split.rows("test", input_size)``: both give the same number (ETTh: 2881 - h). For train, always set
            it.

    Raises:
        TypeError: if a number is not an integer, or the slice has no start or stop.
        ValueError: if no window fits, ``h`` is below 1, ``input_size`` is negative, or the slice has a step.
    """
    h, input_size = _integer("h", h), _integer("input_size", input_size)
    if h < 1 or input_size < 0:
        raise ValueError(f"h must be at least 1 and input_size at least 0, got h={h}, input_size={input_size}.")
    if isinstance(rows, slice):
        if rows.step not in (None, 1):
            raise ValueError(f"windows are of adjacent rows; rows must have no step, got {rows}.")
        n = _integer("rows.stop", rows.stop) - _integer("rows.start", rows.start)
    else:
        n = _integer("rows", rows)
    count = n - input_size - h + 1
    if count < 1:
        raise ValueError(
            f"{n} rows are too few for a window of input_size={input_size} and h={h}; {input_size + h} are needed."
        )
    return int(count)


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}.") from None
