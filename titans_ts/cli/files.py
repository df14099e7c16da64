"""Read time series from CSV and Parquet files, and write forecasts."""

import csv
import lzma
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from titans_core.files import written_whole
from titans_ts.cli.dates import in_place, read_stamps
from titans_ts.frames.kinds import PARQUET
from titans_ts.frames.libraries import numbers_as_objects

TEXT = (".csv", ".txt")
PACKED = (".gz", ".bz2", ".xz", ".zip")
# errors of decompression; gzip and bzip2 raise an OSError
_DAMAGED = (EOFError, OSError, zlib.error, zipfile.BadZipFile, lzma.LZMAError, tarfile.TarError)
# missing values, in all columns but that of series names: a series may be called "NA"
NOTHING = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
# values in a first line that is not a header; a date may also be a whole number there
_DATE = re.compile(r"((19|20)\d\d([-/]\d{1,2}|([-/.]\d{1,2}){2})|\d{1,2}[-/.]\d{1,2}[-/.](19|20)\d\d)([ T]\d.*)?")
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?")
_WHOLE_DATE = re.compile(r"(19|20)\d\d(\d\d){0,2}")


def read_series(
    path: Path,
    time: str | None = None,
    id: str | None = None,
    target: str | None = None,
    date_format: str | None = None,
    timezone: str | None = None,
) -> pd.DataFrame:
    """Read a file as a wide or long frame, depending on its columns.

    Args:
        path: path of a Parquet or CSV file.
        time: column of time stamps; None: "ds", else the first free column without numbers, else the first free one.
            An unnamed column of row numbers is dropped, unless it is given here or nothing else can be the time.
        id: column of series names in a long file; None: "unique_id"; without such a column the file is wide.
        target: column of values in a long file; None: "y".
        date_format: format of time stamps written as text or numbers, such as "%d.%m.%Y"; None infers it.
        timezone: time zone of the time stamps, such as "Europe/Berlin"; None: unchanged, or UTC if their UTC offsets
            change.

    Raises:
        ValueError: a missing or repeated column, invalid or ambiguous time stamps, or a long file without a column of
            series names.
        ImportError: a Parquet file without pyarrow installed.
    """
    table = _without_row_numbers(_table(path, id), path, time, id)
    if id is not None:
        _check_column(table, id, "--id")
    if (id or "unique_id") in table.columns:
        return _long(table, path, time, id, target, date_format, timezone)
    if target is not None:
        raise ValueError(
            f"--target is for long files, but {path} has no column of series names (--id, 'unique_id'). "
            "In a wide file every column is a series."
        )
    wide = _stamped(table, path, time, {}, date_format, timezone).set_index("ds")
    if len(wide) >= 2 * wide.index.nunique():
        raise ValueError(
            f"{path} has each time stamp in several rows, like a long file: give its column of series names as --id "
            f"and of values as --target, from {list(wide.columns)[:8]}. If date and time of day have a column each, "
            "join them into one."
        )
    return wide


def check_exogenous(frame: pd.DataFrame, path: Path, options: Mapping[str, Sequence[str] | None]) -> None:
    """Reject exogenous columns that a long file lacks, in the words of the file.

    Args:
        frame: the file as :func:`read_series` read it.
        path: path of the file.
        options: names of columns by command-line option.

    Raises:
        ValueError: the file has no such column, or it is that of series names, time stamps or values.
    """
    if "unique_id" not in frame:
        return
    others = frame.drop(columns=["unique_id", "ds", "y"])
    for option, names in options.items():
        for name in names or ():
            if name not in others and name in columns_of(path):
                raise ValueError(
                    f"column {name!r} cannot be {option}: it is the column of series names, time stamps or values, or "
                    "has one of their names (unique_id, ds, y)."
                )
            _check_column(others, name, option)


