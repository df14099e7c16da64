"""Kernels are compiled without Hopper's asynchronous products, and nothing of that stays behind."""

import os
import threading

import pytest
import torch

pytest.importorskip("triton")

from titans_core.ops.memory.triton.launch import IN_ORDER, launch, meeting_slices, without_wgmma

SWITCH = "DISABLE_MMA_V3"
SWITCHES = (SWITCH, "DISABLE_MMA_V5")


class Kernel:
    """Notes the switch at each launch."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.seen.append(
            (grid, arguments, constants, [*map(os.environ.get, SWITCHES)])
        )


@pytest.mark.parametrize("before", [None, "0"])
def test_a_kernel_is_launched_with_the_switch_and_the_environment_is_as_before(monkeypatch, before):
    for name in SWITCHES:
        if before is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, before)
    kernel = Kernel()
    launch(kernel, (3,), 1, 2, BLOCK=16)
    assert kernel.seen == [((3,), (1, 2), {"BLOCK": 16}, ["1", "1"])]
    assert [*map(os.environ.get, SWITCHES)] == [before, before]


def test_the_switch_is_back_after_an_error(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    with pytest.raises(RuntimeError), without_wgmma():
        raise RuntimeError
    assert SWITCH not in os.environ


@pytest.mark.parametrize("first_in_first_out", [True, False])
def test_the_switch_stays_until_the_last_thread_is_out(monkeypatch, first_in_first_out):
    """As when autograd's thread launches kernels while the main thread does."""
    monkeypatch.delenv(SWITCH, raising=False)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with without_wgmma():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with without_wgmma():
        thread.start()
        assert inside.wait(10)
        if not first_in_first_out:
            leave.set()
            thread.join(10)
            assert os.environ[SWITCH] == "1"
    if first_in_first_out:
        assert os.environ[SWITCH] == "1"
        leave.set()
        thread.join(10)
    assert SWITCH not in os.environ


def test_whether_a_device_has_enough_processors_can_be_traced():
    """The check runs in the graph of a compiled layer, but only on a GPU."""
    compiled = torch.compile(lambda x: x * meeting_slices(IN_ORDER, x.shape[0]), backend="eager", fullgraph=True)
    assert compiled(torch.ones(64))[0] == 2
