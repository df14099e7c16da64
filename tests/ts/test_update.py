"""Laws of update and of the online memory: the result does not depend on how rows are split."""

import copy
import time
from itertools import islice, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from titans_ts import TitansForecaster
from titans_ts.estimator import model as model_module
from titans_ts.estimator.model import Model
from titans_ts.estimator.reading import read_known
from titans_ts.forecaster import LEAST_MEMORY_STEPS
from titans_ts.network import online
from titans_ts.network.memory_training import MemoryReport, _Streams, _Validation, train_memory
from titans_ts.network.objective import objective_of
from titans_ts.network.rolling import forecast_rows
from titans_ts.network.simba import Simba, SimbaConfig
from titans_ts.network.windows import Table


@pytest.fixture
def waves(two_waves):
    return two_waves.copy()


@pytest.fixture(scope="module")
def trained(tiny, two_waves):
    model = tiny(max_epochs=3).fit(two_waves.iloc[:400])
    assert model.memory_ is not None
    return model


@pytest.fixture
def fitted(trained):
    return copy.deepcopy(trained)


@pytest.mark.parametrize("pieces", [[100], [1] * 20 + [80], [7, 50, 43], [33, 67]])
def test_after_update_forecasts_are_those_of_the_whole_history(fitted, waves, pieces):
    at = 400
    for rows in pieces:
        fitted.update(waves.iloc[at : at + rows])
        at += rows
    whole = fitted.predict(waves)
    expected = whole / waves.std()
    np.testing.assert_allclose(fitted.predict() / waves.std(), expected, rtol=0, atol=1e-5)
    # the memory has a part in it
    alone = fitted.predict_windows(waves.to_numpy()[None, -12:])[0]
    assert np.abs((whole - alone) / waves.std()).to_numpy().max() > 1e-3


def test_a_row_taken_from_a_frame_is_read_by_its_names_and_its_time(tiny, waves):
    known, row = waves.iloc[:60], waves.iloc[60]
    model = tiny(max_epochs=1).fit(known, val_size=0)
    expected = copy.deepcopy(model).update(waves.iloc[60:61]).predict()
    for same in (row, row[["b", "a"]], row[["b", "a"]].rename(None)):
        pd.testing.assert_frame_equal(copy.deepcopy(model).update(same).predict(), expected)
    with pytest.raises(ValueError, match=r"must start after the known ones, at .* 12:00:00, got .* 11:00:00"):
        model.update(waves.iloc[59])
    with pytest.raises(ValueError, match=r"of the series \['a', 'b'\], got \['a', 'c'\]"):
        model.update(row.rename({"b": "c"}))
    alone = tiny(max_epochs=1).fit(known[["b"]], val_size=0)
    column = copy.deepcopy(alone).update(waves["b"].iloc[60:63]).predict()
    pd.testing.assert_frame_equal(column, alone.update(waves[["b"]].iloc[60:63]).predict())


def test_the_kept_context_covers_the_next_write(tiny, waves):
    """Where the horizon is shorter than the stride, too."""
    model = tiny(h=1, max_epochs=1).fit(waves.iloc[:200], val_size=0)
    assert model.memory_.stride > model.h
    for at in range(200, 206):
        model.update(waves.iloc[at : at + 1])
        expected = model.predict(waves.iloc[: at + 1]) / waves.std()
        np.testing.assert_allclose(model.predict() / waves.std(), expected, rtol=0, atol=1e-5)


def test_the_rows_before_the_context_are_not_kept_in_memory(trained, waves):
    for model in (trained, copy.copy(trained).update(waves.iloc[400:])):
        context = model.context_
        assert len(context.values) < 50
        for table in (context.values, context.hist, context.futr, context.imputed, context.index.asi8):
            assert table.base is None or table.base.size == table.size


