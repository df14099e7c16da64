"""Operations counted by formula, and the peak that they are compared with."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from titans_core import TitansConfig, TitansLM
from titans_core.train.flops import flops_per_token, peak_flops


def test_the_arithmetic_of_matrices_is_what_a_counter_counts():
    config = TitansConfig(architecture="transformer", vocab_size=512, dim=128, num_layers=2, num_heads=4, hidden=256)
    model = TitansLM(config)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(512, (1, 256)))[0].sum().backward()
    attention = 3 * 2 * 4 * 128 * 256 / 2  # which the counter does not know on a CPU
    assert flops_per_token(model, 256) == pytest.approx(counter.get_total_flops() / 256 + attention)


def test_the_arithmetic_of_memory_is_that_of_its_algebra():
    config = TitansConfig(architecture="lmm", dim=1024, num_heads=16, memory_expansion=4, chunk_size=64, num_layers=1)
    d, h, C = 64, 256, 64
    algebra = 16 * (22 * d * h + 4 * C * (d + h) + 2 * C**2)
    with torch.device("meta"):
        model = TitansLM(config)
    matrices = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "persistent" not in n)
    assert flops_per_token(model, 4096) == pytest.approx(3 * (2 * matrices + algebra), rel=0.01)


def test_the_peak_is_that_of_the_card_and_not_of_a_faster_one_of_its_name(monkeypatch):
    peaks = {
        "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA H200 NVL": 835e12, "Tesla T4": None,
    }  # fmt: skip
    for name, peak in peaks.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_flops(torch.device("cuda")) == peak
