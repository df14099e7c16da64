"""Exogenous columns, calendars, missing values and polars: read correctly, or refused with a plain message."""

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest

from titans_ts.frames.exogenous import Columns, calendar_features, read_columns, read_future, read_static
from titans_ts.frames.frame import read_frame

EVERY = {"hist": ["load"], "futr": ["price"], "stat": ["size"], "calendar": ["day"]}


@pytest.fixture
def long(wide, to_long):
    frame = to_long(wide)
    rng = np.random.default_rng(2)
    return frame.assign(load=rng.normal(size=len(frame)), price=rng.normal(size=len(frame)))


@pytest.fixture
def static():
    return pd.DataFrame({"unique_id": ["c", "b", "a"], "size": [30.0, 20.0, 10.0]})


@pytest.fixture
def future(wide):
    ds = pd.date_range(wide.index[-1], periods=5, freq="h")[1:]
    rows = [{"unique_id": i, "ds": t, "price": 0.5 * k} for i in "abc" for k, t in enumerate(ds)]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)  # in any order


@pytest.fixture(scope="module")
def kept():
    """The model of ``fitted``, which is trained once."""
    return []


@pytest.fixture
def fitted(kept, tiny, long, static):
    if not kept:
        kept.append(tiny(exogenous=EVERY, max_epochs=4, learning_rate=1e-2).fit(long, static_df=static))
    return copy.deepcopy(kept[0])


def test_every_kind_of_column_moves_the_forecast(fitted, long, static, future):
    expected = fitted.predict(futr_df=future)["Titans"]
    assert np.isfinite(expected).all()

    def change(**options):
        frame = fitted.predict(options.pop("df", long), options.pop("futr_df", future), **options)
        return (frame["Titans"] - fitted.predict(long, future)["Titans"]).abs().groupby(frame["unique_id"]).max()

    newest = long["ds"] > long["ds"].max() - pd.Timedelta(hours=6)
    assert (change(df=long.assign(load=long["load"].where(~newest, 5.0))) > 1e-7).all()
    assert (change(futr_df=future.assign(price=9.0)) > 1e-7).all()
    only_b = future.assign(price=future["price"].where(future["unique_id"] != "b", 9.0))
    assert change(futr_df=only_b).gt(1e-7).tolist() == [False, True, False]
    assert (change(static_df=static.assign(size=99.0)) > 1e-7).all()
    assert (change(static_df=static.set_index("unique_id")) == 0).all()
    shifted = long.assign(ds=long["ds"] + pd.Timedelta(hours=7))
    later = future.assign(ds=future["ds"] + pd.Timedelta(hours=7))
    assert (change(df=shifted, futr_df=later) > 1e-7).all()  # the calendar


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1, -1])
def test_a_future_column_equal_to_the_target_is_learned(tiny, lag):
    rng = np.random.default_rng(0)
    answer = rng.normal(size=600)
    ds = pd.date_range("2024", periods=600, freq="h")
    frame = pd.DataFrame({"unique_id": "x", "ds": ds, "y": np.roll(answer, lag), "known": answer})
    options = {"max_epochs": 15, "learning_rate": 2e-2, "batch_size": 128, "dropout": 0.0, "dim": 16}
    cv = tiny(exogenous={"futr": ["known"]}, **options).cross_validation(frame, n_windows=10)
    least = (cv["y"] - cv["y"].median()).abs().mean()  # without the column: no row tells of another
    assert (cv["y"] - cv["Titans"]).abs().mean() < 0.5 * least


def test_a_loaded_model_requires_the_same_columns(fitted, future, tmp_path):
    fitted.save(tmp_path / "m")
    loaded = type(fitted).load(tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(futr_df=future), fitted.predict(futr_df=future), check_exact=True)
    with pytest.raises(ValueError, match=r"declares the future columns \['price'\].*futr_df, from 2024-01-06 00:00:00"):
        loaded.predict()


@pytest.mark.parametrize("make", [pd.Index, np.array, lambda names: dict.fromkeys(names).keys()])
def test_column_names_may_be_in_any_collection(tiny, long, future, make, tmp_path):
    model = tiny(exogenous={"hist": make(["load", "y2"]), "futr": make(["price"])}, max_epochs=1)
    model.fit(long.assign(y2=long["y"] ** 2))
    assert model.scaling_.columns == Columns(hist=("load", "y2"), futr=("price",))
    model.save(tmp_path / "m")
    loaded = type(model).load(tmp_path / "m")
    assert loaded.exogenous == {"hist": ["load", "y2"], "futr": ["price"]}
    pd.testing.assert_frame_equal(loaded.predict(futr_df=future), model.predict(futr_df=future), check_exact=True)


