"""Generated data in place of data sets that are too large for the data home, in their published layout."""

import contextlib
import gzip
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd


def waves(rows: int, series: int, season: int = 24) -> np.ndarray:
    """Daily and weekly waves of different sizes, with noise: ``[rows, series]``."""
    rng = np.random.default_rng(0)
    t = np.arange(rows)[:, None]
    phase, size = rng.uniform(0, season, series), rng.lognormal(size=series)
    values = size * (2 + np.sin((t + phase) * 2 * np.pi / season) + 0.3 * np.sin(t * 2 * np.pi / (7 * season)))
    return values + 0.2 * size * rng.normal(size=values.shape)


@contextlib.contextmanager
def in_place_of(name: str, folder: Path, values: np.ndarray) -> Iterator[None]:
    """A context in which ``folder`` is the data home, and the data set ``name`` consists of these values, of any shape.

    They are written in the published layout (a matrix), so loading runs all its steps, including the checksum.
    """
    from titans_datasets import registry

    info = registry.series_info(name)
    path = folder / info.published.place
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", compresslevel=1) as file:
        pd.DataFrame(values).to_csv(file, header=False, index=False, float_format="%.6g")
    changed = replace(
        info,
        shape=values.shape,
        columns=info.columns[-values.shape[1] :],
        checksum=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
    )
    home = patch.dict(os.environ, TITANS_DATA_HOME=str(folder))
    with home, patch.dict(registry._REGISTRY, {info.name.lower(): changed}):
        yield
