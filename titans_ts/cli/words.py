"""Errors and warnings in terms of command-line options instead of Python arguments."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from titans_ts.frames.seasons import Season

_NUMBERS = "write its numbers as 1234.56 (1234,56 if the separator is ;), without a thousands separator"
# phrases of the Python messages, and what the command line says instead
_OPTIONS = {
    "Drop or convert it; or, if this is a long frame, rename its columns: "
    "df.rename(columns={...: 'unique_id', ...: 'ds', ...: 'y'})": f"Drop it, or {_NUMBERS}; or, if this is a long "
    "file, give its columns with --id, --time and --target",
    "Convert it with pd.to_numeric": _NUMBERS.capitalize(),
    "Encode categories, for instance with pd.get_dummies": "Encode categories as columns of 0 and 1",
    "Fill the gap (for instance with df.resample, or missing='interpolate' or 'mask')": "Fill the gap (or use "
    "--missing interpolate or mask)",
    "pass freq=pd.offsets.CustomBusinessDay(weekmask='Mon Tue Wed Thu Fri Sat', holidays=[...])": "use --missing mask",
    "set the time zone: ds.dt.tz_localize('Europe/Berlin', ambiguous='infer')": "set the time zone: --timezone "
    "Europe/Berlin",
    "Fill them (for instance with df.interpolate())": "Fill them",
    "Make them regular (for instance with df.resample), or pass freq": "Make them regular, or pass --freq",
    "df.sort_index(), or df.sort_values('ds')": "its rows by time",
    "df.sort_values(['unique_id', 'ds'])": "its rows by series and time",
    "make it the index (df.set_index, after pd.to_datetime), or rename it to 'ds'": "give it as --time",
    "Convert them with pd.to_datetime": "Write them as dates, or give --date-format",
    "Convert them with tz_localize or tz_convert": "Write them as in the file of fit, or give --timezone",
    "declared in exogenous": "named by --hist or --futr",
    "For NaN you can also set missing='interpolate', or before fit missing='mask'": "For NaN you can also fit with "
    "--missing interpolate or --missing mask",
    "exogenous declares": "the model has",
    "columns: add {'futr': [...]}": "columns: fit it with --futr",
    "columns: add {'stat': [...]}": "columns: fit it with --static",
    "exogenous calendar='auto'": "--calendar",
    "exogenous profile='auto'": "--profile",
    "Drop them; exogenous={'calendar': 'auto'} provides": "Drop them; --calendar provides",
    "give fit the freq of the data": "give fit the step of the data as --freq",
    "Give fit the freq of the data": "Give fit the step of the data as --freq",
    "Pass freq, such as freq='h'": "Pass the step, such as --freq h",
    "pass its freq": "pass its step as --freq",
    "missing='interpolate' or 'mask'": "--missing interpolate or mask",
    "missing='mask' or 'interpolate'": "--missing mask or interpolate",
    "missing='interpolate'": "--missing interpolate",
    "missing='mask'": "--missing mask",
    "in futr_df": "in a file, --future",
    "futr_df": "--future",
    "in static_df": "in a file, --static",
    "needs df: without df,": "needs a data file: without one,",
    "static_df": "--static",
    "Give checkpoint_dir to be able to resume": "Only fit with --checkpoint can be resumed",
    "Give storage to be able": "Give --storage to be able",
    "Give another checkpoint_dir": "Give another --checkpoint",
    "Give another study_name or storage, or the earlier space (space=)": "Give another --storage",
    "Give another study_name or storage": "Give another --storage",
    "Give another storage": "Give another --storage",
    "or use multivariate=False": "or leave out --multivariate",
    "multivariate=True": "--multivariate",
    "loss='quantile'": "--loss quantile",
    "loss='student_t'": "--loss student_t",
    "new_df": "the file",
    "load the forecaster from where it was saved before": "correct its dates",
    "n_windows": "--windows",
    "n_jobs": "--jobs",
    "step_size=": "--step ",
    "step_size": "--step",
    "val_size=": "--val-size ",
    "Fit with val_size": "Fit with --val-size",
    "larger val_size": "larger --val-size",
    "another val_size": "another --val-size",
    "+ h =": "+ --horizon =",
    "or h.": "or --horizon.",
    "input_size": "--lookback",
    "h=": "--horizon ",
    "lower h.": "lower --horizon.",
    "predict(df) forecasts them, given their rows": "predict forecasts them, given a file of their rows",
    "predict(df) forecasts those": "Given a file of their rows, predict forecasts those",
    "only predict(df) accepts them": "only predict accepts them, given a file of their rows",
    "call predict(df) with their rows alone": "give predict a file of their rows alone",
    "which may be NaN": "which may be empty",
    "df": "the file",
}
# not inside of a name, a path, or quotes
_ARGUMENT = re.compile(rf"(?<![\w'/\\.-])(?:{'|'.join(map(re.escape, _OPTIONS))})(?![_/\\-]|\.\w)")


def season_text(season: Season) -> str:
    """The naive forecast of a backtest, in words."""
    if season.rows == 1:
        return "the last value"
    week = " (a week, which was more accurate than a day before the first cutoff)" if season.of_a_day < 1 else ""
    return f"the value {season.rows} rows earlier{week}"


@contextmanager
def plain_messages() -> Iterator[None]:
    """Print errors and warnings about data or training as plain messages, without traceback or code line."""

    def translated(message: BaseException) -> str:
        return _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], str(message))

    with warnings.catch_warnings():
        shown, printed = warnings.showwarning, set()

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            if isinstance(message, UserWarning):
                words = translated(message)
                if words not in printed:  # each trial of a search repeats the warnings about the data
                    typer.secho(f"Warning: {words}", fg="yellow", err=True)
                printed.add(words)
            else:
                shown(message, *where, **more)

        warnings.showwarning = show
        try:
            yield
        except (ValueError, TypeError, ImportError, OSError, ArithmeticError) as error:
            typer.secho(f"Error: {translated(error)}", fg="red", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stopped:  # says what is kept; typer would end without a word
            typer.secho(translated(stopped), fg="red", err=True)
            raise typer.Exit(130) from stopped
