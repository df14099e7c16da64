"""Settings for each benchmark set, chosen before the test by one rule for all.

    python benchmarks/forecast_search.py [--sets ETTm2 ...] [--lookbacks]

Scored are the validation rows, of two trainings each: that of the protocol, which they also stop, and a rehearsal, the
protocol a block earlier, which neither saw them nor was stopped by them. The first flatters what stops well on them,
the second has less to learn from than the training that counts (of ETT by a third, of weather by a seventh); an error
here is the mean of both, of MSE + MAE. Test rows are never read.

At horizon 96, lookback 96 and seed 0, two questions one after the other: the calendar, the mixing of series and the
profile of a day, each off and on (dropout 0.3); and the dropout. With ``--lookbacks`` a third one behind them, which
lookback of 96, 336 and 720, for the table of searched lookbacks. An answer stays as the forecaster's default (no
calendar, no mixing, no profile, dropout 0.5, 96) unless another lowers the error by more than 1 %: less is within what
seeds do. To keep it short all train for 600 batches, half of the least that the forecaster takes by default. Cells that
are done are skipped, and several processes share the work.
"""

import argparse
import itertools
from collections.abc import Iterable
from typing import Any

import torch
from cells import work
from records import RESULTS, read

FILE = RESULTS / "forecast_search.jsonl"
SETS = ("ETTh1", "ETTh2", "weather", "ETTm1", "ETTm2")
LARGE = ("ECL", "traffic")  # only where they are asked for
NAMES = ("calendar", "multivariate", "profile", "dropout")
FIELDS = ("dataset", "input_size", "part", "recipe", *NAMES)
PARTS = ("rehearsal", "val")
LOOKBACKS = (96, 336, 720)  # the default first
MIXED = (96, 336)  # lookbacks of an ensemble that does not choose
RECIPE = 2  # of the trainings here; what was found by an earlier one says nothing of this
TRAINED = 3  # of trainings by default, which are longer since: those here are as short as ever
# more of either with a profile, which since is only as much as holds, and told; without one nothing changed
TOLD = 3
FIRST, DEFAULT = 0.3, 0.5
MARGIN = 0.01
ROUNDS = 6  # of 100 batches

Settings = tuple[bool, bool, bool, float]


def forecaster(calendar: bool, multivariate: bool, profile: bool, dropout: float, recipe: int, **options: Any) -> Any:
    """The forecaster of a cell."""
    if recipe not in (recipe_of(RECIPE, profile), recipe_of(TRAINED, profile)):
        raise ValueError(f"the forecaster is trained by recipe {recipe_of(TRAINED, profile)} now, not by {recipe}.")
    return alone(
        exogenous={**({"calendar": "auto"} if calendar else {}), **({"profile": ["day"]} if profile else {})},
        multivariate=multivariate,
        dropout=dropout,
        **options,
    )


def ensemble(profiles: list[bool], recipes: list[int], **settings: Any) -> Any:
    """The ensemble of a cell: the same forecaster with a profile and without."""
    from titans_ts import TitansEnsemble

    pairs = zip(profiles, recipes, strict=True)
    return TitansEnsemble([forecaster(profile=profile, recipe=recipe, **settings) for profile, recipe in pairs])


def of_lookbacks(dataset: str) -> dict[str, Any] | None:
    """The same at several lookbacks, of which it need not choose one either."""
    settings = of_both(dataset)
    return None if settings is None else {**settings, "lookbacks": list(MIXED)}


def ensemble_of_lookbacks(lookbacks: list[int], **settings: Any) -> Any:
    """The ensemble of a cell: that of :func:`ensemble` at each lookback."""
    from titans_ts import TitansEnsemble

    members = [ensemble(input_size=lookback, **settings).forecasters for lookback in lookbacks]
    return TitansEnsemble([each for some in members for each in some])


def recipe_of(trainings: int, profile: bool) -> int:
    """The recipe of trainings here (RECIPE) or by default (TRAINED), with a profile or without."""
    return trainings + TOLD * profile


def alone(**options: Any) -> Any:
    """A forecaster without its online memory: a lookback is all that the protocol allows."""
    from titans_ts import TitansForecaster
    from titans_ts.memory_training import MemoryReport

    class TitansForecasterAlone(TitansForecaster):
        def _train_memory(self, *args: Any, **kwargs: Any) -> tuple[None, MemoryReport]:
            return None, MemoryReport(0)

    return TitansForecasterAlone(verbose=0, **options)