def test_intervals_after_update_do_not_depend_on_how_rows_are_split(fitted, waves):
    once, often = fitted, copy.deepcopy(fitted)
    before = once.calibration_.scores
    once.update(waves.iloc[400:])
    for at in range(400, 500, 9):
        often.update(waves.iloc[at : min(at + 9, 500)])
    assert once.calibration_.scores.shape == often.calibration_.scores.shape
    np.testing.assert_allclose(once.calibration_.scores, often.calibration_.scores, rtol=1e-3, atol=1e-5)
    assert len(once.calibration_.scores) > len(before)  # the new errors are in it
    # and they are those of the forecasts that were made then
    table = once.scaling_.table(read_known(once, waves))
    later = torch.arange(400 - 4 + 1, 500 - 4 + 1)
    expected = once.model_.scores(table, later)
    np.testing.assert_allclose(once.calibration_.scores[-len(later) :], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("lanes", "series"), [(1 << 15, 2), (30, 5)])
def test_an_update_of_many_rows_computes_only_forecasts_that_intervals_keep(tiny, waves, monkeypatch, lanes, series):
    monkeypatch.setattr("titans_ts.intervals.SCORES", lanes)
    monkeypatch.setattr("titans_ts.intervals.WINDOWS", 6)
    frame = pd.concat([waves * (i + 1) for i in range(3)], axis=1).set_axis(list("abcdef"), axis=1).iloc[:, :series]
    model = tiny(max_epochs=1).fit(frame.iloc[:400], val_size=8)
    models = [model, copy.deepcopy(model)]
    recalled, forecast = Model.recalled, model_module.forecast_rows
    made = []
    for model, cuts in zip(models, ([400, 500], [400, 403, 450, 451, 500]), strict=True):
        recalls, rows = [], []
        monkeypatch.setattr(Model, "recalled", lambda *a, recalls=recalls: recalls.append(1) or recalled(*a))
        monkeypatch.setattr(
            model_module, "forecast_rows", lambda *a, rows=rows, **k: rows.append(a[3].numel()) or forecast(*a, **k)
        )
        for begin, end in pairwise(cuts):
            model.update(frame.iloc[begin:end])
        made.append((len(recalls), sum(rows)))
    once, often = models
    np.testing.assert_allclose(once.calibration_.scores, often.calibration_.scores, rtol=1e-3, atol=1e-5)
    assert list(once.position_.pending) == list(often.position_.pending)
    assert made[0][1] == 6
    assert made[0] < made[1] < (60, 60)
    assert {by.shape for by in once.position_.pending.values()} == {(4, series)}
    pd.testing.assert_frame_equal(once.predict(level=[50]), often.predict(level=[50]), rtol=1e-3)


def test_update_changes_no_weight_of_the_outer_loop(fitted, waves):
    before = {k: v.clone() for k, v in {**fitted.network_.state_dict(), **fitted.memory_.state_dict()}.items()}
    first = fitted.predict()
    fitted.update(waves.iloc[400:450])
    after = {**fitted.network_.state_dict(), **fitted.memory_.state_dict()}
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert fitted.predict().index[0] == first.index[0] + pd.Timedelta(hours=50)


@pytest.mark.slow
def test_the_state_does_not_grow_and_a_step_takes_as_long_as_ever(fitted, waves):
    def size():
        position = fitted.position_
        (state,) = (s.state for s in position.streams)
        tensors = (*state.weights, *state.momentum, *state.anchor)
        return sum(t.numel() for t in tensors), position.context.values.shape, len(position.pending)

    fitted.update(waves.iloc[400:440])
    before = size()
    t, index = np.arange(20_000)[:, None], pd.date_range(waves.index[440], periods=20_000, freq="h")
    many = pd.DataFrame(np.sin(t / np.array([3, 4])), index=index, columns=waves.columns)
    young, old = copy.deepcopy(fitted), fitted
    young.update(many.iloc[:1000])
    old.update(many)
    assert old.position_.rows == 20_440
    assert size() == before
    assert len(old.calibration_.scores) <= 512
    seconds = {"young": [], "old": []}
    for _ in range(100):  # side by side, so that what else the machine does slows both
        for name, model in (("young", young), ("old", old)):
            after = model.context_.index[-1] + pd.Timedelta(hours=1)
            row = many.iloc[:1].set_axis([after], axis=0)
            begin = time.perf_counter()
            model.update(row)
            seconds[name].append(time.perf_counter() - begin)
    assert np.median(seconds["old"]) < 1.3 * np.median(seconds["young"])


