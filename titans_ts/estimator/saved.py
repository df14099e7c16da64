"""Convert a fitted forecaster to JSON values and tensors, and back."""

from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from titans_core import MemoryState
from titans_core.train import History
from titans_ts.estimator.model import Model, Position
from titans_ts.frames.exogenous import Columns
from titans_ts.frames.panel import Panel
from titans_ts.frames.saved_stamps import pack_end, pack_step, unpack_step
from titans_ts.frames.stamps import date_range
from titans_ts.intervals import Calibration
from titans_ts.network import online
from titans_ts.network.memory_training import MemoryReport
from titans_ts.network.objective import objective_of
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.units.column_units import ColumnUnits
from titans_ts.units.scaling import Scaling, Units

if TYPE_CHECKING:
    from titans_ts.forecaster import TitansForecaster

_UNITS = tuple(part.name for part in fields(ColumnUnits))


def pack(model: "TitansForecaster") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fitted state of a forecaster, as JSON values and tensors."""
    config, context = model._fitted(), model.context_
    is_integer = isinstance(context.freq, int)
    learned = {
        "ids": [i.item() if isinstance(i, np.generic) else i for i in context.ids],
        "freq": pack_step(context.freq),
        **({"last": int(context.index[-1])} if is_integer else pack_end(pd.DatetimeIndex(context.index))),
        "layout": context.layout,
        "library": context.library,
        "rows": model.position_.rows,
        "network": asdict(config),
        "columns": asdict(model.scaling_.columns),
        "loss": model.model_.objective.name,
        "history": {"epochs": model.history_.epochs, "best_epoch": model.history_.best_epoch},
        "memory_report": asdict(model.memory_report_),
        "left_out": [i.item() if isinstance(i, np.generic) else i for i in model.left_out_],
        "seconds": model.seconds_,
        "calibration": None
        if model.calibration_ is None
        else {"step": model.calibration_.step, "phase": model.calibration_.phase},
        "pending": list(model.position_.pending),
        "streams": [
            {"series": s.series.tolist(), "rows": s.rows, "offset": None if s.state is None else s.state.offset}
            for s in model.position_.streams
        ],
    }
    arrays = {
        "context": context.values,
        "context_hist": context.hist,
        "context_futr": context.futr,
        "context_stat": context.stat,
        "context_drawn": context.imputed,
        "mean": model.mean_,
        "scale": model.scale_,
        "deviation": model.scaling_.units.deviation,
        "profile": model.scaling_.units.profile,
        "limits": model.scaling_.units.limits,
    }
    if model.calibration_ is not None:
        arrays["calibration"] = model.calibration_.scores
    tensors = {k: torch.tensor(v) for k, v in arrays.items()}
    for kind, units in model.scaling_.exogenous.items():
        tensors |= {f"scaling.{kind}.{name}": getattr(units, name) for name in _UNITS}
    tensors |= {f"network.{k}": v for k, v in model.network_.state_dict().items()}
    if model.memory_ is not None:
        tensors |= {f"memory.{k}": v for k, v in model.memory_.state_dict().items()}
    if model.model_.widening is not None:
        tensors["widening"] = model.model_.widening
    if model.position_.pending:
        tensors["pending"] = torch.stack(list(model.position_.pending.values()))
    for i, stream in enumerate(model.position_.streams):
        if stream.state is not None:
            parts = ("weights", "momentum", "anchor")
            tensors |= {f"stream.{i}.{name}": getattr(stream.state, name)[0] for name in parts}
    return learned, tensors


def plain(model: "TitansForecaster") -> "TitansForecaster":
    """The forecaster with arguments that can be written as JSON."""
    found = copy(model)
    if isinstance(model.exogenous, Mapping):  # names may be given as a pandas index or an array
        found.exogenous = {k: x if isinstance(x, str) else list(x) for k, x in model.exogenous.items()}
    if isinstance(model.freq, pd.offsets.BaseOffset):
        found.freq = pack_step(model.freq)
    return found


def unpack(model: "TitansForecaster", learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Restore the fitted state from the output of :func:`pack`."""
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        of, _, rest = name.partition(".")
        parts[of][rest] = tensor
    streams: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in parts["stream"].items():
        number, _, rest = name.partition(".")
        streams[number][rest] = tensor

    context, hist, futr, stat, mean, scale = (
        tensors[k].numpy() for k in ("context", "context_hist", "context_futr", "context_stat", "mean", "scale")
    )
    rows, freq = len(context), learned["freq"]
    model.freq = unpack_step(model.freq)
    if isinstance(freq, int):
        stop = learned["last"] + freq
        index: pd.Index = pd.RangeIndex(stop - rows * freq, stop, freq, name="ds")
    else:
        last = pd.Timestamp(learned["last"], tz="UTC").tz_convert(learned["timezone"])
        freq = pd.tseries.frequencies.to_offset(unpack_step(freq))
        index = date_range(freq, end=last, periods=rows).as_unit(learned["unit"])
    layout, library, imputed = learned["layout"], learned["library"], tensors["context_drawn"].numpy()
    panel = Panel(context, learned["ids"], index, freq, layout, library, hist, futr, stat, imputed)

    network = Simba(SimbaConfig(**learned["network"]))
    network.load_state_dict(parts["network"])
    network.eval()
    memory = None
    if "memory" in parts:
        memory = online.OnlineMemory(network.config.input_size, network.config.h)
        memory.load_state_dict(parts["memory"])
        memory.eval()
    columns = Columns(**{kind: tuple(names) for kind, names in learned["columns"].items()})
    deviation, profile, limits = (tensors[k].numpy() for k in ("deviation", "profile", "limits"))
    units = Units(mean, scale, deviation, profile, limits, columns.profile)
    kinds = {name.partition(".")[0] for name in parts["scaling"]}
    of_columns = {kind: ColumnUnits(**{x: parts["scaling"][f"{kind}.{x}"] for x in _UNITS}) for kind in kinds}
    scaling = Scaling(columns, units, of_columns)
    found = Model(network, objective_of(learned["loss"]), scaling, memory, tensors.get("widening"))
    calibration = None
    if "calibration" in tensors:
        calibration = Calibration(tensors["calibration"].numpy(), **learned["calibration"])
    pending = dict(zip(learned["pending"], tensors.get("pending", ()), strict=True))
    stood = [_stream(stream, streams[str(i)]) for i, stream in enumerate(learned["streams"])]
    position = Position(panel, learned["rows"], stood, calibration, pending)
    history, report = History(**learned["history"]), MemoryReport(**learned["memory_report"])
    model._take(found, position, history, report, learned["left_out"], learned["seconds"])


def _stream(saved: dict[str, Any], tensors: dict[str, Tensor]) -> online.Stream:
    state = None
    if tensors:
        layers = [(tensors[name],) for name in ("weights", "momentum", "anchor")]
        state = MemoryState(layers[0], layers[1], layers[2], offset=saved["offset"])
    return online.Stream(torch.tensor(saved["series"]), saved["rows"], state)
