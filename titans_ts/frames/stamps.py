"""Checks of time stamps (sorted, unique, regular) and inference of their step."""

import re
import warnings
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd

from titans_core.warn import warn_caller
from titans_ts.frames.libraries import is_stamps

Freq = str | int | pd.offsets.BaseOffset | timedelta | np.timedelta64
Step = pd.offsets.BaseOffset | int
FORMS = {"%Y%m": "months", "%Y%m%d": "days", "%Y%m%d%H": "hours", "%Y%m%d%H%M": "minutes", "%Y%m%d%H%M%S": "seconds"}
FORM_OF = {2 + 2 * form.count("%"): form for form in FORMS}  # by number of digits
MOST_LEFT_OUT = 0.4  # of the rows of an axis may be missing without a warning
# so many missing rows, a hundred times the known ones, are a wrong time stamp; their table may not fit into memory
FAR, TIMES = 10_000_000, 100
CLOSED = (
    " If the data has no rows for closed days, "
    "pass freq=pd.offsets.CustomBusinessDay(weekmask='Mon Tue Wed Thu Fri Sat', holidays=[...])."
)
_ANY_TIME = pd.Timestamp(2001, 1, 1)
_OFFSET = re.compile(r":\d\d(?:\.\d+)?\s*(?:[+-]\d\d:?\d\d|Z)$")


def check_kind(ds: pd.Series, where: str = "df") -> None:
    """Reject a time column that holds neither time stamps nor integers."""
    of = "" if where == "df" else f" of {where}"
    if isinstance(ds.dtype, pd.PeriodDtype):
        raise ValueError(f"column 'ds'{of} holds periods. Convert it with {where}['ds'].dt.to_timestamp().")
    if not (is_stamps(ds) or pd.api.types.is_integer_dtype(ds)):
        first = ds.dropna().head(1).astype(str)
        zone = " (utc=True, then .dt.tz_convert to your time zone)" if first.str.contains(_OFFSET).any() else ""
        raise ValueError(
            f"column 'ds'{of} must hold time stamps or integers, got {ds.dtype}. Convert it with pd.to_datetime{zone}."
        )


def check_order(index: pd.Index, where: str) -> None:
    """Reject duplicate and unsorted time stamps."""
    if index.is_monotonic_increasing and index.is_unique:
        return
    if index.has_duplicates:
        again = index[index.duplicated()]
        raise ValueError(
            f"{where} has {len(again)} duplicate time stamps, first: {again[0]}. Aggregate or drop them."
            + _of_summer_time(again)
        )
    position = int(np.flatnonzero(index[1:] < index[:-1])[0]) + 1
    raise ValueError(
        f"{where} is not sorted by time: {index[position]} comes after {index[position - 1]}. Sort it first: "
        + ("df.sort_index(), or df.sort_values('ds')." if where == "df" else "df.sort_values(['unique_id', 'ds']).")
    )


def _of_summer_time(odd: pd.Index) -> str:
    """Advice if all odd stamps lie in the hours of a Sunday in which clocks change."""
    if not isinstance(odd, pd.DatetimeIndex) or odd.tz is not None:
        return ""
    if not ((odd.day_of_week == 6) & (odd.hour <= 3)).all():
        return ""
    return (
        " If daylight saving time starts or ends there, set the time zone: "
        "ds.dt.tz_localize('Europe/Berlin', ambiguous='infer')."
    )


def find_step(index: pd.Index, freq: Freq | None, where: str) -> Step:
    """``freq`` as a step of this sorted index; None infers it.

    Raises:
        ValueError: it cannot be inferred, or ``freq`` is unknown or does not suit the type of the index.
    """
    is_integer = not isinstance(index, pd.DatetimeIndex)
    if freq is None:
        freq = _guess(index, is_integer, where)
    if is_integer:
        if not isinstance(freq, (int, np.integer)) or freq < 1:
            raise ValueError(f"freq must be a positive integer for integer time stamps, got {freq!r}.")
        return int(freq)
    try:
        step: Any = pd.Timedelta(freq) if isinstance(freq, np.timedelta64) else freq
        found = pd.tseries.frequencies.to_offset(step)
    except (ValueError, TypeError) as error:
        meant = re.search(r"(?:use '|you mean )(\w+)", str(error))
        raise ValueError(
            f"unknown freq {freq!r}: use a pandas frequency such as 'h', '15min', 'D', 'MS'."
            + (f" Did you mean {meant[1]!r}?" if meant else "")
        ) from error
    if not _ANY_TIME + found > _ANY_TIME:
        raise ValueError(f"freq must be a step forward in time, got {freq!r}.")
    # a Nano offset is turned into the largest whole unit, so that it is saved by a name such as "h"
    return pd.tseries.frequencies.to_offset(pd.Timedelta(found)) if isinstance(found, pd.offsets.Nano) else found