def test_a_saved_model_continues_learning(fitted, waves, tmp_path):
    fitted.update(waves.iloc[400:431])
    fitted.save(tmp_path / "model")
    loaded = TitansForecaster.load(tmp_path / "model")
    for model in (fitted, loaded):
        model.update(waves.iloc[431:])
    pd.testing.assert_frame_equal(loaded.predict(level=[80]), fitted.predict(level=[80]), check_exact=True)


def test_a_series_that_ended_is_left_out_of_wide_rows_as_of_long_ones(waves, tiny):
    def after(rows):
        model = tiny(missing="mask", max_epochs=2).fit(waves.iloc[:400])
        return model.update(rows).predict()

    rows = waves.iloc[400:410]
    found = after(rows[["a"]])
    pd.testing.assert_frame_equal(found, after(rows.assign(b=np.nan)), check_exact=True)


def test_a_missing_policy_unknown_to_the_network_is_refused_by_update_too(fitted, waves):
    with pytest.raises(NotFittedError):
        clone(fitted).update(waves)
    before = fitted.predict()
    holed = waves.iloc[400:410].copy()
    holed.iloc[3, 0] = np.nan
    changed = copy.deepcopy(fitted).set_params(missing="mask")
    with pytest.raises(ValueError, match="not fitted with missing='mask'"):
        changed.update(holed)
    pd.testing.assert_frame_equal(changed.predict(), before, check_exact=True)


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_rows_may_be_missing_between_updates_as_within_them(waves, tiny, to_long, missing, layout):
    given = (lambda part: part) if layout == "wide" else to_long
    model = tiny(missing=missing, max_epochs=2).fit(given(waves.iloc[:400]))
    whole = copy.deepcopy(model).update(given(waves.iloc[[*range(400, 410), *range(413, 430)]]))
    model.update(given(waves.iloc[400:410])).update(given(waves.iloc[413:414])).update(given(waves.iloc[414:430]))
    pd.testing.assert_frame_equal(model.predict(level=[80]), whole.predict(level=[80]), rtol=1e-5)
    off = waves.iloc[440:450].set_axis(waves.index[440:450] + pd.Timedelta(minutes=20))
    for bad in (waves.iloc[429:440], off):
        with pytest.raises(ValueError, match="must start after the known ones, at 2024-01-18 22:00:00"):
            model.update(given(bad))
    # a long outage does not replace the errors that are known
    later = waves.iloc[430:436].set_axis(waves.index[430:436] + pd.Timedelta(hours=600))
    scores = len(model.calibration_.scores)
    with pytest.warns(UserWarning, match="the 594 rows between count as missing"):
        model.update(given(waves.iloc[430:436])).update(given(later))
    with pytest.warns(UserWarning, match="594 rows are missing"):
        whole.update(given(pd.concat([waves.iloc[430:436], later])))
    assert scores < np.isfinite(model.calibration_.scores).any(axis=(1, 2)).sum() == len(whole.calibration_.scores)
    pd.testing.assert_frame_equal(model.predict(level=[80]), whole.predict(level=[80]), rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        (slice(401, 410), ["a", "b"], r"must start after the known ones, at 2024-01-17 16:00:00, got .*17:00:00"),
        (slice(399, 410), ["a", "b"], "must start after the known ones"),
        (slice(400, 410), ["b"], r"series \['a', 'b'\], got \['b'\] \(missing: \['a'\]\)\. A series that ended may"),
        (slice(400, 410), ["a", "b", "c"], r"got .* \(new: \['c'\]\)\. Leave out new series here: predict"),
    ],
)
def test_rows_that_do_not_follow_are_refused_and_change_nothing(fitted, waves, to_long, rows, columns, says):
    before = fitted.predict(level=[80])
    with pytest.raises(ValueError, match=says):
        fitted.update(waves.assign(c=1.0).iloc[rows][columns])
    with pytest.raises(ValueError, match="must start after the known ones"):
        fitted.update(to_long(waves).iloc[5:])  # the whole history, of which a series begins later
    holed = waves.iloc[400:410].copy()
    holed.iloc[3, 0] = np.nan
    with pytest.raises(ValueError, match="NaN in series 'a' at 2024-01-17 19:00"):
        fitted.update(holed)
    pd.testing.assert_frame_equal(fitted.predict(level=[80]), before, check_exact=True)


