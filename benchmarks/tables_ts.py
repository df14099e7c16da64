"""The README's tables of forecasts, from their result files."""

import statistics
from typing import Any

from forecast_search import LOOKBACKS, SETS, chosen, chosen_lookback
from forecast_table3 import HORIZONS
from records import RESULTS, read

# published at lookback 96, means over the four horizons: Table 3 of the Titans paper, and the papers' own tables
PUBLISHED = {
    "Simba (2024)": {"ETTh1": (0.441, 0.432), "ETTh2": (0.361, 0.391), "weather": (0.255, 0.280),
                     "ETTm1": (0.383, 0.396), "ETTm2": (0.271, 0.327)},
    "TimeMixer (2024)": {"ETTh1": (0.447, 0.440), "ETTh2": (0.364, 0.395), "weather": (0.240, 0.271),
                         "ETTm1": (0.381, 0.395), "ETTm2": (0.275, 0.323)},
    "CycleNet/MLP (2024)": {"ETTh1": (0.457, 0.441), "ETTh2": (0.388, 0.409), "weather": (0.243, 0.271),
                            "ETTm1": (0.379, 0.396), "ETTm2": (0.266, 0.314)},
    "TimeXer (2024)": {"ETTh1": (0.437, 0.437), "ETTh2": (0.367, 0.396), "weather": (0.241, 0.271),
                       "ETTm1": (0.382, 0.397), "ETTm2": (0.274, 0.322)},
    "iTransformer (2024)": {"ETTh1": (0.454, 0.447), "ETTh2": (0.383, 0.407), "weather": (0.258, 0.278),
                            "ETTm1": (0.407, 0.410), "ETTm2": (0.288, 0.332)},
}  # fmt: skip


# the paper's own row of Table 3, whose lookback it does not state; and one at lookback 336
PUBLISHED_LONG = {
    "Titans, neural memory (2024)": {"ETTh1": (0.420, 0.421), "ETTh2": (0.336, 0.382), "weather": (0.231, 0.265),
                                     "ETTm1": (0.358, 0.387), "ETTm2": (0.261, 0.309)},
    "CycleNet/Linear (2024)": {"ETTh1": (0.416, 0.427), "ETTh2": (0.355, 0.398), "weather": (0.242, 0.278),
                               "ETTm1": (0.355, 0.379), "ETTm2": (0.252, 0.310)},
}  # fmt: skip


