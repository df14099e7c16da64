"""Laws of intervals: nominal coverage, nested levels, names in the order of neuralforecast, units."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from titans_ts import TitansForecaster
from titans_ts.estimator.model import Model
from titans_ts.estimator.reading import read_known
from titans_ts.intervals import HALF_LIFE, Calibration, check_levels, column_names, scored_origins, scoring_step
from titans_ts.network.objective import PROBABILITIES, objective_of
from titans_ts.network.rolling import Forecasts
from titans_ts.network.simba import FLOOR, Simba, SimbaConfig
from titans_ts.network.windows import Table


def test_conformal_intervals_have_nominal_coverage_on_exchangeable_errors():
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.5, 2, size=(4000, 3))
    errors = rng.standard_t(4, size=(4000, 5, 3)) * spread[:, None]
    scores = np.abs(errors) / spread[:, None]
    past = Calibration(scores[:500])
    for level in (50, 80, 95):
        inside = scores[500:] <= past.reached(level)
        assert inside.mean() == pytest.approx(level / 100, abs=0.015)


def test_the_rank_gives_nominal_coverage_in_a_finite_sample(monkeypatch):
    monkeypatch.setattr("titans_ts.intervals.HALF_LIFE", np.inf)
    nine = Calibration(np.arange(1.0, 10)[:, None, None])
    assert nine.reached(80).item() == 8  # ceil(10 * .8) of nine
    assert nine.reached(50).item() == 5
    with pytest.warns(UserWarning, match="may be too narrow: the 9 validation windows"):
        assert nine.reached(99).item() == 9  # no more is known
    assert [nine.ranked(level)[1].item() for level in (80, 90, 91)] == [True, True, False]
    holed = Calibration(np.array([1.0, np.nan, 3.0, 2.0])[:, None, None])
    assert holed.reached(50).item() == 2


def test_recent_errors_have_more_weight():
    """Errors that grow steadily: intervals with equal weights lag behind, with a half-life they lag less."""
    rng = np.random.default_rng(0)
    size = np.linspace(1, 4, 3000)[:, None, None]
    scores = np.abs(rng.normal(size=(3000, 1, 40))) * size
    held = {}
    for half_life in (HALF_LIFE, np.inf):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("titans_ts.intervals.HALF_LIFE", half_life)
            past = [Calibration(scores[end - 512 : end]).reached(80) for end in range(600, 3000, 100)]
        inside = [scores[end] <= past[i] for i, end in enumerate(range(600, 3000, 100))]
        held[half_life] = np.mean(inside)
    assert held[np.inf] < held[HALF_LIFE] - 0.005 < 0.8
    newest = Calibration(np.array([1.0] * 400 + [9.0] * 112)[:, None, None])
    assert [newest.reached(level).item() for level in (50, 70)] == [1.0, 9.0]  # 9 weighs a third, not a fifth


def test_scores_are_replaced_by_newer_ones_and_many_series_keep_fewer_origins():
    old = Calibration(np.zeros((600, 2, 1), dtype=np.float32))
    joined = old.joined(np.ones((100, 2, 1), dtype=np.float32))
    assert joined.scores.shape == (600, 2, 1)
    assert joined.scores[:, 0, 0].sum() == 100
    assert [Calibration(np.ones((3, 4, N))).most for N in (1, 64, 65, 862, 100_000)] == [512, 512, 504, 38, 3]
    lately = Calibration(np.where(np.arange(38) < 19, 1.0, 9.0)[:, None, None].repeat(862, axis=2))
    assert lately.reached(40)[0, 0] == 9.0  # the newer half weighs twice as much, as if 512 had been kept


@pytest.mark.parametrize(("origins", "off"), [(1, 16), (3, 7), (10, 2), (100, 1)])
def test_each_series_has_its_own_intervals_even_with_few_scores(origins, off):
    """Errors of the series differ by a factor of a hundred; the steps of an origin are similar."""
    rng = np.random.default_rng(0)
    spread = np.exp(np.linspace(-2.3, 2.3, 100))
    farther = np.linspace(1, 2, 12)[:, None]

    def drawn(count):
        noise = 0.6 * rng.normal(size=(count, 1, 100)) + 0.8 * rng.normal(size=(count, 12, 100))
        return np.abs(noise) * farther * spread

    inside = {80: [], 95: []}
    for _ in range(20):
        past, later = Calibration(drawn(origins)), drawn(50)
        for level, held in inside.items():
            found, enough = past.ranked(level)
            assert enough.all()
            held.append((later <= found).mean(axis=(0, 1)))
    for level, held in inside.items():
        each = 100 * np.mean(held, axis=0)
        assert level - 1 < each.mean() < level + 7
        assert each[-25:].mean() > level - off
        if level == 80 and origins > 1:  # with those of all series: 100 of the calm ones, and 47 of the restless
            assert each[:25].mean() < 94


def test_with_too_few_scores_those_of_all_series_are_used():
    """Computed by hand: two origins of four series with errors 1, 2, 3 and 4 apart."""
    scores = np.array([[1.0, 11, 21, 31], [2, 12, 22, 32]])[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("titans_ts.intervals.HALF_LIFE", np.inf)
        past = Calibration(scores)
        # two of its own promise 66 %: for 75 % of three, its own two and a quarter of the next, which is one of all
        found, enough = past.ranked(75, [0, 1, 3, None])
        np.testing.assert_array_equal(found, [[11, 12, 32, 31]])  # of nine 2.25, its own fourth and eighth, and 6.75
        lower, _ = past.ranked(66, [0, 1, 3])
        assert (lower <= found[:, :3]).all()
        assert enough.all()
        own, _ = past.ranked(60, [0, 3])
        np.testing.assert_array_equal(own, [[2, 32]])
        holed = Calibration(np.where(np.arange(4) == 2, np.nan, scores))
        np.testing.assert_array_equal(holed.ranked(75, [2])[0], holed.ranked(75, [None])[0])
        with pytest.warns(UserWarning, match=r"may be too narrow: the 8 validation windows .* at most 88.89 %"):
            np.testing.assert_array_equal(past.reached(90), [[31, 31, 31, 32]])  # of nine 6.3, or the largest own


@pytest.mark.parametrize("cut", [7, 10, 30])
def test_the_scored_origins_do_not_depend_on_how_rows_are_split(cut):
    whole = scored_origins(3, 40, 5).tolist()
    assert whole == [5, 10, 15, 20, 25, 30, 35]
    assert [*scored_origins(3, cut, 5), *scored_origins(cut, 40, 5)] == whole
    past = Calibration(np.zeros((1, 1, 1)), step=5, phase=2)
    assert past.origins(3, 40).tolist() == [*past.origins(3, cut), *past.origins(cut, 40)] == list(range(7, 40, 5))


@pytest.mark.parametrize("loss", ["mae", "mse", "huber", "quantile", "normal", "laplace", "student_t"])
def test_intervals_are_nested_and_contain_the_forecast(tiny, wide, to_long, loss):
    model = tiny(loss=loss, max_epochs=1).fit(to_long(wide))
    frame = model.predict(level=[95, 50, 80])
    names = column_names([100 * (0.95 - 0.05), 99.99999, 95.0000001])
    assert names[-3:] == ["Titans-hi-90", "Titans-hi-99.99999", "Titans-hi-95.0000001"]
    bounds = ["Titans-lo-95", "Titans-lo-80", "Titans-lo-50", "Titans-hi-50", "Titans-hi-80", "Titans-hi-95"]
    assert list(frame.columns) == ["unique_id", "ds", "Titans", *bounds]
    values = frame[[*bounds[:3], "Titans", *bounds[3:]]].to_numpy()
    assert (np.diff(values, axis=1) >= -1e-9).all()
    assert (values[:, -1] - values[:, 0] > 0).all()
    pd.testing.assert_series_equal(frame["Titans"], model.predict()["Titans"])


@pytest.mark.parametrize("loss", ["mae", "quantile", "student_t"])
def test_intervals_come_in_the_units_of_the_series(tiny, wide, loss):
    plain = tiny(loss=loss, max_epochs=1).fit(wide).predict(level=[80])
    scaled = tiny(loss=loss, max_epochs=1).fit(1000 * wide - 7).predict(level=[80])
    deviation = np.repeat(1000 * wide.std().to_numpy(), 3)
    np.testing.assert_allclose((scaled - (1000 * plain - 7)) / deviation, 0, atol=2e-3)


def test_every_layout_has_its_own_columns(tiny_fitted, tiny, wide):
    model = tiny_fitted
    assert list(model.predict(level=[80]).columns)[:3] == ["a", "a-lo-80", "a-hi-80"]
    matrix = tiny().fit(wide.to_numpy()).predict(level=[80, 95])
    assert matrix.shape == (4, 3, 5)
    assert (matrix[..., 1] <= matrix[..., 2]).all()  # lo-95 below lo-80
    np.testing.assert_allclose(matrix[..., 0], model.predict(), rtol=1e-6)


def test_new_series_have_intervals_too(tiny_fitted, wide):
    model = tiny_fitted
    new = wide[["b"]].rename(columns={"b": "new"}) * 1e6
    frame = model.predict(new, level=[80])
    half = (frame["new-hi-80"] - frame["new-lo-80"]) / 2
    assert ((half > 0.01 * new["new"].std()) & (half < 5 * new["new"].std())).all()


def test_invalid_levels_are_named(tiny, wide):
    with pytest.raises(ValueError, match=r"predicts levels up to 95.*val_size.*student_t"):
        tiny(loss="quantile").fit(wide, val_size=0).predict(level=[99])
    model = tiny(loss="quantile").fit(wide, val_size=12)
    with pytest.warns(UserWarning, match="may be too narrow: the 27 validation windows"):
        found = model.predict(level=[95, 99])
    assert (found["a-hi-99"] >= found["a-hi-95"]).all()
    for wrong in ([0], [100], ["high"], [True], 120):
        with pytest.raises(ValueError, match="level must be percentages between 0 and 100"):
            model.predict(level=wrong)
    with pytest.raises(ValueError, match=r"level=0.8 means 0.8 percent: give levels in percent, such as 80"):
        model.predict(level=[0.8])
    assert check_levels({95, 80.0}) == [80.0, 95.0]
    assert check_levels(range(90, 70, -10)) == [80.0, 90.0]
    assert check_levels(np.array([99.9, 80], dtype=np.float32)) == [80.0, 99.9]
    with pytest.raises(ValueError, match=r"fitted without validation rows.*Fit with val_size"):
        tiny().fit(wide, val_size=0).predict(level=[80])
    with pytest.raises(ValueError, match="loss must be one of"):
        tiny(loss="crps").fit(wide)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["quantile", "student_t", "normal"])
def test_probabilistic_losses_learn_the_spread(loss):
    """Noise of known deviation around a level: the 80 % interval is 2 x 1.28 of it wide."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=1500), "y": rng.normal(size=1500)})
    model = TitansForecaster(
        h=4, input_size=24, patch_size=8, dim=8, num_layers=1, dropout=0.0, loss=loss, learning_rate=2e-2,
        max_epochs=4, batch_size=256, random_state=0, verbose=0,
    ).fit(frame)  # fmt: skip
    found = model.predict_insample(frame, step_size=24, level=[80])
    width = (found["Titans-hi-80"] - found["Titans-lo-80"]).mean()
    assert width == pytest.approx(2.563, rel=0.15)
    inside = found["y"].between(found["Titans-lo-80"], found["Titans-hi-80"]).mean()
    assert inside == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("N", [1, 3, 20, 100])
