"""Calls in other processes."""

import os
import warnings

import pytest

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


@pytest.mark.slow
def test_an_error_in_another_process_is_raised_here():
    def failing():
        raise ValueError("not these rows")

    with pytest.raises(ValueError, match="not these rows"):
        all_of([failing, int], 2)


def test_no_processes_are_no_choice():
    with pytest.raises(ValueError, match="n_jobs == 0"):
        all_of([int, int], 0)