def table3(place: Any) -> str:
    rows = [r for r in read(RESULTS / "forecast_table3.jsonl") if r["input_size"] == LOOKBACKS[0]]
    # cells of settings that the rule has left since stay in the file; they stand until those of the rule are there
    newest = {name: _newest([r for r in rows if (r["model"], r["dataset"]) == ("titans", name)]) for name in SETS}
    rows = [r for r in rows if r["model"] != "titans" or r["settings"] == newest[r["dataset"]]]
    earlier = {name for name in SETS if newest[name] != chosen(name)}
    titles = [f"{name}†" if name in earlier else name for name in SETS]
    lines = _lines(f"lookback {LOOKBACKS[0]}", titles, rows, PUBLISHED)
    lines += [
        "",
        "MSE / MAE, mean over horizons 96, 192, 336 and 720, every test window; in brackets the number of seeds, and "
        "with several the standard deviation of the MSE. The settings of each set were chosen by one rule before the "
        "test, on the validation rows and in a rehearsal of the protocol a block of rows earlier "
        "(`forecast_search.py`)"
        + ("; those of † by an earlier rule or recipe of training" if earlier else "")
        + f". {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def searched(place: Any) -> str:
    found = [r for r in read(RESULTS / "forecast_table3.jsonl") if r["model"] == "titans"]
    rows, titles = [], []
    for name in SETS:
        longer = [r for r in found if r["dataset"] == name and r["input_size"] != LOOKBACKS[0]]
        lookback, settings = chosen_lookback(name), chosen(name)
        by_the_rule = [r for r in found if (r["dataset"], r["input_size"], r["settings"]) == (name, lookback, settings)]
        # as above: what an earlier rule chose stands until what the present one chose is there
        shown = by_the_rule or [r for r in longer if r["settings"] == _newest(longer)]
        rows += shown
        titles.append(name + "†" * (shown != by_the_rule) + (f", {shown[0]['input_size']}" if shown else ""))
    lines = _lines("searched lookback", titles, rows, PUBLISHED_LONG)
    return "\n".join([*lines, "", f"As above, and the lookback by one question more. {place(rows)}, 1 thread."])


def _lines(
    title: str, titles: list[str], rows: list[dict[str, Any]], published: dict[str, dict[str, tuple[float, float]]]
) -> list[str]:
    lines = [f"| {title} | " + " | ".join(titles) + " |", "|---|" + "---|" * len(SETS)]
    for model in dict.fromkeys(r["model"] for r in rows):
        cells = [_mean_of_four([r for r in rows if (r["model"], r["dataset"]) == (model, name)]) for name in SETS]
        if any(cells):
            shown = "**TitansForecaster**" if model == "titans" else f"{model}, re-run here"
            lines.append(f"| {shown} | " + " | ".join(c or "not yet" for c in cells) + " |")
    for model, means in published.items():
        cells = [f"{means[name][0]:.3f} / {means[name][1]:.3f}" for name in SETS]
        lines.append(f"| {model}, published | " + " | ".join(cells) + " |")
    return lines


def _newest(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The settings of the newest rows that are complete."""
    found = None
    for row in rows:
        if _mean_of_four([r for r in rows if r["settings"] == row["settings"]]) is not None:
            found = row["settings"]
    return found


def _mean_of_four(rows: list[dict[str, Any]]) -> str | None:
    seeds = [s for s in sorted({r["seed"] for r in rows}) if {r["h"] for r in rows if r["seed"] == s} == set(HORIZONS)]
    if not seeds:
        return None
    means = {m: [statistics.mean(r[m] for r in rows if r["seed"] == s) for s in seeds] for m in ("mse", "mae")}
    spread = f", ±{statistics.stdev(means['mse']):.3f}" if len(seeds) > 1 else ""
    return f"{statistics.mean(means['mse']):.3f} / {statistics.mean(means['mae']):.3f} ({len(seeds)}{spread})"


def online(place: Any) -> str:
    rows = read(RESULTS / "forecast_online.jsonl")
    lines = [
        "| set, lookback → horizon, seed | network alone | memory read, not written | memory learning on "
        "| inside 80 % / 95 %, of `fit` | moving on | one row |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (-r["input_size"], r["dataset"] == "ecl_sample", r["calendar"])):
        errors = [row.get(name) for name in ("alone", "frozen", "online")]
        cells = ["left out" if e is None else f"{e['mse']:.4f} / {e['mae']:.4f}" for e in errors]
        both = (row["coverage_of_fit"], row["coverage_moving"])
        inside = [f"{100 * c['80']:.1f} / {100 * c['95']:.1f}" for c in both]
        calendar = ", calendar" if row["calendar"] else ""
        name = f"{row['dataset']}{calendar}, {row['input_size']} → {row['h']}, {row['seed']}"
        lines.append(f"| {name} | {' | '.join((*cells, *inside))} | {row['update_ms']:.1f} ms |")
    lines += ["", f"MSE / MAE over the whole test span; {place(rows)}, 1 thread."]
    return "\n".join(lines)


def limits(place: Any) -> str:
    rows = {r["case"]: r for r in read(RESULTS / "forecast_limits.jsonl")}
    said = {
        "long_lookback": lambda r: f"one epoch {r['fit_seconds']:.0f} s, a forecast {r['predict_seconds']:.2f} s",
        "many_series": lambda r: (
            f"two epochs {r['fit_seconds']:.0f} s, all forecasts with intervals {r['predict_seconds']:.1f} s"
        ),
        "ecl_shape": lambda r: (
            f"an epoch of {r['epoch_windows']:,} windows and its validation "
            f"{r['epoch_seconds_with_validation']:.0f} s; `fit` in all, with its memory, {r['fit_seconds']:.0f} s"
        ),
    }
    said["traffic_shape"] = said["ecl_shape"]
    names = {
        "long_lookback": "a lookback of 50,000 steps",
        "many_series": "10,000 series of 40 to 79 months",
        "ecl_shape": "data of ECL's shape, 26,304 x 321",
        "traffic_shape": "data of Traffic's shape, 17,544 x 862",
    }
    lines = ["| | time | peak memory |", "|---|---|---|"]
    lines += [f"| {names[case]} | {said[case](row)} | {row['peak_mb']:,.0f} MB |" for case, row in rows.items()]
    lines += ["", f"Each in a process of its own; {place(list(rows.values()))}, 1 thread."]
    return "\n".join(lines)


def ablation(place: Any) -> str:
    rows = read(RESULTS / "forecast_ablation.jsonl")
    sets = list(dict.fromkeys(r["dataset"] for r in rows))
    lines = ["| | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    for variant in dict.fromkeys(r["variant"] for r in rows):
        of = [[r for r in rows if (r["variant"], r["dataset"]) == (variant, name)] for name in sets]
        lines.append(
            f"| {'**full**' if variant == 'full' else variant} | " + " | ".join(map(_mean_of_seeds, of)) + " |"
        )
    lines += ["", f"MSE / MAE, 96 -> 96; in brackets the number of seeds. {place(rows)}, 1 thread."]
    return "\n".join(lines)


def _mean_of_seeds(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "not yet"
    mse, mae = (statistics.mean(r[name] for r in rows) for name in ("mse", "mae"))
    spread = f", ±{statistics.stdev(r['mse'] for r in rows):.4f}" if len(rows) > 1 else ""
    return f"{mse:.4f} / {mae:.4f} ({len(rows)}{spread})"


TABLES = {"table3": table3, "searched": searched, "ablation": ablation, "online": online, "limits": limits}
