"""Calls that may run side by side, in several processes."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from tqdm.auto import tqdm

from titans_core.warn import warn_caller

Result = TypeVar("Result")
WATCHED = 1.0  # seconds between two looks at the parent process


def processes(n_jobs: int | None, calls: int) -> int:
    """The number of processes of :func:`all_of`, with 1 for none but this one.

    Raises:
        ValueError: more than one under ``torchrun``, each of which would wait for processes that train another member.
    """
    from titans_core.train.processes import started  # loads torch, which other processes import with their call

    found = min(calls, int(effective_n_jobs(n_jobs)))
    if found > 1 and started() > 1:
        raise ValueError(
            f"n_jobs={n_jobs} trains members side by side, but {started()} processes of torchrun train each member "
            "together. Leave n_jobs out, or start the script without torchrun."
        )
    return found


def all_of(calls: Sequence[Callable[[], Result]], n_jobs: int | None, progress: str | None = None) -> list[Result]:
    """The results of all calls, in order; after the first exception there are none.

    With ``n_jobs`` of 1 they run here, one after the other. With more (joblib counts; -1 is all cores) they run in as
    many processes, which share the cores, and their warnings are issued here afterwards.

    Args:
        calls: functions without arguments; for other processes they must be picklable.
        n_jobs: number of processes; None is 1, or that of ``joblib.parallel_config``.
        progress: name of a progress bar over calls in other processes; None for no bar.
    """
    if processes(n_jobs, len(calls)) == 1:
        return [call() for call in calls]
    # loky in any case: training uses global random numbers, so it must not run in threads. Arrays are copied, since
    # those that joblib shares are read-only
    running = Parallel(n_jobs, backend="loky", max_nbytes=None, return_as="generator")
    found = []
    recorded = running(delayed(_recorded)(call, os.getpid()) for call in calls)
    for result, caught in tqdm(recorded, desc=progress, total=len(calls), disable=progress is None):
        for each in caught:
            warn_caller(each)
        found.append(result)
    return found


def _recorded(call: Callable[[], Result], parent: int) -> tuple[Result, list[Warning | str]]:
    """The result of a call and its warnings."""
    with _ending_with(parent), warnings.catch_warnings(record=True) as caught:
        return call(), [each.message for each in caught]


@contextmanager
def _ending_with(parent: int) -> Iterator[None]:
    """End this process if its parent ends, which may have been killed; otherwise it would go on training, and writing
    checkpoints."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCHED):
            if os.getppid() != parent:
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()
