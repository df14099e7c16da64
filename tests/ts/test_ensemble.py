"""Ensembles of forecasters."""

import os
import shutil
import warnings
from contextlib import nullcontext
from copy import copy

import numpy as np
import pandas as pd
import polars
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from titans_core.archive import ArchiveError, save_archive
from titans_ts import TitansEnsemble, TitansForecaster, evaluation
from titans_ts.evaluation import evaluate_protocol


@pytest.fixture(scope="module")
def settings():
    """An ensemble of two forecasters that differ in every setting that may differ."""
    return {}, {"input_size": 16, "loss": "quantile", "exogenous": {"calendar": "auto"}, "random_state": 1}


@pytest.fixture(scope="module")
def fitted(tiny, settings, long):
    return TitansEnsemble([tiny(**one) for one in settings]).fit(long)


@pytest.fixture(scope="module")
def alone(tiny, settings, long):
    """The members, fitted separately."""
    return [tiny(**one).fit(long) for one in settings]


@pytest.fixture(scope="module")
def long():
    rng = np.random.default_rng(0)
    t = np.arange(120)
    waves = {"a": np.sin(t / 3), "b": 50 * np.cos(t / 3) + 200}
    ds = pd.date_range("2024-01-01", periods=120, freq="h")
    frames = [pd.DataFrame({"unique_id": i, "ds": ds, "y": y + 0.1 * rng.normal(size=120)}) for i, y in waves.items()]
    return pd.concat(frames, ignore_index=True)


def later(long, hours=24):
    ends = long.groupby("unique_id").tail(hours)
    return ends.assign(ds=ends["ds"] + pd.Timedelta(hours=hours))


def mean_of(frames, names):
    return np.mean([frame[names].to_numpy() for frame in frames], axis=0)


def test_forecasts_are_the_mean_of_the_members(fitted, alone, long):
    names = ["Titans", "Titans-lo-80", "Titans-hi-80"]
    for df in (None, long[long["unique_id"] == "b"]):
        found, each = fitted.predict(df, level=[80]), [one.predict(df, level=[80]) for one in alone]
        assert list(found.columns) == list(each[0].columns)
        assert found[["unique_id", "ds"]].equals(each[0][["unique_id", "ds"]])
        np.testing.assert_allclose(found[names], mean_of(each, names), rtol=1e-9)
        assert not np.allclose(each[0]["Titans"], each[1]["Titans"])


def test_the_order_of_series_in_a_frame_does_not_matter(tiny, long):
    short = long.groupby("unique_id").head(40)
    alone, mixed = (tiny(multivariate=each, max_epochs=1).fit(short, val_size=0) for each in (False, True))
    turned = pd.concat([short[short["unique_id"] == name] for name in ("b", "a")])
    for members, first in (([alone, mixed], "b"), ([mixed, alone], "a")):
        ensemble = TitansEnsemble(members)
        ensemble.forecasters_ = members
        found, expected = (ensemble.predict(df).set_index(["unique_id", "ds"]) for df in (turned, short))
        pd.testing.assert_frame_equal(found.loc[expected.index], expected, rtol=1e-5)
        assert ensemble.plot(turned).axes[0].get_title(loc="left") == first == found.index[0][0]


def test_update_applies_to_all_members_or_to_none(fitted, alone, long):
    ensemble, before = clone(fitted), fitted.predict()
    ensemble.forecasters_ = fitted.forecasters_
    ensemble.update(later(long))
    after = ensemble.predict()
    for one in alone:
        one.update(later(long))
    assert after["ds"].equals(alone[0].predict()["ds"])
    np.testing.assert_allclose(after["Titans"], mean_of([one.predict() for one in alone], ["Titans"])[:, 0], rtol=1e-9)
    pd.testing.assert_frame_equal(fitted.predict(), before)  # what is shared did not move

    def failing(new_df):
        raise ValueError("not these rows")

    ensemble.forecasters_[1].update = failing  # the first has taken them by then
    with pytest.raises(ValueError, match="not these rows"):
        ensemble.update(later(later(long)))
    pd.testing.assert_frame_equal(ensemble.predict(), after)