def test_update_reads_the_columns_of_the_rows(tiny, long, static, future):
    cut = long["ds"] < "2024-01-05 12:00"
    model = tiny(exogenous=EVERY).fit(long[cut], static_df=static, val_size=20)
    model.update(long[~cut])
    whole = model.predict(long, future)
    np.testing.assert_allclose(model.predict(futr_df=future)["Titans"], whole["Titans"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("exogenous", "error", "says"),
    [
        (["price"], TypeError, "must be a dict with keys among"),
        ({"future": ["price"]}, ValueError, r"unknown keys \['future'\]; use \['hist'"),
        ({"futr": 3}, TypeError, r"exogenous\['futr'\] must be a list of names, got 3"),
        ({"futr": {"x", "y2"}}, TypeError, r"exogenous\['futr'\] must be a list of names, got {"),
        ({"futr": ["x"], "hist": ["x"]}, ValueError, r"columns \['x'\] are declared twice"),
        ({"hist": ["y"]}, ValueError, r"must not name \['y'\]"),
        ({"calendar": ["moon"]}, ValueError, "calendar must be 'auto' or a list of"),
    ],
)
def test_a_wrong_declaration_is_named(tiny, wide, exogenous, error, says):
    with pytest.raises(error, match=says):
        tiny(exogenous=exogenous).fit(wide)


def test_missing_columns_and_frames_are_named(tiny, fitted, long, static, future, wide):
    model = tiny(exogenous=EVERY)
    with pytest.raises(ValueError, match=r"df lacks the columns \['price'\]"):
        model.fit(long.drop(columns="price"), static_df=static)
    with pytest.raises(ValueError, match=r"declares the static columns \['size'\]: pass them in static_df"):
        model.fit(long)
    with pytest.raises(ValueError, match=r"static_df lacks 1 series of the data, first: 'a'"):
        model.fit(long, static_df=static.iloc[:2])
    with pytest.raises(ValueError, match="several rows for series 'c'"):
        model.fit(long, static_df=pd.concat([static, static]))
    with pytest.raises(ValueError, match=r"column 'size' of static_df must be numeric.*get_dummies"):
        model.fit(long, static_df=static.assign(size="big"))
    with pytest.raises(ValueError, match=r"NaN in series 'a' at 2024-01-01 03:00.*missing='interpolate'"):
        model.fit(long.assign(load=long["load"].where(long.index != 3)), static_df=static)
    with pytest.raises(ValueError, match=r"columns \['load', 'price'\] need a long frame"):
        model.fit(wide)
    one = (future["unique_id"] == "b") & (future["ds"] == "2024-01-06 02:00")
    with pytest.raises(ValueError, match=r"futr_df has no row for series 'b' at 2024-01-06 02:00:00"):
        fitted.predict(futr_df=future[~one])
    rest = (future["unique_id"] == "b") & (future["ds"] >= "2024-01-06 02:00")
    with pytest.raises(ValueError, match=r"'b' at 2024-01-06 02:00:00: .*, but covers .* to 2024-01-06 01:00:00\."):
        fitted.predict(futr_df=future[~rest])
    with pytest.raises(ValueError, match=r"futr_df has no finite 'price' for series 'b' at 2024-01-06 02:00:00"):
        fitted.predict(futr_df=future.assign(price=future["price"].mask(one)))
    with pytest.raises(ValueError, match=r"series \['z'\] are new: pass their static columns"):
        fitted.predict(long.replace({"unique_id": {"a": "z"}}), future)


@pytest.mark.parametrize("missing", ["interpolate", "mask"])
def test_future_and_static_columns_may_have_gaps_where_the_frame_may(tiny, long, static, future, missing):
    unknown = static.assign(size=[30.0, np.nan, 10.0])
    model = tiny(exogenous={"futr": ["price"], "stat": ["size"]}, missing=missing, max_epochs=2)
    model.fit(long, static_df=unknown)
    future = future.sort_values(["unique_id", "ds"], ignore_index=True)

    def same(prices, filled, facts=static, filled_facts=static):
        found, expected = (
            model.predict(long, future.assign(price=np.ravel(p)).dropna(), static_df=f)
            for p, f in ((prices, facts), (filled, filled_facts))
        )
        pd.testing.assert_frame_equal(found, expected, rtol=1e-5)

    price = future["price"].to_numpy().reshape(3, 4)
    same(price, price, unknown, static.assign(size=[30.0, 20.0, 10.0]))  # the mean of what is known
    mean = float(model.scaling_.exogenous["futr"].of_all[0, 0])
    last = long.groupby("unique_id")["price"].last().to_numpy()
    holes, filled = price.copy(), price.copy()
    holes[:, [0, 3]] = np.nan
    filled[:, 0] = (last + price[:, 1]) / 2 if missing == "interpolate" else mean  # a line from the history's last row
    filled[:, 3] = price[:, 2] if missing == "interpolate" else mean
    same(holes, filled)
    holes[:, [0, 1, 3]], holes[:, [0, 2]] = np.nan, price[:, [0, 2]]
    filled[:, 0], filled[:, 1] = price[:, 0], price[:, [0, 2]].mean(1) if missing == "interpolate" else mean
    same(holes, filled)

    with pytest.raises(
        ValueError, match=r"futr_df has no rows for series 'b'.*call predict\(df\) with their rows alone"
    ):
        model.predict(long, future[future["unique_id"] != "b"], static_df=static)
    then = "are interpolated" if missing == "interpolate" else "count as unknown"
    with pytest.warns(UserWarning, match=rf"futr_df lacks 2 of the \d+ rows of the horizon.* \['price'\] {then}"):
        model.predict(long, future.drop(future.index[[0, -1]]), static_df=static)
    with pytest.raises(ValueError, match=r"futr_df has no finite 'price' for series 'a'"):
        model.predict(long, future.assign(price=np.inf), static_df=static)
    with pytest.raises(ValueError, match=r"no finite 'price' for series 'a' at .* 1e\+39 is beyond 3.4e\+38"):
        model.predict(long, future.assign(price=1e39), static_df=static)
    with pytest.raises(ValueError, match=r"static_df has no finite 'size' for series 'a'\. -1e\+39 is beyond"):
        model.predict(long, future, static_df=static.assign(size=-1e39))
    with pytest.raises(ValueError, match=r"static_df lacks 1 series of the data, first: 'b'"):
        model.predict(long, future, static_df=static[static["unique_id"] != "b"])
    with pytest.raises(ValueError, match=r"no finite 'price' for series 'a' at .*missing='interpolate' or 'mask'"):
        tiny(exogenous={"futr": ["price"]}).fit(long).predict(futr_df=future.assign(price=np.ravel(holes)))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_future_columns_without_series_names_apply_to_all_series(fitted, long, future, library):
    weather = future[future["unique_id"] == "c"].drop(columns="unique_id")
    of_each = pd.concat([weather.assign(unique_id=name) for name in "abc"])
    given = pl.from_pandas(weather) if library == "polars" else weather
    expected = fitted.predict(futr_df=of_each)
    pd.testing.assert_frame_equal(fitted.predict(futr_df=given), expected, check_exact=True)
    some = long[long["unique_id"] != "b"]
    pd.testing.assert_frame_equal(fitted.predict(some, given), fitted.predict(some, of_each), check_exact=True)


def test_future_columns_of_all_series_are_checked_as_strictly():
    index = pd.date_range("2024-03-01", periods=3, freq="h")
    frame = pd.DataFrame({"ds": index, "price": np.arange(3.0)})

    def read(table, **options):
        return read_future(table, ["a", 1], index, ("price",), **options)

    np.testing.assert_array_equal(read(frame), np.arange(3.0)[:, None, None].repeat(2, axis=1))
    says = "futr_df has duplicate time stamps in ds and no column unique_id"
    with pytest.raises(ValueError, match=says):
        read(pd.concat([frame, frame.assign(price=1.0)]))
    with pytest.raises(ValueError, match=r"futr_df has no row at 2024-03-01 01:00:00: it needs the 3 steps from .* to"):
        read(frame.drop(index=1))
    with pytest.raises(ValueError, match=r"no finite 'price' at 2024-03-01 01:00:00"):
        read(frame.assign(price=[1.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match=r"lacks the columns \['price'\]"):
        read(frame[["ds"]])
    with pytest.raises(TypeError, match="futr_df must be a pandas or polars DataFrame, got ndarray"):
        read(frame.to_numpy())
    with pytest.raises(ValueError, match=r"lacks the columns \['unique_id'\]"):
        read(frame.set_index(pd.Index(["a"] * 3, name="unique_id")))
    with pytest.warns(UserWarning, match="futr_df lacks 1 of the 3 rows of the horizon"):
        assert np.isnan(read(frame.drop(index=1), missing="mask")[1]).all()


def test_repeated_and_indexed_columns_of_the_other_frames_are_named():
    index = pd.date_range("2024-03-01", periods=2, freq="h")
    futr = pd.DataFrame({"unique_id": "a", "ds": index, "price": 1.0})
    static = pd.DataFrame({"unique_id": ["a"], "size": 1.0})
    for name in futr:
        with pytest.raises(ValueError, match=rf"futr_df has more than one column named \['{name}'\]"):
            read_future(pd.concat([futr, futr[[name]]], axis=1), ["a"], index, ("price",))
    for name in static:
        with pytest.raises(ValueError, match=rf"static_df has more than one column named \['{name}'\]"):
            read_static(pd.concat([static, static[[name]]], axis=1), ["a"], ("size",))
    with pytest.raises(ValueError, match=r"lacks the columns \['ds'\]\. .*in the index: futr_df\.reset_index\(\)"):
        read_future(futr.set_index(["unique_id", "ds"]), ["a"], index, ("price",))


def test_future_columns_are_read_like_the_frame():
    index = pd.date_range("2024-03-01", periods=3, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"unique_id": np.repeat([0, 1], 3), "ds": index.append(index), "price": np.arange(6.0)})
    expected = np.arange(6.0).reshape(2, 3).T[:, :, None]

    def read(**columns):
        return read_future(frame.assign(**columns), [0, 1], index, ("price",))

    arrow = frame["ds"].astype("timestamp[us, UTC][pyarrow]")
    for ds in (frame["ds"], frame["ds"].dt.tz_convert("UTC"), arrow):
        np.testing.assert_array_equal(read(ds=ds), expected)
    with pytest.raises(ValueError, match=r"column 'ds' of futr_df must hold time stamps .* pd\.to_datetime"):
        read(ds=frame["ds"].astype(str))
    with pytest.raises(ValueError, match=r"of futr_df have no time zone, but those of fit had Europe/Berlin"):
        read(ds=frame["ds"].dt.tz_localize(None))
    with pytest.raises(ValueError, match=r"futr_df has no rows for series 0: its series are \['0', '1'\]"):
        read(unique_id=frame["unique_id"].astype(str))
    with pytest.raises(ValueError, match=r"no row for series 0 at 2024-03-01 02:00:00.* covers 2024-02-29 23:00:00"):
        read(ds=frame["ds"] - pd.Timedelta(hours=1))
    with pytest.raises(ValueError, match=r"of futr_df have another type than those of fit: int64, such as 0"):
        read(ds=[0, 1, 2] * 2)


def test_the_calendar_repeats_with_its_cycle_and_follows_local_time():
    index = pd.date_range("2024-03-01", periods=24 * 60, freq="h", tz="Europe/Berlin")  # the clock changes within
    day = calendar_features(index, ("day",))
    noon = day[index.hour == 12]
    np.testing.assert_allclose(noon, np.broadcast_to(noon[0], noon.shape), atol=1e-9)
    assert len(np.unique(day[:24].round(6), axis=0)) == 24
    week = calendar_features(index, ("week",))
    monday = week[(index.day_of_week == 0) & (index.hour == 0)]
    np.testing.assert_allclose(monday, np.broadcast_to([0, 1, 0, 1], monday.shape), atol=1e-9)


@pytest.mark.parametrize(
    ("freq", "periods", "cycles"),
    [("h", 24 * 30, ("day", "week")), ("15min", 150, ()), ("D", 800, ("week", "year")), ("h", 60, ("day",))],
)
def test_auto_uses_the_cycles_that_occur_twice_in_the_data(freq, periods, cycles):
    columns = read_columns({"calendar": "auto"}).with_cycles_of(pd.date_range("2020", periods=periods, freq=freq))
    assert columns == Columns(calendar=cycles)
    with pytest.warns(
        UserWarning, match="calendar='auto' has no effect: it needs datetime time stamps, got int64"
    ) as warned:
        assert read_columns({"calendar": "auto"}).with_cycles_of(pd.RangeIndex(99)) == Columns()
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="needs datetime time stamps"):
        read_columns({"calendar": ["day"]}).with_cycles_of(pd.RangeIndex(99))


def test_windows_of_a_model_with_a_calendar_need_their_stamps(tiny, wide):
    model = tiny(exogenous={"calendar": "auto"}).fit(wide)
    starts = [0, 40, 100]
    windows = np.stack([wide.to_numpy()[s : s + 12] for s in starts])
    found = model.predict_windows(windows, wide.index[[s + 12 for s in starts]])
    for out, start in zip(found, starts, strict=True):
        np.testing.assert_allclose(out, model.predict(wide.iloc[start : start + 12]), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="needs origins: the time stamp of each window"):
        model.predict_windows(windows)


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_gaps_are_interpolated_linearly_and_missing_rows_are_gaps(wide, to_long, layout):
    holed = wide.copy()
    holed.loc[holed.index[5:8], "b"] = np.nan
    holed.loc[holed.index[-2:], "c"] = np.nan
    holed = holed.drop(holed.index[50:53])
    frame = holed if layout == "wide" else to_long(holed)
    panel = read_frame(frame, missing="interpolate")
    assert panel.values.shape == wide.shape
    np.testing.assert_allclose(panel.values[4:9, 1], np.linspace(*wide["b"].iloc[[4, 8]], 5))
    np.testing.assert_allclose(panel.values[49:54, 0], np.linspace(*wide["a"].iloc[[49, 53]], 5))
    np.testing.assert_allclose(panel.values[-2:, 2], wide["c"].iloc[-3])
    masked = read_frame(frame, missing="mask")
    assert np.isnan(masked.values).sum() == 3 + 2 + 9
    with pytest.raises(ValueError, match=r"irregular time stamps|NaN"):
        read_frame(frame)
    with pytest.raises(ValueError, match="first: infinite in series"):
        read_frame(wide.replace({"a": {wide["a"].iloc[9]: np.inf}}), missing="mask")


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["interpolate", "mask"])
def test_gaps_cost_little_accuracy_where_they_are_allowed(tiny, missing, whole_memory):
    rng = np.random.default_rng(0)
    t = np.arange(600)
    frame = pd.DataFrame({"a": np.sin(t / 4) + 0.05 * rng.normal(size=600)})
    holed = frame.mask(rng.random(frame.shape) < 0.15)
    options = {"max_epochs": 15, "learning_rate": 1e-2, "batch_size": 64, "dropout": 0.0}
    with pytest.raises(ValueError, match="NaN in series 'a'"):
        tiny(**options).fit(holed)
    model = tiny(missing=missing, **options).fit(holed.iloc[:500])
    errors = [
        np.abs(model.predict(holed.iloc[:cut])["a"].to_numpy() - np.sin(np.arange(cut, cut + 4) / 4)).mean()
        for cut in range(510, 590, 2)  # all phases: which of them a hole spoils differs from training to training
    ]
    assert np.mean(errors) < 0.2  # the wave's own mean deviation is .64
    assert np.isfinite(model.score(holed))
    model.update(holed.iloc[500:])
    assert model.predict().index[0] == 600


