"""The values of a season ago beside a backtest."""

import numpy as np
import pandas as pd
import pytest
from pandas.tseries.offsets import CustomBusinessDay

from titans_datasets import load
from titans_ts.naive import season_of, season_of_frame, with_naive


def asked(frame, cutoff, h):
    """A backtest of one origin, without its forecasts."""
    rows = frame.index[cutoff + 1 : cutoff + 1 + h]
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": rows, "cutoff": frame.index[cutoff]}) for name in frame])


@pytest.mark.parametrize(
    ("freq", "rows"),
    [
        *[("h", 24), ("15min", 96), ("10min", 144), ("6h", 4), ("D", 7), ("2D", 1), ("B", 5), ("W", 52), ("2W", 26)],
        *[("MS", 12), ("QS", 4), ("YS", 1), (CustomBusinessDay(holidays=["2020-01-08"]), 5)],
        (CustomBusinessDay(weekmask="Mon Tue Wed Thu Fri Sat"), 6),
    ],
    ids=str,
)
def test_a_season_is_the_next_longer_habit(freq, rows):
    index = pd.date_range("2020-01-02", periods=40, freq=freq)
    assert season_of(index, index.freq) == rows
    assert season_of(pd.RangeIndex(40), 1) == 1
    frame = pd.DataFrame({"a": np.arange(40.0)}, index=index.rename("ds"))
    assert season_of_frame(frame, None if isinstance(freq, str) else freq) == rows


def test_each_step_is_as_it_was_whole_seasons_before_the_cutoff(wide):
    found = with_naive(asked(wide, 79, 30), wide)
    for name in wide:
        values, mine = wide[name].to_numpy(), found[found["unique_id"] == name]["SeasonalNaive"]
        expected = [values[80 + t - 24] if t < 24 else values[80 + t - 48] for t in range(30)]
        np.testing.assert_array_equal(mine, expected)
    last = with_naive(asked(wide, 79, 30), wide, season_length=1)
    np.testing.assert_array_equal(last["SeasonalNaive"], np.repeat(wide.iloc[79].to_numpy(), 30))


def test_what_was_not_measured_is_as_another_season_before(wide):
    wide.iloc[60, 0] = np.nan
    found = with_naive(asked(wide, 79, 24), wide)
    assert found["SeasonalNaive"].iloc[60 - 56] == wide.iloc[36, 0]
    early = with_naive(asked(wide, 20, 24), wide)["SeasonalNaive"].to_numpy()[:24]
    assert np.isnan(early[:3]).all()
    np.testing.assert_array_equal(early[3:], wide["a"].iloc[:21])


def test_it_stands_beside_a_real_backtest(tiny):
    df = load("ETTh1").iloc[:400]
    found = with_naive(tiny().cross_validation(df, n_windows=3), df)
    assert list(found) == ["unique_id", "ds", "cutoff", "y", "Titans", "SeasonalNaive"]
    yesterday = df.shift(24).melt(ignore_index=False, var_name="unique_id").reset_index()
    both = found.merge(yesterday, on=["unique_id", "ds"])
    np.testing.assert_array_equal(both["SeasonalNaive"], both["value"])


def test_frames_of_polars_come_back_as_such(tiny, wide, to_long):
    polars = pytest.importorskip("polars")
    df = polars.from_pandas(to_long(wide))
    found = with_naive(tiny().cross_validation(df), df)
    assert isinstance(found, polars.DataFrame)
    plain = with_naive(tiny().cross_validation(wide), wide)
    np.testing.assert_array_equal(found["SeasonalNaive"].to_numpy(), plain["SeasonalNaive"])


@pytest.mark.parametrize("change", [{"unique_id": "z"}, {"cutoff": pd.Timestamp("2030-01-01")}])
def test_a_backtest_of_another_frame_is_refused(wide, change):
    with pytest.raises(ValueError, match="series or times that df does not have"):
        with_naive(asked(wide, 79, 4).assign(**change), wide)
