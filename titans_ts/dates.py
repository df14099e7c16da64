"""Time stamps as files write them: dates in many forms, with or without an offset, or whole numbers."""

import re
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from titans_datasets.warn import warn_caller
from titans_ts.stamps import FORM_OF, form_of

# of time stamps that are meant: others come of text that was taken for what it is not
_YEARS = (1700, 2200)
# quarters, weeks (ISO 8601: from Monday) and months as they are written; what is read for them, and in which form
_PERIODS = (
    (r"Q([1-4])[ ./-]?(\d{4})", r"\2Q\1", None),
    (r"([1-4])Q[ ./-]?(\d{4})", r"\2Q\1", None),
    (r"(\d{4})[ ./-]?Q([1-4])", r"\1Q\2", None),
    (r"(\d{4})-?W(\d{1,2})", r"\1-W\2-1", "%G-W%V-%u"),
    (r"(\d{4})-?M(\d{1,2})", r"\1-\2", "%Y-%m"),
)


# days, and hours, minutes and seconds of them, as whole numbers
_WHOLE = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(([01]\d|2[0-3])([0-5]\d([0-5]\d)?)?)?"

_ISO = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?$"


def in_place(stamps: pd.Series, timezone: str | None, series: pd.Series | None = None) -> pd.Series:
    """Time stamps by the clock of a place; None: as they are.

    Those without an offset are read on that clock. An hour that it shows twice is the first and then the second time,
    as the rows of a series go on.

    Args:
        stamps: of a file.
        timezone: name of the place.
        series: whose each row is; None: of one.

    Raises:
        ValueError: no such place, whole numbers, or a clock that never showed such times.
    """
    if timezone is None:
        return stamps
    if not pd.api.types.is_datetime64_any_dtype(stamps):
        raise ValueError(f"--timezone is for time stamps, and column {stamps.name!r} has {stamps.dtype} ones.")
    try:
        pd.Timestamp(0, tz="UTC").tz_convert(timezone)
    except (KeyError, ValueError) as error:  # of zoneinfo, which knows no such name
        raise ValueError(f"{timezone!r} is no time zone; expected a name such as 'Europe/Berlin'.") from error
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        return stamps.dt.tz_convert(timezone)
    try:
        if series is None:
            return stamps.dt.tz_localize(timezone, ambiguous="infer")
        parts = [own.dt.tz_localize(timezone, ambiguous="infer") for _, own in stamps.groupby(series, sort=False)]
        return pd.concat(parts).reindex(stamps.index) if parts else stamps
    except Exception as error:  # an hour left out in spring, or either of two in autumn; pytz has errors of its own
        raise ValueError(
            f"column {stamps.name!r} is not by the clock of {timezone}: {error}. Write such stamps with their offset "
            "from UTC, as 2024-10-27T02:30+01:00."
        ) from error


def read_stamps(column: pd.Series, date_format: str | None, warn: bool = True, others: Sequence[str] = ()) -> pd.Series:
    """A column as time stamps, or as the whole numbers that it holds.

    Args:
        column: of a file.
        date_format: as in :func:`~titans_ts.files.read_series`.
        warn: say where stamps are in UTC because their offsets change.
        others: columns that may be the time if this is none; the message names them.

    Raises:
        ValueError: it holds something else, or dates that can be read in two ways; or a stamp is missing.
    """
    empty = np.flatnonzero(column.isna())
    if len(empty):
        raise ValueError(
            f"column {column.name!r}, the time, is empty in {len(empty)} rows, first in row {empty[0] + 1} below the "
            "header. Drop or fill those rows."
        )
    number = pd.api.types.is_float_dtype(column)
    try:
        if number and (column % 1 == 0).all():
            column = column.astype("int64")
        found = _read_stamps(column, date_format, warn)
    except (ValueError, TypeError) as error:
        said = str(error).split(". You might want")[0]  # what follows is on the arguments of pandas
        raise ValueError(
            f"column {column.name!r} does not hold time stamps: {said}. {_advice(number, date_format, others)}"
        ) from error
    if pd.api.types.is_datetime64_any_dtype(found):
        odd = np.flatnonzero(~found.dt.year.between(*_YEARS))
        if len(odd):
            raise ValueError(
                f"column {column.name!r} does not hold time stamps that can be read: {column.iloc[odd[0]]!r} would be "
                f"in the year {found.dt.year.iloc[odd[0]]:.0f}. Name their form with --date-format, such as '%b-%y'."
            )
    return found