def test_masked_values_do_not_matter(tiny, wide):
    model = tiny(missing="mask").fit(wide.mask(np.random.default_rng(0).random(wide.shape) < 0.1))
    holed = wide.iloc[-12:].copy()
    holed.iloc[4, 0] = np.nan
    whole = model.predict(wide.iloc[-12:])
    found = model.predict(holed)
    assert (found["a"] - whole["a"]).abs().max() > 1e-6
    pd.testing.assert_frame_equal(found[["b", "c"]], whole[["b", "c"]], rtol=1e-5)


def test_polars_frames_give_polars_frames_and_the_same_numbers(tiny, wide, to_long):
    pandas_long = to_long(wide)
    long = pl.DataFrame(
        {c: pandas_long[c].to_numpy() if c != "unique_id" else pandas_long[c].tolist() for c in pandas_long}
    )
    expected, model = tiny().fit(pandas_long).predict(), tiny().fit(long)
    found = model.predict(level=[80])
    assert isinstance(found, pl.DataFrame)
    assert found.columns == ["unique_id", "ds", "Titans", "Titans-lo-80", "Titans-hi-80"]
    np.testing.assert_array_equal(found["Titans"].to_numpy(), expected["Titans"].to_numpy())
    assert found["ds"].to_list() == expected["ds"].dt.to_pydatetime().tolist()
    assert isinstance(model.cross_validation(long), pl.DataFrame)
    assert isinstance(model.predict(pandas_long), pd.DataFrame)
    numbered = long.with_columns(pl.col("unique_id").rank("dense").cast(pl.Int32))
    pl.concat([numbered, model.predict(numbered)], how="diagonal")  # refused if types differ
    side = pl.DataFrame({"ds": wide.index.to_numpy(), **{c: wide[c].to_numpy() for c in wide}})
    out = tiny().fit(side).predict()
    assert out.columns == ["ds", "a", "b", "c"]
    np.testing.assert_array_equal(out["b"].to_numpy(), expected[expected["unique_id"] == "b"]["Titans"])


