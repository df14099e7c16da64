"""The options of the command line that several commands share."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

LARGEST_SEED = 2**32 - 1


def in_home(path: Path | None) -> Path | None:
    """A path whose ``~`` the shell has not replaced, as in ``--model=~/m``."""
    return None if path is None else path.expanduser()


class Loss(str, Enum):
    """Training losses."""

    mae = "mae"
    mse = "mse"
    huber = "huber"
    quantile = "quantile"
    normal = "normal"
    laplace = "laplace"
    student_t = "student_t"


class Missing(str, Enum):
    """How to treat missing values."""

    error = "error"
    interpolate = "interpolate"
    mask = "mask"


Data = Annotated[Path, typer.Argument(help="CSV (also .gz) or Parquet file.", exists=True, dir_okay=False)]
Time = Annotated[
    str | None,
    typer.Option(
        "--time", help="Column of time stamps. Default: 'ds', else the first non-numeric column, else the first."
    ),
]
Id = Annotated[
    str | None, typer.Option("--id", help="Column of series names in a long file. Default: 'unique_id', if present.")
]
Target = Annotated[str | None, typer.Option("--target", help="Column of values in a long file. Default: 'y'.")]
Horizon = Annotated[int, typer.Option("--horizon", help="Steps to forecast.", min=1)]
Lookbacks = Annotated[
    list[int] | None,
    typer.Option(
        "--lookback",
        help="Past steps that a forecast uses. Default: 96. May be repeated, for the mean of one model for each.",
        min=1,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", help="Processes to train several lookbacks in; -1 is one per core. Default: one."),
]
Dates = Annotated[
    str | None,
    typer.Option("--date-format", help="Format of the time stamps, such as '%d.%m.%Y'. Default: inferred."),
]
Zone = Annotated[
    str | None,
    typer.Option("--timezone", help="Time zone of the time stamps, such as 'Europe/Berlin'."),
]
Freq = Annotated[str | None, typer.Option(help="Step of the time axis: 'h', '15min', 'D', 'MS' ... Default: inferred.")]
LossOption = Annotated[Loss, typer.Option(help="Training loss: of a point forecast, of quantiles or a distribution.")]
MissingOption = Annotated[Missing, typer.Option(help="How to treat empty cells and missing rows.")]
Hist = Annotated[
    list[str] | None, typer.Option("--hist", help="Column known only for the past (long files; may be repeated).")
]
Futr = Annotated[
    list[str] | None, typer.Option("--futr", help="Column known for the future too (long files; may be repeated).")
]
Calendar = Annotated[bool, typer.Option(help="Use the time of day, week and year as features.")]
Profile = Annotated[bool, typer.Option(help="Forecast deviations from the mean day, week and year of each series.")]
Epochs = Annotated[
    int | None,
    typer.Option(help="Maximum number of epochs, of at most 100 batches each. Default: by the data size.", min=1),
]
Level = Annotated[
    list[float] | None,
    typer.Option("--level", help="Level of a prediction interval in percent, such as 80 (may be repeated)."),
]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same model.", min=0, max=LARGEST_SEED)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bars.")]
Static = Annotated[
    Path | None,
    typer.Option(
        "--static",
        help="File of static columns: one row per series with its name and numbers.",
        exists=True,
        dir_okay=False,
    ),
]
Multivariate = Annotated[bool, typer.Option("--multivariate", help="Mix the series with each other.")]
ValSize = Annotated[
    int | None,
    typer.Option("--val-size", help="Validation rows at the end. Default: about a fifth, at least --horizon.", min=0),
]