def test_a_backtest_has_the_origins_shared_by_all_members(fitted, long, tiny, settings):
    found = fitted.predict_insample(long, step_size=7, level=[80])
    shortest, longest = (one.predict_insample(long, step_size=1, level=[80]) for one in fitted.forecasters_)
    assert found["cutoff"].min() == longest["cutoff"].min() > shortest["cutoff"].min()
    for one in (shortest, longest):  # each row is in both
        assert found.merge(one, on=["unique_id", "ds", "cutoff"]).shape[0] == len(found)
    both = [found[["unique_id", "ds", "cutoff"]].merge(one) for one in (shortest, longest)]
    names = ["y", "Titans", "Titans-lo-80", "Titans-hi-80"]
    np.testing.assert_allclose(found[names], mean_of(both, names), rtol=1e-6)

    each = [tiny(**one).cross_validation(long, n_windows=2) for one in settings]
    ensemble = TitansEnsemble([tiny(**one) for one in settings])
    crossed = ensemble.cross_validation(long, n_windows=2)
    np.testing.assert_allclose(crossed["Titans"], mean_of(each, ["Titans"])[:, 0], rtol=1e-9)
    assert not hasattr(ensemble, "forecasters_")

    of_polars = ensemble.cross_validation(polars.from_pandas(long), n_windows=2)
    assert isinstance(of_polars, polars.DataFrame)
    np.testing.assert_allclose(of_polars["Titans"], crossed["Titans"], rtol=1e-9)


def test_the_score_is_that_of_the_mean_forecasts(fitted, long):
    each = [forecaster.score(long) for forecaster in fitted.forecasters_]
    assert fitted.score(long) > np.mean(each)  # a mean errs less than its parts do on average


@pytest.fixture
def holed(long):
    """The two series with a gap in the first, and the second ending early."""
    gap = (long["unique_id"] == "a") & long["ds"].between("2024-01-03", "2024-01-03 08:00")
    return long.assign(y=long["y"].mask(gap | ((long["unique_id"] == "b") & (long["ds"] > "2024-01-05 16:00"))))


@pytest.mark.parametrize("missing", ["interpolate", "mask"])
def test_an_ensemble_scores_the_same_windows_as_one_forecaster(missing, holed, tiny):
    one = TitansEnsemble([tiny(missing=missing, max_epochs=1)]).fit(holed)
    assert one.score(holed) == one.forecasters_[0].score(holed)


def test_what_one_member_cannot_score_is_scored_for_none(holed, tiny):
    plain, timed = {"missing": "interpolate"}, {"input_size": 16, "exogenous": {"profile": ["day"]}}
    both = TitansEnsemble([tiny(max_epochs=1, **plain), tiny(max_epochs=1, missing="mask", **timed)]).fit(holed)
    found = both.predict_insample(holed, step_size=1)
    inside = (found["unique_id"] == "a") & found["cutoff"].between("2024-01-03", "2024-01-03 08:00")
    scored = found[~inside & found["y"].notna()]  # a line ends at a value that is later than such a cutoff
    deviation = dict(zip("ab", both.forecasters_[0].scaling_.units.deviation, strict=True))
    expected = ((scored["Titans"] - scored["y"]).abs() / scored["unique_id"].map(deviation)).mean()
    assert both.score(holed) == pytest.approx(-expected, rel=1e-5)
    assert inside.any()


def test_forecasts_that_are_not_finite_have_no_score(tiny, long):
    both = TitansEnsemble([tiny(max_epochs=1), tiny(max_epochs=1, random_state=1)]).fit(long)
    with torch.no_grad():
        both.forecasters_[1].network_.head.bias.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="not finite"):
        both.score(long)