@pytest.mark.parametrize("W", [1, 2, 5, 10, 18, 19, 40])
def test_higher_levels_never_give_narrower_intervals(W, N):
    past = Calibration(np.random.default_rng(W).random((W, 6, N)) * np.geomspace(1, 30, N))
    found = np.stack([past.ranked(level, [*range(N), None])[0] for level in (50, 66, 75, 80, 90, 94, 95, 97, 99)])
    assert (np.diff(found, axis=0) >= 0).all()


@pytest.mark.parametrize(("N", "h"), [(1, 96), (321, 96), (862, 720), (10_000, 96)])
def test_some_origin_is_scored_if_possible_and_not_all_at_one_hour(tiny, wide, N, h):
    for rows in (1, 2, 10, 72, 920, 2460, 12_288):
        step = scoring_step(rows, h, N)
        assert len(scored_origins(17, 17 + rows, step, 17 % step)) > 0
        assert step <= 5 or len(set(scored_origins(0, 24 * step, step) % 24)) == 24
    assert scoring_step(197, 4, 1000) % 5  # nor all on one day of business
    few = tiny(max_epochs=1).fit(wide.iloc[:24], val_size=4)
    assert few.calibration_.scores.shape == (1, 4, 3)


def test_the_number_of_scored_origins_fits_in_memory():
    assert scoring_step(2880, 96, 7) == 5
    assert scoring_step(100, 96, 1) == 1
    for rows, h in ((2880, 96), (1, 96)):  # and what is said at origins whose horizon is not yet known
        step = scoring_step(rows, h, 10_000)
        assert max(rows, h) / step * h * 10_000 <= 2**25