def test_time_zones_survive_polars(tiny, wide):
    side = pl.DataFrame({"ds": wide.index.to_numpy(), "a": wide["a"].to_numpy()})
    zoned = side.with_columns(pl.col("ds").dt.replace_time_zone("Europe/Berlin"))
    out = tiny(max_epochs=1).fit(zoned).predict()
    assert out["ds"].dtype.time_zone == "Europe/Berlin"
    assert out["ds"][0] == zoned["ds"][-1] + pd.Timedelta(hours=1).to_pytimedelta()


def test_new_series_need_their_static_columns_in_every_method(fitted, long, static, future):
    new, ahead, columns = (frame.assign(unique_id="new-" + frame["unique_id"]) for frame in (long, future, static))
    with pytest.raises(ValueError, match="pass their static columns in static_df"):
        fitted.plot(new, futr_df=ahead)
    figure = fitted.plot(new, futr_df=ahead, static_df=columns)
    assert figure.axes[0].get_title(loc="left") == "new-a"
    with pytest.raises(ValueError, match="static_df needs df: without df, the series of fit keep"):
        fitted.predict(futr_df=future, static_df=static)


def test_a_frame_of_columns_that_are_not_declared_is_refused(tiny_fitted, tiny, wide):
    facts = pd.DataFrame({"unique_id": list(wide), "size": 1.0})
    with pytest.raises(ValueError, match=r"static_df is given, but exogenous declares no static columns"):
        tiny().fit(wide, static_df=facts)
    with pytest.raises(ValueError, match=r"futr_df is given, but exogenous declares no future columns"):
        tiny_fitted.predict(futr_df=facts)


