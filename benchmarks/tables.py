"""Write the README's tables from the result files: each between its markers, nothing typed by hand.

python benchmarks/tables.py [--check]
"""

import argparse
import re
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from forecast_search import chosen
from records import RESULTS, read
from tables_dna import TABLES as GENOMES
from tables_lm import TABLES as LANGUAGE

README = Path(__file__).resolve().parents[1] / "README.md"

HORIZONS = (96, 192, 336, 720)
SETS = ("ETTh1", "ETTh2", "weather", "ETTm1", "ETTm2")
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


def table3() -> str:
    rows = [r for r in read(RESULTS / "forecast_table3.jsonl") if r["input_size"] == 96]
    # cells of settings that the rule has left since stay in the file; they stand until those of the rule are there
    newest = {name: _newest([r for r in rows if (r["model"], r["dataset"]) == ("titans", name)]) for name in SETS}
    rows = [r for r in rows if r["model"] != "titans" or r["settings"] == newest[r["dataset"]]]
    earlier = {name for name in SETS if newest[name] != chosen(name)}
    shown_sets = [f"{name}†" if name in earlier else name for name in SETS]
    lines = ["| lookback 96 | " + " | ".join(shown_sets) + " |", "|---|" + "---|" * len(SETS)]
    models = list(dict.fromkeys(r["model"] for r in rows))
    for model in models:
        cells = [_mean_of_four([r for r in rows if (r["model"], r["dataset"]) == (model, name)]) for name in SETS]
        if any(cells):
            shown = "**TitansForecaster**" if model == "titans" else f"{model}, re-run here"
            lines.append(f"| {shown} | " + " | ".join(c or "not yet" for c in cells) + " |")
    for model, means in PUBLISHED.items():
        cells = [f"{means[name][0]:.3f} / {means[name][1]:.3f}" for name in SETS]
        lines.append(f"| {model}, published | " + " | ".join(cells) + " |")
    lines += [
        "",
        "MSE / MAE, mean over horizons 96, 192, 336 and 720, every test window; in brackets the number of seeds, and "
        "with several the standard deviation of the MSE. The settings of each set were chosen by one rule in a "
        "rehearsal of the protocol, a block of rows before the test (`forecast_search.py`)"
        + ("; those of † by an earlier recipe of training and another rule" if earlier else "")
        + f". {_place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


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


def online() -> str:
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
    lines += ["", f"MSE / MAE over the whole test span; {_place(rows)}, 1 thread."]
    return "\n".join(lines)


def limits() -> str:
    rows = {r["case"]: r for r in read(RESULTS / "forecast_limits.jsonl")}
    said = {
        "long_lookback": lambda r: f"one epoch {r['fit_seconds']:.0f} s, a forecast {r['predict_seconds']:.2f} s",
        "many_series": lambda r: (
            f"two epochs {r['fit_seconds']:.0f} s, all forecasts with intervals {r['predict_seconds']:.1f} s"
        ),
        "ecl_shape": lambda r: (
            f"an epoch of {r['epoch_windows']:,} windows and its validation {r['epoch_seconds_with_validation']:.0f} s"
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
    lines += ["", f"Each in a process of its own; {_place(list(rows.values()))}, 1 thread."]
    return "\n".join(lines)


def memory_cpu() -> str:
    rows = read(RESULTS / "memory_cpu.jsonl")
    peaks = {tuple(row["case"]): row for row in read(RESULTS / "memory_cpu_peak.jsonl")}
    lines = [
        "| dim / heads / chunk / T | tokens/s, forward | forward+backward | peak MB, forward+backward | beside "
        "| speed, forward | forward+backward | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, peak = row["ours"], peaks[tuple(row["case"])]
        for peer, label in (("peer", "default"), ("peer-equal", "equal updates")):
            if peer not in row:
                continue
            forward, both = (ours[m]["median"] / row[peer][m]["median"] for m in ("forward", "forward+backward"))
            memory = peak["ours"]["forward+backward"] / peak[peer]["forward+backward"]
            lines.append(
                f"| {' / '.join(map(str, row['case']))} | {ours['forward']['median']:,.0f} | "
                f"{ours['forward+backward']['median']:,.0f} | {peak['ours']['forward+backward']:,.0f} | {label} | "
                f"{forward:.2f}x | {both:.2f}x | {memory:.2f}x |"
            )
    lines += ["", f"Medians of {rows[-1]['repeats']}, sides taking turns; {_place(rows)}, 1 thread."]
    return "\n".join(lines)


def fit_time() -> str:
    rows = read(RESULTS / "fit_time.jsonl")
    lines = ["| ETTh1, 96 -> 96 | budget | seconds of training | test MSE |", "|---|---|---|---|"]
    for row in rows:
        unit = "epochs" if row["model"] == "TitansForecaster" else "steps"
        reached = "**" if row["mse"] <= row["goal"] else ""
        lines.append(
            f"| {row['model']} | {row['budget']} {unit} | {reached}{row['seconds']:.0f}{reached} | {row['mse']:.4f} |"
        )
    last = rows[-1]
    lines += [
        "",
        f"Bold: a test error of at most {last['goal']:.3f}. {_place(rows)}, {last['threads']} threads, seed 0.",
    ]
    return "\n".join(lines)


def _place(rows: list[dict[str, Any]]) -> str:
    row, commits = rows[-1], ", ".join(dict.fromkeys(r["commit"] for r in rows))
    return f"{row['machine']}, torch {row['versions']['torch']}, {row['date'][:10]}, commit {commits}"


TABLES = {
    "table3": table3,
    "online": online,
    "limits": limits,
    "memory-cpu": memory_cpu,
    "fit-time": fit_time,
    **{name: partial(make, _place) for name, make in (LANGUAGE | GENOMES).items()},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the README is not up to date, and change nothing")
    args = parser.parse_args()
    old = new = README.read_text()
    for name, make in TABLES.items():
        pattern = re.compile(f"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(new):
            sys.exit(f"README.md has no place for the table {name!r}")
        table = make()
        new = pattern.sub(lambda m, table=table: f"{m[1]}{table}\n{m[2]}", new)
    if args.check and new != old:
        sys.exit("README.md is not up to date: run python benchmarks/tables.py")
    README.write_text(new)


if __name__ == "__main__":
    main()