def read_future_file(
    path: Path, time: str | None, id: str | None, date_format: str | None, timezone: str | None = None
) -> pd.DataFrame:
    """Read future columns: a long frame without target; without series names, the rows hold for all series."""
    table = _without_row_numbers(_table(path, id), path, time, id or "unique_id")
    if (id or "unique_id") not in table.columns:
        return _stamped(table, path, time, {}, date_format, timezone)
    return _long(table, path, time, id, None, date_format, timezone, values=False)


def read_static_file(path: Path | None, id: str | None) -> pd.DataFrame | None:
    """Read static columns: one row per series, with its name in ``unique_id``; None if ``path`` is None."""
    if path is None:
        return None
    table = _without_row_numbers(_table(path, id), path, None, id or "unique_id")
    _check_column(table, id or "unique_id", "--id")
    return _renamed(table, {id or "unique_id": "unique_id"})


def writable(path: Path | None, kind: str) -> None:
    """Check an output path and create its parent folder, before any work is done.

    Args:
        path: path of the output, or None.
        kind: "table", "folder" or "picture".

    Raises:
        ValueError: a file in place of a folder, or the reverse, or an unknown file type.
        ImportError: a Parquet file without pyarrow installed.
        OSError: the folder cannot be created or written to.
    """
    if path is None:
        return
    if path.exists() and path.is_dir() != (kind == "folder"):
        there = "folder" if path.is_dir() else "file"
        raise ValueError(f"cannot write a {kind} to {path}, which is an existing {there}: choose another path.")
    if kind == "picture":
        from matplotlib.backend_bases import FigureCanvasBase

        known = sorted(FigureCanvasBase.get_supported_filetypes())
        if path.suffix[1:].lower() not in known:
            raise ValueError(f"cannot save a plot as {path}: use one of the endings {known}.")
    if kind == "table":
        endings = [*TEXT, *(text + packed for text in TEXT for packed in PACKED), *PARQUET]
        if path.suffix and not path.name.lower().endswith(tuple(endings)):
            raise ValueError(f"cannot write a table as {path}: use one of the endings {endings}.")
        if path.suffix.lower() in PARQUET:
            with _parquet(path):
                import_module("pyarrow")  # fails before any work is done
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not (path.is_file() or path.is_dir()):  # such as /dev/stdout, which is written directly
        return
    try:
        with tempfile.TemporaryFile(dir=path if path.is_dir() else path.resolve().parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error}): choose another path.") from error


def write_table(table: pd.DataFrame, path: Path, index: bool) -> None:
    """Write Parquet or CSV, compressed or not, by the ending of the path."""
    with written_whole(path) as part:
        if path.suffix.lower() in PARQUET:
            table.to_parquet(part, index=index)
        else:
            packed: Any = {"method": "zip", "archive_name": path.stem} if path.suffix.lower() == ".zip" else "infer"
            table.to_csv(part, index=index, compression=packed)  # in a zip file, not the name of the temporary file


def columns_of(path: Path) -> list[str]:
    """The column names of a file."""
    if path.suffix.lower() in PARQUET:
        with _parquet(path):
            from pyarrow.parquet import read_schema

            return [str(name) for name in read_schema(path).names]
    return _header(path)[1]


def _table(path: Path, id: str | None) -> pd.DataFrame:
    table = _read(path, id or "unique_id")
    if len(table) == 0:
        raise ValueError(f"{path} has no rows, only the header {list(table.columns)[:8]}.")
    return _with_numbers(table, id or "unique_id")


def _with_numbers(table: pd.DataFrame, id: str) -> pd.DataFrame:
    """Numbers that pandas reads as objects, as floats. Names of series as text."""
    odd = [name for name in table if numbers_as_objects(table[name])]
    if id in odd:
        table = table.assign(**{id: table[id].map(str, na_action="ignore")})
    return table.astype({name: float for name in odd if name != id})