def test_static_columns_are_matched_to_their_series():
    static = pd.DataFrame({"unique_id": ["c", "b", "a"], "size": [30.0, 20.0, 10.0]})
    assert read_static(static, ["a", "b", "c"], ("size",)).tolist() == [[10.0], [20.0], [30.0]]
    with pytest.raises(ValueError, match=r"lacks 2 series of the data, first: 1; it has \['1', '2'\]\. .* same names"):
        read_static(static[:2].assign(unique_id=["1", "2"]), [1, 2], ("size",))


def test_the_units_of_exogenous_columns_do_not_matter(tiny, wide, to_long):
    rng = np.random.default_rng(2)
    frame = to_long(wide)
    frame = frame.assign(load=rng.normal(size=len(frame)), price=rng.normal(size=len(frame)))
    static = pd.DataFrame({"unique_id": ["a", "b", "c"], "size": [1.0, 2.0, 3.0]})
    options = {"exogenous": {"hist": ["load"], "futr": ["price"], "stat": ["size"]}, "max_epochs": 2}

    def forecast(a, b):
        model = tiny(**options).fit(
            frame.assign(load=a * frame["load"] + b, price=a * frame["price"] + b),
            static_df=static.assign(size=a * static["size"] + b),
        )
        stamps = model.context_.future(4)
        future = pd.DataFrame({"unique_id": np.repeat(list("abc"), 4), "ds": np.tile(stamps, 3), "price": a * 0.5 + b})
        return model.predict(futr_df=future)["Titans"].to_numpy().reshape(3, 4).T

    np.testing.assert_allclose((forecast(1e3, -5e3) - forecast(1.0, 0.0)) / wide.std().to_numpy(), 0, atol=1e-3)


def test_the_memory_reads_only_values_not_columns(tiny, long, static):
    model = tiny(exogenous={"hist": ["price"], "stat": ["size"]})
    late = long[(long["unique_id"] != "a") | (long["ds"] >= long["ds"].iloc[20])]
    columns = static[["unique_id"]].assign(size=[1.0, 5.0, 9.0])
    model.fit(late, static_df=columns, val_size=0)
    found = model.surprise(late[["unique_id", "ds", "y"]])
    new = late.assign(unique_id="new-" + late["unique_id"])
    assert set(model.surprise(new)["unique_id"]) == {"new-a", "new-b", "new-c"}
    pd.testing.assert_frame_equal(found, model.surprise(late.assign(price=-7.0)))
    assert found["unique_id"].unique().tolist() == model.predict()["unique_id"].unique().tolist() == ["a", "b", "c"]