def ticks(index: pd.Index) -> np.ndarray:
    """Time stamps (in UTC) or integers as a numpy array."""
    return (index.tz_convert(None) if isinstance(index, pd.DatetimeIndex) and index.tz else index).to_numpy()


def check_span(index: pd.Index, step: Step, where: str) -> None:
    """Refuse sorted time stamps so far apart that one of them must be wrong, such as a date of 1970 among seconds.

    Raises:
        ValueError: an axis from the first to the last has :data:`FAR` rows more and is :data:`TIMES` as long.
    """
    if isinstance(step, int):
        length = int(index[-1] - index[0]) // step
    elif isinstance(step, pd.offsets.Tick):
        length = (index[-1] - index[0]) // pd.Timedelta(step)
    else:  # days and more: pandas has too few of them
        return
    if length - len(index) > FAR and length > TIMES * len(index):
        at = int(np.diff(ticks(index)).argmax())
        raise ValueError(
            f"{where} would have {length} rows with a step of {name_of(step)!r}, nearly all of them missing: none is "
            f"known between {index[at]} and {index[at + 1]}. If one of these time stamps is wrong, correct it; if the "
            "step is, pass freq."
        )


def check_regular(index: pd.Index, step: Step, where: str, gaps: bool = False) -> pd.Index:
    """The regular axis of a sorted index; with ``gaps``, time stamps may be missing.

    Raises:
        ValueError: a missing time stamp, or one off the axis; the message names it. Integers that look like dates in
            one of :data:`FORMS`. With ``gaps``, see also :func:`check_span`.
    """
    if isinstance(step, int):  # otherwise 202413 to 202500, or 20240132 to 20240200, would count as missing
        form = form_of(index)
        if form is not None:
            raise ValueError(
                f"{where} has integer time stamps that look like {FORMS[form]}: {index[0]} to {index[-1]}. Convert "
                f"them with pd.to_datetime(..., format='{form}')."
            )
    if gaps and len(index) > 2:
        check_span(index, step, where)
    axis = _axis(index, step, to_last=gaps)
    if gaps:
        wrong = np.flatnonzero(axis.get_indexer(index) < 0)
        expected = f"whole steps from {index[0]}"
    else:
        wrong = np.flatnonzero(ticks(axis) != ticks(index))
        expected = str(axis[int(wrong[0])]) if len(wrong) else ""
    left_out = len(axis) - len(index)
    if gaps and not len(wrong) and left_out > len(axis) * MOST_LEFT_OUT and len(index) > 2:
        warn_caller(
            f"{where} has {len(index)} rows from {index[0]} to {index[-1]}; with a step of {name_of(step)!r}, "
            f"{left_out} rows are missing. If this is wrong, "
            + ("pass its freq." if isinstance(index, pd.DatetimeIndex) else "convert its numbers to time stamps.")
        )
    if len(wrong):
        i = int(wrong[0])
        after = f" after {index[i - 1]}" if i and not gaps else ""
        fill = "Fill the gap (for instance with df.resample, or missing='interpolate' or 'mask'), or give"
        of_days = isinstance(step, (pd.offsets.Day, pd.offsets.BusinessDay))
        closed = "" if gaps or not of_days else CLOSED
        raise ValueError(
            f"{where} has irregular time stamps for freq {name_of(step)!r}: "
            f"expected {expected}{after}, got {index[i]}. {'Give' if gaps else fill} fit the freq of the data."
            + (closed if of_days else _of_summer_time(index[i : i + 1]))
        )
    return axis


