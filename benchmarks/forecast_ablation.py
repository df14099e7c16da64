"""What the memory contributes: the same network with the memory or the mixer replaced, on ETTh1 and weather.

    python benchmarks/forecast_ablation.py [--sets ETTh1 weather] [--seeds 0 1 2] [--variants full "no memory" ...]

Lookback and horizon 96, three seeds, the settings that ``forecast_search.py`` chose for each set. Only the named part
differs: the memory along time, or the mixer across channels. Finished cells are skipped.
"""

import argparse
import json
from dataclasses import replace
from typing import Any

import torch
from cells import work
from forecast_search import chosen, forecaster
from records import RESULTS
from torch import Tensor, nn

FILE = RESULTS / "forecast_ablation.jsonl"
FIELDS = ("variant", "dataset", "seed", "settings")
SETS = ("ETTh1", "weather")


class Attention(nn.Module):
    """Causal self-attention in place of the memory, with as many heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        T = x.shape[1]
        ahead = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        return self.attention(x, x, x, attn_mask=ahead, need_weights=False)[0], None


class Nothing(nn.Module):
    """No mixing along time, except in the head."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return torch.zeros_like(x), None


class NoWrites(nn.Module):
    """The layer of the memory, whose learned initial memory is read and never written."""

    def __init__(self, memory: Any) -> None:
        super().__init__()
        self.memory = memory

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.memory.retrieve(x), None


def _memory(**options: Any) -> Any:
    from titans_core import NeuralMemory

    return lambda c: NeuralMemory(c.dim, num_heads=c.num_heads, chunk_size=c.chunk_size, **options)


VARIANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "full": (None, {}),
    "linear memory, no momentum": (_memory(depth=1, momentum=False), {}),
    "no momentum": (_memory(momentum=False), {}),
    "no forgetting": (_memory(forget=False), {}),
    "forgetting to the start": (_memory(forget_to="start"), {}),
    "self-attention": (lambda c: Attention(c.dim, c.num_heads), {}),
    "no writes": (lambda c: NoWrites(_memory()(c)), {}),
    "no memory": (lambda c: Nothing(), {}),
    "MLP mixer": (None, {"mixer": "mlp"}),
    "no channel mixing": (None, {"mixer": "none"}),
}


def run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol
    from titans_ts.network.simba import Simba, SimbaConfig

    variant, dataset, seed, text = key
    replacement, config_of = VARIANTS[variant]
    settings = json.loads(text)
    model = forecaster(**settings)

    class Changed(type(model)):  # type: ignore[misc]
        def _network(self, config: SimbaConfig) -> Simba:
            network = Simba(replace(config, **config_of))
            if replacement is not None:
                for block in network.blocks:
                    block.memory = replacement(config)
            return network

    changed = Changed(**model.get_params())
    found = evaluate_protocol(changed, dataset, input_size=96, h=96, seed=seed)
    return {**{k: v for k, v in found.items() if k not in (*FIELDS, "model")}, "settings": settings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in args.seeds:
        for dataset in args.sets:
            settings = chosen(dataset)
            if settings is None:
                print(f"{dataset}: settings not chosen yet; run forecast_search.py")
                continue
            text = json.dumps(settings, sort_keys=True)
            work(FILE, [(variant, dataset, seed, text) for variant in args.variants], FIELDS, run)


if __name__ == "__main__":
    main()