def _read(path: Path, id: str) -> pd.DataFrame:
    if path.suffix.lower() not in PARQUET:
        return _csv(path, id)
    with _parquet(path):
        table = pd.read_parquet(path)
    index = table.index
    if index.name is None and (isinstance(index, pd.DatetimeIndex) or _is_axis(index, table, id)):
        index.name = "ds"
    repeated = None in index.names or bool(set(index.names) & set(table.columns))
    table = table.reset_index(drop=repeated)
    return table.set_axis(table.columns.map(str), axis=1)  # as in a CSV file: series may be called by numbers here


def _is_axis(index: pd.Index, table: pd.DataFrame, id: str) -> bool:
    """Whether an index without a name is the time of a wide frame: whole numbers that do not just count the rows, and
    no column of the frame can be the time."""
    whole = pd.api.types.is_integer_dtype(index.dtype) and not _counts(index)
    return whole and id not in table and all(pd.api.types.is_numeric_dtype(table[name]) for name in table)


@contextmanager
def _parquet(path: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'titans-suite[cli]'") from error
    except (FileNotFoundError, PermissionError):
        raise
    except (ValueError, OSError) as error:  # pyarrow does not name the file
        raise ValueError(f"{path} is truncated, damaged, or not a Parquet file: {error}") from error


@contextmanager
def _text(path: Path) -> Iterator[None]:
    try:
        yield
    except (UnicodeDecodeError, pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        reason = str(error).rstrip(".\n")
        remedy = " Save a table of another encoding as UTF-8." if isinstance(error, UnicodeDecodeError) else ""
        raise ValueError(f"{path} is neither a CSV file (in UTF-8) nor a Parquet file: {reason}.{remedy}") from error
    except _DAMAGED as error:
        if getattr(error, "errno", None) is not None:  # a system error: no such file, no permission
            raise
        raise ValueError(
            f"{path} is truncated, damaged, or not compressed in the format of its ending: {error}."
        ) from error


def _header(path: Path) -> tuple[str, list[str]]:
    """The separator of a CSV file, and its column names."""
    with _text(path):
        lines = pd.read_csv(
            path, sep="\x01", header=None, nrows=2, dtype=str, keep_default_na=False, quoting=csv.QUOTE_NONE
        )
        separator = _separator(lines[0])
        written = _separated(path, separator, header=None, nrows=1, dtype=str).iloc[0]
        names = [str(name) for name in _separated(path, separator, nrows=0).columns]
    if _are_values([name.strip() for name in written]):
        raise ValueError(
            f"the first line of {path} holds values instead of column names: {list(written)[:8]}. "
            "Add a header line above it, with 'ds' for the time and the same separator."
        )
    twice = sorted(set(written[written.duplicated() & (written != "")]))  # pandas would rename the second to "a.1"
    if twice:
        raise ValueError(f"{path} has more than one column named {twice}. Drop or rename all but one.")
    return separator, names


def _separated(path: Path, separator: str, **options: Any) -> pd.DataFrame:
    """The cells of a CSV file; blanks after separators do not count."""
    return pd.read_csv(path, sep=separator, skipinitialspace=True, keep_default_na=False, **options)


def _written(path: Path, separator: str, names: list[str], nothing: str | Sequence[str]) -> pd.DataFrame:
    """Columns as their text: the number 001 would lose its zeros."""
    return _separated(path, separator, usecols=names, dtype=str, na_values=nothing).reset_index(drop=True)


def _separator(lines: Iterable[str]) -> str:
    """The separator that cuts all lines into equally many cells, and into the most; of equals, the comma comes last.

    A comma may also be a decimal comma, or in a name.
    """
    cells = {s: [len(next(csv.reader([line], delimiter=s, skipinitialspace=True))) for line in lines] for s in ";\t|,"}
    even = {s: counts for s, counts in cells.items() if len(set(counts)) == 1 and counts[0] > 1}
    found = even or cells  # lines may have row numbers that the header lacks, or end in a separator
    return max(found, key=lambda s: found[s][0])


def _are_values(names: list[str]) -> bool:
    """Whether a header is a row of data: only dates and numbers, or one date and some numbers.

    Series may be called 1 and 2; if the time has a proper name, also 0.5, or by dates.
    """
    dates = {name for name in names if _DATE.fullmatch(name)}
    numbers = {name for name in names if _NUMBER.fullmatch(name)} - dates
    if dates | numbers < set(names):
        return len(dates) == 1 and len(numbers) > 0 and set(names).isdisjoint(("ds", "unique_id", "y"))
    return len(dates) > 0 or bool(_WHOLE_DATE.fullmatch(names[0])) or not all(name.isdecimal() for name in numbers)


def _csv(path: Path, id: str) -> pd.DataFrame:
    separator, names = _header(path)
    with _text(path):
        return _cells(path, id, separator, names)


def _without_row_numbers(table: pd.DataFrame, path: Path, time: str | None, id: str | None) -> pd.DataFrame:
    """Drop an unnamed column of row numbers, which a frame saved with its index has."""
    first = str(table.columns[0])
    counts = first == "Unnamed: 0" and table.shape[1] > 1 and _counts(table[first])
    if not counts or first in (time, id):
        return table
    others = table.columns[1:]
    named = time is not None or id is not None or not {"ds", "unique_id"}.isdisjoint(others)
    if named or any(not pd.api.types.is_numeric_dtype(table[name]) for name in others):
        return table.drop(columns=first)
    whole = [name for name in others if pd.api.types.is_integer_dtype(table[name]) and table[name].is_unique]
    if whole:
        raise ValueError(
            f"the first column of {path} has no name and counts the rows, and {whole[0]!r} may be the time or a "
            f"series: choose the time column with --time ({first!r} for the row numbers)."
        )
    return table


def _counts(numbers: pd.Series | pd.Index) -> bool:
    """Whether numbers count the rows, from 0 as pandas does or from 1 as R does."""
    return any(np.array_equal(numbers, np.arange(begin, begin + len(numbers))) for begin in (0, 1))


def _under_names(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Reject rows with more cells than the header has names, but for a row number, which R writes without a name.

    pandas would take the surplus first cells as the index, even if they are dates.
    """
    index = table.index
    if not _counts(index):
        raise ValueError(
            f"the rows of {path} have more cells than its header {list(table.columns)[:8]} has names; the first row "
            f"begins with {index[0]}. Name every column, and remove separators at the ends of rows."
        )
    return table.reset_index(drop=True)


def _without_blanks(table: pd.DataFrame) -> pd.DataFrame:
    """Drop columns with neither a name nor a value, which come from separators at the ends of lines."""
    blank = [name for name in table if str(name).startswith("Unnamed: ") and table[name].isna().all()]
    return table.drop(columns=blank)


def _cells(path: Path, id: str, separator: str, names: list[str]) -> pd.DataFrame:
    nothing = {name: [""] if name == id else list(NOTHING) for name in names}
    table = _separated(path, separator, na_values=nothing)
    text = table.drop(columns=id, errors="ignore").select_dtypes(exclude="number")
    if any(_has_decimal_commas(text[name], separator) for name in text):
        again = _separated(path, separator, decimal=",", na_values=nothing)
        # if other columns have decimal points, quoted numbers with commas are something else
        if separator != "," or set(table.select_dtypes("number")) <= set(again.select_dtypes("number")):
            table = again
    table = _without_blanks(_under_names(table, path))
    if id in table.columns and pd.api.types.is_numeric_dtype(table[id]):
        written = _written(path, separator, [id], "")[id]
        if not written.str.fullmatch(r"\s*-?(0|[1-9]\d*)\s*").all():  # 001, 1E5 and 1.10 are names, not numbers
            table[id] = written
    doubtful = [name for name in table.select_dtypes("float") if separator == ";" and _may_have_thousands(table[name])]
    if doubtful:
        for name, cells in _written(path, separator, doubtful, NOTHING).items():
            known = cells.dropna()
            if known.str.isdecimal().any() and known.str.fullmatch(r"[+-]?(\d{1,3}|[1-9]\d{0,2}\.\d{3})").all():
                table[name] = cells  # 1.010 after 990 is not 1.01: the text is refused with advice
    return table


def _may_have_thousands(numbers: pd.Series) -> bool:
    """Whether points that were read as decimal points may separate thousands: their numbers are from 1 to 1000 and have
    at most three decimals."""
    sizes = numbers.dropna().abs()
    broken = sizes[sizes % 1 != 0]
    within = len(broken) > 0 and broken.min() >= 1 and sizes.max() < 1000
    return bool(within and np.allclose(broken, broken.round(3), rtol=0, atol=1e-9))


def _has_decimal_commas(text: pd.Series, separator: str) -> bool:
    """Whether cells have decimal commas, as in 1,5.

    If the comma is also the separator, all cells must be numbers, and at least one must not look like 1,500 with a
    thousands separator.
    """
    cells = text.dropna().astype(str).str.strip()
    with_comma = cells[cells.str.contains(",", regex=False)]
    if separator != ",":
        return bool(with_comma.str.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?").any())
    numbers = len(with_comma) > 0 and cells.str.fullmatch(r"[+-]?\d*,?\d+([eE][+-]?\d+)?").all()
    return bool(numbers and not with_comma.str.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}").all())


def _long(
    table: pd.DataFrame,
    path: Path,
    time: str | None,
    id: str | None,
    target: str | None,
    date_format: str | None,
    timezone: str | None,
    values: bool = True,
) -> pd.DataFrame:
    names = {id or "unique_id": "unique_id", **({target or "y": "y"} if values else {})}
    for name, option in zip(names, ("--id", "--target"), strict=False):
        _check_column(table, name, option)
    if time in names or len(names) < 1 + values:
        raise ValueError(f"--id, --time and --target must be three columns of {path}, from {list(table.columns)[:8]}.")
    return _stamped(table, path, time, names, date_format, timezone)


def _stamped(
    table: pd.DataFrame,
    path: Path,
    time: str | None,
    names: Mapping[str, str],
    date_format: str | None,
    timezone: str | None,
) -> pd.DataFrame:
    """The table with its time in ``ds``, and the other columns renamed by ``names``, empty for a wide file."""
    taken = {*names, "unique_id", "y"} if names else set()
    free = [str(name) for name in table.columns if name not in taken]
    dated = [name for name in free if not pd.api.types.is_numeric_dtype(table[name])]
    name = time or ("ds" if "ds" in free else next(iter(dated or free), "ds"))
    if time is None and not free:
        raise ValueError(f"there is no time column ('ds', or set it with --time): the columns are {list(table)[:8]}.")
    _check_column(table, name, "--time")
    others = [column for column in free if column != name]
    column = table[name]
    if date_format is not None and pd.api.types.is_numeric_dtype(column) and path.suffix.lower() not in PARQUET:
        # 010224 begins with 01, and 01.2020 ends with 2020
        column = _written(path, _header(path)[0], [name], NOTHING)[name]
    stamps = read_stamps(column, date_format, timezone is None, others)
    series = next((table[old] for old, new in names.items() if new == "unique_id"), None)
    stamps = in_place(stamps, timezone, series)
    return _renamed(table.assign(**{name: stamps}), {**names, name: "ds"})


def _check_column(table: pd.DataFrame, name: str, option: str) -> None:
    if name not in table.columns:
        raise ValueError(f"there is no column {name!r} ({option}). The columns are {list(table.columns)[:8]}.")


def _renamed(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Rename columns; other columns that already have a new name are dropped."""
    others = [new for new in names.values() if new not in names and new in table.columns]
    return table.drop(columns=others).rename(columns=names)
