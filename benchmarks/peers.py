"""Train and score neuralforecast models by the protocol."""

import logging
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

from titans_ts.evaluation import ProtocolData, score_windows

# no files, no logs
QUIET = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
    "enable_checkpointing": False,
}


def score_neuralforecast(model: Any, data: ProtocolData) -> dict[str, Any]:
    """Errors over all test windows, and the training time in seconds.

    The model has its own ``h``, ``input_size`` and settings. It is trained on the standardised train rows; the
    validation rows stop it if it stops early. Every test window is forecast.
    """
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from neuralforecast.tsdataset import TimeSeriesDataset

    rows, series = data.split.test.stop, data.values.shape[1]
    long = pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), rows),
            "ds": np.tile(np.arange(rows), series),
            "y": data.values[:rows].T.reshape(-1),
        }
    )
    dataset, *_ = TimeSeriesDataset.from_df(long)
    sizes = {"val_size": data.val_size, "test_size": rows - data.split.test.start}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        model.fit(dataset=dataset, **sizes)
        seconds = time.perf_counter() - begin
        model.set_test_size(sizes["test_size"])
        forecasts = np.asarray(model.predict(dataset=dataset, step_size=1))

    inputs, targets = data.windows("test", model.input_size, model.h)
    # ordered by series, then by window
    forecasts = forecasts.reshape(series, len(inputs), model.h).transpose(1, 2, 0)
    return {**score_windows(lambda _: forecasts, inputs, targets, batch_size=len(inputs)), "seconds": seconds}
