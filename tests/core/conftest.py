"""Small language models of every architecture, with weights changed from their initial values."""

import pytest
import torch

from titans_core import TitansConfig, TitansLM
from titans_core.models import gated_deltanet

SMALL = dict(
    vocab_size=29,
    dim=16,
    num_layers=2,
    num_heads=2,
    hidden=24,
    window=5,
    segment=6,
    num_persistent=3,
    chunk_size=4,
)


def small_config(name, **changes):
    if name == "gated-deltanet":
        return gated_deltanet(TitansConfig(architecture="lmm", **{**SMALL, **changes}))
    return TitansConfig(architecture=name, **{**SMALL, **changes})


@pytest.fixture(scope="session")
def small():
    return SMALL


@pytest.fixture(scope="session")
def make_config():
    return small_config


@pytest.fixture(scope="session")
def make_model():
    def make(name, dtype=torch.float64, seed=0, **changes):
        torch.manual_seed(seed)
        model = TitansLM(small_config(name, **changes)).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():  # norms of 1 and matrices near 0 would hide mistakes
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model.eval()

    return make
