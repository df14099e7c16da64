"""Gaps in lookbacks, artificial in training and real afterwards, and very short series."""

import numpy as np
import pandas as pd
import pytest
import torch

from titans_ts import TitansForecaster
from titans_ts.frames.exogenous import Columns
from titans_ts.frames.frame import read_frame
from titans_ts.frames.panel import interpolated
from titans_ts.network.holes import HOLED, Holes, Lines
from titans_ts.network.widening import SHARES, widened
from titans_ts.network.windows import Table, Windows, stale_parts, unknown_parts
from titans_ts.units.scaling import Scaling
from titans_ts.units.young import Others


@pytest.fixture(scope="module")
def waves():
    """Waves of twelve steps, with a shape and size for each series and little noise."""
    rng, t = np.random.default_rng(0), np.arange(600)[:, None]
    shape = np.sin(2 * np.pi * (t / 12 + rng.random(6))) + 0.5 * np.sin(4 * np.pi * (t / 12 + rng.random(6)))
    values = (shape + 0.1 * rng.normal(size=(600, 6))) * np.exp(rng.normal(size=6))
    index = pd.date_range("2024-01-01", periods=600, freq="h", name="ds")
    return pd.DataFrame(values, index=index, columns=list("abcdef"))


def trained(waves, missing):
    options = dict(h=4, input_size=48, patch_size=12, dim=8, num_layers=1, dropout=0.0, batch_size=64)
    model = TitansForecaster(
        **options, missing=missing, learning_rate=1e-2, max_epochs=10, random_state=0, verbose=0
    )  # fmt: skip
    return model.fit(waves.iloc[:400], val_size=100)


@pytest.fixture(scope="module")
def masked(waves):
    return trained(waves, "mask")


@pytest.fixture(scope="module")
def interpolating(waves):
    return trained(waves, "interpolate")


def behind_holes(model, waves, rows):
    """Coverage of 80 % intervals in percent, and the mean error, with this many missing rows."""
    held, off = [], []
    for origin in range(460, 592, 6):
        known = waves.iloc[origin - 50 : origin].copy()
        for i in range(6):
            begin = 2 + np.random.default_rng(10 * origin + i).integers(0, 48 - rows)
            known.iloc[begin : begin + rows, i] = np.nan
        found, truth = model.predict(known, level=[80]), waves.iloc[origin : origin + 4]
        low, high = (found[[f"{c}-{side}-80" for c in waves]].to_numpy() for side in ("lo", "hi"))
        held.append((low <= truth) & (truth <= high))
        off.append((found[list(waves)] - truth).abs() / waves.std())
    return 100 * np.mean(held), np.mean(off)


def test_some_lookbacks_get_an_artificial_gap_of_random_length_and_position():
    holes = Holes.at_random(20_000, 2, 48, seed=3)
    length = holes.stop - holes.start
    assert (length > 0).float().mean() == pytest.approx(HOLED, abs=0.02)  # a few lie beyond the lookback
    assert (holes.start >= 0).all()
    assert (holes.stop <= 48).all()
    assert length.unique().tolist()[:48] == list(range(48))
    assert (length[:, 0] != length[:, 1]).float().mean() > 0.5
    at_the_edge = [(edge & (length > 0)).float().mean() for edge in (holes.start == 0, holes.stop == 48)]
    assert all(0.05 < part < 0.2 for part in at_the_edge), at_the_edge
    again, other = Holes.at_random(20_000, 2, 48, seed=3), Holes.at_random(20_000, 2, 48, seed=4)
    assert torch.equal(holes.start, again.start)
    assert not torch.equal(holes.start, other.start)


@pytest.mark.parametrize("together", [True, False])
def test_artificial_gaps_hide_only_their_steps_and_no_targets(together):
    table = Table(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)))
    origins, series = torch.tensor([10, 25, 30, 36]), None if together else torch.tensor([0, 2, 1, 2])
    whole = Windows(table, 10, 4, origins, series)
    holed = whole.holed(seed=1)
    chosen = [3, 0, 1]
    x, y = holed[chosen].x, holed[chosen].y
    torch.testing.assert_close(y, whole[chosen].y)
    hidden = torch.zeros_like(x, dtype=torch.bool)
    for b, window in enumerate(chosen):
        for m in range(x.shape[2]):
            hidden[b, holed.holes.start[window, m] : holed.holes.stop[window, m], m] = True
    assert hidden.any()
    torch.testing.assert_close(x, whole[chosen].x.masked_fill(hidden, torch.nan), equal_nan=True)


def test_unknown_values_of_a_lookback_are_counted_once():
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(60, 4)))
    values[torch.from_numpy(rng.random((60, 4)) < 0.3)] = torch.nan
    values[:20, 1] = torch.nan
    values[40:, 2] = torch.nan
    origins = torch.tensor([5, 12, 30, 41, 55])
    found = unknown_parts(Table(values), origins, 12, stale_parts(Table(values), origins, 12))
    for k, origin in enumerate(origins.tolist()):
        for n in range(4):
            lookback = [None] * max(0, 12 - origin) + values[max(0, origin - 12) : origin, n].tolist()
            known = [value is not None and np.isfinite(value) for value in lookback]
            newest = max((i for i, there in enumerate(known) if there), default=-1)
            assert found[k, n] * 12 == pytest.approx(sum(not there for there in known[: newest + 1]), abs=1e-5)
    assert unknown_parts(Table(values.nan_to_num()), torch.tensor([12, 30]), 12, None) is None


def test_the_widening_is_interpolated_linearly_between_shares():
    widening = torch.tensor(SHARES) * 4 + 1
    at = torch.tensor([[0.0, 0.1, 0.5], [0.8, 1 / 16, 15 / 16]])
    torch.testing.assert_close(widened(widening, at), 4 * at + 1)
    assert widened(widening, torch.tensor([[1.0]])).item() == pytest.approx(4 * 15 / 16 + 1)  # no farther was measured


