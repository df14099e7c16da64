"""Public data sets by name: fetched once, checked byte for byte, handed over as published.

    from titans_datasets import load, protocol_split
    frame = load("ETTh1")                                   # wide, DatetimeIndex "ds", float64
    train = frame.iloc[protocol_split("ETTh1").train]

Files lie in the folder ``data_home()``. Importing loads neither pandas nor torch and touches no network.
"""

from titans_datasets.cache import data_home
from titans_datasets.errors import ChecksumError, OfflineError
from titans_datasets.registry import DatasetInfo, info, list_datasets
from titans_datasets.splits import Split, n_windows, protocol_split
from titans_datasets.ts import load

__all__ = [
    "ChecksumError",
    "DatasetInfo",
    "OfflineError",
    "Split",
    "data_home",
    "info",
    "list_datasets",
    "load",
    "n_windows",
    "protocol_split",
]
