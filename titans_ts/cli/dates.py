"""Parsing of time stamps in files: dates in many formats, with or without UTC offset, or whole numbers."""

import re
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from titans_core.warn import warn_caller
from titans_ts.frames.libraries import is_stamps
from titans_ts.frames.stamps import FORM_OF, form_of

# years outside of this range indicate misread text
_YEARS = (1700, 2200)
# quarters, weeks (ISO 8601: from Monday) and months: pattern, replacement, date format
_PERIODS = (
    (r"Q([1-4])[ ./-]?(\d{4})", r"\2Q\1", None),
    (r"([1-4])Q[ ./-]?(\d{4})", r"\2Q\1", None),
    (r"(\d{4})[ ./-]?Q([1-4])", r"\1Q\2", None),
    (r"(\d{4})-?W(\d{1,2})", r"\1-W\2-1", "%G-W%V-%u"),
    (r"(\d{4})-?M(\d{1,2})", r"\1-\2", "%Y-%m"),
)
# days as whole numbers, with or without hours, minutes and seconds
_WHOLE = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(([01]\d|2[0-3])([0-5]\d([0-5]\d)?)?)?"
_ISO = r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?$"


def in_place(stamps: pd.Series, timezone: str | None, series: pd.Series | None = None) -> pd.Series:
    """Convert time stamps to a time zone; None leaves them unchanged.

    Stamps without UTC offset are taken as local time. The two passes of a repeated hour are told apart by the order of
    the rows of a series.

    Args:
        stamps: time stamps of a file.
        timezone: name of the time zone.
        series: the series of each row; None: one series.

    Raises:
        ValueError: an unknown time zone, whole numbers, or local times that do not exist or are ambiguous.
    """
    if timezone is None:
        return stamps
    if not is_stamps(stamps):
        raise ValueError(f"--timezone needs datetime time stamps, but column {stamps.name!r} has {stamps.dtype}.")
    try:
        pd.Timestamp(0, tz="UTC").tz_convert(timezone)
    except (KeyError, ValueError) as error:
        raise ValueError(f"unknown time zone {timezone!r}: use a name such as 'Europe/Berlin'.") from error
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        return stamps.dt.tz_convert(timezone)
    try:
        if series is None:
            return stamps.dt.tz_localize(timezone, ambiguous="infer")
        parts = [own.dt.tz_localize(timezone, ambiguous="infer") for _, own in stamps.groupby(series, sort=False)]
        return pd.concat(parts).reindex(stamps.index) if parts else stamps
    except Exception as error:  # a skipped hour in spring, an ambiguous one in autumn; pytz raises its own errors
        raise ValueError(
            f"column {stamps.name!r} is not in the local time of {timezone}: {str(error).rstrip('.')}. Sort the rows "
            "by time, or write such stamps with their UTC offset, as in 2024-10-27T02:30+01:00."
        ) from error


def read_stamps(column: pd.Series, date_format: str | None, warn: bool = True, others: Sequence[str] = ()) -> pd.Series:
    """Parse a column of time stamps; whole numbers that are no dates are kept.

    Args:
        column: column of a file.
        date_format: as in :func:`~titans_ts.cli.files.read_series`.
        warn: warn if stamps are converted to UTC because their offsets change.
        others: other candidates for the time column, for the error message.

    Raises:
        ValueError: a missing value, something other than time stamps, or ambiguous dates.
    """
    empty = np.flatnonzero(column.isna())
    if len(empty):
        raise ValueError(
            f"the time column {column.name!r} is empty in {len(empty)} rows, first in row {empty[0] + 1} below the "
            "header. Drop or fill those rows."
        )
    number = pd.api.types.is_float_dtype(column)
    try:
        if number and (column % 1 == 0).all():
            column = column.astype("int64")
        found = _read_stamps(column, date_format, warn)
    except (ValueError, TypeError) as error:
        reason = str(error).split(". You might want")[0]  # the rest is advice on arguments of pandas
        advice = _advice(column, number, date_format, others)
        raise ValueError(f"column {column.name!r} does not hold time stamps: {reason}. {advice}") from error
    if is_stamps(found):
        odd = np.flatnonzero(~found.dt.year.between(*_YEARS))
        if len(odd):
            raise ValueError(
                f"the time stamps of column {column.name!r} cannot be read: {column.iloc[odd[0]]!r} would be in the "
                f"year {found.dt.year.iloc[odd[0]]:.0f}. Give their format with --date-format, such as '%b-%y'."
            )
    return found