@pytest.mark.slow
def test_filled_values_are_not_used_for_intervals(tiny):
    """Half of white noise is missing: an interpolated value is closer to any forecast than the true one."""
    rng = np.random.default_rng(1)
    whole = pd.DataFrame(rng.normal(size=(1200, 4)), index=pd.date_range("2024", periods=1200, freq="h"))
    holed = whole.mask(rng.random(whole.shape) < 0.5).rename(columns=str)
    model = tiny(missing="interpolate", max_epochs=1)
    found = model.cross_validation(holed, n_windows=80, level=[80, 95], val_size=400)
    measured = found[found["y"].notna()]
    for level in (80, 95):
        inside = measured["y"].between(measured[f"Titans-lo-{level}"], measured[f"Titans-hi-{level}"])
        assert inside.mean() == pytest.approx(level / 100, abs=0.04)


def test_filled_values_are_still_marked_after_saving(tiny, wide, tmp_path):
    holed = wide.mask(np.random.default_rng(2).random(wide.shape) < 0.3)
    model = tiny(missing="interpolate").fit(holed.iloc[:100], val_size=40)
    model.save(tmp_path)
    loaded = TitansForecaster.load(tmp_path)
    assert model.context_.imputed.any()
    np.testing.assert_array_equal(loaded.context_.imputed, model.context_.imputed)
    for forecaster in (model, loaded):
        forecaster.update(holed.iloc[100:])
    np.testing.assert_array_equal(loaded.calibration_.scores, model.calibration_.scores)
    assert np.isnan(model.calibration_.scores).any()


