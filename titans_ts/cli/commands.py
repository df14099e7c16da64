"""Command line of the forecaster. See ``python -m titans_ts --help``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError as error:
    raise ImportError("the command line needs typer: pip install 'titans-suite[cli]'") from error

import numpy as np
import pandas as pd

from titans_core.archive import check_kind, kind_of
from titans_core.files import written_whole
from titans_ts.cli.dates import of_numbers
from titans_ts.cli.files import (
    check_exogenous,
    columns_of,
    read_future_file,
    read_series,
    read_static_file,
    writable,
    write_table,
)
from titans_ts.cli.options import (
    LARGEST_SEED,
    Calendar,
    Data,
    Dates,
    Epochs,
    Freq,
    Futr,
    Hist,
    Horizon,
    Id,
    Jobs,
    Level,
    Lookbacks,
    Loss,
    LossOption,
    Missing,
    MissingOption,
    Multivariate,
    Profile,
    Quiet,
    Seed,
    Static,
    Target,
    Time,
    ValSize,
    Zone,
    in_home,
)
from titans_ts.cli.words import plain_messages, season_text
from titans_ts.frames.libraries import to_pandas

app = typer.Typer(
    help=(
        "Forecast time series from a CSV or Parquet file.\n\n"
        "A wide file has one column of time stamps and one column per series. A long file has a column of series names "
        "(--id), one of time stamps (--time) and one of values (--target)."
    ),
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


# weekdays matter if the naive forecast of a week ago has less than this part of the error of a day ago
MUCH = 0.8
SMALL = 1e-3  # errors below have too few digits in four decimals
LOOKBACK = 96
# stored with a saved model: the options with which its training file was read
_READ = "file.json"


@app.command()
@plain_messages()
def fit(
    data: Data,
    model: Annotated[Path, typer.Option("--model", callback=in_home, help="Folder to save the model in.")],
    horizon: Horizon = 96,
    lookback: Lookbacks = None,
    time: Time = None,
    id: Id = None,
    target: Target = None,
    date_format: Dates = None,
    timezone: Zone = None,
    freq: Freq = None,
    loss: LossOption = Loss.mae,
    missing: MissingOption = Missing.error,
    hist: Hist = None,
    futr: Futr = None,
    static: Static = None,
    calendar: Calendar = False,
    profile: Profile = False,
    multivariate: Multivariate = False,
    val_size: ValSize = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", callback=in_home, help="Folder for checkpoints; the same call resumes from them."),
    ] = None,
    epochs: Epochs = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    quiet: Quiet = False,
) -> None:
    """Train on all series of a file and save the model."""
    writable(model, "folder")
    check_kind(model, "TitansEnsemble" if lookback and len(lookback) > 1 else "TitansForecaster")
    frame = read_series(data, time, id, target, date_format, timezone)
    check_exogenous(frame, data, {"--hist": hist, "--futr": futr})
    facts = _facts(static, id, frame)
    made = _made(horizon, lookback, freq, loss, missing, multivariate, epochs, seed, quiet, jobs,
                 hist=hist, futr=futr, stat=_names(facts), calendar=calendar, profile=profile)  # fmt: skip
    fitted = made.fit(frame, static_df=facts, val_size=val_size, checkpoint_dir=checkpoint)
    _save(fitted, model, _reading_options(time, id, target, date_format, timezone))
    for each in _members(fitted):
        best = each.history_.epochs[each.history_.best_epoch]
        losses = ", ".join(f"{name} {value:.4f}" for name, value in best.items() if name.endswith("_loss"))
        typer.echo(f"lookback {each.input_size}: trained for {len(each.history_.epochs)} epochs, {losses}")
    typer.echo(f"saved in {model}")


@app.command()
@plain_messages()
def predict(
    model: Annotated[Path, typer.Option("--model", callback=in_home, help="Folder of a saved model.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Forecast from the end of this file. Default: from the end of the data of fit and update.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", callback=in_home, help="CSV or Parquet file to write. Default: standard output."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", callback=in_home, help="Image file (PNG) for a plot.")] = None,
    future: Annotated[
        Path | None,
        typer.Option(
            "--future",
            help="File of the future columns, with time and series name. Without series names: valid for all series.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    static: Static = None,
    level: Level = None,
    time: Time = None,
    id: Id = None,
    target: Target = None,
    date_format: Dates = None,
    timezone: Zone = None,
) -> None:
    """Forecast the next steps with a saved model.

    The options --time, --id, --target, --date-format and --timezone default to those of fit.
    """
    writable(out, "table")
    writable(plot, "picture")
    fitted = _loaded(model)
    given = _reading_options(time, id, target, date_format, timezone)
    kept = _kept(model)
    frame = None if data is None else _as_known(fitted, read_series(data, **_as_fitted(data, given, kept)))
    del given["target"]
    ahead = None if future is None else _as_known(fitted, read_future_file(future, **_as_fitted(future, given, kept)))
    facts = None if static is None else read_static_file(static, _as_fitted(static, given, kept)["id"])
    facts = None if facts is None else _as_known(fitted, facts)
    answer = fitted._answer(frame, ahead, level or None, facts)
    _write(answer.frame(), out)
    if plot is not None:
        _draw(answer.picture(), plot)


@app.command()
@plain_messages()
def update(
    data: Data,
    model: Annotated[Path, typer.Option("--model", callback=in_home, help="Folder of a saved model.")],
    out: Annotated[
        Path | None, typer.Option("--out", callback=in_home, help="Folder to save in. Default: the same folder.")
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option("--accept-gap", help="Also save if more rows than a lookback are missing before the new ones."),
    ] = False,
    time: Time = None,
    id: Id = None,
    target: Target = None,
    date_format: Dates = None,
    timezone: Zone = None,
) -> None:
    """Add the rows that follow the data of a saved model, without training.

    Predict then forecasts from their end. Columns are read as by predict.
    """
    writable(out, "folder")
    fitted, kept = _loaded(model), _kept(model)
    check_kind(out or model, type(fitted).__name__)
    rows = _members(fitted)[0].position_.rows
    given = _as_fitted(data, _reading_options(time, id, target, date_format, timezone), kept)
    newer = _as_known(fitted, read_series(data, **given))
    fitted.update(newer)
    after = _members(fitted)[0]
    added, end = after.position_.rows - rows, after.context_.index[-1]
    missing = added - (newer["ds"].nunique() if "ds" in newer else len(newer))
    if missing > max(each.input_size for each in _members(fitted)) and not accept_gap:
        raise ValueError(
            f"up to the end of {data}, at {end}, {missing} rows are missing, more than a lookback. Nothing is saved. "
            "If its dates are right, give --accept-gap."
        )
    _save(fitted, out or model, kept)
    typer.echo(f"added {added} rows, up to {end}; saved in {out or model}")


@app.command()
@plain_messages()
def backtest(
    data: Data,
    windows: Annotated[int, typer.Option(help="Number of successive forecasts.", min=1)] = 5,
    step: Annotated[int | None, typer.Option(help="Rows between forecasts. Default: the horizon.")] = None,
    refit: Annotated[bool, typer.Option(help="Train again for each forecast.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", callback=in_home, help="CSV or Parquet file for the forecasts.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", callback=in_home, help="Image file (PNG) for a plot.")] = None,
    horizon: Horizon = 96,
    lookback: Lookbacks = None,
    time: Time = None,
    id: Id = None,
    target: Target = None,
    date_format: Dates = None,
    timezone: Zone = None,
    freq: Freq = None,
    loss: LossOption = Loss.mae,
    missing: MissingOption = Missing.error,
    hist: Hist = None,
    futr: Futr = None,
    static: Static = None,
    calendar: Calendar = False,
    profile: Profile = False,
    multivariate: Multivariate = False,
    val_size: ValSize = None,
    epochs: Epochs = None,
    level: Level = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    quiet: Quiet = False,
) -> None:
    """Train on the past, forecast the steps that followed, and print the errors."""
    from titans_ts.cli.error_table import error_table

    writable(out, "table")
    writable(plot, "picture")
    frame = read_series(data, time, id, target, date_format, timezone)
    check_exogenous(frame, data, {"--hist": hist, "--futr": futr})
    facts = _facts(static, id, frame)
    made = _made(horizon, lookback, freq, loss, missing, multivariate, epochs, seed, quiet, jobs,
                 hist=hist, futr=futr, stat=_names(facts), calendar=calendar, profile=profile)  # fmt: skip
    found = made.cross_validation(
        frame,
        n_windows=windows,
        step_size=step,
        refit=refit,
        val_size=val_size,
        level=level or None,
        static_df=facts,
    )
    if out is not None:
        _write(found, out)
    table, season = error_table(found, frame, _step(freq), level or [])
    typer.echo(table.map(_rounded).to_string())
    typer.echo(f"naive forecast: {season_text(season)}", err=True)
    longest = max(lookback or [LOOKBACK])
    if season.of_a_day < MUCH and longest < season.rows and not (calendar or profile):
        typer.echo(
            f"Weekdays differ in this data, but --lookback {longest} is shorter than a week: "
            f"try --lookback {season.rows}, --calendar or --profile.",
            err=True,
        )
    if plot is not None:
        from titans_ts.plots import plot_backtest

        _draw(plot_backtest(found), plot)


@app.command()
@plain_messages()
def tune(
    data: Data,
    model: Annotated[Path, typer.Option("--model", callback=in_home, help="Folder to save the best model in.")],
    trials: Annotated[int, typer.Option(help="Total number of finished trials of the study.", min=1)] = 30,
    storage: Annotated[
        str | None,
        typer.Option(help="File of the study: .db, or .journal for several processes. An existing study is continued."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="No trial starts after this many seconds.")] = None,
    horizon: Horizon = 96,
    lookback: Annotated[
        int,
        typer.Option(
            help="The lookback is searched; series too short for this one are skipped, unless half of them are.", min=1
        ),
    ] = LOOKBACK,
    time: Time = None,
    id: Id = None,
    target: Target = None,
    date_format: Dates = None,
    timezone: Zone = None,
    freq: Freq = None,
    loss: LossOption = Loss.mae,
    missing: MissingOption = Missing.error,
    hist: Hist = None,
    futr: Futr = None,
    static: Static = None,
    multivariate: Multivariate = False,
    val_size: ValSize = None,
    epochs: Epochs = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed of each training; without --storage also of the search.", min=0, max=LARGEST_SEED
        ),
    ] = 0,
    quiet: Quiet = False,
) -> None:
    """Search for the settings with the lowest validation error, and save the best model.

    Calendar and profile are part of the search, unless there are exogenous columns.
    """
    from titans_core.train.tune import FINISHED
    from titans_ts import tune as search

    writable(model, "folder")
    check_kind(model, "TitansForecaster")
    frame = read_series(data, time, id, target, date_format, timezone)
    check_exogenous(frame, data, {"--hist": hist, "--futr": futr})
    facts = _facts(static, id, frame)
    made = _made(horizon, [lookback], freq, loss, missing, multivariate, epochs, seed, True,
                 hist=hist, futr=futr, stat=_names(facts))  # fmt: skip
    best = search.tune(
        frame,
        made,
        n_trials=trials,
        storage=storage,
        timeout=timeout,
        val_size=val_size,
        static_df=facts,
        random_state=None if storage else seed,  # processes that share a study must not propose the same trials
        verbose=not quiet,
    )
    _save(best, model, _reading_options(time, id, target, date_format, timezone))
    finished = len(best.study_.get_trials(deepcopy=False, states=FINISHED))
    typer.echo(f"best of {finished} trials: {best.study_.best_value:.4f} with")
    typer.echo(json.dumps(best.study_.best_params, indent=1))
    typer.echo(f"saved in {model}")


def _made(
    horizon: int,
    lookbacks: Sequence[int] | None,
    freq: str | None,
    loss: Loss,
    missing: Missing,
    multivariate: bool,
    epochs: int | None,
    seed: int,
    quiet: bool,
    jobs: int | None = None,
    calendar: bool = False,
    profile: bool = False,
    **columns: list[str] | None,
) -> Any:
    """A forecaster, or for several lookbacks an ensemble."""
    from titans_ts import TitansEnsemble, TitansForecaster

    lookbacks = lookbacks or [LOOKBACK]
    if len(set(lookbacks)) < len(lookbacks):
        raise ValueError("the same --lookback twice gives the same model twice: give others.")
    if jobs is not None and len(lookbacks) == 1:
        raise ValueError("--jobs is for the models of several lookbacks: give --lookback more than once.")
    exogenous: dict[str, Any] = {kind: names for kind, names in columns.items() if names}
    exogenous |= {kind: "auto" for kind, wanted in (("calendar", calendar), ("profile", profile)) if wanted}
    members = [
        TitansForecaster(
            h=horizon,
            input_size=lookback,
            freq=_step(freq),
            loss=loss.value,
            missing=missing.value,
            exogenous=exogenous or None,
            multivariate=multivariate,
            max_epochs=epochs,
            random_state=seed,
            verbose=0 if quiet else 1,
        )
        for lookback in lookbacks
    ]
    return members[0] if len(members) == 1 else TitansEnsemble(members, n_jobs=jobs)


def _step(freq: str | None) -> str | int | None:
    """A step of the time axis: a number for integer time stamps."""
    return int(freq) if freq is not None and freq.isdecimal() else freq


def _loaded(model: Path) -> Any:
    """The forecaster or ensemble in a folder."""
    from titans_ts import TitansEnsemble, TitansForecaster

    return (TitansEnsemble if kind_of(model) == "TitansEnsemble" else TitansForecaster).load(model)


def _members(fitted: Any) -> list[Any]:
    """The forecasters of an ensemble, or the forecaster itself."""
    return getattr(fitted, "forecasters_", [fitted])


def _reading_options(
    time: str | None, id: str | None, target: str | None, date_format: str | None, timezone: str | None
) -> dict[str, str | None]:
    return {"time": time, "id": id, "target": target, "date_format": date_format, "timezone": timezone}


def _save(fitted: Any, model: Path, how: dict[str, str | None]) -> None:
    fitted.save(model)
    with written_whole(model / _READ) as part:
        part.write_text(json.dumps(how))


def _kept(model: Path) -> dict[str, str | None]:
    """The options with which the training file of a model was read."""
    found: dict[str, str | None] = json.loads((model / _READ).read_text()) if (model / _READ).is_file() else {}
    return found


def _as_fitted(path: Path, given: dict[str, str | None], kept: dict[str, str | None]) -> dict[str, str | None]:
    """The options to read a file: those given, else those of ``fit``; column names only if the file has them."""
    there = columns_of(path)
    known = {name: x for name, x in kept.items() if name in ("date_format", "timezone") or x in there}
    return {name: known.get(name) if x is None else x for name, x in given.items()}


def _as_known(fitted: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Time stamps and series names of the types that the model has: a file cannot tell the months 202401 and 202402
    from numbers."""
    context = _members(fitted)[0].context_
    if isinstance(context.index, pd.DatetimeIndex):
        if "ds" in frame:
            frame = frame.assign(ds=of_numbers(frame["ds"]))
        elif frame.index.name == "ds":
            frame = frame.set_axis(pd.Index(of_numbers(frame.index.to_series())))
    return _named_as(context.ids, frame)


