"""scikit-learn's own checks, on a matrix forecaster."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pandas.tseries.offsets import CustomBusinessDay
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from titans_ts import TitansForecaster
from titans_ts.splits import TimeSplit

SMALL = {"h": 1, "input_size": 2, "max_epochs": 1, "dim": 8, "num_layers": 1, "verbose": 0}
# the order of rows is time: a forecaster cannot be the same for shuffled rows, or for a part of them
EXPECTED = {
    "check_methods_sample_order_invariance": "row order is time",
    "check_methods_subset_invariance": "a forecast needs input_size rows together",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:y is ignored")
def test_every_check_that_applies_passes():
    results = check_estimator(TitansForecaster(**SMALL), expected_failed_checks=EXPECTED, on_fail=None)
    status = {r["check_name"]: r["status"] for r in results}
    assert {name for name, s in status.items() if s == "failed"} == set()
    assert {name for name, s in status.items() if s == "xfail"} == set(EXPECTED)
    assert sum(s == "passed" for s in status.values()) >= 35


def test_a_grid_search_over_time_splits_finds_the_better_setting(wide):
    search = GridSearchCV(
        TitansForecaster(**{**SMALL, "h": 4, "input_size": 12, "max_epochs": 10, "random_state": 0}),
        {"learning_rate": [1e-6, 3e-2]},
        cv=TimeSeriesSplit(n_splits=2, test_size=20),
    )
    search.fit(wide.to_numpy())
    assert search.best_params_ == {"learning_rate": 3e-2}
    assert search.predict(wide.to_numpy()).shape == (4, 3)


def test_splits_cut_a_long_frame_by_time_and_test_parts_include_their_past(wide, to_long):
    late = to_long(wide)
    late = late[(late["unique_id"] != "b") | (late["ds"] >= wide.index[50])]
    splits = TimeSplit(2, test_size=10, lookback=12)
    assert splits.get_n_splits(late) == 2
    for i, (train, test) in enumerate(splits.split(late)):
        border = len(wide) - 20 + 10 * i
        assert set(late["ds"].iloc[train]) == set(wide.index[:border])
        assert set(late["ds"].iloc[test]) == set(wide.index[border - 12 : border + 10])
        assert late.iloc[test].groupby("unique_id").size().tolist() == [22, 22, 22]
    rows = list(splits.split(wide.to_numpy()))
    assert [(train[0], train[-1], test[0], test[-1]) for train, test in rows] == [
        (0, len(wide) - 21, len(wide) - 32, len(wide) - 11),
        (0, len(wide) - 11, len(wide) - 22, len(wide) - 1),
    ]
    for (_, of_polars), (_, of_pandas) in zip(splits.split(pl.from_pandas(late)), splits.split(late), strict=True):
        np.testing.assert_array_equal(of_polars, of_pandas)
    column = [[part.tolist() for part in split] for split in splits.split(wide["a"])]
    assert column == [[part.tolist() for part in split] for split in splits.split(wide[["a"]])]
    assert [len(train) for train, _ in TimeSplit(2, 10, 12, max_train_size=30).split(wide)] == [30, 30]


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_missing_rows_count_as_steps_in_splits(wide, to_long, layout):
    """Otherwise training rows would be scored."""
    holed = wide[wide.index.hour > 9]
    frame = to_long(holed) if layout == "long" else holed
    ds = frame["ds"] if layout == "long" else frame.index.to_series()
    for i, (train, test) in enumerate(TimeSplit(2, test_size=10, lookback=12).split(frame)):
        border = 10 + len(wide) - 10 - 20 + 10 * i  # the first ten hours are none of the axis
        assert ds.iloc[train].max() < wide.index[border]
        assert ds.iloc[test].min() >= wide.index[border - 12]


def test_a_grid_search_over_a_long_frame_scores_only_rows_not_trained_on(wide, to_long, tiny):
    frame, cv = to_long(wide), TimeSplit(2, test_size=10, lookback=12)
    search = GridSearchCV(tiny(max_epochs=10), {"learning_rate": [1e-6, 3e-2]}, cv=cv).fit(frame)
    assert search.best_params_ == {"learning_rate": 3e-2}
    train, test = next(cv.split(frame))
    alone = tiny(max_epochs=10, learning_rate=3e-2).fit(frame.iloc[train])
    assert search.cv_results_["split0_test_score"][1] == pytest.approx(alone.score(frame.iloc[test]))
    scored = alone.predict_insample(frame.iloc[test], step_size=1)
    assert scored["ds"].min() > frame["ds"].iloc[train].max()
    assert set(search.predict(frame)["unique_id"]) == {"a", "b", "c"}


def test_splits_of_series_that_end_early_or_begin_late(wide, to_long, tiny):
    frame = to_long(wide)
    frame = frame[(frame["unique_id"] != "a") | (frame["ds"] < wide.index[102])]  # ended before the last split
    frame = frame[(frame["unique_id"] != "b") | (frame["ds"] >= wide.index[70])]  # old enough for the last one
    with pytest.warns(UserWarning, match=r"1 series begin too late to train on before step 100 .*\['b'\]"):
        first, last = TimeSplit(2, test_size=10, lookback=7).split(frame)
    found = [set(frame["unique_id"].iloc[rows]) for rows in (*first, *last)]
    assert found == [{"a", "c"}, {"a", "c"}, {"a", "b", "c"}, {"b", "c"}]
    with pytest.warns(UserWarning, match="too late"):
        search = GridSearchCV(
            tiny(missing="mask", input_size=7, max_epochs=1),
            {"dropout": [0.1, 0.5]},
            cv=TimeSplit(2, 10, 7),
            error_score="raise",
        ).fit(frame)
    assert np.isfinite(search.best_score_)


def test_a_time_axis_that_a_split_guesses_with_gaps_is_told():
    days = pd.date_range("2024-01-01", periods=120, freq="C", name="ds")
    frame = pd.DataFrame({"a": np.arange(118.0)}, index=days.delete([40, 73]))
    with pytest.warns(UserWarning, match=r"counts the 118 time stamps of the data as 120 steps of 'B', some .*missing"):
        guessed = list(TimeSplit(2, test_size=10, lookback=7).split(frame))
    holidays = CustomBusinessDay(holidays=days[[40, 73]].to_list())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (*_, (_, given)) = TimeSplit(2, test_size=10, lookback=7, freq=holidays).split(frame)
        (*_, (_, known)) = TimeSplit(2, test_size=10, lookback=7, freq="B").split(frame)
    assert len(given) == 17
    assert len(known) == len(guessed[1][1])


def test_a_search_over_a_frame_with_a_short_series_works(wide, to_long, tiny):
    """Its splits leave that series out; so does the training on all rows that follows."""
    frame = to_long(wide)
    frame = frame[(frame["unique_id"] != "b") | (frame["ds"] >= wide.index[104])]
    with pytest.warns(UserWarning, match=r"too late to train on and are skipped: \['b'\]"):
        search = GridSearchCV(
            tiny(missing="mask", max_epochs=1), {"dropout": [0.1, 0.5]}, cv=TimeSplit(2, 10, 12), error_score="raise"
        ).fit(frame)
    assert set(search.predict(frame)["unique_id"]) == {"a", "b", "c"}


@pytest.mark.parametrize("y", ["array", "series", "number"])
def test_y_is_ignored_with_a_warning(wide, to_long, tiny, y):
    frame = to_long(wide.iloc[:60])
    given = {"array": frame["y"].to_numpy() * 0, "series": frame["y"] * 0, "number": 24}[y]
    says = r"y is ignored: .* in df, .* In a scikit-learn search, omit y and scoring"
    with pytest.warns(UserWarning, match=says) as warned:
        model = tiny(max_epochs=1).fit(frame, given)
    assert [str(x.filename) for x in warned] == [__file__]
    pd.testing.assert_frame_equal(model.predict(), tiny(max_epochs=1).fit(frame).predict())


def test_a_search_that_splits_by_rows_is_warned_of_with_advice(wide, to_long, tiny):
    with pytest.warns(
        UserWarning, match=r"score needs exactly the series of fit.* cv=titans_ts\.splits\.TimeSplit\(\.\.\.\)"
    ):
        cross_val_score(tiny(max_epochs=1), to_long(wide), cv=3)


def test_splits_know_the_step_and_the_columns_of_the_forecaster(wide, to_long, recwarn):
    irregular = wide.set_axis(pd.date_range("2000-01-01", periods=len(wide), freq="SMS"), axis=0)
    with pytest.raises(ValueError, match="pass freq"):
        next(TimeSplit(2, 10, 12).split(irregular))
    train, test = next(TimeSplit(2, 10, 12, freq="SMS").split(irregular))
    assert (train[-1], test[0], test[-1]) == (len(wide) - 21, len(wide) - 32, len(wide) - 11)
    next(TimeSplit(2, 10, 12).split(to_long(wide).assign(price=1.0)))  # declared or not is for the forecaster to say
    assert not recwarn.list


def test_splits_name_their_requirements(wide):
    with pytest.raises(ValueError, match=r"n_splits must be .*2, got 1"):
        TimeSplit(1, 10, 12)
    with pytest.raises(
        ValueError, match=rf"TimeSplit\(n_splits=2, test_size=60, lookback=12, .* = 192 .*got {len(wide)}"
    ):
        next(TimeSplit(2, 60, 12).split(wide))


def test_a_fit_that_fails_leaves_what_was_fitted(tiny, wide):
    matrix = wide.to_numpy()
    model = tiny(max_epochs=1).fit(matrix)
    expected = model.predict(matrix)
    with pytest.raises(ValueError, match="rows"):
        model.fit(matrix[:8, :2])
    assert model.n_features_in_ == matrix.shape[1]
    np.testing.assert_array_equal(model.predict(matrix), expected)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "got NoneType. Pass the data"),
        ("sales.csv", r"got str. Read the file first with pd.read_csv\('sales.csv'\)"),
        (Path("sales.csv"), r"Read the file first with pd.read_csv\('sales.csv'\)"),
        ("sales.parquet", r"Read the file first with pd.read_parquet\('sales.parquet'\)"),
        ({"a": [1.0, 2.0]}, r"got dict. Convert it with pd.DataFrame\(df\)"),
        (pl.LazyFrame({"a": [1.0]}), r"got LazyFrame: convert it with df.collect\(\)"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "update", "score"])
def test_common_mistakes_instead_of_a_frame_are_refused_with_advice(tiny_fitted, call, given, says):
    with pytest.raises(TypeError, match=says):
        getattr(tiny_fitted, call)(given)


def test_splits_too_short_to_train_on_are_refused():
    rows = np.zeros((167, 1))
    with pytest.raises(ValueError, match=r"\(n_splits \+ 1\) \* test_size \+ lookback = 168 steps, got 167"):
        next(TimeSplit(2, test_size=24, lookback=96).split(rows))
    assert [len(train) for train, _ in TimeSplit(2, test_size=24, lookback=96).split(np.zeros((168, 1)))] == [120, 144]
    with pytest.raises(ValueError, match="max_train_size must be at least lookback \\+ test_size = 120"):
        next(TimeSplit(2, test_size=24, lookback=96, max_train_size=119).split(np.zeros((500, 1))))