def test_intervals_of_a_series_do_not_depend_on_other_series(tiny, wide):
    wide = wide.assign(b=np.random.default_rng(3).normal(size=120) * np.where(np.arange(120) % 2, 1, 20))
    model = tiny().fit(wide, val_size=60)
    together = model.predict(wide, level=[50])
    for names in (["a"], ["b", "a"], ["c", "b"]):
        found = model.predict(wide[names], level=[50])
        pd.testing.assert_frame_equal(found, together[found.columns], rtol=1e-5)
    beside = model.predict(wide[["a"]].assign(new=wide["c"] * 3), level=[50])
    np.testing.assert_allclose(beside["a-hi-50"], together["a-hi-50"], rtol=1e-5)
    width = model.calibration_.reached(50, [None])[:, 0]
    ratio = (beside["new-hi-50"] - beside["new"]).to_numpy() / width
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


def test_a_step_without_scores_has_intervals_as_wide_as_other_steps():
    scores = np.arange(1.0, 10)[:, None, None].repeat(3, axis=1)
    scores[:, 1:] = np.nan
    np.testing.assert_array_equal(Calibration(scores).reached(79)[:, 0], [8, 8, 8])
    with (
        pytest.raises(ValueError, match="could be scored, because they have no known value"),
        pytest.warns(UserWarning, match="too narrow: the 0 validation windows"),
    ):
        Calibration(scores[:, 1:]).reached(80)
    found, enough = Calibration(scores).ranked(79)
    np.testing.assert_array_equal(found[:, 0], [8, np.nan, np.nan])
    assert enough[:, 0].tolist() == [True, False, False]


