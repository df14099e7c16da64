"""The tables of the forecasting benchmarks."""

import itertools
import json
import statistics
from typing import Any

from forecast_coverage import LOSSES as COVERED
from forecast_search import LOOKBACKS, MIXED, SETS, TRAINED, chosen
from forecast_table3 import HORIZONS, MIXTURE, OURS, lookback_of, settings_of
from records import RESULTS, read

from titans_ts.estimator.training_length import EPOCH, windows_in_batch
from titans_ts.network.mirror import FEW

# published MSE / MAE, means over the four horizons, in the order of SETS, at lookback 96: from Table 3 of the Titans
# paper and from the papers of the models
PUBLISHED = {
    "Simba (2024)": (".441/.432", ".361/.391", ".255/.280", ".383/.396", ".271/.327"),
    "TimeMixer (2024)": (".447/.440", ".364/.395", ".240/.271", ".381/.395", ".275/.323"),
    "CycleNet/MLP (2024)": (".457/.441", ".388/.409", ".243/.271", ".379/.396", ".266/.314"),
    "CycleNet/Linear (2024)": (".432/.427", ".383/.404", ".254/.279", ".386/.395", ".272/.315"),
    "SOFTS (2024)": (".449/.442", ".373/.400", ".255/.278", ".393/.403", ".287/.330"),
    "TimeXer (2024)": (".437/.437", ".367/.396", ".241/.271", ".382/.397", ".274/.322"),
    "TQNet (2025)": (".441/.434", ".378/.402", ".242/.269", ".377/.393", ".277/.323"),
    "CARD (2024)": (".442/.429", ".368/.390", ".239/.265", ".382/.383", ".272/.317"),
    "iTransformer (2024)": (".454/.447", ".383/.407", ".258/.278", ".407/.410", ".288/.332"),
    "xPatch (2025)¹": (".428/.419", ".319/.361", ".232/.261", ".377/.384", ".267/.313"),
    "TimeMixer++ (2025)²": (".419/.432", ".339/.380", ".226/.262", ".369/.378", ".269/.320"),
    "Titans, neural memory (2024)³": (".420/.421", ".336/.382", ".231/.265", ".358/.387", ".261/.309"),
}
TITLES = {
    "titans": "**TitansForecaster**",
    "ensemble": "**TitansEnsemble**, of two",
    MIXTURE: f"**TitansEnsemble**, of two at each lookback of {' and '.join(map(str, MIXED))}",
}
BOTH = (
    "The ensemble is the mean of two forecasters with these settings, one with a daily profile and one without; it "
    "takes twice the training time. It was added late, and tried on the rehearsal first. "
)
ALL_LOOKBACKS = (
    f"The ensemble of lookbacks has {2 * len(MIXED)} members for every set. It was tried on rehearsals of ETTh2 and "
    "ETTm1 first, after the test errors of single forecasters were known. "
)
NO_LOOKBACK = "³ The paper states no lookback."
NOTES = f"¹ Its test loader drops the last batch. ² Not reproduced by third parties. {NO_LOOKBACK}"
PUBLISHED_LONG = {
    "Titans, neural memory (2024)³": PUBLISHED["Titans, neural memory (2024)³"],
    "CycleNet/Linear (2024), lookback 336, 5 seeds": (".416/.427", ".355/.398", ".242/.278", ".355/.379", ".252/.310"),
    "xLSTM-Mixer (2024), lookback tuned": (".397/.420", ".340/.382", ".219/.250", "?/.366", "?/.307"),
}


def standing() -> list[dict[str, Any]]:
    """The current rows of lookback 96.

    Rows of earlier settings stay in the file. They are used until all rows with the current settings exist.
    """
    every = [r for r in read(RESULTS / "forecast_table3.jsonl") if r["input_size"] == LOOKBACKS[0]]
    rows = []
    for model, name in itertools.product(OURS, SETS):
        own = [r for r in every if (r["model"], r["dataset"]) == (model, name)]
        rows += _current(own, settings_of(model, name, HORIZONS[0]))
    peers = [r for r in every if r["model"] not in OURS]
    return rows + [r for r in peers if r["settings"] == settings_of(r["model"], r["dataset"], r["h"])]