def chosen(dataset: str) -> dict[str, Any] | None:
    """The settings that the rule leads to, and the recipe that they were found by; None while cells are missing."""
    settings, missing = _asked(dataset)
    found = dict(zip(NAMES, settings, strict=True))
    return None if missing else {**found, "recipe": recipe_of(TRAINED, found["profile"])}


def of_both(dataset: str) -> dict[str, Any] | None:
    """The chosen settings, with a profile and without: of an ensemble, which need not choose."""
    settings = chosen(dataset)
    if settings is None:
        return None
    profiles = [False, True]
    recipes = [recipe_of(TRAINED, profile) for profile in profiles]
    kept = {name: settings[name] for name in NAMES if name != "profile"}
    return {**kept, "profiles": profiles, "recipes": recipes}


def chosen_lookback(dataset: str) -> int | None:
    """The lookback that the rule leads to; None while cells are missing."""
    settings, missing = _asked(dataset)
    errors = [_errors(dataset, lookback).get(settings) for lookback in LOOKBACKS]
    if missing or None in errors:
        return None
    return LOOKBACKS[_answer(errors)]


def _errors(dataset: str, input_size: int) -> dict[Settings, float]:
    """The mean error of settings that were scored both ways."""
    found: dict[Settings, dict[str, float]] = {}
    for row in read(FILE):
        this = (dataset, input_size, recipe_of(RECIPE, row["profile"]))
        if (row["dataset"], row["input_size"], row["recipe"]) == this and row["part"] in PARTS:
            found.setdefault(tuple(row[name] for name in NAMES), {})[row["part"]] = row["mse"] + row["mae"]
    both = len(PARTS)
    return {settings: sum(errors.values()) / both for settings, errors in found.items() if len(errors) == both}


def _answer(errors: list[float]) -> int:
    """Which of the errors counts as the lowest; the first is that of the default."""
    lowest = min(range(len(errors)), key=errors.__getitem__)
    return lowest if errors[lowest] < (1 - MARGIN) * errors[0] else 0


def _asked(dataset: str) -> tuple[Settings, list[Settings]]:
    """What the rule leads to by the cells that there are, and which it asks for next; none when it is at its end."""
    error = _errors(dataset, LOOKBACKS[0])
    best: Settings = (False, False, False, FIRST)
    questions = (
        lambda s: [(*switches, s[3]) for switches in itertools.product((False, True), repeat=3)],
        lambda s: [(*s[:3], dropout) for dropout in (DEFAULT, 0.1, FIRST)],
    )
    for question in questions:
        answers = question(best)  # the default first
        missing = [settings for settings in answers if settings not in error]
        if missing:
            return best, missing
        best = answers[_answer([error[settings] for settings in answers])]
    return best, []


def _cells(dataset: str, lookbacks: tuple[int, ...], asked: list[Settings]) -> list[tuple[Any, ...]]:
    return [
        (dataset, lookback, part, recipe_of(RECIPE, settings[NAMES.index("profile")]), *settings)
        for settings in asked
        for lookback in lookbacks
        for part in PARTS
    ]


def _run(key: tuple[Any, ...]) -> dict[str, Any]:
    from titans_ts.evaluation import evaluate_protocol

    dataset, input_size, part, recipe, *settings = key
    model = forecaster(*settings, recipe, max_epochs=ROUNDS)
    found = evaluate_protocol(model, dataset, input_size=input_size, h=96, seed=0, part=part)
    return {k: v for k, v in found.items() if k not in (*FIELDS, "model")}


def search(sets: Iterable[str], lookbacks: bool) -> None:
    """Run the cells that the rule asks for, until it is at its end or another process has the rest."""
    torch.set_num_threads(1)
    for dataset in sets:
        before = None
        while (missing := _asked(dataset)[1]) and missing != before:
            work(FILE, _cells(dataset, LOOKBACKS[:1], missing), FIELDS, _run)
            before = missing  # the same again: another process is at them
        settings, missing = _asked(dataset)
        if lookbacks and not missing:
            work(FILE, _cells(dataset, LOOKBACKS, [settings]), FIELDS, _run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=(*SETS, *LARGE), default=SETS)
    parser.add_argument("--lookbacks", action="store_true", help="ask for the lookback too")
    args = parser.parse_args()
    search(args.sets, args.lookbacks)
