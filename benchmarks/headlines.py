"""The short tables and lists of the README, which summarise the full tables of docs/."""

import statistics
from typing import Any

from forecast_search import SETS
from forecast_table3 import LAST_VALUE, MIXTURE, OURS
from lm_models import FRESH_MAG
from records import RESULTS, read
from tables_dna import gue_counts
from tables_fit import fit_times
from tables_memory import memory_cpu_range
from tables_ts import (
    PUBLISHED,
    TITLES,
    ablated,
    changes,
    covered,
    errors_of_seeds,
    online_cases,
    standing,
    standing_searched,
)

# models to show if they were run on every set
BESIDE = {**TITLES, "iTransformer": "iTransformer, run here", "last-value": "last value"}
PAPER = "Titans, neural memory (2024)³"
# tasks of lm_niah.py at its longest haystack
NEEDLES = ("PK_2048", "N_2048")


def forecasts(place: Any) -> str:
    rows = standing() + [row for row in standing_searched() if row["model"] == MIXTURE]
    models = dict.fromkeys(row["model"] for row in rows)
    means: dict[tuple[str, str], tuple[float, float]] = {}
    for model in models:
        for name in SETS:
            errors = errors_of_seeds([r for r in rows if (r["model"], r["dataset"]) == (model, name)])
            if errors["mse"]:
                # rounded as in the tables and in publications
                means[model, name] = (
                    round(statistics.mean(errors["mse"]), 3),
                    round(statistics.mean(errors["mae"]), 3),
                )
    published = {name: [tuple(map(float, cell.split("/"))) for cell in cells] for name, cells in PUBLISHED.items()}
    lines = ["| MSE / MAE | " + " | ".join(SETS) + " |", "|---|" + "---|" * len(SETS)]
    for title, cells in (
        *(
            (title, [means[model, name] for name in SETS])
            for model, title in BESIDE.items()
            if all((model, name) in means for name in SETS)
        ),
        ("Titans paper (lookback not stated), published", published[PAPER]),
    ):
        lines.append(f"| {title} | " + " | ".join(f"{mse:.3f} / {mae:.3f}" for mse, mae in cells) + " |")
    peers = [[means[m, name] for m in models if m not in (*OURS, LAST_VALUE) and (m, name) in means] for name in SETS]
    papers = [[cells[column] for cells in published.values()] for column in range(len(SETS))]
    for title, others in (("models run here", peers), ("published results", papers)):
        counts = [
            f"{sum(mse < means['titans', name][0] for mse, _ in there)} of {len(there)}"
            for name, there in zip(SETS, others, strict=True)
        ]
        lines.append(f"| {title} with a lower MSE | {' | '.join(counts)} |")
    return "\n".join(lines)


def forecast_parts(place: Any) -> str:
    """A list of what the memories contribute, and of the coverage of intervals."""
    rows, sets, _ = ablated()
    mse = {
        of: statistics.mean(r["mse"] for r in rows if (r["variant"], r["dataset"]) == of)
        for of in {(r["variant"], r["dataset"]) for r in rows}
    }
    of_memory, unwritten, of_attention = (
        " and ".join(f"{100 * (mse[v, name] / mse['no memory', name] - 1):+.1f} % on {name}" for name in sets)
        for v in ("full", "no writes", "self-attention")
    )
    online = {case: statistics.mean(changes(found)) for case, found in online_cases().items()}
    best, worst = min(online, key=lambda case: online[case]), max(online, key=lambda case: online[case])
    (dataset, _, lookback, h), (other, _, other_lookback, other_h) = best, worst
    inside = {level: [100 * row["moving"][level]["inside"] for row in covered()] for level in ("80", "95")}
    coverage = " and ".join(f"{min(v):.1f} to {max(v):.1f} % at a level of {level} %" for level, v in inside.items())
    return "\n".join(
        [
            f"- **The memory in the network** changes the MSE by {of_memory}, compared with the same network without "
            f"it; one that is read and never written by {unwritten}, self-attention in its place by {of_attention}.",
            f"- **The online memory** (`update`) changes it by {online[best]:+.1f} % at best ({dataset}, lookback "
            f"{lookback}, horizon {h}) and {online[worst]:+.1f} % at worst ({other}, {other_lookback}, {other_h}), in "
            "the mean of the seeds. It helps where the lookback is short compared with the daily and weekly patterns "
            "of a series.",
            f"- **Prediction intervals**, calibrated on recent errors, cover {coverage}.",
        ]
    )


def fit_short(place: Any) -> str:
    rows = fit_times()
    goal = rows[-1]["goal"]
    lines = [f"| ETTh1, 96 → 96 | lowest test MSE | after | first at {goal:.3f} or lower |", "|---|---|---|---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        best = min(own, key=lambda row: row["mse"])
        reached = [row["seconds"] for row in own if row["mse"] <= goal]
        first = f"{min(reached):.0f} s" if reached else "not reached"
        lines.append(f"| {model} | {best['mse']:.4f} | {best['seconds']:.0f} s | {first} |")
    return "\n".join(lines)


def language_models(place: Any) -> str:
    novels, needles = (read(RESULTS / f"lm_{name}.jsonl") for name in ("bytes", "niah"))
    lines = [
        "| | bits per byte, novels | number found in noise, 2,048 tokens | number found in a novel |",
        "|---|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in (*novels, *needles)):
        bits = [row["bits_per_byte"] for row in novels if row["model"] == model]
        found = [[100 * row[needle] for row in needles if row["model"] == model] for needle in NEEDLES]
        cells = [
            f"{statistics.mean(bits):.3f}" if bits else "",
            *(f"{statistics.mean(f):.0f} %" if f else "" for f in found),
        ]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def genomes(place: Any) -> str:
    rows = read(RESULTS / "dna_language.jsonl")
    lines = [
        "| bits per base, held out | best Markov model of one order | interpolated Markov | `DNALanguageModel` "
        "| both mixed |",
        "|---|---|---|---|---|",
    ]
    for genome in dict.fromkeys(row["genome"] for row in rows):
        (markov,) = (row["orders"] for row in rows if (row["genome"], row["model"]) == (genome, "markov"))
        own = [row for row in rows if (row["genome"], row["model"]) == (genome, FRESH_MAG)]
        bits = (min(markov["additive"]), min(markov["interpolated"]))
        bits += tuple(statistics.mean(row[name] for row in own) for name in ("bits_per_base", "mixed"))
        lines.append(f"| {genome} | {' | '.join(f'{b:.3f}' for b in bits)} |")
    return "\n".join(lines)


TABLES = {
    "forecasts": forecasts,
    "forecast-parts": forecast_parts,
    "fit-short": fit_short,
    "memory-cpu-range": memory_cpu_range,
    "language-models": language_models,
    "genomes": genomes,
    "gue-counts": gue_counts,
}