def test_exogenous_columns_go_to_members_that_declare_them(tiny, long):
    facts = pd.DataFrame({"unique_id": ["a", "b"], "size": [1.0, 2.0]})
    df = long.assign(heat=np.cos(np.arange(len(long)) / 3))
    ahead = later(df, 4).drop(columns="y")
    exogenous = {"futr": ["heat"], "stat": ["size"]}
    members = [tiny(max_epochs=1), tiny(max_epochs=1, input_size=16, exogenous=exogenous)]
    both = TitansEnsemble(members).fit(df, static_df=facts)
    alone = members[0].fit(df), members[1].fit(df, static_df=facts)
    expected = mean_of([alone[0].predict(), alone[1].predict(futr_df=ahead)], ["Titans"])[:, 0]
    np.testing.assert_allclose(both.predict(futr_df=ahead)["Titans"], expected, rtol=1e-9)
    again = both.predict(df, ahead, static_df=facts)["Titans"]
    np.testing.assert_allclose(again, expected, rtol=1e-4)
    assert len(both.cross_validation(df, n_windows=1, static_df=facts)) == 8
    without = TitansEnsemble(members[:1])
    with pytest.raises(ValueError, match="declares no static columns"):
        without.fit(df, static_df=facts)
    with pytest.raises(ValueError, match="declares no future columns"):
        without.fit(df).predict(futr_df=ahead)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_no_member_warns_of_columns_of_another(tiny, long, library):
    df = long.assign(heat=np.cos(np.arange(len(long)) / 3), size=1.0)
    newer = later(df)
    if library == "polars":
        df, newer = polars.from_pandas(df), polars.from_pandas(newer)
    members = [tiny(max_epochs=1), tiny(max_epochs=1, exogenous={"hist": ["heat"]})]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = TitansEnsemble(members).fit(df)
        both.update(newer).predict()
        both.predict_insample(df)
        both.score(df)
        both.predict(df)
        TitansEnsemble(members).cross_validation(df)
    ignored = [str(each.message) for each in caught if "are ignored" in str(each.message)]
    assert ignored
    assert all("['size']" in text for text in ignored)


def test_windows_have_the_longest_lookback(tiny):
    wide = np.random.default_rng(0).normal(size=(120, 2)).cumsum(axis=0)
    ensemble = TitansEnsemble([tiny(), tiny(input_size=16)]).fit(wide)
    windows = np.stack([wide[i : i + 16] for i in range(5)])
    short, long = ensemble.forecasters_
    expected = (short.predict_windows(windows[:, 4:]) + long.predict_windows(windows)) / 2
    np.testing.assert_allclose(ensemble.predict_windows(windows), expected, rtol=1e-9)
    with pytest.raises(ValueError, match=r"\[W, 16, N\]"):
        ensemble.predict_windows(windows[:, 4:])
    with pytest.raises(ValueError, match=r"\[W, 16, N\]"):
        ensemble.predict_windows(windows[0])
    np.testing.assert_array_equal(ensemble.predict_windows(windows.tolist()), ensemble.predict_windows(windows))


def test_a_saved_ensemble_gives_the_same_forecasts(fitted, long, tmp_path):
    copy(fitted).set_params(n_jobs=2).save(tmp_path / "both")
    loaded = TitansEnsemble.load(tmp_path / "both")
    assert loaded.n_jobs == 2
    pd.testing.assert_frame_equal(loaded.predict(level=[80]), fitted.predict(level=[80]))
    assert [one.get_params() for one in loaded.forecasters] == [one.get_params() for one in fitted.forecasters]
    pd.testing.assert_frame_equal(loaded.update(later(long)).predict(), loaded.predict())

    with pytest.raises(ArchiveError, match="TitansEnsemble"):
        TitansForecaster.load(tmp_path / "both")
    loaded.forecasters_[1].save(tmp_path / "both" / "members" / "1")
    with pytest.raises(ArchiveError, match="belongs to another save than"):
        TitansEnsemble.load(tmp_path / "both")


def test_an_interrupted_save_leaves_the_older_ensemble_or_the_newer(tiny, long, tmp_path, monkeypatch):
    older, newer = (TitansEnsemble([tiny(max_epochs=1, random_state=n)] * 2).fit(long) for n in range(2))
    replace = os.replace
    for after in range(7):  # of the files of two members and the ensemble, which are written before they are moved
        folder, moved = tmp_path / str(after), []
        older.save(folder)

        def cut_off(source, target, after=after, moved=moved):
            if len(moved) == after:
                raise KeyboardInterrupt
            moved.append(target)
            replace(source, target)

        monkeypatch.setattr(os, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt) if after < 6 else nullcontext():
            newer.save(folder)
        monkeypatch.undo()
        found = TitansEnsemble.load(folder).predict()
        pd.testing.assert_frame_equal(found, (older if after < 4 else newer).predict())
        for again in (newer, older, newer):
            again.save(folder)
            pd.testing.assert_frame_equal(TitansEnsemble.load(folder).predict(), again.predict())
            assert len(list(folder.glob("*/*/model.json"))) == 2


