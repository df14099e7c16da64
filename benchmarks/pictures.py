"""Plot the result files into docs/: speed and memory of the operator, on a CPU and (if measured) on a GPU, and the
scores of the models.

python benchmarks/pictures.py
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator
from pictures_models import forecast_table3, gue, lm_niah, lm_stream
from records import RESULTS, read
from tables_memory import layer_name, newest_on_gpu, on_cpus

DOCS = Path(__file__).resolve().parents[1] / "docs"
MODES = ("forward", "forward+backward")


def memory_cpu() -> plt.Figure | None:
    """Tokens/s and peak memory of each case, compared with the peer's default, on the machine measured last."""
    every = read(RESULTS / "memory_cpu.jsonl")
    if not every:
        return None
    rows, peaks = zip(*(both for both in on_cpus() if both[0]["machine"] == every[-1]["machine"]), strict=True)
    names = [" / ".join(map(str, row["case"])) for row in rows]
    figure, axes = plt.subplots(1, 3, figsize=(11, 5), sharey=True, layout="constrained")
    places = range(len(rows))
    for axis, mode in zip(axes, MODES, strict=False):
        for side, label, shift in (("ours", "this library", -0.2), ("peer", "titans-pytorch, default", 0.2)):
            rates = [row[side][mode] for row in rows]
            spread = [[r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates]]
            axis.barh([p + shift for p in places], [r["median"] for r in rates], 0.4, xerr=spread, label=label)
        axis.set(title=f"tokens/s, {mode}", xscale="log")
    for side, shift in (("ours", -0.2), ("peer", 0.2)):
        megabytes = [peak[side][MODES[1]] for peak in peaks]
        axes[2].barh([p + shift for p in places], megabytes, 0.4)
    axes[2].set(title=f"peak MB, {MODES[1]}", xscale="log")
    axes[0].set_yticks(places, names)
    axes[0].invert_yaxis()
    axes[0].set_ylabel("dim / heads / chunk / T")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, fontsize="small", title=rows[-1]["machine"])
    return figure


def memory_gpu() -> plt.Figure | None:
    """Tokens/s by sequence length, as in the paper's Figures 8 and 9; the newest of each case on the latest device."""
    rows = [row for row in newest_on_gpu("operator", "layer") if MODES[1] in row]
    if not rows:
        return None
    parts = [part for part in ("operator", "layer") if any(row["case"]["part"] == part for row in rows)]
    figure, axes = plt.subplots(1, len(parts), figsize=(5.5 * len(parts), 5.5), layout="constrained", squeeze=False)
    colors = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(layer_name(row["case"]) for row in rows))}
    handles: dict[str, plt.Line2D] = {}
    for axis, part in zip(axes[0], parts, strict=True):
        curves: dict[str, dict[int, float]] = {}
        for row in rows:
            case = row["case"]
            if case["part"] == part:
                curves.setdefault(layer_name(case), {})[case["T"]] = row[MODES[1]]["median"]
        for label, points in curves.items():
            style = {"marker": "o"} if "memory" in label else {"marker": "s", "linestyle": "--"}
            line = zip(*sorted(points.items()), strict=True)
            (handles[label],) = axis.plot(*line, color=colors[label], label=label, **style)
        axis.set(
            title=f"{part}, {MODES[1]}", xlabel="length of a sequence", ylabel="tokens/s", xscale="log", yscale="log"
        )
        lengths = sorted({row["case"]["T"] for row in rows})
        axis.set_xticks(lengths, [f"{T // 1024}K" for T in lengths], minor=False)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))
        axis.yaxis.set_minor_locator(NullLocator())
    figure.legend(handles=handles.values(), fontsize="small", loc="outside lower center", ncols=3)
    return figure


def main() -> None:
    for make in (memory_cpu, memory_gpu, lm_stream, lm_niah, forecast_table3, gue):
        figure = make()
        if figure is None:
            print(f"{make.__name__}: no results yet")
            continue
        figure.savefig(DOCS / f"{make.__name__}.png", dpi=110)
        print(f"wrote docs/{make.__name__}.png")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