def test_a_matrix_and_a_long_frame_are_updated_too(fitted, tiny, waves, to_long):
    wide = fitted.update(waves.iloc[400:]).predict().to_numpy()
    matrix = tiny(max_epochs=3).fit(waves.to_numpy()[:400]).update(waves.to_numpy()[400:]).predict()
    long = tiny(max_epochs=3).fit(to_long(waves.iloc[:400])).update(to_long(waves.iloc[400:])).predict()
    np.testing.assert_array_equal(matrix, wide)
    np.testing.assert_array_equal(long["Titans"].to_numpy().reshape(2, 4).T, wide)


def test_a_series_is_read_as_if_alone_whenever_others_begin(fitted, waves, to_long):
    long = to_long(waves)
    later = long[~((long["unique_id"] == "b") & (long["ds"] < "2024-01-03 05:00"))]
    together = fitted.predict(later)
    for name, part in later.groupby("unique_id"):
        alone = fitted.predict(part)
        own = together[together["unique_id"] == name]
        np.testing.assert_allclose(alone["Titans"], own["Titans"], rtol=1e-5, atol=1e-5)


def test_a_memory_without_writes_corrects_nothing(fitted, waves):
    window = waves.iloc[-12:]
    np.testing.assert_allclose(fitted.predict(window), fitted.predict_windows(window.to_numpy()[None])[0], rtol=1e-6)


@pytest.mark.parametrize("origins", [[12, 13, 16, 17, 40, 41, 42, 43, 88, 90], [67, 70, 69, 66, 83], [13]])
def test_one_pass_over_many_origins_equals_single_passes(origins):
    torch.manual_seed(0)
    memory = online.OnlineMemory(12, 3).eval()
    for p in memory.parameters():
        torch.nn.init.normal_(p, std=0.3)
    values = torch.randn(90, 2)
    found = online.rolling(memory, values, torch.tensor(origins))
    for i, origin in enumerate(origins):
        ((_, stream),) = online.streams_of(torch.zeros(90, 2))
        stream = online.advance(memory, stream, values[:origin], origin)
        torch.testing.assert_close(found[i], online.recall(memory, stream, values[:origin]), rtol=0, atol=1e-5)
        if origin < 16:
            assert found[i].count_nonzero() == 0  # nothing written yet
        if origin >= 40:
            assert found[i].abs().min() > 1e-6


def test_rows_shared_by_origins_are_read_once(monkeypatch):
    memory, writes, write = online.OnlineMemory(12, 3).eval(), [], online.OnlineMemory._write

    def counted(self, queries, before, now, state):
        writes.append(now.shape[1])
        return write(self, queries, before, now, state)

    monkeypatch.setattr(online.OnlineMemory, "_write", counted)
    online.rolling(memory, torch.randn(4000, 1), torch.arange(3900, 3960))  # a stride is 4 rows
    assert sum(writes) < 4000 / 4 + 4 * 60 / 4


def test_the_surprise_is_high_at_unexpected_values(fitted, waves):
    calm = fitted.surprise(waves)
    shocked = waves.copy()
    shocked.iloc[250:262, 0] += 20 * waves["a"].std()
    found = fitted.surprise(shocked)
    assert list(found.columns) == ["unique_id", "ds", "surprise"]
    own = found[found["unique_id"] == "a"].set_index("ds")["surprise"]
    usual = calm[calm["unique_id"] == "a"].set_index("ds")["surprise"]
    during = own[(own.index >= waves.index[250]) & (own.index < waves.index[270])]
    assert during.max() > usual.iloc[20:].max()  # the first writes are all new to it
    before = own.index < waves.index[250]
    np.testing.assert_allclose(own[before], usual[before], rtol=1e-5)  # causal
    other = found[found["unique_id"] == "b"]["surprise"]
    np.testing.assert_allclose(other, calm[calm["unique_id"] == "b"]["surprise"], rtol=1e-5)


