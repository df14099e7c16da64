"""Convert the step and the end of time stamps to JSON values, and back."""

from typing import Any

import pandas as pd

from titans_core.warn import warn_caller
from titans_ts.frames.stamps import Step


def warn_of_stamps(index: pd.Index, step: Step) -> None:
    """Warn of time stamps that a model cannot be saved with, before it is trained."""
    if not isinstance(index, pd.DatetimeIndex):
        return
    try:
        pack_step(step)
        pack_end(index)
    except ValueError as error:
        warn_caller(f"save() will fail: {error}")


def pack_step(step: Step) -> Any:
    """A step as JSON: a number, a name, or the parts of a DateOffset or CustomBusinessDay.

    Raises:
        ValueError: any other step.
    """
    if isinstance(step, int):
        return step
    parts = {"n": step.n, "normalize": getattr(step, "normalize", False)}
    if type(step) is pd.offsets.CustomBusinessDay and not step.kwds["offset"]:
        days = "".join(str(int(day)) for day in step.calendar.weekmask)
        mask = step.weekmask if isinstance(step.weekmask, str) else days  # steps with another spelling are not equal
        return {**parts, "weekmask": mask, "holidays": [str(day) for day in step.calendar.holidays]}
    parts |= getattr(step, "kwds", {})
    if type(step) is pd.DateOffset and all(isinstance(value, int) for value in parts.values()):
        return parts
    try:
        same = pd.tseries.frequencies.to_offset(step.freqstr) == step
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"freq={step!r} cannot be restored from its name, so the model cannot be saved. Fit with a named frequency "
            "such as 'B', or on integer time stamps."
        )
    return step.freqstr


def unpack_step(saved: Any) -> Any:
    """Restore a step that :func:`pack_step` saved by its parts; anything else is unchanged."""
    if not isinstance(saved, dict):
        return saved
    return (pd.offsets.CustomBusinessDay if "weekmask" in saved else pd.DateOffset)(**saved)


def pack_end(index: pd.DatetimeIndex) -> dict[str, Any]:
    """The end of a DatetimeIndex as JSON: the time in UTC, the time zone and the resolution."""
    zone, last = None, index[-1]
    if index.tz is not None:
        zone, last = str(index.tz), last.tz_convert("UTC").tz_localize(None)
        try:
            known = zone != "tzlocal()" and pd.Timestamp(0, tz="UTC").tz_convert(zone).tz is not None
        except Exception:  # the time zone libraries used by pandas raise different errors
            known = False
        if not known:
            raise ValueError(
                f"the model was fitted on time stamps in the time zone {zone}, which cannot be saved by name. "
                "Before fit, convert them to a named time zone: df.index.tz_convert('Europe/Berlin')."
            )
    return {"last": last.isoformat(), "timezone": zone, "unit": index.unit}
