"""The tables of the memory benchmarks."""

import itertools
import json
from typing import Any

from memory_cpu import CASES
from memory_kernels import CHUNKS, HOPPER, MEMORIES, TOKENS, WIDTHS
from records import RESULTS, read

PEERS = {"peer": "default", "peer-equal": "equal updates"}  # two settings of titans-pytorch
GATES = {
    "of tokens": "gates per token",
    "of chunks": "gates per chunk",
    "neither": "no momentum or forgetting",
    "neither, of chunks": "neither, gates per chunk",
}


def memory_cpu(place: Any) -> str:
    measured = on_cpus()
    lines = [
        "| dim / heads / chunk / T | CPU | tokens/s, forward | forward+backward | peak MB, forward+backward "
        "| titans-pytorch | speed ratio, forward | forward+backward | memory ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, peak in measured:
        ours = row["ours"]
        for peer, label in PEERS.items():
            if peer not in row:
                continue
            forward, both, memory = _beside(row, peak, peer)
            lines.append(
                f"| {' / '.join(map(str, row['case']))} | {_processor(row)} | {ours['forward']['median']:,.0f} | "
                f"{ours['forward+backward']['median']:,.0f} | {peak['ours']['forward+backward']:,.0f} | {label} | "
                f"{forward:.2f}x | {both:.2f}x | {memory:.2f}x |"
            )
    note = f"Medians of {measured[-1][0]['repeats']} runs, alternating between the libraries"
    lines += ["", f"{note}; {_made_of(measured, place)}, 1 thread."]
    return "\n".join(lines)


def memory_cpu_range(place: Any) -> str:
    """A summary: the range over all cases."""
    measured = on_cpus()
    lines = [
        "| titans-pytorch | CPU | cases | speed ratio, forward | forward+backward | memory ratio, forward+backward |",
        "|---|---|---|---|---|---|",
    ]
    for peer, label in PEERS.items():
        for processor in dict.fromkeys(_processor(row) for row, _ in measured):
            found = [_beside(*both, peer) for both in measured if peer in both[0] and _processor(both[0]) == processor]
            cells = [f"{min(of):.2f}x to {max(of):.2f}x" for of in zip(*found, strict=True)]
            lines.append(f"| {label} | {processor} | {len(found)} | {' | '.join(cells)} |")
    note = "Minimum to maximum over all cases (widths, heads, chunks and lengths)"
    elsewhere = dict.fromkeys(_processor(peak) for row, peak in measured if peak["machine"] != row["machine"])
    if elsewhere:
        note += f"; memory was measured on the {' and the '.join(elsewhere)} only"
    return "\n".join([*lines, "", f"{note}; {_made_of(measured, place)}, 1 thread."])


def _made_of(measured: list[tuple[dict[str, Any], dict[str, Any]]], place: Any) -> str:
    return str(place([row for part in zip(*measured, strict=True) for row in part]))


def on_cpus() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The speeds of all cases and machines, sorted by case, each with the newest peak memory of the case: of the same
    machine, or of another where it was not measured on this one."""
    rows, peaks = (read(RESULTS / f"{name}.jsonl") for name in ("memory_cpu", "memory_cpu_peak"))
    newest = {(tuple(peak["case"]), machine): peak for peak in peaks for machine in (None, peak["machine"])}
    rows.sort(key=lambda row: (CASES.index(tuple(row["case"])), row["machine"]))
    of_case = [(row, tuple(row["case"])) for row in rows]
    return [(row, newest.get((case, row["machine"]), newest[case, None])) for row, case in of_case]


def _processor(row: dict[str, Any]) -> str:
    return str(row["machine"]).split(",")[0].replace("(R)", "").removesuffix(" Processor")


def _beside(row: dict[str, Any], peak: dict[str, Any], peer: str) -> tuple[float, float, float]:
    """Ratios to a peer: speed in both modes, and memory."""
    forward, both = (row["ours"][m]["median"] / row[peer][m]["median"] for m in ("forward", "forward+backward"))
    return forward, both, peak["ours"]["forward+backward"] / peak[peer]["forward+backward"]


def memory_gates(place: Any) -> str:
    rows = read(RESULTS / "memory_gates.jsonl")
    names = list(rows[-1]["tokens_per_second"])
    lines = ["| dim / heads / chunk / T | " + " | ".join(GATES.get(name, name) for name in names) + " |"]
    lines.append("|---|" + "---|" * len(names))
    for row in rows:
        rates = [row["tokens_per_second"][name] for name in names]
        cells = [f"{r['forward']['median']:,.0f} / {r['forward+backward']['median']:,.0f}" for r in rates]
        lines.append(f"| {' / '.join(str(row[f]) for f in ('dim', 'heads', 'chunk', 'T'))} | {' | '.join(cells)} |")
    note = f"Tokens/s, forward / forward and backward; medians of {rows[-1]['repeats']} runs, alternating"
    return "\n".join([*lines, "", f"{note}; {place(rows)}, 1 thread."])


def memory_scaling(place: Any) -> str:
    rows = read(RESULTS / "memory_scaling.jsonl")
    lines = [
        "| tokens | reading, tokens/s | training, tokens/s | microseconds per step | state, KB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        tokens = f"{row['T']:,}" + (", forgetting towards zero" if row["forget_to"] == "zero" else "")
        tokens += ", denormals flushed" if row.get("flushed") else ""
        learned = f"{row['learned_tokens_per_second']:,.0f}" if "learned_tokens_per_second" in row else ""
        step, state = f"{row['step_microseconds']:.0f}", f"{row['state_bytes'] / 1024:.0f}"
        lines.append(f"| {tokens} | {row['read_tokens_per_second']:,.0f} | {learned} | {step} | {state} |")
    return "\n".join([*lines, "", f"Width 128, 4 heads, chunks of 64; {place(rows)}, 1 thread."])


def memory_gpu(place: Any) -> str:
    """Tokens/s of layers and operators by the length of the sequences."""
    rows = newest_on_gpu("layer", "operator")
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["case"]["part"], layer_name(row["case"])), {})[row["case"]["T"]] = row
    lengths = sorted({row["case"]["T"] for row in rows})
    lines = [
        "| part | " + " | ".join(f"{T:,}" for T in lengths) + " |",
        "|---|" + "---|" * len(lengths),
    ]
    for (part, name), of_length in sorted(found.items(), key=lambda item: item[0][0]):
        cells = [_millions(of_length.get(T)) for T in lengths]
        lines.append(f"| {name}, {part} | {' | '.join(cells)} |")
    note = (
        "Millions of tokens/s, forward / forward and backward, by the length of a sequence, at 65,536 tokens per step; "
        "width 1024, 16 heads of 64, chunks of 64, bfloat16"
    )
    return "\n".join([*lines, "", f"{note}; {_device(rows)}; {place(rows)}."])


def memory_gpu_length(place: Any) -> str:
    """Speed of one long sequence, and of single tokens after contexts of different lengths."""
    rows = newest_on_gpu("one sequence", "decoding")
    lines = ["| tokens | reading, tokens/s | microseconds per step behind them | state, KB |", "|---|---|---|---|"]
    for T in sorted({row["case"]["T"] for row in rows}):
        cells = {"forward": "", "step": "", "state_bytes": ""}
        for row in rows:
            if row["case"]["T"] == T and "unavailable" not in row:
                if "forward" in row:
                    cells["forward"] = f"{row['forward']['median']:,.0f}"
                else:
                    cells["step"] = f"{1e6 / row['step']['median']:,.0f}"
                    cells["state_bytes"] = f"{row['state_bytes'] / 1024:,.0f}"
        lines.append(f"| {T:,} | {' | '.join(cells.values())} |")
    note = "Two layers, expansion 2, width 1024, 16 heads of 64, chunks of 64, bfloat16, one sequence without gradients"
    return "\n".join([*lines, "", f"{note}; {_device(rows)}; {place(rows)}."])


def newest_on_gpu(*parts: str) -> list[dict[str, Any]]:
    """The newest row of each case on the device measured last; one without a number only if no other row has one."""
    found: dict[str, dict[str, Any]] = {}
    every = read(RESULTS / "memory_gpu.jsonl")
    for row in every:
        if row["case"]["part"] in parts and row["device"] == every[-1]["device"]:
            case = json.dumps(row["case"], sort_keys=True)
            if case not in found or "forward" in row or "step" in row:
                found[case] = row
    return list(found.values())


def layer_name(case: dict[str, Any]) -> str:
    """What a case of memory_gpu.py measures."""
    if case["side"] != "ours":
        return str(case["side"])
    memory = (
        "linear memory" if case["depth"] == 1 else f"memory of depth {case['depth']}, expansion {case['expansion']}"
    )
    return f"{memory} ({case['backend']})"


def _millions(row: dict[str, Any] | None) -> str:
    if row is None or "forward" not in row:
        return "-"
    both = f"{row['forward+backward']['median'] / 1e6:.2f}" if "forward+backward" in row else "-"
    return f"{row['forward']['median'] / 1e6:.2f} / {both}"


def _device(rows: list[dict[str, Any]]) -> str:
    tritons = dict.fromkeys(str(row["versions"].get("triton")) for row in rows)
    return f"{' and '.join(dict.fromkeys(row['device'] for row in rows))}, Triton {' and '.join(tritons)}"


def memory_kernels(place: Any) -> str:
    every = [row for row in read(RESULTS / "memory_kernels.jsonl") if row["target"] == HOPPER]
    tritons = list(dict.fromkeys(row["triton"] for row in every))
    lines = [
        "| memory | tokens | width | " + " | ".join(f"chunks of {chunk}" for chunk in CHUNKS) + " |",
        "|---|---|---|" + "---|" * len(CHUNKS),
    ]
    of_shape: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in every:
        of_shape.setdefault(tuple(row[name] for name in ("memory", "tokens", "width", "chunk")), []).append(row)
    for shape in itertools.product(MEMORIES, TOKENS, WIDTHS):
        cells = [_needs(of_shape.get((*shape, chunk), [])) for chunk in CHUNKS]
        lines.append(f"| {' | '.join(map(str, [*shape, *cells]))} |")
    note = (
        "For the worst of the five kernels, with its best choice of slices, warps and stages: kilobytes of shared "
        "memory (227 are available) and bytes per thread that spill from registers. Then the seconds to compile all "
        "choices of all five. Hidden layers are four times as wide. Triton"
    )
    return "\n".join([*lines, "", f"{note} {' and '.join(tritons)}; {place(every)}."])


def _needs(rows: list[dict[str, Any]]) -> str:
    """A cell of the table: the worst over Triton versions and kernels of one shape."""
    kernels: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kernels.setdefault((row["pass"], row["kernel"], row["triton"]), []).append(row)
    if not kernels:
        return "not yet"
    shared, spilled = (max(min(r[n] for r in k) for k in kernels.values()) for n in ("shared_bytes", "spilled_bytes"))
    seconds = sum(row["compile_seconds"] for row in rows) / len({row["triton"] for row in rows})
    return f"{shared / 1024:.0f} KB, {spilled:,} B, {seconds:.0f} s"


TABLES = {
    "memory-cpu": memory_cpu,
    "memory-gates": memory_gates,
    "memory-scaling": memory_scaling,
    "memory-gpu": memory_gpu,
    "memory-gpu-length": memory_gpu_length,
}
KERNELS = {"memory-kernels": memory_kernels}  # in the README of the kernels
