"""Multi-query associative recall: all architectures, and the LMM with one part switched off at a time.

    python benchmarks/lm_mqar.py [--seeds 0 1 2]

Two blocks of width 64, trained on 8 pairs in 64 tokens; tested at this length and at 2 and 4 times this length with the
same number of pairs. Finished cells are skipped.
"""

from typing import Any

import torch
from lm_models import NAMES, config_of, over_seeds, train
from records import RESULTS

from titans_core import TitansConfig, TitansLM
from titans_core.evals import mqar

FILE = RESULTS / "lm_mqar.jsonl"
VOCABULARY, LENGTH, PAIRS = 64, 64, 8
STEPS, BATCH = 400, 64
RATE = 5e-3
BASE = TitansConfig(
    vocab_size=VOCABULARY,
    dim=64,
    num_layers=2,
    num_heads=2,
    hidden=128,
    window=16,
    segment=32,
    num_persistent=4,
    chunk_size=8,
)


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    name, seed = key
    torch.manual_seed(seed)
    model = TitansLM(config_of(name, BASE))
    data = mqar.examples(STEPS * BATCH, LENGTH, PAIRS, VOCABULARY, random_filler=False, gap_power=1.0, seed=seed)

    def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(len(data[0]), (BATCH,), generator=generator)
        return data[0][rows], data[1][rows]

    seconds = train(model, batch, STEPS, RATE, seed)
    found = {}
    with torch.no_grad():
        for times in (1, 2, 4):
            inputs, labels = mqar.examples(
                500, times * LENGTH, PAIRS, VOCABULARY, random_filler=False, gap_power=1.0, seed=1000 + seed
            )
            logits = torch.cat([model(part)[0] for part in inputs.split(100)])
            found[f"recall_{times}x"] = mqar.recall(logits, labels)
    return {
        **found,
        "seconds": round(seconds, 1),
        "parameters": model.num_parameters(),
        "steps": STEPS,
        "learning_rate": RATE,
    }


if __name__ == "__main__":
    over_seeds(FILE, NAMES, run, __doc__, seeds=(0,))