def _named_as(ids: Sequence[Any], frame: pd.DataFrame) -> pd.DataFrame:
    """Series names of the types that ``ids`` have: a file cannot tell the name "1" from the number 1. A missing name
    stays one."""
    wide = frame.index.name == "ds"
    if not wide and "unique_id" not in frame:
        return frame
    known = {str(name): name for name in ids}
    of_text = all(isinstance(name, str) for name in ids)
    there = frame.columns if wide else frame["unique_id"].dropna().unique()
    names = {x: known.get(str(x), str(x) if of_text else x) for x in there}
    return frame.rename(columns=names) if wide else frame.assign(unique_id=frame["unique_id"].map(names))


def _facts(static: Path | None, id: str | None, frame: pd.DataFrame) -> pd.DataFrame | None:
    """Static columns, with the series names of the data of ``fit``."""
    facts = read_static_file(static, id)
    ids = frame["unique_id"].dropna().unique() if "unique_id" in frame else frame.columns
    return None if facts is None else _named_as(list(ids), facts)


def _names(facts: pd.DataFrame | None) -> list[str]:
    return [] if facts is None else [str(name) for name in facts.columns if name != "unique_id"]


def _rounded(error: float) -> float:
    """Four decimals; of a smaller number, three digits."""
    return round(error, 4) if abs(error) >= SMALL else float(f"{error:.3g}")


def _draw(picture: Any, plot: Path) -> None:
    with written_whole(plot) as part:
        picture.savefig(part, dpi=150)
    typer.echo(f"saved plot {plot}", err=True)


def _write(found: Any, out: Path | None) -> None:
    """Write forecasts of any layout: a model may have been fitted on polars frames or matrices."""
    frame = pd.DataFrame(found.reshape(len(found), -1)) if isinstance(found, np.ndarray) else to_pandas(found)
    index = frame.index.name == "ds"
    if out is None:
        typer.echo(frame.to_csv(index=index), nl=False)  # it ends with a line break
    else:
        write_table(frame, out, index)
        typer.echo(f"wrote {out}", err=True)
