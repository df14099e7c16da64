"""Byte-level language modelling of novels: equal parameters, equal steps, equal data.

    python benchmarks/lm_bytes.py [--seeds 0]

About 2 million parameters each, by the width of the SwiGLU; sequences of 512 bytes. Bits per byte are those of the last
twentieth of every book, tokens per second those of training on one thread. Finished cells are skipped.
"""

import functools
import math
from typing import Any

import torch
from lm_models import ARCHITECTURES, FRESH, config_of, over_seeds, train
from records import RESULTS

from titans_core import TitansConfig, TitansLM
from titans_datasets import load

FILE = RESULTS / "lm_bytes.jsonl"
PARAMETERS, LENGTH, BATCH, STEPS, RATE = 2_000_000, 512, 8, 400, 3e-3
BASE = TitansConfig(
    vocab_size=258,
    dim=192,
    num_layers=4,
    num_heads=4,
    window=128,
    segment=128,
    num_persistent=4,
    chunk_size=32,
)


@functools.cache
def novels(part: str) -> torch.Tensor:
    """Bytes of all books in a row; the last twentieth of each book is "val", the rest "train"."""
    books = [book["text"].encode() for book in load("gutenberg")]
    cuts = [(book, len(book) * 19 // 20) for book in books]
    text = b"".join(book[:cut] if part == "train" else book[cut:] for book, cut in cuts)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, seed = key
    torch.manual_seed(seed)
    model = TitansLM(config_of(name, BASE, PARAMETERS))
    text = novels("train")

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=generator)
        rows = torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()]).long()
        return rows[:, :-1], rows[:, 1:]

    seconds = train(model, batch, STEPS, RATE, seed)
    return {
        "bits_per_byte": bits_per_byte(model),
        "tokens_per_second": round(STEPS * BATCH * LENGTH / seconds),
        "seconds": round(seconds, 1),
        "parameters": model.num_parameters(),
        "steps": STEPS,
        "learning_rate": RATE,
    }


@torch.no_grad()
def bits_per_byte(model: TitansLM, windows: int = 200) -> float:
    """Mean over evenly spaced windows of the validation text."""
    text = novels("val")
    starts = torch.linspace(0, len(text) - LENGTH - 1, windows).long().tolist()
    rows = torch.stack([text[start : start + LENGTH + 1] for start in starts]).long()
    losses = [model.loss(part[:, :-1], part[:, 1:]).item() for part in rows.split(20)]
    return sum(losses) / len(losses) / math.log(2)


if __name__ == "__main__":
    over_seeds(FILE, (*ARCHITECTURES, FRESH), run, __doc__, seeds=(0,))
