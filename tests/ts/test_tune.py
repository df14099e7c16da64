"""Laws of the search: it returns the best trial, resumes a killed study, and refuses other data."""

import os
import signal
import warnings
from contextlib import nullcontext
from multiprocessing import get_context

import numpy as np
import optuna
import pandas as pd
import pytest
import sqlalchemy
from small_training import without_cuda

from titans_core.train.tune import best_settings, open_study, run_study
from titans_ts import TitansEnsemble, forecaster
from titans_ts.tune import default_space, plot_history, plot_importance, tune


def small(trial, facts):
    return {"learning_rate": trial.suggest_categorical("learning_rate", [1e-6, 3e-2])}


@pytest.mark.slow
def test_the_best_trial_comes_back_fitted(tiny, wide):
    base = tiny(max_epochs=4)
    found = tune(wide, base, n_trials=6, space=small, random_state=0, verbose=0)
    assert found.learning_rate == 3e-2
    assert found.h == base.h
    assert not hasattr(base, "network_")
    values = [t.value for t in found.study_.trials if t.value is not None]
    assert found.study_.best_value == min(values)
    assert found.history_.epochs[found.history_.best_epoch]["val_loss"] == pytest.approx(min(values), rel=1e-6)
    assert found.predict().shape == (4, 3)
    assert "learning_rate" in [t.get_text() for t in plot_importance(found.study_).axes[0].get_yticklabels()]
    assert plot_history(found.study_).axes[0].get_ylabel() == "validation loss"


def test_what_is_not_a_forecaster_or_a_space_is_refused(tiny, wide):
    with pytest.raises(TypeError, match="settings of one TitansForecaster, got TitansEnsemble"):
        tune(wide, TitansEnsemble([tiny()]), n_trials=1)
    with pytest.raises(TypeError, match=r"space must be a function \(trial, facts\) -> settings, got dict"):
        tune(wide, tiny(), n_trials=1, space={"input_size": [12, 24]})


def test_a_picture_counts_trials_in_whole_numbers():
    study = optuna.create_study()
    study.add_trials([optuna.trial.create_trial(value=1.0) for _ in range(20)])
    assert all(tick.is_integer() for tick in plot_history(study).axes[0].get_xticks())


def test_the_forecasters_seed_is_kept_unless_another_is_given(tiny, wide):
    options = dict(n_trials=1, space=lambda trial, facts: {}, verbose=0)
    assert tune(wide, tiny(random_state=5), **options).random_state == 5
    assert tune(wide, tiny(random_state=5), random_state=6, **options).random_state == 6


def test_trials_train_no_online_memory_and_the_best_has_one(tiny, wide, monkeypatch):
    trained = []
    train_memory = forecaster.train_memory
    monkeypatch.setattr(forecaster, "train_memory", lambda *a, **b: trained.append(1) or train_memory(*a, **b))
    found = tune(wide, tiny(), n_trials=2, space=lambda trial, facts: {}, random_state=0, verbose=0)
    assert len(trained) == 1
    assert found.memory_report_.steps > 0


def test_optuna_samplers_and_callbacks_are_used(tiny, wide):
    ended = []
    found = tune(
        wide,
        tiny(),
        n_trials=5,
        space=small,
        verbose=0,
        sampler=optuna.samplers.GridSampler({"learning_rate": [1e-6, 3e-2]}, seed=0),
        callbacks=[lambda study, trial: ended.append((study.study_name, trial.number))],
    )
    assert isinstance(found.study_.sampler, optuna.samplers.GridSampler)
    assert sorted(t.params["learning_rate"] for t in found.study_.trials) == [1e-6, 3e-2]  # the grid, and no more
    assert ended == [("titans_ts", 0), ("titans_ts", 1)]


def test_a_sampler_with_a_seed_does_not_draw_the_same_trials_again(tiny, wide, tmp_path):
    def drawn(n_trials):
        sampler = optuna.samplers.RandomSampler(seed=3)
        options = {"space": rates, "storage": tmp_path / "study.journal", "verbose": 0, "sampler": sampler}
        return [t.params["learning_rate"] for t in tune(wide, tiny(), n_trials=n_trials, **options).study_.trials]

    def rates(trial, facts):
        return {"learning_rate": trial.suggest_float("learning_rate", 1e-6, 1e-2)}

    first = drawn(2)
    assert drawn(4)[:2] == first
    assert len(set(drawn(5))) == 5