def test_a_place_outside_of_the_folder_is_refused_and_not_deleted(fitted, tmp_path):
    fitted.save(tmp_path / "both")
    theirs = tmp_path / "theirs" / "0"
    theirs.mkdir(parents=True)
    for content in ({"place": str(theirs.parent), "members": ["x"]}, {"place": "members"}):
        save_archive(tmp_path / "both", "TitansEnsemble", content, {})
        with pytest.raises(ArchiveError, match="was modified: it does not say where its members are"):
            TitansEnsemble.load(tmp_path / "both")
        fitted.save(tmp_path / "both")
        assert theirs.is_dir()
    shutil.rmtree(next((tmp_path / "both").glob("*/1")))
    with pytest.raises(ArchiveError, match=r"1 is missing\. If .*both was saved again at this moment, load it again"):
        TitansEnsemble.load(tmp_path / "both")


def test_an_ensemble_plots_its_forecast(fitted, long):
    figure = fitted.plot(actual=later(long), series=["b"], level=[80])
    drawn = next(line for line in figure.axes[0].lines if line.get_label() == "Titans")
    expected = fitted.predict().query("unique_id == 'b'")["Titans"].to_numpy()
    np.testing.assert_allclose(drawn.get_ydata()[-4:], expected)
    by_length = clone(fitted)
    by_length.forecasters_ = sorted(fitted.forecasters_, key=lambda one: len(one.context_.values))
    kept = [len(each.context_.values) for each in by_length.forecasters_]
    assert len(by_length.plot(history=99).axes[0].lines[0].get_xdata()) == kept[1] > kept[0]


def test_invalid_ensembles_are_refused_before_training(tiny, long, monkeypatch):
    monkeypatch.setattr(TitansForecaster, "fit", lambda *a, **k: pytest.fail("something was trained"))
    with pytest.raises(ValueError, match="at least one"):
        TitansEnsemble([]).fit(long)
    with pytest.raises(TypeError, match="got str"):
        TitansEnsemble(["Titans"]).fit(long)
    with pytest.raises(TypeError, match="got generator"):
        TitansEnsemble(tiny() for _ in range(2)).fit(long)
    with pytest.raises(TypeError, match="got TitansForecaster"):
        TitansEnsemble(tiny()).fit(long)
    with pytest.raises(ValueError, match=r"df lacks the columns \['heat'\]"):
        TitansEnsemble([tiny(), tiny(exogenous={"hist": ["heat"]})]).fit(long)
    with pytest.raises(ValueError, match="multiple of 4"):
        TitansEnsemble([tiny(), tiny(dim=6)]).fit(long)
    with pytest.raises(ValueError, match=r"must have the same h, got \[4, 8\]"):
        TitansEnsemble([tiny(), tiny(h=8)]).fit(long)
    with pytest.raises(ValueError, match=r"must have the same freq, got \['h', None\]"):
        TitansEnsemble([tiny(freq="h"), tiny()]).cross_validation(long)
    for jobs in (0, "2", 1.5):
        with pytest.raises(ValueError, match="n_jobs must be a number of processes"):
            TitansEnsemble([tiny(), tiny()], n_jobs=jobs).fit(long)
    young = long[long["unique_id"] == "a"].tail(48).assign(unique_id="young")
    with pytest.raises(ValueError, match=r"\['young'\] are long enough for some .* With val_size=20 there are enough"):
        TitansEnsemble([tiny(input_size=24), tiny()]).fit(pd.concat((long, young)), val_size=24)
    with pytest.raises(NotFittedError):
        TitansEnsemble([tiny()]).predict()


