"""Write the tables of the README and of docs/ from the result files: each between its markers, nothing typed by hand.

python benchmarks/tables.py [--check]
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from forecast_search import TRAINED
from records import RESULTS, read
from tables_dna import COUNTS
from tables_dna import TABLES as GENOMES
from tables_lm import TABLES as LANGUAGE
from tables_memory import KERNELS, RANGE
from tables_memory import TABLES as MEMORY
from tables_ts import TABLE_3
from tables_ts import TABLES as FORECASTS

ROOT = Path(__file__).resolve().parents[1]


def fit_time(place: Any) -> str:
    rows = [row for row in read(RESULTS / "fit_time.jsonl") if row["recipe"] in (0, TRAINED)]
    lines = ["| ETTh1, 96 -> 96 | rounds of ours or epochs: seconds of training, and the test MSE |", "|---|---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = []
        for row in (row for row in rows if row["model"] == model):
            cell = f"{row['budget']}: {row['seconds']:.0f} s {row['mse']:.4f}"
            cells.append(f"**{cell}**" if row["mse"] <= row["goal"] else cell)
        lines.append(f"| {model} | {'; '.join(cells)} |")
    last = rows[-1]
    reached = any(row["mse"] <= row["goal"] for row in rows)
    said = f"Bold: a test error of at most {last['goal']:.3f}." if reached else f"None reaches {last['goal']:.3f}."
    lines += ["", f"{said} {place(rows)}, {last['threads']} threads, seed 0."]
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


def _place(rows: list[dict[str, Any]]) -> str:
    """Where, with what and when the rows of a table were made."""
    machines = " and ".join(dict.fromkeys(row["machine"] for row in rows))
    versions = " and ".join(dict.fromkeys(row["versions"]["torch"] for row in rows))
    days = sorted({row["date"][:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{machines}, torch {versions}, {when}, commit {', '.join(dict.fromkeys(row['commit'] for row in rows))}"


TABLES = {
    "README.md": {**TABLE_3, **RANGE, "fit-time": fit_time, **COUNTS},
    "docs/results.md": {**FORECASTS, **MEMORY, "fit-profile": fit_profile, **LANGUAGE},
    "docs/results_genomes.md": GENOMES,
    "core/titans_core/ops/memory/README.md": KERNELS,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if one is not up to date, and change nothing")
    args = parser.parse_args()
    for page, tables in TABLES.items():
        old = new = (ROOT / page).read_text()
        places = re.findall("<!-- table: (.*) -->", old)
        if sorted(places) != sorted(tables):
            sys.exit(f"{page} has places for the tables {sorted(places)}, and is to have {sorted(tables)}")
        for name, make in tables.items():
            pattern = re.compile(f"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            table = make(_place)
            new = pattern.sub(lambda m, table=table: f"{m[1]}{table}\n{m[2]}", new)
        if args.check and new != old:
            sys.exit(f"{page} is not up to date: run python benchmarks/tables.py")
        (ROOT / page).write_text(new)


if __name__ == "__main__":
    main()
