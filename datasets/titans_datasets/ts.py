"""Time-series sets as wide pandas frames: one row per time stamp, one column per variate."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from titans_datasets import cache, registry
from titans_datasets.sources.entries import SeriesInfo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_series"]


def load_series(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> "pd.DataFrame":
    """Load a time-series set, complete and as published.

    Args:
        name: one of ``list_datasets("ts")``; case is ignored.
        data_home: folder that contains ``ts/<file>``. None: ``TITANS_DATA_HOME``, else the user's cache.
        download: download the file if it is missing; it is kept in the data home.

    Returns:
        Wide float64 frame of shape ``info(name).shape``, rows in time order. The index is a DatetimeIndex named ``ds``
        (nanoseconds, without time zone) with ``freq`` set. ``weather`` has no ``freq``, because one stamp is repeated
        and some are missing. Nothing is scaled, filled or dropped. The caller may modify the frame.

    Raises:
        ValueError: if the name is unknown; the message lists known names and the closest.
        ChecksumError: if the file is not the published one, or is truncated.
        OfflineError: if the file is missing and cannot be downloaded; the message says where to put it by hand.
        FileNotFoundError: if the file is missing and ``download`` is False; same advice.
        PermissionError: if the file is missing and no folder is writable.
    """
    info = registry.series_info(name)
    path = cache.obtain(info.published, cache.data_home(data_home), allow_download=download)
    frame = _read_matrix(path, info) if info.layout == "matrix" else _read_csv(path)
    _check(frame, path, info)
    if info.regular:
        # pandas checks every step against the frequency in this assignment
        frame.index.freq = info.freq  # type: ignore[attr-defined]
    return frame


def _read_csv(path: Path) -> "pd.DataFrame":
    """Read a CSV with a header and ISO 8601 stamps in the first column, whatever its name."""
    import pandas as pd

    raw = pd.read_csv(path, encoding="utf-8", **_exactly())
    index = pd.DatetimeIndex(pd.to_datetime(raw.iloc[:, 0], format="ISO8601"), name="ds").as_unit("ns")
    frame: pd.DataFrame = raw.iloc[:, 1:].astype("float64").set_axis(index, axis=0)
    return frame


def _read_matrix(path: Path, info: SeriesInfo) -> "pd.DataFrame":
    """Read a file of numbers only; names and stamps come from the registry."""
    import pandas as pd

    frame: pd.DataFrame = pd.read_csv(path, header=None, dtype="float64", **_exactly())
    frame.index = pd.date_range(info.start, periods=len(frame), freq=info.freq, name="ds").as_unit("ns")
    if frame.shape[1] == len(info.columns):
        frame.columns = pd.Index(info.columns)
    return frame


def _exactly() -> dict[str, Any]:
    """Options with which ``read_csv`` returns the float64 nearest to the text, like Python's ``float()``."""
    import pandas as pd

    # from pandas 3.1 on this is the only way to read, and the option is deprecated; before, the last bit may be wrong
    major, minor = (int(part) for part in pd.__version__.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}


def _check(frame: "pd.DataFrame", path: Path, info: SeriesInfo) -> None:
    if frame.shape != info.shape or tuple(frame.columns) != info.columns:
        raise ValueError(
            f"{path} has the checksum registered for {info.name}, but was read as {frame.shape[0]} rows x "
            f"{frame.shape[1]} columns instead of {info.shape[0]} x {info.shape[1]} with the registered column names. "
            "This is an error in the registry of titans_datasets; please report it."
        )