def table3(place: Any) -> str:
    rows = standing()
    tested = [
        r for r in read(RESULTS / "forecast_table3.jsonl") if (r["model"], r["input_size"]) == ("titans", LOOKBACKS[0])
    ]
    used = {r["dataset"]: r["settings"] for r in rows if r["model"] == "titans"}
    earlier = {name for name in SETS if used.get(name) != chosen(name)}
    titles = [f"{name}†" if name in earlier else name for name in SETS]
    lines, shown = _lines(f"lookback {LOOKBACKS[0]}", titles, rows, PUBLISHED)
    counts = {name: len({json.dumps(r["settings"]) for r in tested if r["dataset"] == name}) for name in SETS}
    lines += [
        "",
        "MSE / MAE, mean over horizons 96, 192, 336 and 720, all test windows; in brackets the number of seeds and, if "
        "there are several, the standard deviation of the MSE. One rule chooses the settings of all sets, by errors on "
        "the validation rows and in a rehearsal, the protocol on earlier rows (`forecast_search.py`)"
        + ("; † marks settings of an earlier rule or training recipe" if earlier else "")
        + ". Test errors were seen more than once: the rule and the length of training were changed after earlier test "
        "errors were known. The number of settings (training recipes included) with a test error in the file is "
        + ", ".join(f"{count} for {name}" for name, count in counts.items())
        + f". {BOTH if any(row['model'] == 'ensemble' for row in shown) else ''}{NOTES} {_on_gpus(shown)}"
        f"{place(shown)}, 1 thread.",
    ]
    return "\n".join(lines)


def _on_gpus(rows: list[dict[str, Any]]) -> str:
    """Which models were trained on a GPU, and on what sets."""
    rows = [row for row in rows if "device" in row]
    devices = " and ".join(dict.fromkeys(row["device"] for row in rows))
    sets: dict[str, dict[str, None]] = {}
    for row in rows:
        sets.setdefault(row["model"], {})[row["dataset"]] = None
    named = "; ".join(f"{model} on {', '.join(of)}" for model, of in sets.items())
    return f"Trained on a GPU ({devices}): {named}. " if named else ""


def standing_searched() -> list[dict[str, Any]]:
    """As :func:`standing`, of our models at their searched lookbacks."""
    found = read(RESULTS / "forecast_table3.jsonl")
    rows = []
    for name, model in itertools.product(SETS, OURS):
        place = (model, name, lookback_of(model, name, searched=True))
        own = [r for r in found if (r["model"], r["dataset"], r["input_size"]) == place]
        rows += _current(own, settings_of(model, name, HORIZONS[0]))
    return rows


def searched(place: Any) -> str:
    rows = standing_searched()
    earlier = {r["dataset"] for r in rows if r["settings"] != settings_of(r["model"], r["dataset"], HORIZONS[0])}
    titles = [f"{name}{'†' if name in earlier else ''}, {lookback_of('titans', name, searched=True)}" for name in SETS]
    lines, shown = _lines("searched lookback", titles, rows, PUBLISHED_LONG)
    marked = " († as there)" if any("†" in title for title in titles) else ""
    note = f"As at lookback 96{marked}; the same rule also chooses the lookback, for a single forecaster, "
    note += "and the ensemble of two has the same. "
    if any(row["model"] == MIXTURE for row in shown):
        note += ALL_LOOKBACKS
    note += NO_LOOKBACK
    return "\n".join([*lines, "", f"{note} {place(shown)}, 1 thread."])


