"""The published data sets: loaded values match the registry exactly."""

import csv
import gzip
import hashlib

import numpy as np
import pandas as pd
import pytest

from titans_datasets import info, list_datasets, load, protocol_split

pytestmark = pytest.mark.real_data

HERE = ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "AirPassengers"]


def published_bytes(home, name):
    plain = home / "ts" / info(name).file
    return plain.read_bytes() if plain.exists() else gzip.decompress(plain.with_name(plain.name + ".gz").read_bytes())


@pytest.fixture
def load_here(real_data):
    def get(name):
        return load(name, data_home=real_data, download=False)

    return get


@pytest.mark.parametrize("name", HERE)
def test_a_set_loads_exactly_as_registered(name, load_here):
    entry = info(name)
    frame = load_here(name)
    assert frame.shape == entry.shape
    assert tuple(frame.columns) == entry.columns
    assert set(frame.dtypes) == {np.dtype("float64")}
    assert isinstance(frame.index, pd.DatetimeIndex)
    assert frame.index.name == "ds"
    assert frame.index.dtype == "datetime64[ns]"
    assert frame.index[0] == pd.Timestamp(entry.start)
    assert frame.index[-1] == pd.Timestamp(entry.end)
    assert frame.index.is_monotonic_increasing
    assert (frame.index.freq is not None) == entry.regular
    assert not frame.isna().any(axis=None)


@pytest.mark.parametrize("name", HERE)
def test_the_checksum_is_that_of_the_unpacked_file(name, real_data):
    assert info(name).checksum == "sha256:" + hashlib.sha256(published_bytes(real_data, name)).hexdigest()


@pytest.mark.parametrize("name", ["ETTh1", "weather", "AirPassengers"])
def test_every_number_is_the_nearest_float_to_its_text(name, load_here, real_data):
    rows = list(csv.reader(published_bytes(real_data, name).decode("utf-8").splitlines()))
    expected = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    np.testing.assert_array_equal(load_here(name).to_numpy(), expected)


@pytest.mark.parametrize("name", ["etth1", "ETTH1", "WEATHER", "airpassengers"])
def test_load_matches_names_without_regard_to_case(name, load_here):
    assert load_here(name).shape == info(name).shape


def test_the_environment_variable_names_the_data_home(real_data, monkeypatch):
    monkeypatch.setenv("TITANS_DATA_HOME", str(real_data))
    assert load("AirPassengers", download=False)["#Passengers"].sum() == 40363


def test_the_caller_owns_the_frame(load_here):
    first = load_here("AirPassengers")
    first.iloc[:] = 0.0
    assert load_here("AirPassengers")["#Passengers"].sum() == 40363


def test_weather_keeps_its_blemishes_where_its_note_says(load_here):
    frame = load_here("weather")
    missing = frame == -9999
    assert missing.sum()[missing.any()].to_dict() == {"wv (m/s)": 1, info("weather").columns[18]: 30, "OT": 50}
    assert np.flatnonzero(missing.any(axis=1)).max() < protocol_split("weather").train.stop
    assert np.flatnonzero(frame.index.duplicated()).tolist() == [19044]
    assert frame.index[19043] == frame.index[19044] == pd.Timestamp("2020-05-12 06:00")
    steps = np.diff(frame.index.to_numpy()) / np.timedelta64(1, "m")
    assert np.flatnonzero(steps > 10).tolist() == [21513]
    assert steps[21513] == 100


@pytest.mark.parametrize("name", HERE)
def test_the_protocol_split_fits_the_frame(name, load_here):
    frame, split = load_here(name), protocol_split(name)
    assert split == protocol_split(name, n_rows=len(frame))
    assert len(frame.iloc[split.test]) == split.test.stop - split.test.start


def test_ett_sets_of_one_station_agree_on_the_hour(load_here):
    for hourly, quarterly in [("ETTh1", "ETTm1"), ("ETTh2", "ETTm2")]:
        on_the_hour = load_here(quarterly).iloc[::4]
        assert load_here(hourly).index.equals(on_the_hour.index)


def test_no_set_is_left_out_here_but_those_that_must_be_fetched():
    assert set(list_datasets("ts")) - set(HERE) == {"ECL", "traffic"}
