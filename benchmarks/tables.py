"""Write the README's tables from the result files: each between its markers, nothing typed by hand.

python benchmarks/tables.py [--check]
"""

import argparse
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from records import RESULTS, read

README = Path(__file__).resolve().parents[1] / "README.md"

# published, lookback 96, mean over the four horizons; sources: the papers' own tables
PUBLISHED = {"Simba (2024)": (0.441, 0.432), "iTransformer (2024)": (0.454, 0.447), "DLinear (2023)": (0.456, 0.452)}


def etth1() -> str:
    rows = read(RESULTS / "forecast_etth1.jsonl")
    lines = ["| ETTh1, lookback 96 | MSE | MAE |", "|---|---|---|"]
    horizons = sorted({r["h"] for r in rows})
    for h in horizons:
        cells = [r for r in rows if r["h"] == h]
        lines.append(f"| horizon {h} | {_spread(cells, 'mse')} | {_spread(cells, 'mae')} |")
    seeds = sorted({r["seed"] for r in rows})
    means = [
        {m: statistics.mean(r[m] for r in rows if r["seed"] == seed) for m in ("mse", "mae")}
        for seed in seeds
        if {r["h"] for r in rows if r["seed"] == seed} == set(horizons)
    ]
    lines.append(f"| **mean of the four** | **{_spread(means, 'mse')}** | **{_spread(means, 'mae')}** |")
    lines += [f"| {name}, published | {mse:.3f} | {mae:.3f} |" for name, (mse, mae) in PUBLISHED.items()]
    seconds = statistics.median(r["seconds"] for r in rows)
    parameters = sorted(r["parameters"] for r in rows)
    lines += [
        "",
        f"Mean ± standard deviation over {len(seeds)} seeds, default settings, all test windows. "
        f"{parameters[0]:,} to {parameters[-1]:,} parameters; {seconds:.0f} s of training (median; {_place(rows)}, "
        f"{rows[-1]['threads']} thread).",
    ]
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


TABLES = {"etth1": etth1, "memory-cpu": memory_cpu, "fit-time": fit_time}


def _spread(cells: list[dict[str, Any]], metric: str) -> str:
    values = [c[metric] for c in cells]
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) if len(values) > 1 else 0:.4f}"


def _place(rows: list[dict[str, Any]]) -> str:
    row, commits = rows[-1], ", ".join(dict.fromkeys(r["commit"] for r in rows))
    return f"{row['machine']}, torch {row['versions']['torch']}, {row['date'][:10]}, commit {commits}"


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
