"""Units of exogenous columns in the network: shared or per series, clipped outside the training range."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from titans_ts.frames.exogenous import Columns
from titans_ts.frames.frame import read_frame
from titans_ts.frames.panel import Panel
from titans_ts.units.column_units import ColumnUnits, Moments
from titans_ts.units.scaling import Scaling, _warn_of_names


def units_of(values):
    """Moments of ``[T, N, X]`` without NaN."""
    values = torch.as_tensor(values, dtype=torch.float64)
    return ColumnUnits.of(Moments.of(values, values.isfinite()))


def test_moments_of_parts_combine_to_those_of_the_whole():
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=(50, 3, 2))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 2] = np.nan  # a series of which nothing is known
    values = torch.from_numpy(values)
    whole = Moments.of(values, values.isfinite())
    joined = Moments.of(values[:0], values[:0].isfinite())
    for part in values.split(7):
        joined = joined.joined(Moments.of(part, part.isfinite()))
    for found, expected in zip(joined, whole, strict=True):
        torch.testing.assert_close(found, expected)
    flat = values.reshape(-1, 2)
    for name, f in {"mean": np.nanmean, "variance": np.nanvar, "low": np.nanmin, "high": np.nanmax}.items():
        torch.testing.assert_close(getattr(whole.pooled(), name), torch.from_numpy(f(flat.numpy(), axis=0)))
        torch.testing.assert_close(getattr(whole, name)[:2], torch.from_numpy(f(values[:, :2].numpy(), axis=0)))


def test_a_rare_value_whose_share_rounds_to_nothing_has_a_unit():
    year = torch.full((100_000, 1, 1), 2023.0)
    year[0] = 2024.0  # the mean in single precision is 2023
    units = ColumnUnits.of(Moments.of(year, torch.tensor(True)), 1e-6, once=0.0)
    assert units.standardised(year).unique().tolist() == [0.0, 1.0]


def test_a_column_has_common_units_unless_they_would_hide_some_series():
    rng = np.random.default_rng(0)
    warmth = rng.normal(size=(400, 4, 1)) + np.array([0.0, 1, 2, 3])[:, None]
    units = units_of(warmth)
    assert not units.apart.any()
    found = units.standardised(torch.from_numpy(warmth)).numpy()
    np.testing.assert_allclose(found, (warmth - warmth.mean()) / warmth.std())
    # a price in four currencies, and a fifth country where it never changes
    prices = np.abs(warmth) * np.array([1.0, 100, 0.1, 1])[:, None] + 5
    prices = np.concatenate((prices, np.full((400, 1, 1), 7.0)), axis=1)
    units = units_of(prices)
    assert units.apart.all()
    found = units.standardised(torch.from_numpy(prices)).numpy()
    own = (prices - prices.mean(0)) / np.maximum(prices.std(0), 1e-9)
    np.testing.assert_allclose(found[:, :4], own[:, :4], atol=1e-12)
    np.testing.assert_allclose(found[:, 4], (7 - prices.mean()) / prices.std())
    # one series in eleven is too few for all to have units of their own
    many = np.concatenate((np.repeat(warmth[:, :1], 10, axis=1), 0.01 * warmth[:, :1]), axis=1)
    assert not units_of(many).apart.any()
    assert units_of(many[:, 1:]).apart.all()


def test_a_short_series_does_not_give_a_shared_column_units_per_series():
    """It has seen only a small part of a trend."""
    trend = np.linspace(1, 2, 400)[:, None, None] + np.zeros((1, 5, 1))
    trend[:370, 4] = np.nan
    units = units_of(trend)
    assert not units.apart.any()
    assert (units.of_each == units.of_all[:, None]).all()
    trend[200:, 4] = np.linspace(1.74, 1.75, 200)[:, None]  # half of the rows are enough to tell
    assert units_of(trend).apart.all()


def test_limits_of_a_short_series_are_as_wide_relative_to_its_size_as_of_others():
    trend = np.linspace(1, 2, 400)[:, None, None] * np.array([1.0, 2, 500, 30])[:, None]
    longer = units_of(trend)
    trend[:370, 3] = np.nan
    units = units_of(trend)
    assert units.apart.all()
    torch.testing.assert_close(units.of_each[:, :3], longer.of_each[:, :3])
    later = torch.tensor([2.5, 5.0, 1250.0, 75.0], dtype=torch.float64)[:, None]
    assert (units.within(later) == later).all()
    assert (units.standardised(later).abs() < 16).all()
    wrong = 100 * later
    assert (units.within(wrong) < wrong / 10).all()
    # whose values vary as much as those of the others has its own
    rng = np.random.default_rng(0)
    prices = (5 + rng.random((400, 3, 1))) * np.array([1.0, 100, 1])[:, None]
    prices[:300, 2] = np.nan
    own = units_of(prices[300:]).of_each[:, 2]
    torch.testing.assert_close(units_of(prices).of_each[:, 2], own, rtol=0.05, atol=0)


def test_two_values_are_one_unit_apart_and_closer_if_one_is_rare():
    sale = np.zeros((3000, 2, 3))
    sale[17, 0, 0] = 1  # once
    sale[::2, :, 1] = 7  # half the time
    sale[::3, 1, 2] = 1  # in one series only
    units = units_of(sale)
    assert not units.apart.any()
    found = units.standardised(torch.from_numpy(sale)).numpy()
    rarer = np.array([1, 3000, 1000])  # rows
    np.testing.assert_allclose(np.ptp(found, axis=(0, 1)), rarer / (rarer + 10))
    np.testing.assert_allclose(found.mean((0, 1)), 0, atol=1e-12)


def test_one_outlier_or_two_currencies_do_not_count_as_two_values():
    rng = np.random.default_rng(0)
    prices = 5 + rng.random((400, 10, 1))
    prices[7, 3] = 1e6
    currencies = 5 + 0.01 * rng.random((400, 2, 1)) * np.array([1, 5000])[:, None]
    currencies[:, 1] += 25000
    for values, seen in ((prices, [0, 1, 2, 4, 5, 6, 7, 8, 9]), (currencies, [0, 1])):
        units = units_of(values)
        assert units.apart.all()
        found = units.standardised(torch.from_numpy(values)).numpy()
        np.testing.assert_allclose(found[:, seen].std(0), 1)


def test_a_static_column_of_two_values_has_an_effect_in_all_rows(tiny, shop):
    facts = pd.DataFrame({"unique_id": list("abc"), "open": [0.0, 0.0, 1.0]})
    model = tiny(exogenous={"stat": ["open"]}).fit(shop[["unique_id", "ds", "y"]], static_df=facts)
    np.testing.assert_allclose(model.scaling_.table(model.context_).stat[:, 0], [-1 / 3, -1 / 3, 2 / 3], rtol=1e-6)


def test_a_subset_of_the_series_is_read_with_any_number_of_columns(tiny, shop):
    model = tiny(exogenous={"hist": ["stock", "price"]}, max_epochs=1).fit(shop, val_size=0)
    some = shop[shop["unique_id"] != "b"]
    both = pd.concat([some, some.assign(unique_id=some["unique_id"] + "2")])
    for frame in (some, both):
        assert set(model.surprise(frame)["unique_id"]) == set(frame["unique_id"])
        assert set(model.predict(frame)["unique_id"]) == set(frame["unique_id"])
    later = some[some["ds"] == some["ds"].max()].assign(ds=some["ds"].max() + pd.Timedelta(hours=1))
    with pytest.raises(ValueError, match="series"):
        model.update(later)


def test_no_training_value_is_beyond_eight_units():
    spikes = np.abs(np.random.default_rng(0).normal(size=(3000, 1, 1))) * 1e-3
    spikes[5] = 40.0
    found = units_of(spikes).standardised(torch.from_numpy(spikes))
    assert 7.9 < found.max() <= 8


def test_a_code_for_no_value_is_clipped_and_not_the_unit_of_its_column():
    columns, rng = Columns(hist=("warmth", "price")), np.random.default_rng(0)
    warmth, price = rng.normal(size=(60, 300)), 5 + 0.01 * rng.random((60, 300))
    price[:, 0] *= 1e4  # another currency
    price[::20, 1:] = 3.0  # promotions
    hist = np.stack((warmth, price), axis=-1)
    panel = Panel(np.zeros((60, 300)), list(range(300)), pd.RangeIndex(60), 1, "long", hist=hist)
    usual = Scaling.of(panel, columns).exogenous["hist"]
    panel.hist[30, 7, 0] = -9999
    with pytest.warns(UserWarning, match="'warmth' is -9999 for series 7 at 30 and is clipped to -1.*means no value"):
        found = Scaling.of(panel, columns).exogenous["hist"]
    torch.testing.assert_close(found.of_all, usual.of_all, rtol=1e-4, atol=1e-4)
    lowest = found.standardised(torch.from_numpy(panel.hist))[..., 1].amin(0)
    assert lowest[0] > -3  # the currency and the promotions do not count as codes
    assert (lowest[1:] < -4).all()


def test_a_code_for_no_value_is_not_the_unit_of_a_series_among_other_currencies():
    rng = np.random.default_rng(0)
    price = (5 + 0.01 * rng.random((60, 6))) * np.array([1, 1, 100, 1, 1, 100])
    price[::20] *= 0.6  # promotions
    panel = Panel(np.zeros((60, 6)), list("abcdef"), pd.RangeIndex(60), 1, "long", hist=price[..., None])
    columns, known, new = Columns(hist=("price",)), panel.named(list("abc")), panel.named(list("def"))
    scaling = Scaling.of(known, columns)
    usual = scaling.exogenous["hist"].of_each
    torch.testing.assert_close(scaling.of_panel(new, known).exogenous["hist"].of_each, usual, rtol=0.02, atol=0)
    new.hist[30, 1] = -9999
    coded = scaling.of_panel(new, known)
    torch.testing.assert_close(coded.exogenous["hist"].of_each, usual, rtol=0.02, atol=0)
    says = r"'price' is -9999 for series '{}' at 30 and is clipped to 0\.9"
    with pytest.warns(UserWarning, match=says.format("e")):
        coded.warn_of(new)
    known.hist[30, 1] = -9999
    with pytest.warns(UserWarning, match=says.format("b")):
        coded = Scaling.of(known, columns)
    torch.testing.assert_close(coded.exogenous["hist"].of_each, usual, rtol=0.02, atol=0)


def test_values_are_clipped_one_range_width_beyond_the_range():
    values = np.array([[[1.0]], [[3.0]], [[2.0]], [[2.5]]])
    units = units_of(values)
    far = torch.tensor([[[-9.0]], [[-0.9]], [[4.9]], [[500.0]], [[float("nan")]]], dtype=torch.float64)
    expected = torch.tensor([-1.0, -0.9, 4.9, 5.0, float("nan")], dtype=torch.float64)
    torch.testing.assert_close(units.within(far)[:, 0, 0], expected, equal_nan=True)


def test_new_series_have_their_own_units_where_each_series_does():
    rng = np.random.default_rng(0)
    ds = pd.date_range("2024", periods=60, freq="h")

    def frame(sizes):
        parts = [
            {"unique_id": name, "ds": ds, "y": rng.normal(size=60), "price": size * (5 + rng.random(60))}
            for name, size in sizes.items()
        ]
        return pd.concat(map(pd.DataFrame, parts), ignore_index=True).assign(warmth=rng.normal(size=60 * len(sizes)))

    columns = Columns(futr=("price", "warmth"))
    known = read_frame(frame({"a": 1, "b": 100}), columns=columns)
    scaling = Scaling.of(known, columns)
    assert scaling.exogenous["futr"].apart.tolist() == [True, False]
    panel = read_frame(frame({"b": 100, "c": 500, "a": 1}), columns=columns)
    other = scaling.of_panel(panel, known)
    price = panel.futr[..., 0]
    columns = other.table(panel).futr.numpy()
    then = known.futr[:, [1, 0], 0]
    expected = (price[:, [0, 2]] - then.mean(0)) / then.std(0)
    np.testing.assert_allclose(columns[:, [0, 2], 0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(columns[:, 1, 0], (price[:, 1] - price[:, 1].mean()) / price[:, 1].std(), atol=1e-5)
    pooled = known.futr[..., 1]
    np.testing.assert_allclose(columns[..., 1], (panel.futr[..., 1] - pooled.mean()) / pooled.std(), atol=1e-5)


def test_a_series_whose_name_has_another_type_is_reported_as_new(tiny, shop):
    named = shop[["unique_id", "ds", "y"]].assign(unique_id=shop["unique_id"].map({"a": "000", "b": "001", "c": "x"}))
    model = tiny().fit(named)
    numbers = named[named["unique_id"] != "x"].assign(unique_id=lambda f: f["unique_id"].astype(int))
    says = r"series 0 counts as new, but fit had '000' \(str instead of int\)"
    with pytest.warns(UserWarning, match=says) as warned:
        model.predict(numbers)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(named.assign(unique_id=named["unique_id"] + "b"))


@pytest.mark.parametrize(
    ("known", "new", "says"),
    [
        ("1", "1.0", r"series '1.0' counts as new, but fit had '1'\. If"),
        ("1.0", "1", r"series '1' counts as new, but fit had '1\.0'\. If"),
        ("0010", "10.0", r"series '10\.0' counts as new, but fit had '0010'\. If"),
        ("1", 1.0, r"series 1\.0 counts as new, but fit had '1' \(str instead of float\)\. If"),
        (0, "0.0", r"series '0\.0' counts as new, but fit had 0 \(int instead of str\)\. If"),
        ("v1", "v1.0", None),
        ("1", "1.5", None),
        ("0a", "a", None),
        ("10", "1", None),
        ("", "0", None),
    ],
)
def test_names_that_write_the_same_number_differently_are_reported_as_similar(known, new, says):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _warn_of_names([new], ["x", known])
    assert len(warned) == (says is not None)
    assert all(re.search(says, str(warning.message)) for warning in warned)


def test_a_missing_row_of_a_boolean_future_column_is_unknown(tiny, shop, ahead):
    frame = shop[["unique_id", "ds", "y"]].assign(open=shop["price"] > 1.5)
    model = tiny(exogenous={"futr": ["open"]}, missing="mask").fit(frame)
    future = ahead[["unique_id", "ds"]].assign(open=ahead["unique_id"] != "b").drop(index=[1])
    with pytest.warns(UserWarning, match="lacks 1 of the 12 rows of the horizon"):
        found = model.predict(futr_df=future)
    with pytest.warns(UserWarning, match="lacks 1 of the 12 rows of the horizon"):
        pd.testing.assert_frame_equal(found, model.predict(futr_df=future.astype({"open": float})))


@pytest.fixture
def shop(wide, to_long):
    """Prices from 1 to 2, sold in pieces."""
    frame = to_long(wide)
    rng = np.random.default_rng(1)
    return frame.assign(price=1 + rng.random(len(frame)), stock=rng.random(len(frame)))


@pytest.fixture
def ahead(wide):
    ds = pd.date_range(wide.index[-1], periods=5, freq="h")[1:]
    return pd.DataFrame([{"unique_id": i, "ds": t, "price": 1.5} for i in "abc" for t in ds])


def test_a_value_in_another_unit_is_named_and_clipped(tiny, shop, ahead):
    model = tiny(exogenous={"futr": ["price"], "hist": ["stock"]}, max_epochs=2).fit(shop)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(futr_df=ahead)
        model.predict(shop, ahead)

    def changed(frame, where, **values):
        return frame.assign(**{name: frame[name].mask(where, value) for name, value in values.items()})

    cents = (ahead["unique_id"] == "b") & (ahead["ds"] >= ahead["ds"].max() - pd.Timedelta(hours=1))
    with pytest.warns(
        UserWarning,
        match=r"exogenous column 'price' is 150 for series 'b' at 2024-01-06 02:00:00 and is clipped to 2\.\d+: it is "
        r"farther from the training range than the width of that range \(and 1 more\)\. Check its unit",
    ):
        far = model.predict(futr_df=changed(ahead, cents, price=150.0))
    most = float(model.scaling_.exogenous["futr"].of_all[3, 0])
    assert 2.9 < most < 3
    pd.testing.assert_frame_equal(far, model.predict(futr_df=changed(ahead, cents, price=most)))
    assert not far["Titans"].equals(model.predict(futr_df=ahead)["Titans"])

    last = (shop["unique_id"] == "c") & (shop["ds"] == shop["ds"].max())
    with pytest.warns(
        UserWarning, match=r"'stock' is -80 for series 'c' at 2024-01-05 23:00:00 and is clipped to -0\.9"
    ):
        model.predict(changed(shop, last, stock=-80.0), ahead)
    with pytest.warns(UserWarning, match="'stock' is -80 for series 'c'"):
        model.score(changed(shop, last, stock=-80.0))
    with pytest.warns(UserWarning, match="'stock' is -80 for series 'c'"):
        model.predict_insample(changed(shop, last, stock=-80.0))
    later = shop[shop["ds"] == shop["ds"].max()].assign(ds=shop["ds"].max() + pd.Timedelta(hours=1), stock=80.0)
    with pytest.warns(UserWarning, match=r"'stock' is 80 for series 'a' .* \(and 2 more\)"):
        model.update(later)
    with pytest.warns(UserWarning, match=r"'stock' is 80 for series 'c' at 2024-01-05 23:00:00"):
        tiny(exogenous={"hist": ["stock"]}).fit(changed(shop, last, stock=80.0).drop(columns="price"))
    facts = pd.DataFrame({"unique_id": list("abc"), "size": [1.0, 2.0, 4.0]})
    model = tiny(exogenous={"stat": ["size"]}).fit(shop[["unique_id", "ds", "y"]], static_df=facts)
    with pytest.warns(UserWarning, match=r"'size' is 400 for series 'c' and is clipped to 7: "):
        model.predict(shop[["unique_id", "ds", "y"]], static_df=facts.assign(size=[1.0, 2.0, 400.0]))


def test_units_are_saved(tiny, shop, ahead, tmp_path):
    from safetensors.torch import load_file

    prices = shop.assign(price=shop["price"].where(shop["unique_id"] != "b", 100 * shop["price"]))
    ahead = ahead.assign(price=ahead["price"].where(ahead["unique_id"] != "b", 150.0))
    model = tiny(exogenous={"futr": ["price"]}).fit(prices.drop(columns="stock"))
    assert model.scaling_.exogenous["futr"].apart.all()
    model.save(tmp_path / "m")
    assert load_file(tmp_path / "m" / "model.safetensors")["scaling.futr.of_each"].shape == (4, 3, 1)
    loaded = type(model).load(tmp_path / "m")
    pd.testing.assert_frame_equal(loaded.predict(futr_df=ahead), model.predict(futr_df=ahead))


def test_limits_of_a_new_short_series_are_as_wide_as_of_one_in_training():
    rng = np.random.default_rng(0)
    known = (5 + rng.random((400, 2, 1))) * np.array([1.0, 150])[:, None]
    young = np.array([6.1, 6.2, 6.0])[:, None, None]
    both = np.full((400, 3, 1), np.nan)
    both[:, :2], both[-3:, 2:] = known, young
    among, alone = units_of(both), units_of(known)
    assert alone.apart.all()
    new = Moments.of(torch.from_numpy(young), torch.ones(3, 1, 1, dtype=torch.bool))
    found = alone.of_series([0, None, 1], new)
    torch.testing.assert_close(found.of_each[:, 1], among.of_each[:, 2])
    later = torch.tensor(7.0, dtype=torch.float64)
    assert found.within(later.expand(1, 3, 1))[0, 1, 0] == later
    # one as old as those of training has shown how far it goes
    torch.testing.assert_close(
        alone.of_series([None], Moments.of(torch.from_numpy(known[:, :1]), torch.ones(1, 1, 1).bool())).of_each[:, 0],
        alone.of_each[:, 0],
    )