def test_intervals_approach_the_spread_of_the_series_the_longer_values_are_missing():
    past = Calibration(np.arange(1.0, 10)[:, None, None])
    point, spread = torch.full((3, 1, 1), 5.0), torch.full((3, 1), 0.1)
    found = Forecasts(point, None, spread, stale=torch.tensor([[0.0], [0.5], [1.0]]))
    whole = NormalDist().inv_cdf((1 + 0.79) / 2)
    _, low, high = model_of("mae").bounded(found, [79], past)[:, 0, 0].T
    np.testing.assert_allclose(high - 5, [0.8, (0.8 + whole) / 2, whole], rtol=1e-5)
    np.testing.assert_allclose(5 - low, high - 5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "missing", "least"),
    [("mae", "mask", 65), ("normal", "mask", 65), ("quantile", "mask", 65), ("mae", "interpolate", 45)],
)
def test_intervals_of_series_that_ended_keep_their_coverage(tiny, loss, missing, least):
    waves = noisy_waves(404)
    model = tiny(input_size=24, loss=loss, missing=missing, max_epochs=3, learning_rate=2e-2, batch_size=256)
    model.fit(waves.iloc[:300], val_size=80)
    inside = {}
    gone = waves.columns[::2]
    for ended in (0, 12, 30):
        held = []
        for origin in range(304, 400, 8):
            known = waves.iloc[:origin].copy()
            known.iloc[origin - ended :, ::2] = np.nan
            found, truth = model.predict(known, level=[80]), waves[gone].iloc[origin : origin + 4]
            below, above = (found[[f"{c}-{side}-80" for c in gone]].to_numpy() for side in ("lo", "hi"))
            held.append((below <= truth) & (truth <= above))
        inside[ended] = 100 * np.mean(held)
    assert min(inside.values()) > least, inside


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["mask", "error"])
def test_stale_lookbacks_do_not_dominate_a_likelihood(tiny, missing):
    waves = noisy_waves(600, series=5)
    holed = waves.copy()
    for i in range(waves.shape[1]):
        for begin in (60 + 3 * i, 200 + 2 * i, 330 + i):  # longer than a lookback
            holed.iloc[begin : begin + 40, i] = np.nan if missing == "mask" else 0.0
    options = dict(input_size=24, loss="normal", max_epochs=3, learning_rate=2e-2, batch_size=256)
    model = tiny(missing=missing, **options).fit(holed, val_size=120)
    assert model.history_.epochs[0]["train_loss"] < 30  # in units that shrink with a flat lookback it is thousands
    found = model.predict_insample(waves.iloc[440:], step_size=4, level=[80])
    assert (found["Titans-hi-80"] - found["Titans-lo-80"]).mean() < 1.4  # of noise of .3, in a wave from -1 to 1
    assert 70 < 100 * found["y"].between(found["Titans-lo-80"], found["Titans-hi-80"]).mean() < 93


def model_of(loss):
    """An untrained network that reads four steps and forecasts one."""
    objective = objective_of(loss)
    network = Simba(SimbaConfig(1, 4, None, patch_size=4, dim=4, num_layers=1, outputs=objective.outputs))
    return Model(network.eval(), objective, None, None)


PROBABILISTIC = ["quantile", "normal", "laplace", "student_t"]


@pytest.mark.parametrize("loss", PROBABILISTIC)
def test_learned_intervals_are_corrected_to_nominal_coverage(loss, monkeypatch):
    """Both too narrow and too wide ones: the coverage is nominal, whatever spread the network learned."""
    monkeypatch.setattr("titans_ts.intervals.HALF_LIFE", np.inf)  # all that is known, so that chance is small
    rng, model = torch.Generator().manual_seed(0), model_of(loss)
    for belief in (0.3, 1.0, 3.0):
        for shift in (0.0, 0.4):
            found, truth = believed(model.objective, belief, 40_000, rng)
            truth = truth + shift
            table, origins = Table(truth[:, None]), torch.arange(40_000)
            past = Calibration(model._scored(first(found, 20_000), table, origins[:20_000]).numpy())
            for level in (50, 80, 95, 99):
                _, low, high = model.bounded(last(found, 20_000), [level], past)[:, 0, 0].T
                inside = (low <= truth[20_000:].numpy()) & (truth[20_000:].numpy() <= high)
                assert inside.mean() == pytest.approx(level / 100, abs=0.02), (belief, shift, level)