def _advice(number: bool, date_format: str | None, others: Sequence[str]) -> str:
    if number:
        advice = "Write the time as dates or as whole numbers"
    elif date_format is not None:
        advice = "Give another --date-format, or leave it out"
    else:
        advice = "Name the form of its dates with --date-format, such as '%d.%m.%Y'"
    return advice + (f"; or name the column of the time with --time, of {list(others)[:8]}." if others else ".")


def _read_stamps(column: pd.Series, date_format: str | None, warn: bool) -> pd.Series:
    if date_format is not None:
        return pd.to_datetime(column.astype(str), format=date_format)
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    text = column.astype(str).str.strip()
    if pd.api.types.is_integer_dtype(column):
        whole = text.str.fullmatch(_WHOLE).all() and text.str.len().nunique() == 1
        form = FORM_OF.get(len(text.iloc[0])) if whole else form_of(pd.Index(column))
        return column if form is None else pd.to_datetime(text, format=form)
    if pd.api.types.is_numeric_dtype(column):
        raise ValueError(f"it holds numbers with fractions, such as {column[column % 1 != 0].iloc[0]}")
    periods = _of_periods(text)
    if periods is not None:
        return periods
    numbers = text.str.extract(r"^(\d{1,2})[./-](\d{1,2})[./-]\d")
    if numbers.notna().all(axis=None):
        day_first, month_first = (numbers[i].astype(int).max() > 12 for i in (0, 1))
        if not day_first and not month_first:
            raise ValueError(f"{text.iloc[0]!r} may begin with the day or with the month")
        if day_first and text.str.fullmatch(r"\d{1,2}[./-]\d{1,2}[./-]\d\d(\D.*)?").all():
            raise ValueError(f"{text.iloc[0]!r} may begin with the day or with the year")
        return _to_datetime(text, dayfirst=bool(day_first))
    if text.str.fullmatch(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?").all():
        raise ValueError(f"it holds times of the day without a date, such as {text.iloc[0]!r}")
    try:
        return _to_datetime(column)
    except ValueError:
        # in forms that change: a midnight without its hours, seconds with and without fractions
        forms = pd.to_datetime(column, format="ISO8601", errors="coerce") if text.str.match(_ISO).all() else None
        if forms is not None and forms.notna().all():
            return forms
        found = _to_datetime(column, utc=True)  # offsets that change, as with summer time
        if warn:
            warn_caller(
                f"the offsets of column {column.name!r} change, as with summer time: it is read in UTC. For the "
                "days and the clock of a place, name it: --timezone Europe/Berlin."
            )
        return found


def _of_periods(text: pd.Series) -> pd.Series | None:
    """The first days of quarters, weeks or months in forms that no --date-format can say; else None."""
    for written, known, form in _PERIODS:
        if re.fullmatch(written, text.iloc[0]) and text.str.fullmatch(written).all():
            periods = text.str.replace(written, known, regex=True)
            if form is None:
                return pd.Series(pd.PeriodIndex(periods, freq="Q").to_timestamp(), periods.index, name=periods.name)
            return pd.to_datetime(periods, format=form)
    return None


def _to_datetime(column: pd.Series, dayfirst: bool = False, utc: bool = False) -> pd.Series:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not infer format", UserWarning)  # what cannot be read is told in words
        return pd.to_datetime(column, dayfirst=dayfirst, utc=utc)
