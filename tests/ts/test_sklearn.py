"""scikit-learn's own checks, on a matrix forecaster."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.utils.estimator_checks import check_estimator

from titans_ts import TitansForecaster

SMALL = {"h": 1, "input_size": 2, "max_epochs": 1, "dim": 8, "num_layers": 1, "verbose": 0}
# the order of rows is time: a forecaster cannot be the same for shuffled rows, or for a part of them
EXPECTED = {
    "check_methods_sample_order_invariance": "row order is time",
    "check_methods_subset_invariance": "a forecast needs input_size rows together",
}


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


def test_a_fit_that_fails_leaves_what_was_fitted(tiny, wide):
    matrix = wide.to_numpy()
    model = tiny().fit(matrix)
    expected = model.predict(matrix)
    with pytest.raises(ValueError, match="rows"):
        model.fit(matrix[:8, :2])
    assert model.n_features_in_ == matrix.shape[1]
    np.testing.assert_array_equal(model.predict(matrix), expected)
