"""A small needle-in-a-haystack test: trained on up to 256 tokens, tested on 256 to 2,048 (as in Table 2).

    python benchmarks/lm_niah.py [--seeds 0 1 2]

The three tasks of ``titans_core.evals.niah`` with its SHORT template: PK (a number in noise), N (a number in a novel)
and W (a word in a novel). The tokenizer has 1,024 tokens, learned on the novels and the needles' words, and splits
digits. One model of each architecture and seed learns all three tasks, from samples of 64, then 128, then 256 tokens;
only the answers count in the loss. An answer is right if each of its tokens is the most likely one. Finished cells are
skipped.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from lm_bytes import novels
from lm_models import ARCHITECTURES, FRESH, config_of, over_seeds, train
from records import RESULTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from titans_core import TitansConfig, TitansLM
from titans_core.evals import niah
from titans_core.evals.words import ADJECTIVES, NOUNS

FILE = RESULTS / "lm_niah.jsonl"
MODELS = (*ARCHITECTURES, "lmm, no weight decay", "lmm, forgetting to the start", FRESH)
LENGTHS, SAMPLES, DIGITS, VOCABULARY = (256, 512, 1024, 2048), 100, 4, 1024
# length of the samples, steps
STAGES = ((64, 450), (128, 100), (256, 150))
PARAMETERS, BATCH, RATE = 400_000, 32, 3e-3
BASE = TitansConfig(
    vocab_size=VOCABULARY,
    dim=64,
    num_layers=3,
    num_heads=2,
    window=64,
    segment=64,
    num_persistent=4,
    chunk_size=16,
)
TASKS = {"PK": {}, "N": {"text": True}, "W": {"text": True, "value": "word"}}


@functools.cache
def text_of(part: str) -> str:
    return bytes(novels(part)[:400_000].tolist()).decode(errors="ignore")


@functools.cache
def tokenizer() -> Tokenizer:
    """BPE, trained on the training part of the novels and on the needles and their words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    words = " ".join(f"{a}-{n}" for a in ADJECTIVES for n in NOUNS)
    needles = " ".join(niah.SHORT.needle + niah.SHORT.tail for _ in range(1000)) + " ".join(niah.SHORT.noise * 1000)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([text_of("train"), words, needles], trainer)
    return made


def encode(text: str) -> list[int]:
    return list(tokenizer().encode(text).ids)


def samples(task: str, number: int, length: int, part: str, seed: int) -> list[tuple[list[int], int]]:
    """Tokens of prompt and answer, and the number of tokens of the answer."""
    options = dict(TASKS[task])
    if options.pop("text", False):
        options["text"] = text_of(part)
    found = niah.samples(number, length, encode, digits=DIGITS, template=niah.SHORT, seed=seed, **options)
    whole = [encode(s.text) for s in found]
    return [(tokens, len(tokens) - len(encode(s.prompt))) for tokens, s in zip(whole, found, strict=True)]


def tensors(rows: list[tuple[list[int], int]], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs ``[N, length - 1]``, padded at the end, and targets, which are -100 except at the answers."""
    inputs = torch.zeros(len(rows), length, dtype=torch.long)
    targets = torch.full((len(rows), length), -100)
    for i, (tokens, answer) in enumerate(rows):
        inputs[i, : len(tokens)] = torch.tensor(tokens)
        targets[i, len(tokens) - answer : len(tokens)] = inputs[i, len(tokens) - answer : len(tokens)]
    return inputs[:, :-1], targets[:, 1:]


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """All batches of a training in order, with equally many samples of each task, none of them twice."""
    for length, steps in STAGES:
        each = -(-steps * BATCH // len(TASKS))
        inputs, targets = tensors([row for task in TASKS for row in samples(task, each, length, "train", seed)], length)
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
        for rows in order[: steps * BATCH].split(BATCH):
            yield inputs[rows], targets[rows]


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, seed = key
    torch.manual_seed(seed)
    model = TitansLM(config_of(name, BASE, PARAMETERS))
    drawn = batches(seed)
    seconds = train(model, lambda generator: next(drawn), sum(steps for _, steps in STAGES), RATE, seed)
    found = {
        f"{task}_{length}": score(model, samples(task, SAMPLES, length, "val", 10_000 + seed), length)
        for task in TASKS
        for length in LENGTHS
    }
    return {
        **found,
        "seconds": round(seconds, 1),
        "parameters": model.num_parameters(),
        "stages": STAGES,
        "batch": BATCH,
        "learning_rate": RATE,
        "digits": DIGITS,
        "vocabulary": VOCABULARY,
        "samples": SAMPLES,
    }


@torch.no_grad()
def score(model: TitansLM, rows: list[tuple[list[int], int]], length: int) -> float:
    """The fraction of answers whose tokens are all the most likely ones."""
    inputs, targets = tensors(rows, length)
    right = 0
    for x, y in zip(inputs.split(20), targets.split(20), strict=True):
        right += int(((model(x)[0].argmax(-1) == y) | (y == -100)).all(-1).sum())
    return right / len(rows)


if __name__ == "__main__":
    over_seeds(FILE, MODELS, run, __doc__, seeds=(0, 1, 2))
