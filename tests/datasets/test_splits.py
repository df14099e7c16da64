"""The borders and window counts of the benchmark protocol, as numbers."""

import pytest

from titans_datasets import n_windows, protocol_split

BENCHMARK = ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "ECL", "traffic"]
# rows in train, val, test; windows of the test part are TEST_WINDOWS - h
ROWS = {
    "ETTh1": (8640, 2880, 2880),
    "ETTh2": (8640, 2880, 2880),
    "ETTm1": (34560, 11520, 11520),
    "ETTm2": (34560, 11520, 11520),
    "weather": (36887, 5270, 10539),
    "ECL": (18412, 2632, 5260),
    "traffic": (12280, 1756, 3508),
}
TEST_WINDOWS = {"ETTh1": 2881, "ETTm1": 11521, "weather": 10540, "ECL": 5261, "traffic": 3509}


@pytest.mark.parametrize("name", BENCHMARK)
def test_part_sizes_are_those_of_the_protocol(name):
    split = protocol_split(name)
    assert tuple(part.stop - part.start for part in (split.train, split.val, split.test)) == ROWS[name]


@pytest.mark.parametrize("name", BENCHMARK)
def test_parts_touch_and_do_not_overlap(name):
    split = protocol_split(name)
    assert split.train.start == 0
    assert split.train.stop == split.val.start
    assert split.val.stop == split.test.start


def test_ett_borders_are_months_of_30_days():
    split = protocol_split("etth1")
    assert (split.train, split.val, split.test) == (slice(0, 8640), slice(8640, 11520), slice(11520, 14400))
    split = protocol_split("ETTM2")
    assert (split.train, split.val, split.test) == (slice(0, 34560), slice(34560, 46080), slice(46080, 57600))


@pytest.mark.parametrize("name", ["weather", "ECL", "traffic", "AirPassengers"])
def test_other_sets_are_used_to_the_last_row(name):
    rows = {"weather": 52696, "ECL": 26304, "traffic": 17544, "AirPassengers": 144}[name]
    assert protocol_split(name).test.stop == rows


def test_n_rows_moves_the_borders_of_ratio_sets_only():
    split = protocol_split("ECL", n_rows=1000)
    assert (split.train, split.val, split.test) == (slice(0, 700), slice(700, 800), slice(800, 1000))
    assert protocol_split("ETTh1", n_rows=14400) == protocol_split("ETTh1")


@pytest.mark.parametrize(("name", "n_rows", "says"), [("ETTh1", 14399, "at least 14400 rows"), ("ECL", 3, "too few")])
def test_too_few_rows_are_refused(name, n_rows, says):
    with pytest.raises(ValueError, match=says):
        protocol_split(name, n_rows=n_rows)


def test_as_many_rows_as_the_message_asks_for_are_enough():
    with pytest.raises(ValueError, match=r"4 rows are too few .* at least 5 are needed"):
        protocol_split("ECL", n_rows=4)
    split = protocol_split("ECL", n_rows=5)
    assert (split.train.stop, split.val.stop, split.test.stop) == (3, 4, 5)


def test_ten_rows_are_enough():
    split = protocol_split("ECL", n_rows=10)
    assert (split.train.stop, split.val.stop, split.test.stop) == (7, 8, 10)


def test_an_unknown_set_has_no_split():
    with pytest.raises(ValueError, match="Did you mean 'traffic'"):
        protocol_split("trafic")


@pytest.mark.parametrize("name", TEST_WINDOWS)
@pytest.mark.parametrize("h", [96, 192, 336, 720])
@pytest.mark.parametrize("input_size", [96, 720])
def test_test_windows_do_not_depend_on_the_lookback(name, h, input_size):
    split = protocol_split(name)
    rows = split.rows("test", input_size)
    assert rows == slice(split.test.start - input_size, split.test.stop)
    assert n_windows(rows, h, input_size) == n_windows(split.test, h) == TEST_WINDOWS[name] - h


@pytest.mark.parametrize("part", ["val", "test"])
def test_the_first_target_is_the_first_row_after_the_border(part):
    split = protocol_split("ETTh1")
    for input_size in (0, 96, 336):
        assert split.rows(part, input_size).start + input_size == getattr(split, part).start


def test_train_reads_nothing_before_its_first_row():
    split = protocol_split("ETTh1")
    assert split.rows("train", 96) == slice(0, 8640)
    assert n_windows(split.rows("train", 96), 96, input_size=96) == 8640 - 96 - 96 + 1


def test_window_count_is_the_number_of_windows_one_can_cut():
    for n, h, input_size in [(10, 3, 4), (7, 3, 4), (5, 1, 0), (12, 12, 0)]:
        cut = [start for start in range(n) if start + input_size + h <= n]
        assert n_windows(n, h, input_size) == n_windows(slice(100, 100 + n), h, input_size) == len(cut)


def test_impossible_windows_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="6 rows are too few for a window of input_size=4 and h=3; 7 are needed"):
        n_windows(6, 3, 4)
    with pytest.raises(ValueError, match="h=0"):
        n_windows(6, 0)
    with pytest.raises(ValueError, match="only rows 0:100 precede val"):
        protocol_split("AirPassengers").rows("val", 101)
    with pytest.raises(ValueError, match="'train', 'val' or 'test', got 'valid'"):
        protocol_split("ETTh1").rows("valid", 96)


def test_rows_and_steps_are_integers():
    for call in (
        lambda: n_windows(100, 10.5),
        lambda: n_windows(slice(None, 100), 10),
        lambda: protocol_split("weather", 52696.0),
        lambda: protocol_split("ETTh1").rows("test", 96.0),
    ):
        with pytest.raises(TypeError, match="must be an integer, got"):
            call()
    with pytest.raises(ValueError, match="must have no step"):
        n_windows(slice(0, 100, 2), 10)
