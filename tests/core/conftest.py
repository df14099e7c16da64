"""Small language models of every architecture, with weights changed from their initial values; a fast interpreter."""

import importlib.util
from types import SimpleNamespace

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


@pytest.fixture(scope="session", autouse=True)
def language_replaced_once_a_launch():
    """Triton's interpreter looks for all it has to replace at each call of a function in a kernel: half of its time.

    Here only where that was not done before, as when a launch begins.
    """
    if torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        return
    from triton import language
    from triton.runtime import interpreter

    replace, nothing = interpreter._patch_lang, SimpleNamespace(restore=lambda: None)

    def replace_once(function):
        seen = [x for x in function.__globals__.values() if x is language or x is language.core]
        done = all(x.range.__module__ == interpreter.__name__ for x in (language, *seen))
        return nothing if done else replace(function)

    interpreter._patch_lang = replace_once