def _lines(
    title: str, titles: list[str], rows: list[dict[str, Any]], published: dict[str, tuple[str, ...]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """The lines of a table, and the rows it was made from."""
    lines = [f"| {title} | " + " | ".join(titles) + " |", "|---|" + "---|" * len(SETS)]
    made_of: list[dict[str, Any]] = []
    for model in dict.fromkeys(r["model"] for r in rows):
        of = [[r for r in rows if (r["model"], r["dataset"]) == (model, name)] for name in SETS]
        complete = [part for part in of if _mean_of_four(part)]
        if complete:
            made_of += [row for part in complete for row in part]
            shown = TITLES.get(model, f"{model}, run here")
            lines.append(f"| {shown} | " + " | ".join(_mean_of_four(part) or "not yet" for part in of) + " |")
    for model, means in published.items():
        cells = [mean.replace("/", " / ").replace(".", "0.") for mean in means]
        lines.append(f"| {model}, published | " + " | ".join(cells) + " |")
    return lines, made_of


def _current(rows: list[dict[str, Any]], settings: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Rows with these settings if all horizons exist, else those of the newest complete settings."""
    found = [row for row in rows if row["settings"] == settings]
    if _mean_of_four(found) is not None:
        return found
    newest = _newest(rows)
    return [row for row in rows if row["settings"] == newest]


def _newest(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest settings with rows of all horizons."""
    found = None
    for row in rows:
        if _mean_of_four([r for r in rows if r["settings"] == row["settings"]]) is not None:
            found = row["settings"]
    return found


def errors_of_seeds(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """MSE and MAE, mean over the four horizons, of each seed that has all of them."""
    seeds = [s for s in sorted({r["seed"] for r in rows}) if {r["h"] for r in rows if r["seed"] == s} == set(HORIZONS)]
    return {m: [statistics.mean(r[m] for r in rows if r["seed"] == s) for s in seeds] for m in ("mse", "mae")}


def _mean_of_four(rows: list[dict[str, Any]]) -> str | None:
    means = errors_of_seeds(rows)
    count = len(means["mse"])
    if not count:
        return None
    spread = f", ±{statistics.stdev(means['mse']):.3f}" if count > 1 else ""
    return f"{statistics.mean(means['mse']):.3f} / {statistics.mean(means['mae']):.3f} ({count}{spread})"


def online_cases() -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows of the online memory by case (set, calendar, lookback, horizon), the longest lookbacks first."""
    cases: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in read(RESULTS / "forecast_online.jsonl"):
        if row.get("recipe") == TRAINED:
            case = tuple(row[name] for name in ("dataset", "calendar", "input_size", "h"))
            cases.setdefault(case, []).append(row)
    return dict(sorted(cases.items(), key=lambda item: (-item[0][2], item[0][0] == "ecl_sample", item[0][1])))


def changes(rows: list[dict[str, Any]]) -> list[float]:
    """Change of the squared error by the online memory, in percent per seed; 0 if ``fit`` left the memory out."""
    return [100 * (row.get("online", row["alone"])["mse"] / row["alone"]["mse"] - 1) for row in rows]


def online(place: Any) -> str:
    cases = online_cases()
    lines = [
        "| set, lookback → horizon (seeds) | network alone | memory read, not written | memory read and written "
        "| change of the MSE, % | time per row |",
        "|---|---|---|---|---|---|",
    ]
    for (dataset, calendar, input_size, h), rows in cases.items():
        # a memory that fit left out changes nothing
        errors = [[r.get(name, r["alone"]) for r in rows] for name in ("alone", "frozen", "online")]
        cells = [
            f"{statistics.mean(e['mse'] for e in of):.4f} / {statistics.mean(e['mae'] for e in of):.4f}"
            for of in errors
        ]
        change = changes(rows)
        spread = f" ±{statistics.stdev(change):.1f}" if len(change) > 1 else ""
        name = f"{dataset}{', calendar' if calendar else ''}, {input_size} → {h} ({len(rows)})"
        took = f"{statistics.median(r['update_ms'] for r in rows):.1f} ms"
        lines.append(f"| {' | '.join((name, *cells, f'{statistics.mean(change):+.1f}{spread}', took))} |")
    shown = [row for rows in cases.values() for row in rows]
    lines += ["", f"MSE / MAE over the whole test span, means over seeds. {place(shown)}, 1 thread."]
    return "\n".join(lines)


def covered() -> list[dict[str, Any]]:
    """The current rows on intervals, of seed 0."""
    return [r for r in read(RESULTS / "forecast_coverage.jsonl") if (r["recipe"], r["seed"]) == (TRAINED, 0)]


def coverage(place: Any) -> str:
    """Coverage for each case and loss: as learned, calibrated by ``fit``, and calibrated by newer errors too."""
    cases: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for row in covered():
        cases.setdefault((row["dataset"], row["input_size"], row["h"]), {})[row["loss"]] = row
    lines = [
        "| set, lookback → horizon | loss | as learned | calibrated by `fit` | updated calibration |",
        "|---|---|---|---|---|",
    ]
    for (dataset, lookback, h), losses in cases.items():
        for loss, row in sorted(losses.items(), key=lambda item: COVERED.index(item[0])):
            cells = [
                ", ".join(f"{100 * row[of][v]['inside']:.1f} ({row[of][v]['score']:.2f})" for v in ("80", "95"))
                if of in row
                else "—"
                for of in ("own", "fit", "moving")
            ]
            lines.append(f"| {' | '.join((f'{dataset}, {lookback} → {h}', loss, *cells))} |")
    shown = [row for losses in cases.values() for row in losses.values()]
    lines += [
        "",
        "Percent of the values inside intervals of 80 and of 95 %; in brackets the interval score (lower is better). "
        f"{place(shown)}, 1 thread, seed 0.",
    ]
    return "\n".join(lines)


def small(place: Any) -> str:
    """Errors on small data, as ``fit`` trains there and with the other choice of mirrored windows."""
    rows = read(RESULTS / "forecast_small.jsonl")
    lines = [
        "| data, lookback → horizon (seeds) | training windows | as they are | with mirror images | change |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r["dataset"] for r in rows):
        of = [r for r in rows if r["dataset"] == name]
        both = [[r for r in of if r["mirrored"] is mirrored] for mirrored in (False, True)]
        errors = [[statistics.mean(r[m] for r in part) for m in ("mae", "mse")] for part in both]
        default = of[0]["windows"] < FEW
        cells = [f"{mae:.3f} / {mse:.3f}" for mae, mse in errors]
        cells[default] = f"**{cells[default]}**"
        change = " / ".join(f"{100 * (new / old - 1):+.1f}" for old, new in zip(*errors, strict=True))
        title = f"{name}, {of[0]['input_size']} → {of[0]['h']} ({len(both[0])})"
        lines.append("| " + " | ".join((title, f"{of[0]['windows']:,}", *cells, f"{change} %")) + " |")
    lines += [
        "",
        "MAE / MSE, each relative to that of the seasonal naive forecast of the same series, means over series and "
        f"seeds; bold: the default, which is to mirror fewer than {FEW:,} windows. {place(rows)}, 1 thread.",
    ]
    return "\n".join(lines)


def limits(place: Any) -> str:
    rows = {r["case"]: r for r in read(RESULTS / "forecast_limits.jsonl")}
    texts = {
        "long_lookback": lambda r: (
            f"`fit` on {r['windows']} windows {r['fit_seconds']:.0f} s, a forecast {r['predict_seconds']:.2f} s"
        ),
        "many_series": lambda r: (
            f"two epochs {r['fit_seconds']:.0f} s, all forecasts with intervals {r['predict_seconds']:.1f} s"
        ),
        "ecl_shape": lambda r: (
            f"read and verified in {r['load_seconds']:.0f} s; an epoch of {r['epoch_windows']:,} of "
            f"{r['all_windows']:,} windows, with validation, {r['epoch_seconds_with_validation']:.0f} s; an epoch of "
            f"{EPOCH * windows_in_batch(128, r['series'])} windows of all series, mixed, "
            f"{r['mixed_epoch_seconds_with_validation']:.0f} s; scoring all {r['test_windows']:,} test windows "
            f"{r['test_seconds']:.0f} s"
        ),
    }
    texts["traffic_shape"] = texts["ecl_shape"]
    names = {
        "long_lookback": "a lookback of 50,000 steps, ETTm1",
        "many_series": "10,000 series of 40 to 79 months",
        "ecl_shape": "data with the shape of ECL, 26,304 x 321",
        "traffic_shape": "data with the shape of Traffic, 17,544 x 862",
    }
    lines = ["| | time | peak memory |", "|---|---|---|"]
    lines += [f"| {names[case]} | {texts[case](row)} | {row['peak_mb']:,.0f} MB |" for case, row in rows.items()]
    lines += ["", f"Each case in its own process; {place(list(rows.values()))}, 1 thread."]
    return "\n".join(lines)


def ablated() -> tuple[list[dict[str, Any]], list[str], set[str]]:
    """The current rows, their sets, and the sets whose rows have the current settings."""
    every = read(RESULTS / "forecast_ablation.jsonl")
    sets = list(dict.fromkeys(r["dataset"] for r in every))
    # cells of earlier settings are used until all cells with the current settings exist
    standing = {name: _newest_variants([r for r in every if r["dataset"] == name], chosen(name)) for name in sets}
    now = {name for name, settings in standing.items() if settings is not None and settings == chosen(name)}
    return [r for r in every if r.get("settings") == standing[r["dataset"]]], sets, now


def ablation(place: Any) -> str:
    rows, sets, now = ablated()
    titles = [name if name in now else f"{name}†" for name in sets]
    lines = ["| | " + " | ".join(titles) + " |", "|---|" + "---|" * len(sets)]
    for variant in dict.fromkeys(r["variant"] for r in rows):
        of = [[r for r in rows if (r["variant"], r["dataset"]) == (variant, name)] for name in sets]
        lines.append(
            f"| {'**full**' if variant == 'full' else variant} | " + " | ".join(map(_mean_of_seeds, of)) + " |"
        )
    note = " † Settings of an earlier rule or training recipe." if len(now) < len(sets) else ""
    lines += ["", f"MSE / MAE, 96 -> 96; in brackets the number of seeds.{note} {place(rows)}, 1 thread."]
    return "\n".join(lines)


def _newest_variants(rows: list[dict[str, Any]], present: dict[str, Any] | None) -> dict[str, Any] | None:
    """The current settings if every variant was run with them, else the newest such settings."""
    variants = {r["variant"] for r in rows}
    settings = [r.get("settings") for r in rows]
    complete = [s for s in settings if variants == {r["variant"] for r in rows if r.get("settings") == s}]
    return present if present is not None and present in complete else complete[-1] if complete else None


def _mean_of_seeds(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "not yet"
    mse, mae = (statistics.mean(r[name] for r in rows) for name in ("mse", "mae"))
    spread = f", ±{statistics.stdev(r['mse'] for r in rows):.4f}" if len(rows) > 1 else ""
    return f"{mse:.4f} / {mae:.4f} ({len(rows)}{spread})"


TABLES = {
    "table3": table3,
    "searched": searched,
    "ablation": ablation,
    "online": online,
    "coverage": coverage,
    "small": small,
    "limits": limits,
}
