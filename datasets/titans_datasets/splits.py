"""Train, validation and test rows of the long-term forecasting benchmark.

    ETTh     train 0:8640, val 8640:11520, test 11520:14400    12 / 4 / 4 months of 30 days, later rows unused
    ETTm     four times those
    others   train int(0.7 N), test int(0.2 N) at the end, val the rows between

Source: the protocol of Time-Series-Library and iTransformer (arXiv:2310.06625). Rows are counted from 0, ends are
exclusive, windows have stride 1, and every window is scored.
"""

from dataclasses import dataclass
from typing import Literal

from titans_datasets import registry

__all__ = ["Split", "n_windows", "protocol_split"]

_ETT_HOURLY = (8640, 11520, 14400)
_ETT_ROWS_PER_HOUR = {"etth1": 1, "etth2": 1, "ettm1": 4, "ettm2": 4}


@dataclass(frozen=True)
class Split:
    """Rows whose values are targets, per part: ``frame.iloc[split.test]``. The parts touch and do not overlap."""

    train: slice
    val: slice
    test: slice

    def rows(self, part: Literal["train", "val", "test"], input_size: int) -> slice:
        """Rows to read for one part: its targets, and for val and test the ``input_size`` rows before its border.

        So the first target of val and test is the first row after the border at any lookback, and the targets of
        two lookbacks are the same. Nothing lies before train: its first ``input_size`` rows are inputs only.

        Raises:
            ValueError: the part is unknown, or its border has fewer than ``input_size`` rows before it.
        """
        if part == "train":
            return self.train
        if part not in ("val", "test"):
            raise ValueError(f"part is 'train', 'val' or 'test', got {part!r}.")
        targets: slice = getattr(self, part)
        if not 0 <= input_size <= targets.start:
            raise ValueError(
                f"input_size={input_size}, but only rows 0:{targets.start} lie before {part}; "
                f"take an input_size of 0 to {targets.start}."
            )
        return slice(targets.start - input_size, targets.stop)


def protocol_split(name: str, n_rows: int | None = None) -> Split:
    """The benchmark's borders for one set.

    Args:
        name: one of ``list_datasets("ts")``, in any case.
        n_rows: rows of the frame; default those of the published set. ETT borders do not depend on it.

    Raises:
        ValueError: unknown name, or too few rows for three parts.
    """
    info = registry.series_info(name)
    n = info.shape[0] if n_rows is None else n_rows
    per_hour = _ETT_ROWS_PER_HOUR.get(info.name.lower())
    if per_hour is not None:
        train_end, val_end, test_end = (per_hour * border for border in _ETT_HOURLY)
        if n < test_end:
            raise ValueError(f"{info.name} is split in its first {test_end} rows, got n_rows={n}.")
    else:
        train_end, val_end, test_end = int(0.7 * n), n - int(0.2 * n), n
        if not 0 < train_end < val_end < test_end:
            raise ValueError(f"{n} rows are too few to split into train, val and test; 10 or more are needed.")
    return Split(train=slice(0, train_end), val=slice(train_end, val_end), test=slice(val_end, test_end))


def n_windows(rows: slice | int, h: int, input_size: int = 0) -> int:
    """Windows of stride 1 that fit: every first target from which ``h`` steps stay inside ``rows``.

    Args:
        rows: a slice with start and stop, or a number of rows.
        h: horizon, steps per window, at least 1.
        input_size: how many of the first rows are inputs only. With ``split.test`` leave 0, with
            ``split.rows("test", input_size)`` give the same ``input_size``: both count the same windows
            (ETTh: 2881 - h). For train give it always.

    Raises:
        ValueError: not one window fits, or ``h`` is below 1, or ``input_size`` negative.
    """
    if h < 1 or input_size < 0:
        raise ValueError(f"h must be 1 or more and input_size 0 or more, got h={h}, input_size={input_size}.")
    n = rows.stop - rows.start if isinstance(rows, slice) else rows
    count = n - input_size - h + 1
    if count < 1:
        raise ValueError(f"{n} rows hold no window of input_size={input_size} and h={h}; {input_size + h} are needed.")
    return int(count)