def form_of(index: pd.Index) -> str | None:
    """The date format of integers, such as "%Y%m" for 202412 and 202501, if all of them fit one; else None."""
    numbers = np.unique(index.dropna().to_numpy(dtype=np.int64))
    if _are_months(numbers):
        return "%Y%m"
    digits = len(str(numbers[-1])) if len(numbers) else 0
    form = FORM_OF.get(digits)
    # two numbers prove nothing, and dates within one month (one day, with hours) are regular as plain integers too
    if form in (None, "%Y%m") or len(numbers) < 3 or len(np.unique(numbers // 100)) == 1:
        return None
    a_year = 10 ** (digits - 4)
    if numbers[0] // a_year < 1900 or numbers[-1] // a_year >= 2100 or np.diff(numbers).min() >= a_year:
        return None
    read = pd.to_datetime(pd.Series(numbers).astype(str), format=form, errors="coerce")
    return form if read.notna().all() else None


def _are_months(numbers: np.ndarray) -> bool:
    """Whether numbers are months such as 202412 and 202501 across the end of a year, and not quarters."""
    years, months = numbers // 100, numbers % 100
    of_months = (years >= 1900) & (years < 2100) & (months >= 1) & (months <= 12)
    # January is 89 more than December, and a little more if months are missing
    return len(numbers) > 1 and bool(of_months.all() and 89 <= np.diff(numbers).max() < 97)


def stamps_of(index: pd.Index) -> pd.Index:
    """Convert pyarrow time stamps to pandas ones, and integers to signed ones, which differences need."""
    if isinstance(index.dtype, pd.ArrowDtype) and is_stamps(index):
        arrow = index.dtype.pyarrow_dtype
        unit, zone = getattr(arrow, "unit", "s"), getattr(arrow, "tz", None)  # dates have neither
        dtype: Any = f"datetime64[{unit}]" if zone is None else pd.DatetimeTZDtype(unit, zone)
        return pd.DatetimeIndex(index.to_series().astype(dtype), name=index.name)
    return index.astype(np.int64) if pd.api.types.is_integer_dtype(index) and not index.hasnans else index


def in_zone(index: pd.Index, known: pd.Index | None, what: str = "the time stamps") -> pd.Index:
    """Convert time stamps to the time zone of ``known``; integers are unchanged.

    Raises:
        ValueError: only one of the two has time stamps instead of integers, or a time zone.
    """
    if known is None:
        return index
    if isinstance(index, pd.DatetimeIndex) != isinstance(known, pd.DatetimeIndex):
        now, then = (f"{x.dtype}, such as {x[0]}" if len(x) else str(x.dtype) for x in (index, known))
        raise ValueError(
            f"{what} have another type than those of fit: {now}, instead of {then}. Convert them"
            + (" with pd.to_datetime." if isinstance(known, pd.DatetimeIndex) else ", or fit again.")
        )
    if not (isinstance(index, pd.DatetimeIndex) and isinstance(known, pd.DatetimeIndex)):
        return index
    theirs, ours = known.tz, index.tz
    if (theirs is None) != (ours is None):
        raise ValueError(
            f"{what} have {'no time zone' if ours is None else f'the time zone {ours}'}, but those of fit had "
            f"{'none' if theirs is None else theirs}. Convert them with tz_localize or tz_convert."
        )
    return index if str(theirs) == str(ours) else index.tz_convert(theirs)


def following(last: object, step: Step, h: int) -> pd.Index:
    """The h time stamps after the last."""
    if isinstance(step, int):
        begin = int(last)  # type: ignore[call-overload]
        return pd.RangeIndex(begin + step, begin + (h + 1) * step, step, name="ds")
    return date_range(step, start=last, periods=h + 1)[1:]


def preceding(first: object, step: Step, h: int) -> pd.Index:
    """The h time stamps before the first."""
    if isinstance(step, int):
        end = int(first)  # type: ignore[call-overload]
        return pd.RangeIndex(end - h * step, end, step, name="ds")
    return date_range(step, end=first, periods=h + 1)[:-1]


def between(first: Any, last: Any, step: Step) -> pd.Index:
    """The time stamps between first and last; none if they are not a whole number of steps apart.

    Raises:
        ValueError: they are too far apart (:func:`check_span`).
    """
    check_span(pd.Index([first, last]), step, "the data")
    axis = pd.RangeIndex(first, last + 1, step) if isinstance(step, int) else date_range(step, start=first, end=last)
    return axis[1:-1] if len(axis) and axis[-1] == last else axis[:0]


def date_range(step: pd.offsets.BaseOffset, **ends: Any) -> pd.DatetimeIndex:
    """``pd.date_range`` that also works if daylight saving time skips the hour at which a day starts.

    That day starts after the skipped hour. The unit is that of the ends, with pandas 2 also, unless the step is finer.
    """
    stamps = {name: pd.Timestamp(ends[name]) for name in ("start", "end") if name in ends}
    zone = next(stamp.tz for stamp in stamps.values())
    if zone is None or (isinstance(step, pd.offsets.Tick) and not isinstance(step, pd.offsets.Day)):
        found = pd.date_range(**ends, freq=step, name="ds")
    else:
        ends |= {name: on_the_wall(pd.DatetimeIndex([stamp]))[0] for name, stamp in stamps.items()}
        found = _in(zone, pd.date_range(**ends, freq=step, name="ds"))
    of_ends = found.as_unit(next(stamp.unit for stamp in stamps.values()))
    return of_ends if (of_ends == found).all() else found


def on_the_wall(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Local time without the time zone; days whose midnight was skipped start at midnight again."""
    if index.tz is None:
        return index
    wall = index.tz_localize(None)
    days = wall.normalize()
    late = (days != wall) & (_in(index.tz, days) == index)
    return wall.where(~late, days)


def _in(zone: Any, wall: pd.DatetimeIndex) -> pd.DatetimeIndex:
    return wall.tz_localize(zone, nonexistent="shift_forward", ambiguous=np.ones(len(wall), dtype=bool))


def name_of(step: Step) -> str | int:
    return step if isinstance(step, int) else step.freqstr


def around(
    origins: pd.DatetimeIndex, step: pd.offsets.BaseOffset, before: int, after: int
) -> tuple[pd.Index, np.ndarray]:
    """A regular time axis with ``before`` stamps before each origin and ``after`` from it on, and the positions of
    these stamps for each origin, ``[len(origins), before + after]``.

    Raises:
        ValueError: origins that do not lie on one axis with this step.
    """
    first, last = origins.min(), origins.max()
    axis = date_range(step, start=first, end=last)
    at = axis.get_indexer(origins)
    if (at < 0).any():
        raise ValueError(f"origins must be time stamps on one axis with freq {step!r}.")
    earlier = date_range(step, end=first, periods=before + 1)[:-1]
    later = date_range(step, start=last, periods=after)[1:]
    return earlier.append([axis, later]), at[:, None] + np.arange(before + after)


def _axis(index: pd.Index, step: Step, to_last: bool) -> pd.Index:
    if isinstance(step, int):
        stop = index[-1] + 1 if to_last else index[0] + len(index) * step
        return pd.RangeIndex(index[0], stop, step)
    if to_last:
        return date_range(step, start=index[0], end=index[-1])
    return date_range(step, start=index[0], periods=len(index))


def _guess(index: pd.Index, is_integer: bool, where: str) -> Freq:
    if len(index) < 3:
        raise ValueError(
            f"freq cannot be inferred from {len(index)} time stamps of {where}. Pass freq, such as freq='h'."
        )
    steps = np.diff(ticks(index))
    if is_integer:
        return int(np.median(steps))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas announces another result type; both work here
        inferred = pd.infer_freq(pd.DatetimeIndex(index))
    if inferred is not None:
        return inferred
    # not regular: try the most frequent step
    values, counts = np.unique(steps, return_counts=True)
    commonest = pd.Timedelta(values[counts.argmax()])
    of_calendar = _of_calendar(pd.DatetimeIndex(index), commonest)
    if of_calendar is not None:
        return of_calendar
    others = values[values != commonest]
    # if no other step is a multiple of it, it is not the true step: from each 1st to the 15th it is always 14 days
    if counts.max() * 2 > len(steps) and (len(others) == 0 or not (others % commonest).all()):
        return pd.tseries.frequencies.to_offset(commonest)
    odd = int(np.flatnonzero(steps != commonest)[0])
    raise ValueError(
        f"freq cannot be inferred: the time stamps of {where} have {len(values)} different steps, "
        f"from {pd.Timedelta(values[0])} to {pd.Timedelta(values[-1])}; the most frequent is {commonest}, the first "
        f"other one is from {index[odd]} to {index[odd + 1]}. "
        "Make them regular (for instance with df.resample), or pass freq (such as 'SMS' for 1st and 15th of a month)."
    )


def _of_calendar(index: pd.DatetimeIndex, commonest: pd.Timedelta) -> pd.offsets.BaseOffset | None:
    """The coarsest step, of a day or more, that fits stamps with one time of day, some of which are missing."""
    local = on_the_wall(index)
    dates = local.normalize()
    if commonest < pd.Timedelta("23h") or (local - dates).nunique() > 1:
        return None
    days = np.diff(dates.to_numpy().astype("datetime64[D]").astype(int))
    months = _unit(np.diff(local.year * 12 + local.month))
    if commonest >= pd.Timedelta("28D") and months:
        if (local.day == 1).all():
            return pd.offsets.MonthBegin(months)
        if (local.day == local.days_in_month).all():  # is_month_end fails with a DateOffset as the step of the index
            return pd.offsets.MonthEnd(months)
        if local.day.nunique() == 1 and local.day[0] <= 28:
            return pd.DateOffset(months=months)
    apart = _unit(days)
    if apart is None:
        return None
    if apart % 7 == 0:
        return pd.offsets.Week(apart // 7, weekday=int(local.day_of_week[0]))
    if apart == 1 and days.sum() > 7 and (local.day_of_week < 5).all():
        return pd.offsets.BusinessDay()
    return pd.offsets.Day(apart)


def _unit(steps: np.ndarray) -> int | None:
    """The most frequent step, if it is more than half of them and all are multiples of it."""
    values, counts = np.unique(steps, return_counts=True)
    commonest = int(values[counts.argmax()])
    most = counts.max() * 2 > len(steps)
    return commonest if most and commonest and not (steps % commonest).any() else None
