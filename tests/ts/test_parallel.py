"""Calls in other processes."""

import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

from titans_ts import TitansEnsemble
from titans_ts.parallel import all_of


@pytest.mark.parametrize("n_jobs", [None, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_results_come_in_order_and_with_their_warnings(n_jobs):
    def call(number):
        if number == 1:
            warnings.warn(f"number {number}", stacklevel=1)
        return number, os.getpid()

    with pytest.warns(UserWarning, match="number 1") as caught:
        found = all_of([lambda n=n: call(n) for n in range(3)], n_jobs)
    assert [number for number, _ in found] == [0, 1, 2]
    assert (os.getpid() in {process for _, process in found}) == (n_jobs != 2)
    if n_jobs == 2:
        assert caught[0].filename == __file__


def test_processes_of_torchrun_start_no_others(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of this test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"n_jobs=2 trains members .* 2 processes of torchrun .* Leave n_jobs out"):
        all_of([int, int], 2)
    assert all_of([int, int], None) == [0, 0]


@pytest.mark.slow
def test_an_error_in_another_process_is_raised_here():
    def failing():
        raise ValueError("not these rows")

    with pytest.raises(ValueError, match="not these rows"):
        all_of([failing, int], 2)


@pytest.mark.slow
@pytest.mark.usefixtures("whole_memory")  # other processes have the default
def test_members_of_an_ensemble_are_trained_in_several_processes(tiny, wide, to_long, tmp_path):
    long = to_long(wide)
    members = [tiny(verbose=1), tiny(input_size=16)]
    spiked = long.assign(y=long["y"].mask(long["ds"] == "2024-01-04", 1e4))
    with pytest.warns(UserWarning, match="far from its training range") as caught:
        both = TitansEnsemble(members, n_jobs=2).fit(spiked, val_size=40, checkpoint_dir=tmp_path)
    assert {warning.filename for warning in caught} == {__file__}
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["0", "1"]
    assert [one.get_params() for one in both.forecasters_] == [one.get_params() for one in members]
    with pytest.warns(UserWarning, match="far from its training range"):
        alone = TitansEnsemble(members).fit(spiked, val_size=40)
    np.testing.assert_allclose(both.predict()["Titans"], alone.predict()["Titans"], rtol=1e-4)
    crossed, expected = (TitansEnsemble(members, n_jobs=n).cross_validation(long) for n in (2, None))
    np.testing.assert_allclose(crossed["Titans"], expected["Titans"], rtol=1e-4)
    assert members[0].verbose == 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a process of Windows does not learn that its parent ended")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    script = f"""
import os, time
from titans_ts.parallel import all_of
def call(number):
    open({str(tmp_path)!r} + f"/{{number}}", "w").write(str(os.getpid()))
    time.sleep(60)
all_of([lambda n=n: call(n) for n in range(2)], 2)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    files = [tmp_path / str(number) for number in range(2)]
    try:
        assert _within(60, lambda: all(file.exists() and file.read_text() for file in files))
    finally:
        parent.send_signal(signal.SIGTERM)
        parent.wait()
    assert _within(20, lambda: not any(_runs(int(file.read_text())) for file in files))


def _within(seconds, holds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)
    return holds()


def _runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_processes_are_no_choice():
    with pytest.raises(ValueError, match="n_jobs == 0"):
        all_of([int, int], 0)