def test_a_memory_that_does_not_help_is_left_out_and_the_report_says_so(tiny, whole_memory):
    noise = pd.DataFrame({"a": np.random.default_rng(0).normal(size=300)})
    waves = np.sin(np.arange(240) * np.pi / 3) + 0.3 * noise["a"][:240]  # which the network has learned
    model = tiny(max_epochs=60, learning_rate=1e-2).fit(pd.DataFrame({"a": waves}))
    report = model.memory_report_
    assert report.steps > 0
    assert not report.kept
    assert model.memory_ is None
    assert report.with_memory > report.without  # what it came to, not what it was refused for
    short = tiny().fit(noise.iloc[:60])
    assert short.memory_ is None
    least = short.memory_report_.least
    assert short.memory_report_ == MemoryReport(0, least=least)
    for rows, steps in ((least - 1, 0), (least, LEAST_MEMORY_STEPS)):
        assert tiny().fit(noise.iloc[:rows], val_size=0).memory_report_.steps == steps
    with pytest.raises(
        ValueError, match=f"no online memory .* the series of fit were too short .*{least} training rows"
    ):
        short.surprise(noise)
    short.update(noise.iloc[60:].set_axis(range(60, 300), axis=0))
    assert short.predict().index[0] == 300


def test_a_memory_is_kept_untested_if_no_forecast_of_the_validation_rows_can_be_scored(tiny, waves):
    """Each of their lookbacks ends in a gap that was filled with later values."""
    frame = waves.copy()
    frame.iloc[-15:-1] = np.nan
    model = tiny(max_epochs=1, missing="interpolate").fit(frame, val_size=12)
    assert model.memory_ is not None
    assert model.memory_report_.kept
    assert model.memory_report_.without is None


def test_a_memory_of_mixed_series_gets_the_forecasts_of_its_own_rows(tiny, monkeypatch):
    """Whatever row each of the series begins at."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 2)).cumsum(0), columns=["a", "b"])
    frame.iloc[:50, 1] = np.nan
    seen = []
    known = _Streams._known

    def recorded(streams, origins, series):
        seen.append((streams, origins, series, known(streams, origins, series)))
        return seen[-1][-1]

    monkeypatch.setattr(_Streams, "_known", recorded)
    model = tiny(multivariate=True, missing="mask").fit(frame, val_size=40)
    assert seen
    for streams, origins, series, (forecast, truth) in seen[:3]:
        for lane, column in enumerate(series.tolist()):
            own = forecast_rows(model.network_, model.model_.objective, streams.table, origins[lane])
            torch.testing.assert_close(forecast[lane], own.point[:, :, column])
            ahead = origins[lane][:, None] + torch.arange(model.h)
            torch.testing.assert_close(truth[lane], streams.table.values[ahead, column], equal_nan=True)


def test_validation_leaves_a_memory_in_training_mode(tiny, monkeypatch):
    modes = []
    forward = online.OnlineMemory.forward

    def recorded(memory, *given):
        if torch.is_grad_enabled():
            modes.append(memory.training)
        return forward(memory, *given)

    monkeypatch.setattr(online.OnlineMemory, "forward", recorded)
    model = tiny().fit(pd.DataFrame({"a": np.random.default_rng(0).normal(size=600).cumsum()}))
    assert len(modes) == model.memory_report_.steps
    assert all(modes)


def test_a_memory_under_autocast_that_takes_norms_in_float32(monkeypatch):
    """As autocast on CUDA does."""
    normalize = torch.nn.functional.normalize
    memory, windows = online.OnlineMemory(12, 3), torch.randn(2, 5, 12)
    expected = memory(windows, windows, windows)[0]
    monkeypatch.setattr(torch.nn.functional, "normalize", lambda x, **options: normalize(x.float(), **options))
    with torch.autocast("cpu", torch.bfloat16):
        found = memory(windows, windows, windows)[0]
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


def test_a_stream_of_any_length_stays_finite():
    """The linear memory's step is bounded whatever the gates say."""
    torch.manual_seed(0)
    memory = online.OnlineMemory(12, 3).eval()
    torch.nn.init.constant_(memory.gates.bias, 9.0)  # theta at its largest, and momentum as heavy
    with torch.no_grad():
        memory.gates.bias[: online.HEADS] = -20.0  # nothing is forgotten
    values = 3 * torch.randn(20_000, 2)
    found = online.rolling(memory, values, torch.arange(12, 20_001, 499))
    assert found.isfinite().all()


