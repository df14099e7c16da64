"""Small language models for the benchmarks: all architectures and ablations of one configuration, and training."""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from cells import Key, work
from torch import Tensor

from titans_core import TitansConfig, TitansLM
from titans_core.models import gated_deltanet

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer", "gated-deltanet")
# equivalent to Gated DeltaNet with momentum and a learned start
FRESH = "lmm, linear memory, a gradient a token"
FRESH_MAG = "mag, linear memory, a gradient a token"
# variants of an architecture; as in Table 5, one part of the LMM is switched off at a time
ABLATIONS: dict[str, dict[str, Any]] = {
    "lmm, linear memory": dict(memory_depth=1),
    FRESH: dict(memory_depth=1, chunk_size=1),
    FRESH_MAG: dict(memory_depth=1, chunk_size=1),
    "lmm, no convolution": dict(conv_size=0),
    "lmm, no momentum": dict(momentum=False),
    "lmm, no weight decay": dict(forget=False),
    "lmm, forgetting to the start": dict(forget_to="start"),
    "lmm, no persistent memory": dict(num_persistent=0),
}
NAMES = (*ARCHITECTURES, *ABLATIONS)


def config_of(name: str, base: TitansConfig, parameters: int | None = None) -> TitansConfig:
    """The configuration of a model by name; ``parameters`` sets the width of the SwiGLU to reach this size."""
    if name in ABLATIONS:
        config = replace(base, architecture=name.split(",")[0], **ABLATIONS[name])
    elif name == "gated-deltanet":
        config = gated_deltanet(base)
    else:
        config = replace(base, architecture=name)
    if parameters is None:
        return config
    with torch.device("meta"):
        least = TitansLM(replace(config, hidden=8)).num_parameters()
    each = 3 * config.dim * config.num_layers
    return replace(config, hidden=max(8, 8 * round((parameters - least + 8 * each) / each / 8)))


def over_seeds(file: Path, names: tuple[str, ...], run: Callable[[Key], dict[str, Any]], doc: str, seeds: Key) -> None:
    """The command line of a benchmark whose cells are models and seeds; runs unfinished cells in one thread."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        work(file, [(name, seed) for name in names], ("model", "seed"), run)


def train(
    model: TitansLM,
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    steps: int,
    learning_rate: float,
    seed: int,
    weight_decay: float = 0.1,
    warmup: float = 0.1,
) -> float:
    """Train by AdamW (0.9, 0.95), with a cosine schedule times a linear warm-up and gradients clipped at 1.

    ``batch`` returns inputs and targets ``[B, T]``; targets of -100 do not count, and their logits are not computed.
    Returns the seconds.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, (0.9, 0.95), weight_decay=weight_decay)
    rising = max(1, round(warmup * steps))
    model.train()
    begun = time.perf_counter()
    for step in range(steps):
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / rising) * cosine
        inputs, targets = batch(generator)
        hidden, _ = model.hidden(inputs)
        counted = targets != -100
        loss = F.cross_entropy(model.head(hidden[counted]), targets[counted])
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of step {step} is {loss.item()}")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    return time.perf_counter() - begun
