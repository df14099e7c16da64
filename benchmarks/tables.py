"""Write the README's tables from the result files: each between its markers, nothing typed by hand.

python benchmarks/tables.py [--check]
"""

import argparse
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from fit_time import BUDGETS, DEFAULT_ROUNDS, OURS
from forecast_search import TRAINED
from records import RESULTS, read
from tables_dna import TABLES as GENOMES
from tables_lm import TABLES as LANGUAGE
from tables_ts import TABLES as FORECASTS

README = Path(__file__).resolve().parents[1] / "README.md"


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


def memory_gates() -> str:
    rows = read(RESULTS / "memory_gates.jsonl")
    names = list(rows[-1]["tokens_per_second"])
    lines = ["| dim / heads / chunk / T | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in rows:
        rates = [row["tokens_per_second"][name] for name in names]
        cells = [f"{r['forward']['median']:,.0f} / {r['forward+backward']['median']:,.0f}" for r in rates]
        lines.append(f"| {' / '.join(str(row[f]) for f in ('dim', 'heads', 'chunk', 'T'))} | {' | '.join(cells)} |")
    said = f"Tokens/s, forward / forward and backward; medians of {rows[-1]['repeats']}, taking turns"
    return "\n".join([*lines, "", f"{said}; {_place(rows)}, 1 thread."])


def memory_scaling() -> str:
    rows = read(RESULTS / "memory_scaling.jsonl")
    lines = [
        "| tokens | read, tokens/s | learned from, tokens/s | a step, microseconds | state, KB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        tokens = f"{row['T']:,}" + (", towards zero" if row["forget_to"] == "zero" else "")
        learned = f"{row['learned_tokens_per_second']:,.0f}" if "learned_tokens_per_second" in row else ""
        step, state = f"{row['step_microseconds']:.0f}", f"{row['state_bytes'] / 1024:.0f}"
        lines.append(f"| {tokens} | {row['read_tokens_per_second']:,.0f} | {learned} | {step} | {state} |")
    return "\n".join([*lines, "", f"Width 128, 4 heads, chunks of 64; {_place(rows)}, 1 thread."])


def fit_time() -> str:
    every = read(RESULTS / "fit_time.jsonl")
    # rows of earlier recipes, which have no number for peers, stand until all those of the present one are there
    now = [row for row in every if row["recipe"] == (TRAINED if row["model"] == OURS else 0)]
    complete = {(row["model"], row["budget"]) for row in now} == {(m, b) for m, of in BUDGETS.items() for b in of}
    rows = now if complete else [row for row in every if row["recipe"] in (None, TRAINED - 1)]
    lines = ["| ETTh1, 96 -> 96 | budget | seconds of training | test MSE |", "|---|---|---|---|"]
    for row in rows:
        unit = "rounds" if row["model"] == OURS else "epochs" if complete else "steps"
        unit = unit[:-1] if row["budget"] == 1 else unit
        reached = "**" if row["mse"] <= row["goal"] else ""
        lines.append(
            f"| {row['model']} | {row['budget']} {unit} | {reached}{row['seconds']:.0f}{reached} | {row['mse']:.4f} |"
        )
    last = rows[-1]
    reached = any(row["mse"] <= row["goal"] for row in rows)
    said = f"Bold: a test error of at most {last['goal']:.3f}." if reached else f"None reaches {last['goal']:.3f}."
    if not complete:
        said += f" Of an earlier training: `fit` takes {DEFAULT_ROUNDS} rounds by default now."
    lines += ["", f"{said} {_place(rows)}, {last['threads']} threads, seed 0."]
    return "\n".join(lines)


def fit_profile() -> str:
    row = read(RESULTS / "fit_profile.jsonl")[-1]
    whole = sum(row["parts"].values())
    lines = ["| part of `fit` | share of its time |", "|---|---|"]
    lines += [
        f"| {part} | {seconds / whole:.1%} |" for part, seconds in sorted(row["parts"].items(), key=lambda p: -p[1])
    ]
    lines += ["", f"ETTh1, 96 -> 96, {row['rounds']} rounds of 100 batches. {_place([row])}, 1 thread, seed 0."]
    return "\n".join(lines)


def _place(rows: list[dict[str, Any]]) -> str:
    """Where, with what and when the rows of a table were made."""
    machines = " and ".join(dict.fromkeys(row["machine"] for row in rows))
    versions = " and ".join(dict.fromkeys(row["versions"]["torch"] for row in rows))
    days = sorted({row["date"][:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{machines}, torch {versions}, {when}, commit {', '.join(dict.fromkeys(row['commit'] for row in rows))}"


TABLES = {
    "memory-cpu": memory_cpu,
    "memory-gates": memory_gates,
    "memory-scaling": memory_scaling,
    "fit-time": fit_time,
    "fit-profile": fit_profile,
    **{name: partial(make, _place) for name, make in (FORECASTS | LANGUAGE | GENOMES).items()},
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