@pytest.mark.parametrize("multivariate", [False, True])
def test_the_order_in_which_a_frame_names_its_series_does_not_matter(tiny, wide, to_long, multivariate):
    model, turned = tiny(multivariate=multivariate).fit(to_long(wide.iloc[:100])), wide[["c", "a", "b"]]
    assert model.score(to_long(turned)) == model.score(to_long(wide))
    pd.testing.assert_frame_equal(model.predict_insample(to_long(turned)), model.predict_insample(to_long(wide)))
    for frame in (to_long(turned), turned):
        columns = ["unique_id", "ds"] if "ds" in frame else []
        found, expected = (model.predict(f) for f in (frame, to_long(wide) if columns else wide))
        if columns:
            found, expected = (f.sort_values(columns, ignore_index=True) for f in (found, expected))
        pd.testing.assert_frame_equal(found[expected.columns], expected)
    moved = copy.copy(model).update(to_long(turned.iloc[100:]))
    pd.testing.assert_frame_equal(moved.predict(), model.update(to_long(wide.iloc[100:])).predict())


def test_long_streams_are_read_in_pieces_and_are_the_same(monkeypatch):
    torch.manual_seed(0)
    memory = online.OnlineMemory(12, 3).eval()
    torch.nn.init.normal_(memory.out.weight)
    values = torch.randn(300, 5)
    ((_, stream),) = online.streams_of(torch.zeros(300, 5))
    origins = torch.tensor([13, 77, 150, 299])

    def everything():
        at, surprise = online.surprises(memory, values, values.isnan(), 1)
        read = online.advance(memory, stream, values, 300)
        return online.rolling(memory, values, origins), at, surprise, online.recall(memory, read, values)

    whole = everything()
    monkeypatch.setattr(online, "FLOATS", 20_000)  # some six writes of five series
    for found, expected in zip(everything(), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_memory_writes_which_window_followed_which():
    memory, values = online.OnlineMemory(12, 3), torch.arange(40.0)[:, None]
    ((at, before, now),) = online._windows_of_writes(memory, values, 0, 3)
    S, span = memory.stride, memory.span
    assert at.tolist() == [span + S, span + 2 * S, span + 3 * S]
    assert torch.equal(before[0, 0], values[:span, 0])
    assert torch.equal(now[0, 0], values[S : S + span, 0])


def test_training_writes_to_a_memory_as_streaming_does_and_passes_its_state_on(monkeypatch):
    seen, forward = [], online.OnlineMemory.forward

    def recorded(memory, read, before, now, state=None):
        found = forward(memory, read, before, now, state)
        seen.append((before, now, state, found[1]))
        return found

    monkeypatch.setattr(online.OnlineMemory, "forward", recorded)
    network = Simba(SimbaConfig(3, 12, patch_size=4, dim=8, num_layers=1)).eval()
    memory, table = online.OnlineMemory(12, 3), Table(torch.arange(600.0)[:, None] / 600)
    list(islice(_Streams(network, objective_of("mae"), table, memory, 600).losses(memory), 2))
    (before, now, first, after), (_, _, second, _) = seen
    torch.testing.assert_close(now - before, torch.full_like(now, memory.stride / 600))
    assert first is None
    assert torch.equal(second.weights[0], after.weights[0])


def test_the_memory_with_the_lowest_error_is_kept(monkeypatch):
    """However training went on from there."""
    errors, seen = iter([1.0, 0.5, 0.2, 0.7, 0.9]), []

    def error(validation, memory):
        seen.append(None if memory is None else copy.deepcopy(memory.state_dict()))
        return next(errors)

    monkeypatch.setattr(_Validation, "error", error)
    network = Simba(SimbaConfig(3, 12, patch_size=4, dim=8, num_layers=1)).eval()
    table = Table(torch.randn(400, 1))
    memory, report = train_memory(network, objective_of("mae"), table, 340, steps=8, seed=0, progress=False)
    assert report.with_memory == 0.2
    assert not torch.equal(seen[2]["out.weight"], seen[-1]["out.weight"])
    for name, weight in memory.state_dict().items():
        assert torch.equal(weight, seen[2][name]), name


def test_a_memory_with_corrections_that_are_not_finite_is_never_kept(tiny, wide, monkeypatch):
    """Errors that are not finite were left out of the mean, which was then 0 and the lowest."""
    nothing = float("nan")
    monkeypatch.setattr(
        "titans_ts.network.memory_training.corrections", lambda memory, table, origins: torch.tensor(nothing)
    )
    model = tiny().fit(wide)
    assert model.memory_ is None
    assert model.memory_report_.steps > 0
    assert model.memory_report_.with_memory is None
    with pytest.raises(
        ValueError, match=r"did not lower the validation error \(without it \d\.\d+, with it not finite\)"
    ):
        model.surprise(wide)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["error", "mask"])
