"""Public data sets by name: downloaded once, verified byte for byte, returned as published.

    from titans_datasets import list_datasets, load, protocol_split
    frame = load("ETTh1")                                   # time series: wide, DatetimeIndex "ds", float64
    train = frame.iloc[protocol_split("ETTh1").train]
    data = load("mouse_2")                                  # DNA: data.sequences, data.labels, data.split
    data.audit()                                            # what its test part shares with train
    load("yeast").fasta                                     # genomes: paths
    load("gutenberg")[0]["text"]                            # text: records
    list_datasets("dna")                                    # names; without "dna", of all kinds

Files are stored in the folder ``data_home()``. Importing this package loads neither NumPy, pandas nor torch, and does
not use the network.
"""

from titans_datasets.cache import data_home
from titans_datasets.errors import ChecksumError, OfflineError
from titans_datasets.loading import load
from titans_datasets.registry import DatasetInfo, info, list_datasets
from titans_datasets.splits import Split, n_windows, protocol_split

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
