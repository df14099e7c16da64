"""Choose the settings for each benchmark set, before the test, by one rule for all sets.

    python benchmarks/forecast_search.py [--sets ETTm2 ...] [--lookbacks]

The validation rows are scored in two trainings: that of the protocol, which they also stop, and a rehearsal, which is
the protocol moved one block back, so that it neither sees these rows nor is stopped by them. The first favours settings
that stop well on these rows. The second has less training data than the protocol (a third less on ETT, a seventh less
on weather). The error is the mean of both, of MSE + MAE. Test rows are never read.

Two questions are decided one after the other, at horizon 96, lookback 96 and seed 0: whether to use the calendar, the
mixing of series and a daily profile, all combinations at dropout 0.3; and the dropout. ``--lookbacks`` decides a third
one, the lookback from 96, 336 and 720, for the table of searched lookbacks. The default (no calendar, no mixing, no
profile, dropout 0.5, lookback 96) is kept unless another answer lowers the error by more than 1 %, as smaller
differences are within the spread of seeds. To save time, all train for 600 batches, half of the forecaster's default
minimum. Finished cells are skipped, and several processes can share the work.
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
LARGE = ("ECL", "traffic")  # only if given by --sets
NAMES = ("calendar", "multivariate", "profile", "dropout")
FIELDS = ("dataset", "input_size", "part", "recipe", *NAMES)
PARTS = ("rehearsal", "val")
LOOKBACKS = (96, 336, 720)  # the default first
MIXED = (96, 336)  # lookbacks of an ensemble that does not choose one
RECIPE = 2  # version of the training in this search; results of earlier versions are ignored
# version of the default training, which became longer; the training in this search stayed as short (7: with half of the
# windows mirrored on the large sets too, which was tried and not kept)
TRAINED = 3
# added to both versions with a profile, which was changed: it is shrunk, and is an input of the network
WITH_PROFILE = 3
FIRST, DEFAULT = 0.3, 0.5
MARGIN = 0.01
ROUNDS = 6  # epochs of 100 batches

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
    """The chosen settings, with and without a profile, at several lookbacks: for an ensemble that chooses neither."""
    settings = of_both(dataset)
    return None if settings is None else {**settings, "lookbacks": list(MIXED)}


def ensemble_of_lookbacks(lookbacks: list[int], **settings: Any) -> Any:
    """The ensemble of a cell: two forecasters, as in :func:`ensemble`, at each lookback."""
    from titans_ts import TitansEnsemble

    members = [ensemble(input_size=lookback, **settings).forecasters for lookback in lookbacks]
    return TitansEnsemble([each for some in members for each in some])


def recipe_of(trainings: int, profile: bool) -> int:
    """The recipe number of this search (RECIPE) or of the default (TRAINED), with or without a profile."""
    return trainings + WITH_PROFILE * profile


def alone(**options: Any) -> Any:
    """A forecaster without its online memory, because the protocol allows only the lookback as input."""
    from titans_ts import TitansForecaster
    from titans_ts.network.memory_training import MemoryReport

    class TitansForecasterAlone(TitansForecaster):
        def _train_memory(self, *args: Any, **kwargs: Any) -> tuple[None, MemoryReport]:
            return None, MemoryReport(0)

    return TitansForecasterAlone(verbose=0, **options)


def chosen(dataset: str) -> dict[str, Any] | None:
    """The settings chosen by the rule, and the recipe to train them with; None while cells are missing."""
    settings, missing = _progress(dataset)
    found = dict(zip(NAMES, settings, strict=True))
    return None if missing else {**found, "recipe": recipe_of(TRAINED, found["profile"])}


def of_both(dataset: str) -> dict[str, Any] | None:
    """The chosen settings, both with and without a profile, for an ensemble."""
    settings = chosen(dataset)
    if settings is None:
        return None
    profiles = [False, True]
    recipes = [recipe_of(TRAINED, profile) for profile in profiles]
    kept = {name: settings[name] for name in NAMES if name != "profile"}
    return {**kept, "profiles": profiles, "recipes": recipes}


def chosen_lookback(dataset: str) -> int | None:
    """The lookback chosen by the rule; None while cells are missing."""
    settings, missing = _progress(dataset)
    errors = [_errors(dataset, lookback).get(settings) for lookback in LOOKBACKS]
    if missing or None in errors:
        return None
    return LOOKBACKS[_answer(errors)]


def _errors(dataset: str, input_size: int) -> dict[Settings, float]:
    """The mean error of all settings that were scored in both trainings."""
    found: dict[Settings, dict[str, float]] = {}
    for row in read(FILE):
        this = (dataset, input_size, recipe_of(RECIPE, row["profile"]))
        if (row["dataset"], row["input_size"], row["recipe"]) == this and row["part"] in PARTS:
            found.setdefault(tuple(row[name] for name in NAMES), {})[row["part"]] = row["mse"] + row["mae"]
    both = len(PARTS)
    return {settings: sum(errors.values()) / both for settings, errors in found.items() if len(errors) == both}


def _answer(errors: list[float]) -> int:
    """The index of the chosen error: the lowest, or 0, the default, if the margin is too small."""
    lowest = min(range(len(errors)), key=errors.__getitem__)
    return lowest if errors[lowest] < (1 - MARGIN) * errors[0] else 0


def _progress(dataset: str) -> tuple[Settings, list[Settings]]:
    """The settings chosen so far by the finished cells, and the settings to run next (none once the rule is done)."""
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


def _cells(dataset: str, lookbacks: tuple[int, ...], candidates: list[Settings]) -> list[tuple[Any, ...]]:
    return [
        (dataset, lookback, part, recipe_of(RECIPE, settings[NAMES.index("profile")]), *settings)
        for settings in candidates
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
    """Run the cells that the rule needs, until it is done or other processes run the rest."""
    torch.set_num_threads(1)
    for dataset in sets:
        before = None
        while (missing := _progress(dataset)[1]) and missing != before:
            work(FILE, _cells(dataset, LOOKBACKS[:1], missing), FIELDS, _run)
            before = missing  # unchanged: another process is running them
        settings, missing = _progress(dataset)
        if lookbacks and not missing:
            work(FILE, _cells(dataset, LOOKBACKS, [settings]), FIELDS, _run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=(*SETS, *LARGE), default=SETS)
    parser.add_argument("--lookbacks", action="store_true", help="also choose the lookback")
    args = parser.parse_args()
    search(args.sets, args.lookbacks)