def test_settings_that_do_not_fit_the_data_count_as_bad_and_do_not_end_the_search(tiny, wide):
    def some(trial, facts):
        return {"input_size": trial.suggest_categorical("input_size", [12, 110])}

    sampler = optuna.samplers.GridSampler({"input_size": [12, 110]}, seed=0)
    says = r"trial \d with {'input_size': 110}: .*input_size \+ h = 114.* It counts as a bad choice\."
    with pytest.warns(UserWarning, match=says) as warned:
        found = tune(wide, tiny(), n_trials=2, space=some, verbose=0, sampler=sampler)
    assert {w.filename for w in warned if "bad choice" in str(w.message)} == {__file__}
    assert found.input_size == 12
    with (
        pytest.warns(UserWarning, match="bad choice"),
        pytest.raises(
            ValueError,
            match=r"3 trials failed and none succeeded\. The last: trial 2 with {'input_size': 110}: .*114",
        ),
    ):
        tune(wide, tiny(), n_trials=9, space=lambda trial, _: {"input_size": trial.suggest_int("input_size", 110, 110)},
             verbose=0)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("file", ["study.db", "study.journal"])
def test_a_study_continues_up_to_n_trials(tiny, wide, tmp_path, file):
    storage = tmp_path / file
    options = {"space": small, "storage": storage, "random_state": 0, "verbose": 0}
    for n_trials in (1, 3, 3):
        assert len(tune(wide, tiny(max_epochs=1), n_trials=n_trials, **options).study_.trials) == n_trials
    with pytest.raises(ValueError, match=r"belongs to another search \(different: data\)"):
        tune(wide.iloc[:-1], tiny(max_epochs=1), n_trials=4, val_size=20, **options)
    with pytest.raises(ValueError, match=r"belongs to another search \(different: loss\)"):
        tune(wide, tiny(max_epochs=1, loss="mse"), n_trials=4, **options)


