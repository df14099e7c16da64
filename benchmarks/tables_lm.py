"""The tables of the language models."""

import statistics
from typing import Any

from lm_models import NAMES
from records import RESULTS, read

# tasks and lengths of lm_niah.py
NEEDLES = {"PK": "a number in noise", "N": "a number in a novel", "W": "a word in a novel"}
HAYSTACKS = (256, 512, 1024, 2048)


def _seeds(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["model"] == name]


def _mean(rows: list[dict[str, Any]], column: str, scale: float = 100, digits: int = 1) -> str:
    values = [scale * r[column] for r in rows]
    spread = f" ±{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def mqar(place: Any) -> str:
    rows = read(RESULTS / "lm_mqar.jsonl")
    lines = ["| recall, % | 64 tokens, as in training | 128 | 256 | seeds | seconds |", "|---|---|---|---|---|---|"]
    for name in NAMES:
        found = _seeds(rows, name)
        if found:
            cells = [_mean(found, f"recall_{times}x") for times in (1, 2, 4)]
            seconds = statistics.mean(r["seconds"] for r in found)
            lines.append(f"| {name} | {' | '.join(cells)} | {len(found)} | {seconds:.0f} |")
    lines += [
        "",
        f"8 pairs, two blocks of width 64, {rows[-1]['steps']} steps of 64 sequences. {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def niah(place: Any) -> str:
    rows = read(RESULTS / "lm_niah.jsonl")
    columns = [f"{task} {length}" for task in NEEDLES for length in HAYSTACKS]
    lines = [
        f"| exact answers, % | {' | '.join(columns)} | seeds |",
        "|---|" + "---|" * (len(columns) + 1),
    ]
    for name in NAMES:
        found = _seeds(rows, name)
        if found:
            cells = [_mean(found, column.replace(" ", "_"), digits=0) for column in columns]
            lines.append(f"| {name} | {' | '.join(cells)} | {len(found)} |")
    last = rows[-1]
    lines += [
        "",
        f"About {last['parameters']:,} parameters, trained on samples of up to {last['stages'][-1][0]} tokens; "
        f"{last['samples']} samples per cell and seed. {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def novels(place: Any) -> str:
    rows = read(RESULTS / "lm_bytes.jsonl")
    lines = ["| | bits per byte | tokens/s, training | parameters | seeds |", "|---|---|---|---|---|"]
    for name in NAMES:
        found = _seeds(rows, name)
        if found:
            rate = statistics.mean(r["tokens_per_second"] for r in found)
            cells = (
                _mean(found, "bits_per_byte", 1, 3),
                f"{rate:,.0f}",
                f"{found[0]['parameters']:,}",
                str(len(found)),
            )
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"{rows[-1]['steps']} steps of 8 x 512 bytes each. {place(rows)}, 1 thread."]
    return "\n".join(lines)


def stream(place: Any) -> str:
    rows = read(RESULTS / "lm_stream.jsonl")
    points = rows[-1]["points"]
    end = (points[-1][0] - points[-2][0]) / 1e6  # the last point has the tokens that were left
    lines = [
        f"| | resident after 0.1 M tokens | after all tokens | µs per token, first 0.1 M | last {end:.2f} M | state |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        first, last = row["points"][0], row["points"][-1]
        lines.append(
            f"| {row['model']} | {first[1]:,.0f} MiB | {last[1]:,.0f} MiB | {first[2]:.1f} | {last[2]:.1f} | "
            f"{last[3] / 2**10:,.0f} KiB |"
        )
    lines += ["", f"{rows[-1]['tokens']:,} tokens in one stream, pieces of 4,096. {place(rows)}, 1 thread."]
    return "\n".join(lines)


TABLES = {"mqar": mqar, "niah": niah, "novels": novels, "stream": stream}
