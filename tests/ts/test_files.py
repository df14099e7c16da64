"""Files of time series: the time column is found or asked for, and nothing is misread."""

import csv
import gzip
import sys
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from titans_ts.cli.files import (
    check_exogenous,
    columns_of,
    read_future_file,
    read_series,
    read_static_file,
    write_table,
)

HOURS = pd.date_range("2024-03-01", periods=40, freq="h", name="ds")
WIDE = pd.DataFrame({"meter": np.arange(40) * 10, "b": np.arange(40) / 8}, index=HOURS)
LONG = WIDE.reset_index().melt("ds", var_name="unique_id", value_name="y").sort_values(["unique_id", "ds"])


def stored(frame, tmp_path, name="x.parquet", **options):
    path = tmp_path / name
    frame.to_parquet(path) if name.endswith(".parquet") else frame.to_csv(path, **options)
    return path


def same(found, expected):
    pd.testing.assert_frame_equal(
        found.reset_index(drop="ds" in found)[expected.reset_index(drop="ds" in expected).columns].reset_index(
            drop=True
        ),
        expected.reset_index(drop="ds" in expected),
        check_dtype=False,
    )


@pytest.mark.parametrize("name", ["ds", "when", None])
def test_the_index_of_a_parquet_file_is_its_time(tmp_path, name):
    same(read_series(stored(WIDE.rename_axis(name), tmp_path)), WIDE)


def test_numbers_as_column_names_of_a_parquet_file_are_text_as_in_a_csv_file(tmp_path):
    numbered = WIDE.set_axis([1, 2], axis=1)
    same(read_series(stored(numbered, tmp_path)), read_series(stored(numbered, tmp_path, "x.csv")))


def test_the_index_of_a_parquet_file_may_count_from_any_number(tmp_path):
    wide = pd.DataFrame({"a": np.arange(40), "b": np.arange(40) / 8}, index=pd.RangeIndex(1000, 1040))
    found = read_series(stored(wide, tmp_path))
    assert (found.index.name, list(found.index), list(found)) == ("ds", list(wide.index), ["a", "b"])
    # row numbers left over from a selection are not a time, where there is another
    for frame in (LONG, WIDE.reset_index()):
        same(read_series(stored(frame.set_index(np.arange(7, 7 + len(frame))), tmp_path)), frame.reset_index(drop=True))