def test_a_study_may_continue_with_another_space(tiny, wide, tmp_path):
    def narrower(trial, facts):
        return {"learning_rate": trial.suggest_float("rate", 1e-9, 2e-9)}

    options = {"storage": tmp_path / "study.journal", "random_state": 0, "verbose": 0}
    found = tune(wide, tiny(), n_trials=3, space=small, **options)
    assert found.learning_rate == 3e-2
    with pytest.warns(UserWarning, match=r"best trial, number \d, is from another space than this one: {'") as warned:
        again = tune(wide, tiny(), n_trials=4, space=narrower, **options)
    assert warned[0].filename == __file__
    assert len(again.study_.trials) == 4
    assert again.learning_rate == 3e-2  # of the first space still

    def otherwise(trial, facts):
        return {"learning_rate": small(trial, facts)["learning_rate"], "dropout": 0.1}

    with pytest.warns(UserWarning, match="Give another study_name or storage to use this space alone"):
        tune(wide, tiny(), n_trials=4, space=otherwise, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(wide, tiny(), n_trials=5, space=small, **options)

    study = optuna.create_study()
    study.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(ValueError, match=r"best trial, number 0, is from another space.*another study_name"):
        best_settings(study, lambda trial: small(trial, None))


@pytest.mark.parametrize("file", ["study.journal", "study.db"])
def test_a_study_of_an_earlier_default_space_is_refused_with_advice(tiny, wide, tmp_path, file, monkeypatch):
    def older(trial, facts):
        return {"input_size": trial.suggest_categorical("input_size", [12, 13])}

    storage = tmp_path / file
    options = {"storage": storage, "random_state": 0, "verbose": 0, "n_trials": 2}
    with monkeypatch.context() as patched:
        patched.setattr("titans_ts.tune.default_space", older)
        tune(wide, tiny(max_epochs=1), **options)
    options["n_trials"] = 3
    says = (
        rf"the study 'titans_ts' in .*{file} has trials with another space: its 'input_size' was one of \(12, 13\), "
        r"now it is one of \(4, 8, 16\)\. Give another study_name or storage, or the earlier space \(space=\)\.$"
    )
    with pytest.raises(ValueError, match=says):
        tune(wide, tiny(max_epochs=1), **options)
    study = tune(wide, tiny(max_epochs=1), space=older, **options).study_
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 3  # no trial was begun in vain

    def other(trial, facts):
        return {"input_size": trial.suggest_int("input_size", 12, 13)}

    options["n_trials"] = 4
    with pytest.raises(
        ValueError, match=r"has trials with another space: .*Give another study_name or storage, or the"
    ):
        tune(wide, tiny(max_epochs=1), space=other, **options)


def test_only_failed_trials_of_this_run_are_counted(tiny, wide, tmp_path):
    def too_long(trial, facts):
        return {"input_size": trial.suggest_int("input_size", 110, 110)}

    options = {"storage": tmp_path / "study.journal", "space": too_long, "verbose": 0}
    why = r"no trial finished\. 1 did not fit the data, the last with {'input_size': 110}: .*input_size \+ h = 114"
    with pytest.warns(UserWarning, match="bad choice"), pytest.raises(ValueError, match=why):
        tune(wide, tiny(), n_trials=1, **options)
    says = r"3 trials failed and none succeeded\. The last: trial 3 with"
    with pytest.warns(UserWarning, match="bad choice"), pytest.raises(ValueError, match=says):
        tune(wide, tiny(), n_trials=9, **options)


@pytest.mark.slow
def test_a_killed_search_is_resumed_and_two_processes_share_a_study(tiny, wide, tmp_path):
    finished = get_context("fork").Queue()

    def search(how, storage):
        def space(trial, facts):
            if how == "killed" and trial.number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 3e-2)}

        base = tiny(max_epochs=1, random_state=None)
        found = tune(wide, base, n_trials=4, space=space, storage=storage, verbose=0)
        if how == "first":
            finished.put(len([t for t in found.study_.trials if t.state.is_finished()]))

    def ends(storage, *how):
        together = [get_context("fork").Process(target=without_cuda, args=(search, h, storage)) for h in how]
        for process in together:
            process.start()
        for process in together:
            process.join()
        return [process.exitcode for process in together]

    for file in ("study.journal", "study.db"):
        assert ends(tmp_path / file, "killed") == [-signal.SIGKILL]
        assert ends(tmp_path / file, "first", "second") == [0, 0]
        assert finished.get() >= 4
    journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    for storage in (
        optuna.storages.JournalStorage(journal),
        optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'study.db'}"),
    ):
        states = [t.state.name for t in optuna.load_study(study_name="titans_ts", storage=storage).trials]
        assert states.count("RUNNING") == 1  # the one that was killed
        assert 4 <= states.count("COMPLETE") + states.count("PRUNED") <= 5  # two may finish at once


def test_processes_that_start_at_once_share_a_new_database(tmp_path, request):
    """Another process creates the tables after this one has found none."""
    from optuna.storages._rdb import models

    def opened():
        return open_study(tmp_path / "s.db", "s", {"data": "x"}, None)

    def by_another(*args, **options):
        if others:
            others.pop()()

    others, event = [opened], (models.BaseModel.metadata.tables["studies"], "before_create", by_another)
    sqlalchemy.event.listen(*event)
    request.addfinalizer(lambda: sqlalchemy.event.remove(*event))
    run_study(opened(), lambda trial: trial.suggest_float("x", 0, 1), 2, None, progress=False)
    assert len(opened().trials) == 2
    assert not others


def test_a_study_that_maximizes_is_refused(tmp_path):
    """As one created beforehand to enqueue trials may be; its best trial would be the worst."""
    journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / "s.journal"))
    optuna.create_study(study_name="s", storage=optuna.storages.JournalStorage(journal), direction="maximize")
    with pytest.raises(ValueError, match=r"the study 's' in .* was created to maximize, .* Give another study_name"):
        open_study(tmp_path / "s.journal", "s", {}, 0)


@pytest.mark.parametrize(("storage", "seed"), [("s.journal", 0), (None, None)])
def test_processes_that_train_together_must_draw_the_same_settings(tmp_path, monkeypatch, storage, seed):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of this test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"2 processes of torchrun .* same settings\. Search with random_state"):
        open_study(storage and tmp_path / storage, "s", {}, seed)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="timeout could end the search of one"):
        run_study(open_study(None, "s", {}, 0), lambda trial: 0.0, 1, 60.0, progress=False)