@pytest.mark.parametrize("loss", PROBABILISTIC)
def test_a_score_and_its_bound_are_inverse(loss):
    """Also in the tails, and between quantiles that cross or coincide."""
    torch.manual_seed(0)
    objective = objective_of(loss)
    raw = torch.randn(200, objective.outputs)
    if loss == "quantile":
        raw[:50] = raw[:50, :1]
        raw[50:100, 3:] = raw[50:100, 2:3]
    scale = torch.rand(200) + 0.01
    for error in (torch.randn(200), 40 * torch.randn(200), torch.zeros(200)):
        score = objective.score(raw, error, scale)
        back = torch.where(error < 0, objective.offset(raw, score, scale, -1), objective.offset(raw, score, scale, 1))
        assert score.isfinite().all()
        assert (score >= 0).all()
        torch.testing.assert_close(back, error, rtol=1e-3, atol=2e-3)
    farther = objective.score(raw, torch.linspace(-5, 5, 101)[:, None].expand(-1, 200), scale)
    assert (farther[:50].diff(dim=0) < 0).all()
    assert (farther[51:].diff(dim=0) > 0).all()


@pytest.mark.parametrize("loss", PROBABILISTIC)
def test_errors_of_confident_forecasts_do_not_widen_uncertain_ones(loss):
    """A tenth of the targets is up to three deviations off where the network states a hundredth of one."""
    rng, model = torch.Generator().manual_seed(0), model_of(loss)
    found, truth = believed(model.objective, 1.0, 4000, rng)
    sure = torch.arange(4000) % 5 == 0
    certain = believed(model.objective, 0.01, 4000, rng)[0].raw
    found = Forecasts(found.point, certain.where(sure[:, None, None, None], found.raw), found.spread)
    off = (torch.rand(4000, generator=rng) < 0.5) * 3 * torch.rand(4000, generator=rng)
    truth = truth.where(~sure, off)
    table, origins = Table(truth[:, None]), torch.arange(4000)
    past = Calibration(model._scored(first(found, 2000), table, origins[:2000]).numpy())
    _, low, high = model.bounded(last(found, 2000), [95], past)[:, 0, 0].T
    inside = (low <= truth[2000:].numpy()) & (truth[2000:].numpy() <= high)
    assert inside.mean() > 0.93
    own = model.bounded(last(found, 2000), [95], None)[:, 0, 0].T
    assert (high - low).mean() < (own[2] - own[1]).mean() + 2 * 3


@pytest.mark.parametrize("loss", PROBABILISTIC)
def test_without_scores_the_learned_intervals_are_used(loss):
    model = model_of(loss)
    found, truth = believed(model.objective, 1.0, 20_000, torch.Generator().manual_seed(1))
    few = Calibration(np.full((3, 1, 1), 0.1))  # three errors can promise 75 % at most
    for level in (50, 80, 95):
        own = model.bounded(found, [level], None)
        if level > 75:
            np.testing.assert_array_equal(model.bounded(found, [level], few), own)
        _, low, high = own[:, 0, 0].T
        assert ((low <= truth.numpy()) & (truth.numpy() <= high)).mean() == pytest.approx(level / 100, abs=0.02)
    assert (model.bounded(found, [50], few) != model.bounded(found, [50], None)).any()
    wrong = Calibration(np.full((3, 1, 1), 7.0))  # and show that the network's are too narrow
    assert (model.bounded(found, [95], wrong)[..., 2] > model.bounded(found, [95], None)[..., 2] + 5).all()