def test_the_memory_keeps_forecasts_of_the_mean_unbiased(tiny, missing):
    """The memory used to be trained on absolute errors for every loss, which moved skewed forecasts to the median."""
    rng = np.random.default_rng(0)
    skewed = pd.DataFrame({"a": rng.exponential(size=600), "b": rng.exponential(size=600)})  # mean 1, median 0.69
    if missing == "mask":
        skewed = skewed.mask(rng.random(skewed.shape) < 0.05)  # targets that are not known
    by_loss = {}
    for loss in ("mae", "mse", "normal"):
        model = tiny(loss=loss, missing=missing, max_epochs=3).fit(skewed, val_size=0)
        assert model.memory_ is not None
        by_loss[loss] = model.predict_insample(skewed)["Titans"].mean()
    assert by_loss["mae"] < 0.8
    assert abs(by_loss["mse"] - 1) < 0.1
    assert abs(by_loss["normal"] - 1) < 0.1


@pytest.mark.parametrize("together", [False, True])
def test_the_memory_learns_nothing_from_a_lookback_filled_with_later_values(together):
    """Of mixed series, a gap in one counts for all."""
    config = SimbaConfig(h=4, input_size=12, num_series=2 if together else None, patch_size=4, dim=8, num_layers=1)
    imputed = torch.zeros(400, 2, 1, dtype=torch.bool)
    imputed[200:206, 0] = True
    table = Table(torch.randn(400, 2, generator=torch.Generator().manual_seed(0)), imputed=imputed)
    network, objective, memory = Simba(config).eval(), objective_of("mae"), online.OnlineMemory(12, 4)
    streams = _Streams(network, objective, table, memory, border=300)
    forecast, truth = streams._known(torch.tensor([[190, 203, 210]] * 2), torch.arange(2))
    assert truth[0, 1].isnan().all()
    assert truth[1, 1].isnan().all() == together
    np.testing.assert_array_equal(truth[1, 2], table.values[210:214, 1])
    rows = forecast_rows(network, objective, table, torch.tensor([190, 203, 210])).point
    np.testing.assert_allclose(forecast, rows.permute(2, 0, 1), rtol=1e-5, atol=1e-6)
    val = _Validation.of(network, objective, table, memory, border=190)
    inside = (val.origins > 200) & (val.origins <= 206)
    assert inside.any()
    assert val.truth[inside, :, 0].isnan().all()
    assert val.truth[inside, :, 1].isnan().all() == together


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_a_row_years_after_known_seconds_is_refused(tiny, wide, missing):
    """The rows between would not fit into memory."""
    seconds = wide.set_axis(pd.date_range("2024-01-01", periods=len(wide), freq="s", name="ds"))
    model = tiny(missing=missing, max_epochs=1).fit(seconds.iloc[:-1])
    late = seconds.iloc[-1:].set_axis(seconds.index[-1:] + pd.Timedelta("9000D"))
    with pytest.raises(ValueError, match=r"would have 77760000\d rows .* between 2024-01-01 .* and 2048-08-22"):
        model.update(late)
    model.update(seconds.iloc[-1:])
