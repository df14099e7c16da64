"""Time stamps as files write them: dates in many forms, with or without an offset, or whole numbers."""

import warnings

import numpy as np
import pandas as pd

from titans_datasets.warn import warn_caller
from titans_ts.stamps import look_like_months

# of time stamps that are meant: others come of text that was taken for what it is not
_YEARS = (1700, 2200)


def in_place(stamps: pd.Series, timezone: str | None) -> pd.Series:
    """Time stamps by the clock of a place; None: as they are."""
    if timezone is None:
        return stamps
    if not isinstance(stamps.dtype, pd.DatetimeTZDtype):
        raise ValueError(
            f"--timezone is for time stamps with an offset from UTC, such as 2024-01-01T00:00+01:00, and column "
            f"{stamps.name!r} has none ({stamps.iloc[0]}): leave it out, they are taken as they stand."
        )
    try:
        return stamps.dt.tz_convert(timezone)
    except (KeyError, ValueError) as error:  # of zoneinfo, which knows no such name
        raise ValueError(f"{timezone!r} is no time zone; expected a name such as 'Europe/Berlin'.") from error


def read_stamps(column: pd.Series, date_format: str | None, warn: bool = True) -> pd.Series:
    """A column as time stamps, or as the whole numbers that it holds; with ``warn``, one says where they are in UTC.

    Raises:
        ValueError: it holds something else, or dates that can be read in two ways.
    """
    found = _read_stamps(column, date_format, warn)
    if pd.api.types.is_datetime64_any_dtype(found):
        odd = np.flatnonzero(~found.dt.year.between(*_YEARS))
        if len(odd):
            raise ValueError(
                f"column {column.name!r} does not hold time stamps that can be read: {column.iloc[odd[0]]!r} would be "
                f"in the year {found.dt.year.iloc[odd[0]]:.0f}. Name their form with --date-format, such as '%b-%y'."
            )
    return found


def _read_stamps(column: pd.Series, date_format: str | None, warn: bool) -> pd.Series:
    what = f"column {column.name!r} does not hold time stamps"
    hint = "Name the column with --time, or the form of its dates with --date-format."
    try:
        if date_format is not None:
            return pd.to_datetime(column.astype(str), format=date_format)
        if pd.api.types.is_datetime64_any_dtype(column):
            return column
        text = column.astype(str).str.strip()
        if pd.api.types.is_integer_dtype(column):
            days = text.str.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])").all()
            if days or look_like_months(pd.Index(column)):
                return pd.to_datetime(text, format="%Y%m%d" if days else "%Y%m")
            return column
        if pd.api.types.is_numeric_dtype(column):
            raise ValueError("it holds numbers with fractions")
        numbers = text.str.extract(r"^(\d{1,2})[./-](\d{1,2})[./-]\d")
        if numbers.notna().all(axis=None):
            day_first, month_first = (numbers[i].astype(int).max() > 12 for i in (0, 1))
            if not day_first and not month_first:
                raise ValueError(f"{text.iloc[0]!r} may begin with the day or with the month")
            if day_first and text.str.fullmatch(r"\d{1,2}[./-]\d{1,2}[./-]\d\d(\D.*)?").all():
                raise ValueError(f"{text.iloc[0]!r} may begin with the day or with the year")
            return _to_datetime(text, dayfirst=bool(day_first))
        try:
            return _to_datetime(column)
        except ValueError:
            found = _to_datetime(column, utc=True)  # offsets that change, as with summer time
            if warn:
                warn_caller(
                    f"the offsets of column {column.name!r} change, as with summer time: it is read in UTC. For the "
                    "days and the clock of a place, name it: --timezone Europe/Berlin."
                )
            return found
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what}: {error}. {hint}") from error


def _to_datetime(column: pd.Series, dayfirst: bool = False, utc: bool = False) -> pd.Series:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not infer format", UserWarning)  # what cannot be read is told in words
        return pd.to_datetime(column, dayfirst=dayfirst, utc=utc)