def believed(objective, belief, count, rng):
    """Outputs of a network that states ``belief`` times the true spread, and targets: noise with its own spread at each
    step, from the family of the loss."""
    wide = 0.5 + 2 * torch.rand(count, generator=rng)
    p = torch.rand(count, generator=rng).clamp(1e-4, 1 - 1e-4).double().numpy()
    family = {"laplace": stats.laplace, "student_t": stats.t(5)}.get(objective.name, stats.norm)
    noise = torch.from_numpy(family.ppf(p)).float() * wide
    if objective.name == "quantile":
        raw = torch.from_numpy(family.ppf(PROBABILITIES)).float() * (belief * wide)[:, None]
    else:
        spread = (belief * wide - 1e-3).expm1().log()  # softplus, undone
        raw = torch.stack((torch.zeros(count), spread, torch.full((count,), 3.0).expm1().log()), -1)
        raw = raw[:, : objective.outputs]
    return Forecasts(torch.zeros(count, 1, 1), raw[:, None, None], torch.ones(count, 1)), noise


def first(found, count):
    return Forecasts(found.point[:count], found.raw[:count], found.spread[:count])


def last(found, count):
    return Forecasts(found.point[-count:], found.raw[-count:], found.spread[-count:])


def noisy_waves(rows, series=8):
    t, rng = np.arange(rows)[:, None], np.random.default_rng(0)
    values = np.sin(2 * np.pi * (t / 12 + np.arange(series) / 7)) + 0.3 * rng.normal(size=(rows, series))
    index = pd.date_range("2024-01-01", periods=rows, freq="h", name="ds")
    return pd.DataFrame(values, index=index, columns=[f"s{i}" for i in range(series)])


def test_the_deviation_of_a_flat_lookback_has_a_floor():
    past = Calibration(np.arange(1.0, 10)[:, None, None])
    flat = Forecasts(torch.zeros(1, 1, 1), None, torch.zeros(1, 1))
    assert model_of("mae").bounded(flat, [79], past)[..., 2].item() == pytest.approx(8 * FLOOR)
    table = Table(torch.ones(5, 1))
    scores = model_of("mae")._scored(flat, table, torch.tensor([4]))
    assert scores.item() == pytest.approx(1 / FLOOR)


def test_no_forecast_from_inside_a_filled_gap_is_scored(tiny, wide):
    holed = wide.copy()
    holed.iloc[80:90, 0] = np.nan
    model = tiny(missing="interpolate", max_epochs=1).fit(holed, val_size=60)
    panel = read_known(model, holed)
    origins = torch.arange(74, 98)
    scores = model.model_.scores(model.scaling_.table(panel), origins)
    hidden = np.isnan(scores[..., 0]).all(axis=1)
    assert origins[torch.from_numpy(hidden)].tolist() == list(range(80, 91))  # 90 goes on from row 89, an imputed one
    assert np.isfinite(scores[..., 1:]).all()


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_an_outage_in_the_validation_rows_makes_no_error_older(tiny, wide, missing):
    wide.iloc[80:100] = np.nan  # of all series
    found = tiny(missing=missing, max_epochs=1).fit(wide, val_size=60).calibration_
    assert np.isfinite(found.scores).any(axis=(1, 2)).all()
    # origins before the outage with a value in their horizon, and after it (filled with lines: from the first value on)
    assert len(found.scores) == 20 + (120 - 4 + 1 - (97 if missing == "mask" else 101))


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "kept"), [("mae", 6), ("quantile", 512), ("laplace", 6)])
def test_a_backtest_updates_scores_as_update_does(tiny, wide, monkeypatch, loss, kept):
    monkeypatch.setattr("titans_ts.intervals.WINDOWS", kept)
    frame = tiny(loss=loss).cross_validation(wide, n_windows=3, val_size=12, level=[50])
    model = tiny(loss=loss).fit(wide.iloc[:108], val_size=12)
    left = wide.iloc[:116]
    stood = model.predict(left, level=[50])
    for cut in (112, 116):
        model.update(wide.iloc[cut - 4 : cut])
    own = frame[frame["cutoff"] == wide.index[115]]
    for name in "abc":
        width = own[own["unique_id"] == name]["Titans-hi-50"].to_numpy() - own[own["unique_id"] == name]["Titans"]
        expected = model.predict(level=[50])
        np.testing.assert_allclose(width, expected[f"{name}-hi-50"] - expected[name], rtol=1e-3)
        assert (abs(width / (stood[f"{name}-hi-50"] - stood[name]).to_numpy() - 1) > 1e-2).any()