def test_after_a_gap_intervals_keep_their_coverage_and_forecasts_suffer_little(masked, waves):
    assert masked.model_.widening[0] == 1
    assert (masked.model_.widening.diff() >= 0).all()
    _, without = behind_holes(masked, waves, 0)
    for rows, farther in ((4, 1.6), (12, 2), (24, 3), (36, 4.5)):
        inside, error = behind_holes(masked, waves, rows)
        assert inside > 72, (rows, inside)
        assert error < farther * without, (rows, error, without)


@pytest.mark.parametrize("rows", [4, 12, 24, 36])
def test_after_an_interpolated_gap_intervals_keep_their_coverage(interpolating, waves, rows):
    inside, _ = behind_holes(interpolating, waves, rows)
    assert 70 < inside < 90, inside  # from 67 down to 9 where a line counts as known
    # by as much wider as errors are: the line itself, given as values, moves the forecast as much
    holed = waves.iloc[440:500].copy()
    holed.iloc[58 - rows : 58] = np.nan
    found, given = (interpolating.predict(df, level=[80]) for df in (holed, holed.interpolate()))
    wide, narrow = ((x["a-hi-80"] - x["a"]).to_numpy() for x in (found, given))
    by = widened(interpolating.model_.widening, torch.tensor(rows / 48)).item()
    np.testing.assert_allclose(found["a"], given["a"])
    np.testing.assert_allclose(wide / narrow, by, rtol=1e-4)


def test_an_artificial_interpolated_gap_equals_that_of_a_frame():
    values, start, stop = torch.randn(4, 12, 2), torch.full((4, 2), 3), torch.full((4, 2), 3)
    stop[1:, 0] = torch.tensor([5, 8, 11])
    x = Lines(start, stop).hide(values, torch.arange(4))
    holed = Holes(start, stop).hide(values, torch.arange(4))
    for window, line in zip(holed, x, strict=True):
        np.testing.assert_allclose(line, interpolated(window.numpy()), rtol=1e-5)


def test_networks_without_gaps_and_probabilistic_networks_are_not_widened(tiny, waves, masked, tmp_path):
    for options in (
        dict(missing="error"),
        dict(missing="mask", loss="normal"),
        dict(missing="interpolate", loss="normal"),
    ):
        assert tiny(**options, max_epochs=1).fit(waves.iloc[:200]).model_.widening is None
    masked.save(tmp_path)
    loaded, holed = TitansForecaster.load(tmp_path), waves.iloc[400:460].copy()
    holed.iloc[30:50] = np.nan
    pd.testing.assert_frame_equal(loaded.predict(holed, level=[80]), masked.predict(holed, level=[80]))
    assert torch.equal(loaded.model_.widening, masked.model_.widening)


def test_the_unit_of_a_short_series_is_estimated_from_others():
    rng, t = np.random.default_rng(0), np.arange(300)[:, None]
    known = (3 + np.sin(2 * np.pi * (t / 24 + rng.random(8)))) * np.exp(rng.normal(size=8))
    deviation = known.std(axis=0)
    others = Others.of(known, deviation)
    for rows in (1, 2, 5, 12, 24, 100):
        off = []
        for _ in range(50):
            young = (3 + np.sin(2 * np.pi * (np.arange(300) / 24 + rng.random()))) * np.exp(rng.normal())
            off.append(others.unit_of(young[:rows]) / young.std())
        assert 0.8 < np.exp(np.mean(np.log(off))) < 1.25, rows
        assert np.std(np.log(off)) < 0.3, rows
    holed = known.copy()
    holed[::7, 0] = np.nan
    holed[:, 1] = np.nan
    for unit in (1e-3, 1e6):  # the silent one has no say
        guess = Others.of(unit * holed, unit * deviation).unit_of(unit * known[:1, 2])
        assert guess == pytest.approx(unit * deviation[2], rel=0.3)
    often = np.where(rng.random(known.shape) < 0.2, np.nan, known)  # no 150 rows without a gap
    for rows, some in ((299, known), (150, often)):  # so many tell more than their size
        far = Others.of(some, deviation).unit_of(1000 + known[:rows, 3])
        assert far == pytest.approx(deviation[3], rel=0.15)
    new = read_frame(pd.DataFrame({"new": 1000 + known[:, 3]})).rows(5)
    fitted = read_frame(pd.DataFrame(often), missing="mask")
    units = Scaling.of(fitted, Columns()).units_of(new, fitted)
    assert units.deviation == pytest.approx(known[5:, 3].std())  # more values than any series of fit has
    assert Others.of(holed, deviation).unit_of(known[:5, 2]) == pytest.approx(deviation[2], rel=0.3)
    assert others.unit_of(np.zeros(5)) is None
    assert Others.of(np.full((9, 200), np.nan), np.ones(200)).unit_of(np.arange(5.0)) is None


def test_a_very_short_new_series_has_wide_intervals_and_is_named(masked, waves):
    new = (waves.iloc[460:] + 2 * waves.std()).add_suffix("2")
    for rows, least in ((1, 50), (6, 50), (24, 65)):
        held = []
        for origin in range(rows, 130, 9):
            with pytest.warns(
                UserWarning,
                match=r"fewer than input_size=48 rows: \['a2'.*variability is estimated from the series of fit",
            ):
                found = masked.predict(new.iloc[origin - rows : origin], level=[80])
            truth = new.iloc[origin : origin + 4]
            low, high = (found[[f"{c}-{side}-80" for c in new]].to_numpy() for side in ("lo", "hi"))
            held.append((low <= truth) & (truth <= high))
        assert 100 * np.mean(held) > least, rows
