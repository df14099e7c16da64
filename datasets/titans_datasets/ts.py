"""Time-series sets as wide pandas frames: one row per stamp, one column per variate."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from titans_datasets import cache, registry
from titans_datasets.sources.entries import SeriesInfo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_series"]


def load_series(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> "pd.DataFrame":
    """One time-series set, complete and as published.

    Args:
        name: one of ``list_datasets("ts")``, in any case.
        data_home: folder that holds ``ts/<file>``; default ``TITANS_DATA_HOME``, else the user's cache.
        download: fetch the file where it is missing; it stays in the data home.

    Returns:
        Wide frame of shape ``info(name).shape``, float64, rows in time order. The index is a DatetimeIndex named
        ``ds`` (nanoseconds, no zone) that carries its ``freq``; of ``weather`` it has none, as a stamp repeats and
        some are missing. Nothing is scaled, filled or dropped. The caller owns the frame.

    Raises:
        ValueError: unknown name; the message lists the known ones and the closest.
        ChecksumError: the file is not the published one, or is cut short.
        OfflineError: the file is missing and cannot be fetched; the message says where to put it by hand.
        FileNotFoundError: the file is missing and ``download`` is false; same advice.
        PermissionError: the file is missing and there is no place to write it to.
    """
    info = registry.series_info(name)
    path = cache.obtain(info.published, cache.data_home(data_home), allow_download=download)
    frame = _read_matrix(path, info) if info.layout == "matrix" else _read_csv(path)
    _check(frame, path, info)
    if info.regular:
        # pandas checks every step against the frequency here
        frame.index.freq = info.freq  # type: ignore[attr-defined]
    return frame


def _read_csv(path: Path) -> "pd.DataFrame":
    """A header, and ISO 8601 stamps in the first column, whatever it is called."""
    import pandas as pd

    raw = pd.read_csv(path, encoding="utf-8", **_exactly())
    index = pd.DatetimeIndex(pd.to_datetime(raw.iloc[:, 0], format="ISO8601"), name="ds").as_unit("ns")
    frame: pd.DataFrame = raw.iloc[:, 1:].astype("float64").set_axis(index, axis=0)
    return frame


def _read_matrix(path: Path, info: SeriesInfo) -> "pd.DataFrame":
    """Numbers only: names and stamps are those of the registry."""
    import pandas as pd

    frame: pd.DataFrame = pd.read_csv(path, header=None, dtype="float64", **_exactly())
    frame.index = pd.date_range(info.start, periods=len(frame), freq=info.freq, name="ds").as_unit("ns")
    if frame.shape[1] == len(info.columns):
        frame.columns = pd.Index(info.columns)
    return frame


def _exactly() -> dict[str, Any]:
    """Options by which ``read_csv`` gives the float64 nearest to the text, as Python's ``float()`` does."""
    import pandas as pd

    # from 3.1 on there is no other way to read, and the option is deprecated; before, the default may miss the last bit
    major, minor = (int(part) for part in pd.__version__.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}


def _check(frame: "pd.DataFrame", path: Path, info: SeriesInfo) -> None:
    if frame.shape != info.shape or tuple(frame.columns) != info.columns:
        raise ValueError(
            f"{path} has the checksum registered for {info.name} but was read as {frame.shape[0]} rows x "
            f"{frame.shape[1]} columns, where {info.shape[0]} x {info.shape[1]} with the registered column names are "
            "expected. The registry of titans_datasets is wrong here; please report it."
        )
