"""Kernels are compiled without Hopper's asynchronous products, and nothing of that stays behind."""

import os
import threading

import pytest
import torch

pytest.importorskip("triton")

import triton

from titans_core.ops.memory.triton.launch import IN_ORDER, as_configs, launch, meeting_slices, without_wgmma

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


def test_threads_launch_one_after_the_other(monkeypatch):
    """As those of ``torch.nn.DataParallel`` and of autograd. A tuner of Triton keeps its arguments in itself."""
    monkeypatch.delenv(SWITCH, raising=False)
    found, switches, tuning, launched = {}, set(), threading.Event(), threading.Event()

    class Body:
        arg_names = ("x", "N")
        fn = staticmethod(lambda x, N: None)

        def run(self, x, **constants):
            x += 1
            switches.add(os.environ.get(SWITCH))

    def bench(call, quantiles):
        call()
        if "second" not in found:
            tuning.set()
            launched.wait(0.3)  # for the other thread, if it does not wait itself
        return [0.0] * 3

    kernel = triton.autotune(as_configs(IN_ORDER[:2]), key=["N"], restore_value=["x"], do_bench=bench)(Body())

    def run(name):
        found[name] = x = torch.zeros(1)
        launch(kernel, (1,), x, N=3)

    def second():
        tuning.wait(10)
        run("second")
        launched.set()

    thread = threading.Thread(target=second)
    thread.start()
    run("first")
    thread.join(10)
    assert found["first"] == found["second"] == 1
    assert switches == {"1"}
    assert SWITCH not in os.environ


def test_whether_a_device_has_enough_processors_can_be_traced():
    """The check runs in the graph of a compiled layer, but only on a GPU."""
    compiled = torch.compile(lambda x: x * meeting_slices(IN_ORDER, x.shape[0]), backend="eager", fullgraph=True)
    assert compiled(torch.ones(64))[0] == 2