def test_a_seed_out_of_range_is_no_fault_of_the_storage():
    with pytest.raises(ValueError, match=r"^Seed must be between 0 and"):
        open_study(None, "s", {}, 2**32)


@pytest.mark.parametrize("kind", ["path", "storage"])
def test_a_continued_study_draws_new_trials(tmp_path, kind):
    storage = tmp_path / "a%20b.db" if kind == "path" else optuna.storages.InMemoryStorage()

    def drawn(n):
        study = open_study(storage, "s", {}, 0)
        run_study(study, lambda trial: trial.suggest_float("x", 0, 1), n, None, False)
        return [t.params["x"] for t in study.trials]

    first = drawn(5)
    both = drawn(10)
    assert both[:5] == first
    assert len(set(both)) == 10
    assert kind != "path" or storage.is_file()


@pytest.mark.parametrize("name", ["x.csv", "x.journal", "y.journal", "folder", "nothing://x"])
def test_an_unusable_storage_is_refused_with_a_plain_message(tmp_path, name):
    (tmp_path / "folder").mkdir()
    for file, text in (("x.csv", "ds,a\n" * 99), ("x.journal", "ds,a\n"), ("y.journal", "{}\n")):
        (tmp_path / file).write_text(text)
    storage = name if "://" in name else tmp_path / name
    with pytest.raises(ValueError, match=rf"{name} cannot hold a study, or .*\. Give another storage\.$"):
        open_study(storage, "s", {}, 0)


@pytest.mark.slow
def test_trials_worse_than_the_median_end_early(tiny, wide):
    def space(trial, facts):
        return {"learning_rate": 3e-2 if trial.number < 5 else 1e-7}

    study = tune(wide, tiny(max_epochs=5), n_trials=7, space=space, random_state=0, verbose=0).study_
    assert [t.state.name for t in study.trials[:5]].count("COMPLETE") >= 4
    assert {t.state.name for t in study.trials[5:]} == {"PRUNED"}
    assert all(len(t.intermediate_values) < 5 for t in study.trials[5:])


def test_the_default_space_fits_the_data(wide, tiny):
    found = tune(wide, tiny(), n_trials=1, random_state=1, verbose=0)
    assert found.input_size + found.h < 120
    assert found.memory_report_ is not None
    for rows in (20, 100, 10_000):
        trial = optuna.create_study().ask()
        settings = default_space(trial, {"rows": rows, "h": 8, "may_add_calendar": False})
        assert 2 <= settings["input_size"] <= rows - 8
        assert "exogenous" not in settings
    fixed = optuna.trial.FixedTrial({**trial.params, "calendar": False, "profile": True})
    assert default_space(fixed, {"rows": 10_000, "h": 8, "may_add_calendar": True})["exogenous"] == {"profile": "auto"}


def test_impossible_searches_are_refused_with_a_reason(tiny, wide):
    with pytest.raises(
        ValueError,
        match=r"val_size=118 of 120 rows: .* training at least input_size \+ h = 6",
    ):
        tune(wide, tiny(), val_size=118, verbose=0)
    with pytest.raises(ValueError, match="NaN in series 'a'"):
        tune(wide.mask(np.eye(120, 3, dtype=bool)), tiny(), verbose=0)

    def fails(trial, facts):
        return {"learning_rate": 1e30}

    with pytest.raises(
        ValueError, match=r"no trial finished\. 1 diverged, the last with {}: training .*Give more trials"
    ):
        tune(wide, tiny(), n_trials=1, space=fails, verbose=0)
    with pytest.raises(TypeError, match="space must return a dict of settings by name, got None"):
        tune(wide, tiny(), n_trials=1, space=lambda trial, facts: None, verbose=0)