def test_members_that_become_the_same_model_are_told(tiny, long, monkeypatch):
    monkeypatch.setattr(TitansForecaster, "fit", lambda self, *a, **k: self)
    one, drawn = tiny(exogenous={"calendar": "auto"}), np.random.RandomState(0)
    for same in ([one, one], [one, tiny(dim=16), clone(one)], [tiny(random_state=drawn)] * 2):
        with pytest.warns(UserWarning, match="become the same model.* Give each another random_state") as warned:
            TitansEnsemble(same).fit(long)
        assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in ([tiny(random_state=None)] * 2, [tiny(random_state=seed) for seed in (0, 1, None)]):
            TitansEnsemble(other).fit(long)


def test_an_interrupted_training_resumes(tiny, long, tmp_path, monkeypatch):
    ensemble = TitansEnsemble([tiny(), tiny(random_state=1)])
    whole = clone(ensemble).fit(long)
    fit = TitansForecaster.fit

    def stopped(self, *args, **options):
        if self.random_state == 1:
            raise KeyboardInterrupt
        return fit(self, *args, **options)

    monkeypatch.setattr(TitansForecaster, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        ensemble.fit(long, checkpoint_dir=tmp_path)
    assert not hasattr(ensemble, "forecasters_")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 1
    ensemble.fit(long, checkpoint_dir=tmp_path)
    pd.testing.assert_frame_equal(ensemble.predict(), whole.predict())


@pytest.fixture
def small_set(monkeypatch):
    """A data set "x" with 300 rows of noise."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"])
    frame.index = pd.date_range("2024-01-01", periods=300, freq="h")
    split = evaluation.Split(slice(0, 200), slice(200, 250), slice(250, 300))
    data = evaluation.ProtocolData("x", frame.to_numpy(), frame, split, np.zeros(2), np.ones(2), 24)
    monkeypatch.setattr(evaluation, "load_protocol", lambda name: data)
    return data.name


def test_the_protocol_accepts_an_ensemble(tiny, small_set):
    plain, timed = tiny(), tiny(exogenous={"calendar": "auto"})
    found = evaluate_protocol(TitansEnsemble([plain, timed]), small_set, input_size=12, h=4, seed=3)
    each = [evaluate_protocol(one, small_set, input_size=12, h=4, seed=3) for one in (plain, timed)]
    assert found["mse"] < np.mean([one["mse"] for one in each])
    assert found["epochs"] == sum(one["epochs"] for one in each)
    assert found["parameters"] == sum(one["parameters"] for one in each)
    assert plain.random_state == 0


def test_the_protocol_refuses_members_that_it_would_make_equal(tiny, small_set):
    for of in ([tiny(random_state=seed) for seed in (0, 1)], [tiny(input_size=length) for length in (12, 16)]):
        with pytest.raises(ValueError, match="two members of the ensemble are the same: the protocol sets input_size"):
            evaluate_protocol(TitansEnsemble(of), small_set, input_size=12, h=4)


def test_the_protocol_keeps_the_lookbacks_of_members(tiny, small_set):
    short, long = (tiny(input_size=length, max_epochs=1) for length in (12, 16))
    found = evaluate_protocol(TitansEnsemble([short, long]), small_set, input_size=None, h=4, seed=3)
    assert (found["input_size"], found["n_windows"]) == (16, 47)
    ensemble = TitansEnsemble([clone(each).set_params(random_state=3) for each in (short, long)])
    data = evaluation.load_protocol(small_set)
    ensemble.fit(data.training, val_size=data.val_size)
    windows, actual = data.windows("test", 16, 4)
    assert found["mse"] == pytest.approx(np.square(ensemble.predict_windows(windows) - actual).mean(), rel=1e-6)
    of_each = [evaluate_protocol(one, small_set, input_size=None, h=4, seed=3) for one in (short, long)]
    assert [(one["input_size"], one["n_windows"]) for one in of_each] == [(12, 47), (16, 47)]
    with pytest.raises(ValueError, match="'last-value' has no lookback of its own: give input_size"):
        evaluate_protocol("last-value", small_set, input_size=None, h=4)
