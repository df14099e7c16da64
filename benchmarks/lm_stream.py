"""Two million tokens through a small model in one stream: resident memory and time per token.

    python benchmarks/lm_stream.py [--models lmm mac]

The bytes of books, in pieces of 4,096 tokens; one row per model, with a measurement every 100,000 tokens. The model is
untrained, because the measurements do not depend on its weights. Each model runs in its own process.
"""

import argparse
import subprocess
import sys
import time
from typing import Any

import torch
from cells import work
from lm_bytes import novels
from records import RESULTS, resident_mib

from titans_core import TitansConfig, TitansLM

FILE = RESULTS / "lm_stream.jsonl"
FIELDS = ("model",)
TOKENS, EVERY, PIECE = 2_000_000, 100_000, 4_096
MODELS = ("lmm", "mac", "mag", "mal")


@torch.no_grad()
def run(key: tuple[Any, ...]) -> dict[str, Any]:
    torch.manual_seed(0)
    config = TitansConfig(
        architecture=key[0],
        vocab_size=258,
        dim=64,
        num_layers=2,
        num_heads=2,
        hidden=128,
        window=256,
        segment=256,
        num_persistent=4,
        chunk_size=64,
    )
    model = TitansLM(config).eval()
    text = novels("train")[:TOKENS]
    state, points, done = None, [], 0
    begun, last = time.perf_counter(), 0
    for part in text.split(PIECE):
        _, state = model.hidden(part[None].long(), state)
        done += len(part)
        if done - last >= EVERY or done == len(text):
            now = time.perf_counter()
            microseconds = 1e6 * (now - begun) / (done - last)
            points.append([done, round(resident_mib("VmRSS"), 1), round(microseconds, 2), state.nbytes])
            begun, last = time.perf_counter(), done
    return {
        "tokens": done,
        "parameters": model.num_parameters(),
        "points": points,  # tokens read, resident MiB, microseconds per token since the last point, bytes of the state
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=MODELS, help="a single model runs in this process"
    )
    models = parser.parse_args().models
    torch.set_num_threads(1)
    if len(models) == 1:
        work(FILE, [(models[0],)], FIELDS, run)
        return
    for model in models:
        subprocess.run([sys.executable, __file__, "--models", model], check=True)


if __name__ == "__main__":
    main()