def test_a_study_of_other_stamps_or_static_columns_is_refused(tiny, wide, to_long, tmp_path):
    frame = to_long(wide)
    static = pd.DataFrame({"unique_id": ["a", "b", "c"], "s": [0.0, 1.0, 2.0]})
    options = dict(n_trials=1, space=lambda trial, facts: {}, verbose=0, storage=tmp_path / "study.journal")
    base = tiny(max_epochs=1, exogenous={"stat": ["s"]})
    tune(frame, base, static_df=static, **options)
    shifted = frame.assign(ds=frame["ds"] + pd.Timedelta("7h"))
    cases = (("time", shifted, static), ("data", frame, static.assign(s=[3.0, 1.0, 2.0])))
    for what, df, beside in cases:
        with pytest.raises(ValueError, match=rf"belongs to another search \(different: {what}\)"):
            tune(df, base, static_df=beside, **options)


def test_the_result_has_the_verbosity_of_the_forecaster(tiny, wide):
    found = tune(wide, tiny(verbose=1), n_trials=1, verbose=0, space=lambda trial, facts: {})
    assert found.verbose == 1
    with pytest.raises(ValueError, match=r"n_trials must be an integer >= 1, got 2\.5"):
        tune(wide, tiny(), n_trials=2.5)


class StopError(Exception):
    """Ends a search before anything is trained."""


def test_a_series_without_rows_to_train_on_is_left_out_of_a_search(tiny, wide, to_long):
    long = to_long(wide)
    frame = long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[97])]

    def chosen(trial, facts):
        return {"input_size": trial.suggest_categorical("input_size", [8, 12])}

    with pytest.warns(UserWarning, match=r"\['b'\]\. The search does not use them; with a smaller"):
        found = tune(frame, tiny(max_epochs=1), space=chosen, n_trials=2, random_state=0, verbose=0)
    alone = tune(
        long[long["unique_id"] != "b"], tiny(max_epochs=1), space=chosen, n_trials=2, random_state=0, verbose=0
    )
    assert [t.value for t in found.study_.trials] == [t.value for t in alone.study_.trials]
    assert found.left_out_ == ["b"]
    pd.testing.assert_frame_equal(found.predict(), alone.predict())


def test_a_trial_that_mixes_series_counts_as_bad_if_fit_could_not_repeat_it(tiny, wide, to_long):
    long = to_long(wide)
    frame = long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[97])]  # fit mixes all series or none

    def space(trial, facts):
        return {"multivariate": trial.number == 0}

    with pytest.warns(UserWarning, match="trial 0 .*series 'b' has 3 rows for training"):
        found = tune(frame, tiny(max_epochs=1, missing="mask"), n_trials=2, space=space, verbose=0)
    assert (found.study_.best_trial.number, found.left_out_) == (1, ["b"])


def test_a_young_series_does_not_shorten_the_lookbacks_of_the_others(tiny, wide, to_long):
    seen = {}

    def space(trial, facts):
        seen.setdefault("rows", facts["rows"])
        return {"input_size": trial.suggest_categorical("input_size", [12])}

    long = to_long(wide)
    base = tiny(max_epochs=1, input_size=24)
    for rows, of_the_shortest in ((49, 98), (50, 28)):  # 27, and 28 before the validation rows, of which 28 are enough
        seen.clear()
        frame = long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[-rows])]
        with pytest.warns(UserWarning, match=r"\['b'\]\. The search") if rows == 49 else nullcontext():
            tune(frame, base, space=space, n_trials=1, random_state=0, verbose=0)
        assert seen["rows"] == of_the_shortest
    seen.clear()
    most = long[(long["unique_id"] == "a") | (long["ds"] >= wide.index[-49])]
    tune(most, base, space=space, n_trials=1, random_state=0, verbose=0)
    assert seen["rows"] == 27  # the two young ones are most
    seen.clear()
    tune(wide.iloc[:40], base.set_params(input_size=36), space=space, n_trials=1, random_state=0, verbose=0)
    assert seen["rows"] == 34


def test_without_a_searched_lookback_a_search_keeps_the_series_that_fit_keeps(tiny, wide, to_long):
    def space(trial, facts):
        return {"dropout": trial.suggest_float("dropout", 0.0, 0.5)}

    base, long = tiny(max_epochs=1), to_long(wide)
    frame = long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[90])]  # 9 rows before the validation rows
    with pytest.warns(UserWarning, match=r"\['b'\]\. The search does not use them; with a smaller"):
        found = tune(frame, base, space=space, n_trials=1, random_state=0, verbose=0)
    assert (found.left_out_, found.study_.best_trial.number) == (["b"], 0)
    base.set_params(input_size=24)
    assert tune(wide.iloc[:33], base, space=space, n_trials=1, verbose=0).calibration_ is not None
    with pytest.raises(
        ValueError, match=r"31 rows.* needs 4 for validation, and a lookback of 24 plus h=4 .* lower input_size or"
    ):
        tune(wide.iloc[:31], base, space=space, n_trials=1, verbose=0)


