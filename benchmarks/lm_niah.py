"""A needle in a haystack in small: trained at 256 bytes, asked at 256 to 2,048 (the form of Table 2).

    python benchmarks/lm_niah.py [--seeds 0 1 2]

The three tasks of ``titans_core.evals.niah``, in bytes and with its SHORT template: PK (noise, a number), N (a novel, a
number), W (a novel, a word). One model of each architecture and seed learns all three; only the bytes of the answer
count. Scored is whether every byte of the answer is the likeliest one. Cells that are done are skipped.
"""

from typing import Any

import torch
from lm_bytes import novels
from lm_models import ARCHITECTURES, config_of, over_seeds, train
from records import RESULTS

from titans_core import TitansConfig, TitansLM
from titans_core.evals import niah

FILE = RESULTS / "lm_niah.jsonl"
LENGTH, LENGTHS, SAMPLES = 256, (256, 512, 1024, 2048), 100
PARAMETERS, STEPS, BATCH, RATE, DIGITS = 300_000, 600, 32, 4e-3, 4
BASE = TitansConfig(
    vocab_size=258,
    dim=64,
    num_layers=3,
    num_heads=2,
    window=64,
    segment=64,
    num_persistent=4,
    chunk_size=16,
)
TASKS = {"PK": {}, "N": {"text": True}, "W": {"text": True, "value": "word"}}


def samples(task: str, number: int, length: int, part: str, seed: int) -> list[tuple[bytes, bytes]]:
    """Prompts and answers in bytes."""
    options = dict(TASKS[task])
    if options.pop("text", False):
        options["text"] = bytes(novels(part)[:400_000].tolist()).decode(errors="ignore")
    found = niah.samples(number, length, str.encode, digits=DIGITS, template=niah.SHORT, seed=seed, **options)
    return [(s.prompt.encode() + b" ", s.answers[0].encode()) for s in found]


def tensors(rows: list[tuple[bytes, bytes]], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs ``[N, length]`` and targets, -100 but at the bytes of the answer; short ones are filled up behind."""
    inputs = torch.full((len(rows), length), 257)
    targets = torch.full((len(rows), length), -100)
    for i, (prompt, answer) in enumerate(rows):
        text = torch.tensor(list(prompt + answer))
        n = len(text) - 1
        inputs[i, :n] = text[:-1]
        targets[i, n - len(answer) : n] = text[-len(answer) :]
    return inputs, targets


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, seed = key
    torch.manual_seed(seed)
    model = TitansLM(config_of(name, BASE, PARAMETERS))
    rows = [row for task in TASKS for row in samples(task, STEPS * BATCH // 3, LENGTH, "train", seed)]
    data = tensors(rows, LENGTH)

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(rows), (BATCH,), generator=generator)
        return data[0][chosen], data[1][chosen]

    seconds = train(model, batch, STEPS, RATE, seed)
    found = {
        f"{task}_{length}": score(model, samples(task, SAMPLES, length, "val", 10_000 + seed), length)
        for task in TASKS
        for length in LENGTHS
    }
    return {
        **found,
        "seconds": round(seconds, 1),
        "parameters": model.num_parameters(),
        "steps": STEPS,
        "learning_rate": RATE,
        "digits": DIGITS,
    }


@torch.no_grad()
def score(model: TitansLM, rows: list[tuple[bytes, bytes]], length: int) -> float:
    """The part of the answers whose every byte is the likeliest."""
    inputs, targets = tensors(rows, length)
    right = 0
    for x, y in zip(inputs.split(20), targets.split(20), strict=True):
        right += int(((model(x)[0].argmax(-1) == y) | (y == -100)).all(-1).sum())
    return right / len(rows)


if __name__ == "__main__":
    over_seeds(FILE, ARCHITECTURES, run, __doc__, seeds=(0, 1, 2))