@pytest.mark.parametrize("index", [["ds"], ["unique_id", "ds"], []])
def test_a_long_parquet_file_may_have_an_index(tmp_path, index):
    frame = LONG.set_index(index) if index else LONG
    same(read_series(stored(frame, tmp_path))[["ds", "unique_id", "y"]], LONG.reset_index(drop=True))


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_decimals_and_booleans_beside_empty_cells_are_numbers(tmp_path, name):
    flags = [True, None, False, None] * (len(LONG) // 4)
    frame = LONG.assign(y=LONG["y"].map(Decimal), promo=pd.Series(flags, LONG.index, dtype=object))
    expected = LONG.assign(promo=[1.0, np.nan, 0.0, np.nan] * (len(LONG) // 4))
    found = read_series(stored(frame, tmp_path, name, index=False))
    same(found, expected.reset_index(drop=True))
    assert found[["y", "promo"]].dtypes.tolist() == [float, float]
    numbered = frame.assign(unique_id=LONG["unique_id"].map({"meter": Decimal(7), "b": Decimal(8)}))
    assert {str(i) for i in read_series(stored(numbered, tmp_path, name, index=False))["unique_id"]} == {"7", "8"}
    numbered.iloc[3, numbered.columns.get_loc("unique_id")] = None
    assert read_series(stored(numbered, tmp_path, name, index=False))["unique_id"].isna().sum() == 1


@pytest.mark.parametrize("options", [{}, {"sep": ";"}, {"sep": ";", "decimal": ","}, {"sep": "|"}])
def test_a_csv_file_is_read_with_any_separator(tmp_path, options):
    same(read_series(stored(WIDE, tmp_path, "x.csv", **options)), WIDE)


@pytest.mark.parametrize(
    "frame", [WIDE.reset_index(), WIDE.rename_axis("date").reset_index(), LONG.reset_index(drop=True)]
)
def test_row_numbers_are_not_a_series(tmp_path, frame):
    found = read_series(stored(frame, tmp_path, "x.csv"))
    assert not any("Unnamed" in column for column in found)
    same(found, LONG.reset_index(drop=True) if "unique_id" in frame else WIDE)


def test_row_numbers_are_not_a_series_if_the_time_is_a_number(tmp_path):
    years = pd.DataFrame({"year": np.arange(1990, 2030), "s0": np.arange(40) / 8, "s1": np.arange(40) / 4})
    path = stored(years, tmp_path, "years.csv")
    with pytest.raises(ValueError, match=r"no name and counts the rows, and 'year' may be .*--time \('Unnamed: 0' for"):
        read_series(path)
    same(read_series(path, time="year"), years.rename(columns={"year": "ds"}))
    assert list(read_series(path, time="Unnamed: 0")) == ["year", "s0", "s1"]
    alone = read_series(stored(years[["s0", "s1"]], tmp_path, "alone.csv"))  # nothing else can be the time
    assert (list(alone), alone.index.tolist()) == (["s0", "s1"], list(range(40)))
    dated = stored(WIDE.reset_index()[["b", "meter", "ds"]].rename(columns={"ds": "date"}), tmp_path, "dated.csv")
    same(read_series(dated)[["meter", "b"]], WIDE)


def test_row_numbers_are_not_a_column_of_a_long_or_static_file(tmp_path):
    long = LONG.rename(columns={"unique_id": "shop", "ds": "hour"}).assign(shop=7, hour=np.arange(len(LONG)) + 5)
    path = stored(long[["shop", "hour", "y"]].reset_index(drop=True), tmp_path, "long.csv")
    assert read_series(path, id="shop")["ds"].tolist() == long["hour"].tolist()
    assert set(read_series(path, id="shop")) == {"unique_id", "ds", "y"}
    assert set(read_future_file(path, None, "shop", None)) == {"unique_id", "ds", "y"}
    facts = stored(pd.DataFrame({"store": [1, 2], "size": [3.0, 4.0]}), tmp_path, "facts.csv")
    assert list(read_static_file(facts, "store")) == ["unique_id", "size"]


@pytest.mark.parametrize("header", ['"",', ""], ids=["write.csv", "write.table"])
def test_row_numbers_written_by_r_are_not_a_series(tmp_path, header):
    rows = [f'"{i + 1}","{stamp}",{meter},{b}' for i, (stamp, meter, b) in enumerate(WIDE.itertuples())]
    (tmp_path / "x.csv").write_text("\n".join([f'{header}"date","meter","b"', *rows]))
    found = read_series(tmp_path / "x.csv")
    same(found, WIDE)
    assert list(found) == list(WIDE)
    rows = [f'"{i + 1}","{row.ds}","00{row.y:g}",{row.y}' for i, row in enumerate(LONG.itertuples())]
    (tmp_path / "x.csv").write_text("\n".join([f'{header}"ds","unique_id","y"', *rows]))
    assert read_series(tmp_path / "x.csv")["unique_id"].tolist() == [f"00{y:g}" for y in LONG["y"]]


@pytest.mark.parametrize(("before", "after"), [("", ","), ("", ",,"), (",", ""), (",", ",")])
def test_columns_without_a_name_or_a_value_are_not_series(tmp_path, before, after):
    def blank(frame):
        lines = frame.to_csv(index=False).splitlines()
        (tmp_path / "x.csv").write_text("\n".join(f"{before}{line}{after}" for line in lines))
        return tmp_path / "x.csv"

    found = read_series(blank(WIDE.reset_index()))
    same(found, WIDE)
    assert list(found) == list(WIDE)
    assert set(read_series(blank(LONG))) == {"unique_id", "ds", "y"}
    assert list(read_static_file(blank(pd.DataFrame({"unique_id": ["b"], "size": [3.0]})), None)) == [
        "unique_id",
        "size",
    ]
    (tmp_path / "x.csv").write_text("ds,\n2024-03-01,\n2024-03-02,7\n")  # a value: not to be lost unseen
    assert read_series(tmp_path / "x.csv").iloc[:, 0].tolist()[1:] == [7]


@pytest.mark.parametrize("row", ["{stamp},{i},{i}.5", "{i},{i}.5,", "{stamp},{i},1,2"])
def test_rows_with_more_cells_than_names_are_refused(tmp_path, row):
    rows = [row.format(stamp=stamp, i=i + 7) for i, stamp in enumerate(WIDE.index)]
    (tmp_path / "x.csv").write_text("\n".join(["a,b", *rows]))
    with pytest.raises(ValueError, match=r"x.csv have more cells than its header \['a', 'b'\] has names; the first"):
        read_series(tmp_path / "x.csv")


def test_given_column_names_take_precedence_over_the_usual_ones(tmp_path):
    frame = LONG.rename(columns={"ds": "date", "y": "value", "unique_id": "shop"}).assign(
        ds=1, y="other", unique_id="x"
    )
    found = read_series(stored(frame, tmp_path), time="date", id="shop", target="value")
    same(found[["ds", "unique_id", "y"]], LONG.reset_index(drop=True))


@pytest.mark.parametrize("quoted", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(("separator", "decimal"), [(";", ","), (";", "."), ("\t", ","), ("|", "."), (",", ".")])
def test_a_separator_may_also_be_in_the_names(tmp_path, separator, decimal, quoted):
    frame = WIDE.set_axis(["Preis, EUR; netto", *WIDE.columns[1:]], axis=1)
    path = stored(frame, tmp_path, "x.csv", sep=separator, decimal=decimal, quoting=quoted)
    same(read_series(path), frame)


def test_exogenous_columns_are_checked_in_the_words_of_the_file(tmp_path):
    path = stored(LONG.rename(columns={"unique_id": "shop", "y": "sales"}).assign(price=1.0), tmp_path, "x.csv")
    frame = read_series(path, id="shop", target="sales")
    check_exogenous(frame, path, {"--hist": ["price"], "--futr": None})
    check_exogenous(WIDE, path, {"--hist": ["prize"]})  # the forecaster says that a wide frame has none
    with pytest.raises(ValueError, match=r"no column 'prize' \(--futr\)\. The columns are"):
        check_exogenous(frame, path, {"--hist": ["price"], "--futr": ["prize"]})
    with pytest.raises(ValueError, match=r"'sales' cannot be --hist: it is the column of series names, time stamps"):
        check_exogenous(frame, path, {"--hist": ["sales"], "--futr": None})


def test_the_time_is_the_first_column_without_another_role(tmp_path):
    frame = LONG.rename(columns={"ds": "date"})[["unique_id", "date", "y"]].assign(unique_id=7)
    assert read_series(stored(frame, tmp_path))["ds"].equals(LONG["ds"].reset_index(drop=True))
    frame.insert(0, "price", 3)
    assert read_series(stored(frame, tmp_path))["ds"].equals(LONG["ds"].reset_index(drop=True))


@pytest.mark.parametrize(
    ("form", "given"),
    [("%Y%m%d", None), ("%d.%m.%Y", None), ("%m/%d/%Y", None), ("%d.%m.%Y", "%d.%m.%Y"), ("%d%m%y", "%d%m%y")],
)
def test_dates_are_read_in_many_formats(tmp_path, form, given):
    days = pd.DataFrame({"a": np.arange(40.0)}, index=pd.date_range("2024-03-01", periods=40, name="ds"))
    path = stored(days.set_axis(days.index.strftime(form).rename("ds")), tmp_path, "x.csv")
    same(read_series(path, date_format=given), days)


def test_with_a_format_dates_are_read_as_they_are_written(tmp_path):
    months = pd.DataFrame({"a": np.arange(20.0)}, index=pd.date_range("2019-09-01", periods=20, freq="MS", name="ds"))
    path = stored(months.set_axis(months.index.strftime("%m.%Y").rename("ds")), tmp_path, "x.csv")
    same(read_series(path, date_format="%m.%Y"), months)  # 09.2020 as a number is 9.202
    with pytest.raises(ValueError, match=r"fractions, such as 9\.2019\. .* its dates with --date-format"):
        read_series(path)
    days = months.set_axis(pd.date_range("2004-01-01", periods=20, name="ds"))
    lines = [f"{row}, {day:%y%j} ,{a}" for row, (day, a) in enumerate(days["a"].items(), start=1)]
    path.write_text("\n".join(["ds,a", *lines]))  # with row numbers as R writes them, and blanks
    same(read_series(path, date_format="%y%j"), days)


@pytest.mark.parametrize("kind", [lambda days: days, lambda days: days.dt.date])
def test_a_format_of_dates_does_not_apply_to_time_stamps_of_a_parquet_file(tmp_path, kind):
    days = WIDE.set_axis(pd.date_range("2024-03-01", periods=40, name="ds")).reset_index()
    path = stored(days.assign(ds=kind(days["ds"])), tmp_path)
    same(read_series(path, date_format="%d.%m.%Y"), days)


def test_for_an_odd_row_among_iso_dates_no_format_is_asked(tmp_path):
    (tmp_path / "x.csv").write_text("ds,a\n2024-01-01 23:00,1\n2024-01-01 24:00,2\n2024-01-02 01:00,3\n")
    with pytest.raises(ValueError, match=r"\"2024-01-01 24:00\" doesn't match .*\. Correct or drop such rows; or"):
        read_series(tmp_path / "x.csv")


def test_integers_that_are_months_are_read_as_months(tmp_path):
    months = pd.DataFrame({"a": np.arange(40.0)}, index=pd.date_range("2021-10-01", periods=40, freq="MS", name="ds"))
    for frame in (months, months.drop(months.index[[2, 3, 20]])):  # a turn of a year among them
        same(read_series(stored(frame.set_axis(frame.index.strftime("%Y%m").rename("ds")), tmp_path, "x.csv")), frame)
    for stamps in (range(202401, 202441), range(200101, 204101, 100)):  # counted on beyond December, or years apart
        path = stored(months.set_axis(pd.Index(stamps, name="ds")), tmp_path, "x.csv")
        assert read_series(path).index.tolist() == list(stamps)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%d-%m-%y %H:%M", "%d/%m/%YT%H:%M:%S"])
def test_ambiguous_dates_need_a_format_and_one_that_fits_is_shown(tmp_path, form):
    days = pd.DataFrame({"ds": pd.date_range("2024-07-01", periods=3).strftime(form), "a": [1.0, 2.0, 3.0]})
    path = stored(days, tmp_path, "x.csv", index=False)
    with pytest.raises(ValueError, match=rf"may begin with the day or with the month.*--date-format, such as '{form}'"):
        read_series(path)
    assert read_series(path, date_format=form).index[2] == pd.Timestamp("2024-07-03")


@pytest.mark.parametrize(
    ("written", "step"),
    [
        ("Q{quarter} {year}", "QS"),
        ("Q{quarter}/{year}", "QS"),
        ("{year}Q{quarter}", "QS"),
        ("{year}-Q{quarter}", "QS"),
        ("{quarter}Q{year}", "QS"),
        ("{year}-W{week:02d}", "W-MON"),
        ("{year}W{week}", "W-MON"),
        ("{year}M{month:02d}", "MS"),
        ("{year}-M{month}", "MS"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_quarters_weeks_and_months_are_read(tmp_path, written, step):
    days = pd.date_range("2019-10-01", periods=40, freq=step, name="ds")
    stamps = [
        written.format(quarter=day.quarter, month=day.month, year=iso.year if "week" in written else day.year,
                       week=iso.week)
        for day, iso in ((day, day.isocalendar()) for day in days)
    ]  # fmt: skip
    path = stored(pd.DataFrame({"a": np.arange(40.0)}, index=pd.Index(stamps, name="ds")), tmp_path, "x.csv")
    assert read_series(path).index.tolist() == days.tolist()


def test_integers_written_with_a_decimal_point_are_integers(tmp_path):
    (tmp_path / "x.csv").write_text("year,a\n2001.0,1\n2002.0,2\n2003.0,3\n")
    assert read_series(tmp_path / "x.csv").index.tolist() == [2001, 2002, 2003]


@pytest.mark.parametrize(
    ("stamps", "options", "says"),
    [
        (
            ["2005.25", "2005.5"],
            {},
            r"fractions, such as 2005.25. Write the time as dates .* --time, from \['a', 'day'\]\.",
        ),
        (
            ["north", "south"],
            {},
            r"'when' does not hold .* north.* Give .* --date-format, .* --time, from \['a', 'day'\]\.",
        ),
        (
            ["2024-01-01", "2024-01-02"],
            {"date_format": "%d.%m.%Y"},
            r'"%d.%m.%Y".*\. Give the --date-format of this file',
        ),
        (["2001", ""], {}, "the time column 'when' is empty in 1 rows, first in row 2 below the header. Drop or fill"),
        (
            ["2024-01-01", ""],
            {},
            "the time column 'when' is empty in 1 rows, first in row 2 below the header. Drop or fill",
        ),
    ],
)
def test_an_unreadable_time_is_refused_with_advice(tmp_path, stamps, options, says):
    frame = pd.DataFrame({"when": stamps, "a": [1, 2], "day": ["2024-01-01", "2024-01-02"]})
    with pytest.raises(ValueError, match=says):
        read_series(stored(frame, tmp_path, "x.csv", index=False), time="when", **options)


def test_a_long_file_with_other_column_names_asks_for_them(tmp_path):
    """Its time stamps used to be reported as duplicates."""
    path = stored(LONG.rename(columns={"unique_id": "item", "y": "sold"}), tmp_path, "x.csv", index=False)
    with pytest.raises(ValueError, match=r"series names as --id and of values as --target, from \['item', 'sold'\]"):
        read_series(path)


def test_a_long_file_without_a_time_is_refused(tmp_path):
    path = stored(LONG[["unique_id", "y"]], tmp_path, "x.csv", index=False)
    with pytest.raises(
        ValueError, match=r"there is no time column \('ds', or set it with --time\): .*\['unique_id', 'y'\]"
    ):
        read_series(path)


def test_changing_utc_offsets_are_read_as_points_in_time(tmp_path):
    stamps = pd.date_range("2024-03-31", periods=6, freq="h", tz="Europe/Berlin", name="ds")
    path = stored(pd.DataFrame({"a": np.arange(6.0)}, index=stamps), tmp_path, "x.csv")
    with pytest.warns(UserWarning, match="it is read in UTC") as warned:
        assert (read_series(path).index == stamps).all()
    assert warned[0].filename == __file__


@pytest.mark.parametrize(("time", "id"), [("y", "shop"), ("unique_id", "y"), ("ds", "y"), ("y", "ds")])
def test_a_column_may_have_the_name_that_another_one_gets(tmp_path, time, id):
    """Such as y for the year."""
    path = tmp_path / "x.csv"
    stamps = ["2024-01-01", "2024-01-02", "2024-01-01"]
    pd.DataFrame({id: ["a", "a", "b"], time: stamps, "sold": [1, 2, 3]}).to_csv(path)
    frame = read_series(path, time=time, id=id, target="sold")
    assert frame["unique_id"].tolist() == ["a", "a", "b"]
    assert frame["ds"].tolist() == [pd.Timestamp(f"2024-01-0{day}") for day in (1, 2, 1)]
    assert frame["y"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("time", "id", "target"), [("ds", "y", "y"), ("y", "shop", "y"), ("shop", "shop", "y")])
def test_one_column_cannot_be_two_things(tmp_path, time, id, target):
    path = tmp_path / "x.csv"
    pd.DataFrame({"shop": ["a", "b"], "ds": ["2024-01-01"] * 2, "y": [1, 2]}).to_csv(path, index=False)
    with pytest.raises(ValueError, match="--id, --time and --target must be three columns of"):
        read_series(path, time=time, id=id, target=target)


@pytest.mark.parametrize(
    ("frame", "options", "says"),
    [
        (pd.DataFrame({"a": [0.5, 1.5], "b": [1.0, 2.0]}), {}, "'a' does not hold time stamps: it holds numbers with"),
        (WIDE.reset_index(), {"time": "when"}, r"no column 'when' \(--time\)"),
        (WIDE.reset_index(), {"id": "shop"}, r"no column 'shop' \(--id\)"),
        (WIDE.reset_index(), {"target": "meter"}, "every column is a series"),
        (LONG, {"target": "OT"}, r"no column 'OT' \(--target\)"),
    ],
)
def test_missing_columns_are_named(tmp_path, frame, options, says):
    with pytest.raises(ValueError, match=says):
        read_series(stored(frame, tmp_path, "x.csv", index=False), **options)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.zip", "X.CSV.ZIP", "x.parquet"])
def test_a_written_table_is_read_again(tmp_path, name):
    write_table(LONG, tmp_path / name, index=False)
    same(read_series(tmp_path / name), LONG)
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name) as packed:
            assert packed.namelist() == [name[:-4]]


def test_a_damaged_compressed_file_is_refused_with_a_plain_message(tmp_path):
    whole = gzip.compress(WIDE.to_csv().encode())
    files = {
        "cut.csv.gz": whole[: len(whole) // 2],
        "damaged.csv.gz": whole[:20] + bytes(range(9)) + whole[29:],
        "plain.csv.gz": WIDE.to_csv().encode(),
        **{f"plain.csv.{packed}": WIDE.to_csv().encode() for packed in ("zip", "bz2", "xz", "tar")},
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        for read in (read_series, columns_of):
            with pytest.raises(
                ValueError, match=rf"{name} is truncated, damaged, or not compressed in the format of its ending"
            ):
                read(tmp_path / name)
    WIDE.to_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    for read in (read_series, columns_of):
        with pytest.raises(ValueError, match=r"cut.parquet is truncated, damaged, or not a Parquet file"):
            read(tmp_path / "cut.parquet")
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    "row",
    [
        "2024-01-0{i},{i}.5",
        "0{i}.01.2024 00:00;{i},5",
        "2024-01-01T0{i}:00+01:00\t7\t7",
        "shop,2024-01-0{i},7",
        "202{i},7",
        "2024010{i},7",
        "{i},0.5",
    ],
)
def test_a_file_without_a_header_is_refused(tmp_path, row):
    (tmp_path / "x.csv").write_text("\n".join(row.format(i=i) for i in range(1, 6)))
    for read in (read_series, columns_of):
        with pytest.raises(
            ValueError,
            match=r"first line of .*x.csv holds values instead of column names: \['.* Add a header line above",
        ):
            read(tmp_path / "x.csv")


@pytest.mark.parametrize(
    "names",
    [
        "time,1,2",
        "ds,2024-01-01,5",
        "day,0.1,0.5",
        ",0.1,0.5",
        "0,1,2",
        "time,2024-01-01,2024-02-01",
        "time,1.2.10,2.2.10",
    ],
)
def test_series_names_may_be_numbers_and_dates(tmp_path, names):
    (tmp_path / "x.csv").write_text(f"{names}\n" + "\n".join(f"{2001 + i},{i},3" for i in range(4)))
    assert list(read_series(tmp_path / "x.csv")) == names.split(",")[1:]


def test_two_columns_with_one_name_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("ds;a;b;a\n2024-01-01;1;2;3\n2024-01-02;4;5;6\n")
    for read in (read_series, columns_of):
        with pytest.raises(ValueError, match=r"more than one column named \['a'\]"):
            read(tmp_path / "x.csv")


def test_without_pyarrow_the_error_names_the_install_command(tmp_path, monkeypatch):
    path = stored(WIDE, tmp_path)
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"titans-suite\[cli\]"):
        read_series(path)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_later_row_may_have_more_decimal_commas(tmp_path, separator):
    rows = ["ds;a;b", "2024-03-01 00:00;1,5;10", "2024-03-01 01:00;1,5;2,5"]
    (tmp_path / "x.csv").write_text("\n".join(rows).replace(";", separator) + "\n")
    found = read_series(tmp_path / "x.csv")
    assert found.to_numpy().tolist() == [[1.5, 10.0], [1.5, 2.5]]


@pytest.mark.parametrize(("separator", "quote"), [(";", ""), (";", '"'), ("\t", ""), (",", '"')])
def test_decimal_commas_may_be_in_the_first_column_only(tmp_path, separator, quote):
    rows = [f"{quote}{y}{quote}{separator}2024-03-0{i + 1}" for i, y in enumerate(["1,5", "-,25", "3", "+0,5E+01"])]
    (tmp_path / "x.csv").write_text("\n".join([f"y{separator}ds", *rows]))
    assert read_series(tmp_path / "x.csv")["y"].tolist() == [1.5, -0.25, 3.0, 5.0]


@pytest.mark.parametrize("separator", [", ", ";  "])
def test_blanks_after_separators_do_not_count(tmp_path, separator):
    rows = ["unique_id,ds,y", 'a,2024-03-01,"1.5"', '"b,c",2024-03-01,-2']
    (tmp_path / "x.csv").write_text(
        "\n".join(rows[:2]).replace(",", separator) + '\n"b,c"' + rows[2][5:].replace(",", separator)
    )
    found = read_series(tmp_path / "x.csv")
    assert found["unique_id"].tolist() == ["a", "b,c"]
    assert found["y"].tolist() == [1.5, -2]
    (tmp_path / "x.csv").write_text("ds,a,b\n2024-03-01,1.5,2\n".replace(",", separator))
    assert read_series(tmp_path / "x.csv").columns.tolist() == ["a", "b"]


@pytest.mark.parametrize("y", ["1,500", "12,345", "1,5 and 2"])
def test_possible_thousands_separators_stay_text(tmp_path, y):
    (tmp_path / "x.csv").write_text(f'ds,y\n2024-03-01,"{y}"\n2024-03-02,"1,750"\n')
    assert read_series(tmp_path / "x.csv")["y"].tolist() == [y, "1,750"]


@pytest.mark.parametrize(
    ("y", "as_read"),
    [
        (["990", "1.010", ""], ["990", "1.010", np.nan]),  # with a comma for decimals, a point is for thousands
        (["990", "1.010", "2.5"], [990.0, 1.01, 2.5]),
        (["990.000", "1.010", "2.500"], [990.0, 1.01, 2.5]),
        (["7", "0.125", "0.375"], [7.0, 0.125, 0.375]),
    ],
)
def test_points_that_may_separate_thousands_are_not_read_as_decimal_points(tmp_path, y, as_read):
    (tmp_path / "x.csv").write_text("ds;;y\n" + "".join(f"2024-03-0{i};{i};{x}\n" for i, x in enumerate(y, 1)))
    pd.testing.assert_series_equal(
        read_series(tmp_path / "x.csv")["y"].reset_index(drop=True), pd.Series(as_read, name="y")
    )


def test_quoted_pairs_do_not_change_numbers_with_points(tmp_path):
    (tmp_path / "x.csv").write_text('ds,y,place\n2024-03-01,1.5,"1,2"\n2024-03-02,2.5,"3,4"\n')
    found = read_series(tmp_path / "x.csv")
    assert (found["y"].tolist(), found["place"].tolist()) == ([1.5, 2.5], ["1,2", "3,4"])


@pytest.mark.parametrize(
    ("stamps", "says"),
    [
        (["Jan-16", "Feb-16", "Mar-16"], r"Jan-16.*\. Give (their|the) format .*with --date-format"),
        (["24-01-05", "24-01-06", "24-01-07"], "may begin with the day or with the year"),
    ],
)
@pytest.mark.filterwarnings("error:Could not infer format")
def test_dates_without_a_year_need_a_format(tmp_path, stamps, says):
    path = stored(pd.DataFrame({"ds": stamps, "a": [1.0, 2.0, 3.0]}), tmp_path, "x.csv", index=False)
    with pytest.raises(ValueError, match=says):
        read_series(path)
    form = "%b-%y" if "Jan" in stamps[0] else "%y-%m-%d"
    assert read_series(path, date_format=form).index.year.unique().tolist() == [2016 if "Jan" in stamps[0] else 2024]


def test_days_in_a_time_zone_are_days(tmp_path):
    days = pd.date_range("2024-03-25", periods=14, freq="D", tz="Europe/Berlin", name="ds")
    path = stored(pd.DataFrame({"a": np.arange(14.0)}, index=days), tmp_path, "x.csv")
    with pytest.warns(UserWarning, match=r"offsets of column 'ds' change.*--timezone"):
        assert (read_series(path).index.hour != 0).all()
    found = read_series(path, timezone="Europe/Berlin").index
    assert found.tolist() == days.tolist()
    with pytest.raises(ValueError, match="unknown time zone 'Berlin': use"):
        read_series(path, timezone="Berlin")


def test_stamps_without_an_offset_are_local_time_of_the_time_zone(tmp_path):
    """Local time repeats an hour in autumn and skips one in spring."""
    hours = pd.date_range("2024-10-26 20:00", periods=12, freq="h", tz="Europe/Berlin", name="ds")
    assert hours.tz_localize(None).has_duplicates
    frame = pd.DataFrame({"a": np.arange(12.0), "b": np.arange(12.0)}, index=hours.tz_localize(None))
    path = stored(frame, tmp_path, "x.csv")
    found = read_series(path, timezone="Europe/Berlin")
    assert found.index.tolist() == hours.tolist()
    long = frame.reset_index().melt("ds", var_name="name", value_name="y")
    apart = stored(long, tmp_path, "long.csv", index=False)
    mixed = stored(long.sort_values("ds", kind="stable"), tmp_path, "mixed.csv", index=False)
    for path in (apart, mixed):
        found = read_series(path, id="name", timezone="Europe/Berlin")
        for _, own in found.groupby("unique_id"):
            assert own["ds"].tolist() == hours.tolist()
    once = stored(frame.iloc[~hours.tz_localize(None).duplicated()], tmp_path, "once.csv")
    with pytest.raises(ValueError, match=r"'ds' is not in the local time of Europe/Berlin: .*with their UTC offset"):
        read_series(once, timezone="Europe/Berlin")
    spring = pd.date_range("2024-03-31", periods=6, freq="h", name="ds")
    with pytest.raises(ValueError, match=r"'ds' is not in the local time of Europe/Berlin: 2024-03-31 02:00:00"):
        read_series(stored(frame.iloc[:6].set_index(spring), tmp_path, "y.csv"), timezone="Europe/Berlin")
    with pytest.raises(ValueError, match="--timezone needs datetime time stamps, but column 'ds' has int64"):
        read_series(stored(frame.iloc[:6].set_index(pd.RangeIndex(6, name="ds")), tmp_path, "z.csv"), timezone="UTC")


def test_a_series_may_be_named_na(tmp_path):
    frame = LONG.replace({"unique_id": {"meter": "NA"}})
    frame.loc[frame.index[3], "y"] = np.nan
    found = read_series(stored(frame, tmp_path, "x.csv", index=False, na_rep="NA"))
    assert set(found["unique_id"]) == {"NA", "b"}
    assert found["y"].isna().sum() == 1


@pytest.mark.parametrize(
    ("names", "as_read"),
    [
        (["001", "12"], ["001", "12"]),
        (["1", "12"], [1, 12]),
        (["1E5", "7"], ["1E5", "7"]),
        (["1.1", "1.10"], ["1.1", "1.10"]),
        (["-3", "0"], [-3, 0]),
    ],
)
def test_leading_zeros_belong_to_a_name(tmp_path, names, as_read):
    frame = LONG.assign(unique_id=LONG["unique_id"].map(dict(zip(("b", "meter"), names, strict=True))))
    assert read_series(stored(frame, tmp_path, "x.csv", index=False))["unique_id"].unique().tolist() == as_read


@pytest.mark.parametrize(
    ("form", "freq"), [("%Y%m%d", "D"), ("%Y%m%d%H", "h"), ("%Y%m%d%H%M", "30min"), ("%Y%m%d%H%M%S", "s")]
)
def test_integers_that_write_times_are_read_as_times(tmp_path, form, freq):
    frame = pd.DataFrame(
        {"a": np.arange(99.0)}, index=pd.date_range("2024-01-30 23:00", periods=99, freq=freq, name="ds")
    )
    frame = frame.set_axis(frame.index.floor("D")) if freq == "D" else frame
    frame.set_axis(frame.index.strftime(form).rename("ds")).to_csv(tmp_path / "x.csv")
    found = read_series(tmp_path / "x.csv")
    pd.testing.assert_frame_equal(found, frame, check_freq=False, check_index_type=False)


def test_mixed_date_formats_are_read_and_times_without_a_date_are_not(tmp_path):
    (tmp_path / "x.csv").write_text("ds,a\n2024-01-01,1\n2024-01-01T00:00:00.500000,2\n2024-01-01 00:00:01,3\n")
    assert (read_series(tmp_path / "x.csv").index.diff()[1:] == pd.Timedelta("500ms")).all()
    (tmp_path / "x.csv").write_text("ds,a\n00:00,1\n01:00,2\n")
    with pytest.raises(ValueError, match="times of the day without a date, such as '00:00'"):
        read_series(tmp_path / "x.csv")