def test_the_space_gets_the_shortest_length_and_whether_a_calendar_is_possible(tiny, wide, to_long):
    frame = to_long(wide)
    frame = frame[(frame["unique_id"] != "b") | (frame["ds"] >= wide.index[40])]
    counted = to_long(wide.reset_index(drop=True).rename_axis("ds"))

    def facts_of(df, **settings):
        def space(trial, facts):
            found.update(facts)
            raise StopError

        found = {}
        with pytest.raises(StopError):
            tune(df, tiny(**settings), n_trials=1, val_size=20, space=space, verbose=0)
        return found

    assert facts_of(frame) == {"rows": 120 - 20 - 40, "h": 4, "may_add_calendar": True}
    assert facts_of(frame, h=6)["h"] == 6
    assert not facts_of(frame, exogenous={"calendar": ["day"]})["may_add_calendar"]
    assert not facts_of(counted)["may_add_calendar"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_search_is_not_lost_for_one_training_that_diverges(tiny, wide, monkeypatch, times):
    fit, calls = forecaster.TitansForecaster.fit, []

    def diverges(self, *args, **options):
        calls.append(self)
        if len(calls) <= times:
            raise FloatingPointError("training diverged")
        return fit(self, *args, **options)

    monkeypatch.setattr(forecaster.TitansForecaster, "fit", diverges)
    with (
        pytest.warns(UserWarning, match="fitted once more: training diverged") as warned,
        nullcontext() if times == 1 else pytest.raises(FloatingPointError, match="training diverged"),
    ):
        found = tune(wide, tiny(), n_trials=1, space=lambda trial, facts: {}, verbose=0)
    assert warned[0].filename == __file__
    assert len(calls) == 2
    assert times == 2 or np.isfinite(found.predict().to_numpy()).all()


@pytest.mark.parametrize("name", ["h", "loss"])
def test_searching_a_setting_that_changes_the_error_is_refused(tiny, wide, name):
    with pytest.raises(ValueError, match="compare the forecasters by score"):
        tune(wide, tiny(), n_trials=1, space=lambda trial, facts: {name: {"h": 2, "loss": "mse"}[name]}, verbose=0)


def test_a_space_may_prune_incompatible_settings(tiny, wide):
    calls = []

    def picky(trial, facts):
        calls.append(trial)
        if trial.number == 0 and len(calls) == 1:
            raise optuna.TrialPruned
        return small(trial, facts)

    found = tune(wide, tiny(max_epochs=1), n_trials=1, space=picky, random_state=0, verbose=0)
    assert [t.state.name for t in found.study_.trials] == ["COMPLETE"]

    def none(trial, facts):
        raise optuna.TrialPruned

    with pytest.raises(ValueError, match="no trial"):
        tune(wide, tiny(max_epochs=1), n_trials=2, space=none, random_state=0, verbose=0)


def test_without_short_series_a_search_ends_with_the_others(tiny, wide, to_long):
    long = to_long(wide)
    ended, young = long["ds"] <= wide.index[90], long["ds"] >= wide.index[88]
    frame = long[(ended & (long["unique_id"] != "c")) | (young & (long["unique_id"] == "c"))]
    base, seen = tiny(missing="mask", max_epochs=1), []

    def space(trial, facts):
        seen.append(facts["rows"])
        return {}

    with pytest.warns(UserWarning, match=r"skipped: \['c'\]"):
        found = tune(frame, base, n_trials=1, space=space, val_size=31, verbose=0)
    assert seen == [60, 60]  # before the trial it is asked whether it chooses a lookback
    assert found.left_out_ == ["c"]
    alone = tune(frame[frame["unique_id"] != "c"], base, n_trials=1, space=space, val_size=31, verbose=0)
    assert found.study_.best_value == alone.study_.best_value
