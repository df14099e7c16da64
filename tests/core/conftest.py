"""Small language models of every architecture, with weights changed from their initial values; a fast interpreter."""

import dataclasses
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
def quick_interpreter():
    """Triton's interpreter without half of its work, on which no result depends.

    At each call of a function in a kernel it looks for all it has to replace: here only where that was not done before,
    as when a launch begins. For each sum of whole numbers it finds out whether they overflow, to report that in a mode
    that is off. For each value it makes the table of numpy's types anew.
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
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    types, numpy_type = {}, interpreter._get_np_dtype

    def numpy_type_once(type):
        name = type.scalar.name
        if name not in types:
            types[name] = numpy_type(type)
        return types[name]

    interpreter._get_np_dtype = numpy_type_once
