"""The tables on the time of ``fit``."""

from typing import Any

from forecast_search import TRAINED
from records import RESULTS, read


def fit_times() -> list[dict[str, Any]]:
    """The current trainings: those of the current recipe, and those of models without a recipe."""
    return [row for row in read(RESULTS / "fit_time.jsonl") if row["recipe"] in (0, TRAINED)]


def fit_time(place: Any) -> str:
    rows = fit_times()
    lines = ["| ETTh1, 96 -> 96 | rounds (ours) or epochs (others): training time and test MSE |", "|---|---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = []
        for row in (row for row in rows if row["model"] == model):
            cell = f"{row['budget']}: {row['seconds']:.0f} s {row['mse']:.4f}"
            cells.append(f"**{cell}**" if row["mse"] <= row["goal"] else cell)
        lines.append(f"| {model} | {'; '.join(cells)} |")
    last = rows[-1]
    reached = any(row["mse"] <= row["goal"] for row in rows)
    note = f"Bold: test MSE of at most {last['goal']:.3f}." if reached else f"None reaches {last['goal']:.3f}."
    lines += ["", f"{note} {place(rows)}, {last['threads']} threads, seed 0."]
    return "\n".join(lines)


def fit_profile(place: Any) -> str:
    row = read(RESULTS / "fit_profile.jsonl")[-1]
    whole = sum(row["parts"].values())
    lines = ["| part of `fit` | share of its time |", "|---|---|"]
    lines += [
        f"| {part} | {seconds / whole:.1%} |" for part, seconds in sorted(row["parts"].items(), key=lambda p: -p[1])
    ]
    lines += ["", f"ETTh1, 96 -> 96, {row['rounds']} rounds of 100 batches. {place([row])}, 1 thread, seed 0."]
    return "\n".join(lines)


TABLES = {"fit-time": fit_time, "fit-profile": fit_profile}
