"""What is wrong, said on the command line in its own words: options, not arguments of Python."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from titans_ts.seasons import Season

_NUMBERS = "write its numbers as 1234.56, or as 1234,56 where ; parts the cells, with nothing between thousands"
# what errors call an argument of Python, and what they advise to do in it
_OPTIONS = {
    "Drop or convert it; or, if this is a long frame, name its columns: "
    "df.rename(columns={...: 'unique_id', ...: 'ds', ...: 'y'})": f"Drop it, or {_NUMBERS}; or, if this is a long "
    "file, name its columns: --id, --time, --target",
    "Convert it with pd.to_numeric": _NUMBERS.capitalize(),
    "Words are encoded, for instance by pd.get_dummies": "Write words as columns of 0 and 1",
    "Fill the gap (for instance df.resample, or missing='interpolate' or 'mask')": "Fill the gap (or --missing "
    "interpolate or mask)",
    "freq=pd.offsets.CustomBusinessDay(weekmask='Mon Tue Wed Thu Fri Sat', holidays=[...])": "--missing mask",
    "name the place whose clock it is: ds.dt.tz_localize('Europe/Berlin', ambiguous='infer')": "name the place "
    "whose clock it is: --timezone Europe/Berlin",
    "Fill them (for instance df.interpolate())": "Fill them",
    "Make them regular (for instance df.resample), or pass freq": "Make them regular, or name --freq",
    "df.sort_index(), or df.sort_values('ds')": "its rows by their time",
    "df.sort_values(['unique_id', 'ds'])": "its rows by series and time",
    "make it the index (df.set_index, of time stamps by pd.to_datetime), or name it 'ds'": "name it, --time",
    "declared in exogenous": "named by --hist or --futr",
    "exogenous declares": "the model has",
    "exogenous calendar='auto'": "--calendar",
    "exogenous profile='auto'": "--profile",
    "Drop them; exogenous={'calendar': 'auto'} tells": "Drop them; --calendar tells",
    "pass the freq that the data has": "name the step that the data has, --freq",
    "Pass the freq that the data has": "Name the step that the data has, --freq",
    "Pass freq, such as freq='h'": "Name the step, such as --freq h",
    "missing='interpolate' or 'mask'": "--missing interpolate or mask",
    "missing='mask' or 'interpolate'": "--missing mask or interpolate",
    "missing='interpolate'": "--missing interpolate",
    "missing='mask'": "--missing mask",
    "in futr_df": "in a file, --future",
    "futr_df": "--future",
    "in static_df": "in a file, --static",
    "static_df": "--static",
    "Give another checkpoint_dir": "Give another --checkpoint",
    "Give another study_name or storage": "Give another --storage",
    "Give another storage": "Give another --storage",
    "or use multivariate=False": "or leave out --multivariate",
    "multivariate=True": "--multivariate",
    "loss='quantile'": "--loss quantile",
    "loss='student_t'": "--loss student_t",
    "n_windows": "--windows",
    "step_size=": "--step ",
    "step_size": "--step",
    "val_size=": "--val-size ",
    "Fit with val_size": "Fit with --val-size",
    "larger val_size": "larger --val-size",
    "+ h =": "+ --horizon =",
    "or h.": "or --horizon.",
    "input_size": "--lookback",
    "h=": "--horizon ",
    "lower h.": "lower --horizon.",
    "predict(df) forecasts them, given their rows": "predict forecasts them, given a file of their rows",
    "only predict(df) takes them": "only predict takes them, given a file of their rows",
    "give predict(df) the rows of these series": "give predict a file of the rows of these series",
    "of NaN if need be": "its cells empty if need be",
    "df": "the file",
}
# not where it is a part of a name, of a path, or in quotes
_ARGUMENT = re.compile(rf"(?<![\w'/\\.-])(?:{'|'.join(map(re.escape, _OPTIONS))})(?![_/\\-]|\.\w)")


def told_season(season: Season) -> str:
    """What a backtest is compared with."""
    if season.rows == 1:
        return "the last value"
    week = ", a week: that was nearer before the first cutoff than a day" if season.of_a_day < 1 else ""
    return f"each step as it was {season.rows} rows ago{week}"


@contextmanager
def told() -> Iterator[None]:
    """What is wrong with the data, or with the training, is said in words: without a traceback, or the line of code
    that warns."""

    def said(message: Warning | Exception) -> str:
        return _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], str(message))

    with warnings.catch_warnings():
        shown, told_before = warnings.showwarning, set()

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            if isinstance(message, UserWarning):
                words = said(message)
                if words not in told_before:  # each trial of a search warns of the data
                    typer.secho(f"Warning: {words}", fg="yellow", err=True)
                told_before.add(words)
            else:
                shown(message, *where, **more)

        warnings.showwarning = show
        try:
            yield
        except (ValueError, TypeError, ImportError, OSError, ArithmeticError) as error:
            typer.secho(f"Error: {said(error)}", fg="red", err=True)
            raise typer.Exit(1) from error