def of_numbers(stamps: pd.Series) -> pd.Series:
    """Whole numbers as the times that their digits write, such as 202401 as a month; anything else is unchanged.

    For a file that must have time stamps: without this knowledge, a few months could be plain numbers.
    """
    text = stamps.astype(str)
    form = FORM_OF.get(len(text.iloc[0]))
    if form is None or not pd.api.types.is_integer_dtype(stamps):
        return stamps
    found = pd.to_datetime(text, format=form, errors="coerce")
    return found if found.notna().all() else stamps


def _advice(column: pd.Series, number: bool, date_format: str | None, others: Sequence[str]) -> str:
    if number:
        advice = "Write the time as dates or whole numbers, or give the format of its dates with --date-format"
    elif date_format is not None:
        advice = "Give the --date-format of this file (without the option, that of fit is used, if any)"
    elif re.match(_ISO, first := str(column.iloc[0]).strip()):
        advice = "Correct or drop such rows"
    else:
        advice = f"Give the format of its dates with --date-format, such as {_day_first(first)!r}"
    return advice + (f"; or choose the time column with --time, from {list(others)[:8]}." if others else ".")


def _day_first(date: str) -> str:
    """The format of a date that is written like this one and begins with the day."""
    found = re.fullmatch(r"\d+([./-])\d+[./-](\d+)(?:([ T])\d+:\d\d(:\d\d)?)?", date)
    mark, year, then, seconds = found.groups() if found else (".", "2024", None, None)
    time = "" if then is None else f"{then}%H:%M{':%S' if seconds else ''}"
    return f"%d{mark}%m{mark}%{'Y' if len(year) == 4 else 'y'}{time}"


def _read_stamps(column: pd.Series, date_format: str | None, warn: bool) -> pd.Series:
    if pd.api.types.infer_dtype(column) == "date":  # days of a Parquet file
        return _to_datetime(column)
    if is_stamps(column):  # not text: a format, which may be that of the file of fit, does not apply
        return column
    if date_format is not None:
        return _to_datetime(column.astype(str).str.strip(), date_format=date_format)
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
            raise ValueError(f"{text.iloc[0]!r} is ambiguous: it may begin with the day or with the month")
        if day_first and text.str.fullmatch(r"\d{1,2}[./-]\d{1,2}[./-]\d\d(\D.*)?").all():
            raise ValueError(f"{text.iloc[0]!r} is ambiguous: it may begin with the day or with the year")
        return _to_datetime(text, dayfirst=bool(day_first))
    if text.str.fullmatch(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?").all():
        raise ValueError(f"it holds times of the day without a date, such as {text.iloc[0]!r}")
    try:
        return _to_datetime(column)
    except ValueError:
        # mixed formats: midnight without a time, seconds with and without fractions
        forms = pd.to_datetime(column, format="ISO8601", errors="coerce") if text.str.match(_ISO).all() else None
        if forms is not None and forms.notna().all():
            return forms
        found = _to_datetime(column, utc=True)  # offsets that change, as with daylight saving time
        if warn:
            warn_caller(
                f"the UTC offsets of column {column.name!r} change, as with daylight saving time: it is read in UTC. "
                "To keep local time, give the time zone: --timezone Europe/Berlin."
            )
        return found


def _of_periods(text: pd.Series) -> pd.Series | None:
    """The first days of quarters, weeks or months in formats that --date-format cannot express; else None."""
    for written, known, form in _PERIODS:
        if re.fullmatch(written, text.iloc[0]) and text.str.fullmatch(written).all():
            periods = text.str.replace(written, known, regex=True)
            if form is None:
                return pd.Series(pd.PeriodIndex(periods, freq="Q").to_timestamp(), periods.index, name=periods.name)
            return pd.to_datetime(periods, format=form)
    return None


def _to_datetime(
    column: pd.Series, dayfirst: bool = False, utc: bool = False, date_format: str | None = None
) -> pd.Series:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not infer format", UserWarning)  # failures raise a clear error
        warnings.filterwarnings("ignore", ".*mixed time zones", FutureWarning)  # of pandas 2, which returns objects
        found = pd.to_datetime(column, format=date_format, dayfirst=dayfirst, utc=utc)
    if not is_stamps(found):
        raise ValueError("its UTC offsets change")
    return found
