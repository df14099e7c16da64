"""The command line: the numbers of the library, complete help, and plain errors without a traceback."""

import re
from io import StringIO

import numpy as np
import optuna
import pandas as pd
import polars as pl
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from titans_core.archive import save_archive
from titans_core.train.tune import open_study
from titans_ts import TitansEnsemble, TitansForecaster, forecaster, naive
from titans_ts.cli.commands import Loss, Missing, app
from titans_ts.estimator.model import Model
from titans_ts.frames.frame import POLICIES
from titans_ts.naive import with_naive
from titans_ts.network.objective import LOSSES, DecayingError

SMALL = ["--horizon", "4", "--lookback", "12", "--epochs", "1", "--quiet"]


@pytest.fixture(autouse=True)
def shortest_memory(monkeypatch):
    """Train online memories in two steps: the numbers of the library, whatever they are, are those of the commands."""
    monkeypatch.setattr(forecaster, "LEAST_MEMORY_STEPS", 2)


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "120", "NO_COLOR": "1"})
        assert result.exit_code == code, result.output
        return result

    return call


@pytest.fixture
def wide_file(wide, tmp_path):
    wide.to_csv(tmp_path / "wide.csv")
    return tmp_path / "wide.csv"


def test_losses_and_missing_policies_match_the_library():
    assert [loss.value for loss in Loss] == list(LOSSES)
    assert [policy.value for policy in Missing] == list(POLICIES)


def test_fit_and_predict_give_the_numbers_of_the_library(run, wide, wide_file, tmp_path):
    output = run("fit", wide_file, "--model", tmp_path / "m", *SMALL, "--seed", "3").output
    assert "trained for 1 epochs, " in output
    run(
        "predict", "--model", tmp_path / "m", "--level", "80", "--out", tmp_path / "f.csv", "--plot", tmp_path / "f.png"
    )
    found = pd.read_csv(tmp_path / "f.csv", index_col="ds", parse_dates=True)
    expected = TitansForecaster(h=4, input_size=12, max_epochs=1, random_state=3, verbose=0).fit(wide)
    pd.testing.assert_frame_equal(
        found, expected.predict(level=[80]), check_freq=False, rtol=1e-6, check_index_type=False
    )
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    fewer = tmp_path / "fewer.csv"
    wide.iloc[:60].to_csv(fewer)
    printed = run("predict", fewer, "--model", tmp_path / "m").stdout
    assert "2024-01-03 12:00" in printed
    run("predict", fewer, "--model", tmp_path / "m", "--out", tmp_path / "same.csv")
    assert printed == (tmp_path / "same.csv").read_text()


def test_several_lookbacks_make_an_ensemble(run, wide, wide_file, tmp_path):
    both, model = [*SMALL, "--lookback", "16"], ["--model", tmp_path / "m"]
    wide.iloc[:110].to_csv(tmp_path / "known.csv")
    wide.iloc[110:].to_csv(tmp_path / "newer.csv")
    output = run("fit", tmp_path / "known.csv", *model, *both).output
    assert re.findall(r"lookback (\d+): trained for 1 epochs", output) == ["12", "16"]
    members = [TitansForecaster(h=4, input_size=n, max_epochs=1, random_state=0, verbose=0) for n in (12, 16)]
    expected = TitansEnsemble(members).fit(wide.iloc[:110])
    assert "added 10 rows, up to 2024-01-05 23:00:00" in run("update", tmp_path / "newer.csv", *model).output
    expected.update(wide.iloc[110:])
    run("predict", *model, "--level", "80", "--out", tmp_path / "f.csv", "--plot", tmp_path / "f.png")
    found = pd.read_csv(tmp_path / "f.csv", index_col="ds", parse_dates=True)
    pd.testing.assert_frame_equal(found, expected.predict(level=[80]), check_freq=False, rtol=1e-5)

    run("backtest", wide_file, *both, "--windows", "2", "--out", tmp_path / "b.csv")
    crossed = TitansEnsemble(members).cross_validation(wide, n_windows=2)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "b.csv")["Titans"], crossed["Titans"], rtol=1e-5)

    assert "holds a TitansEnsemble, which would be lost" in run("fit", wide_file, *model, *SMALL, code=1).output
    for more, says in (
        (["--lookback", "12"], "the same --lookback twice"),
        (["--jobs", "2"], "--jobs is for"),
        (["--lookback", "16", "--jobs", "0"], "--jobs must be a number of processes"),
    ):
        assert says in run("fit", wide_file, "--model", tmp_path / "n", *SMALL, *more, code=1).output


def test_several_lookbacks_are_trained_in_as_many_processes_as_given(run, wide_file, tmp_path, monkeypatch):
    def fit(self, *args, **kwargs):  # what the processes do is tested with the ensemble
        raise ValueError(f"{len(self.forecasters)} by {self.n_jobs}")

    monkeypatch.setattr(TitansEnsemble, "fit", fit)
    for jobs, given in (([], None), (["--jobs", "2"], 2), (["--jobs", "-1"], -1)):
        output = run("fit", wide_file, "--model", tmp_path / "m", *SMALL, "--lookback", "16", *jobs, code=1).output
        assert f"2 by {given}" in output


def test_calendar_and_profile_are_switches(run, wide_file, tmp_path):
    run("fit", wide_file, "--model", tmp_path / "m", *SMALL, "--calendar", "--profile")
    assert TitansForecaster.load(tmp_path / "m").exogenous == {"calendar": "auto", "profile": "auto"}


def test_a_long_file_with_other_column_names_is_read(run, wide, to_long, tmp_path):
    long = to_long(wide).rename(columns={"unique_id": "shop", "ds": "when", "y": "sales"})
    long.to_parquet(tmp_path / "long.parquet")
    names = ["--id", "shop", "--time", "when", "--target", "sales"]
    out = run("backtest", tmp_path / "long.parquet", *names, *SMALL, "--windows", "2", "--level", "80",
              "--out", tmp_path / "b.csv", "--plot", tmp_path / "b.png").output  # fmt: skip
    assert "MAE" in out
    assert "inside 80 %" in out
    assert len(pd.read_csv(tmp_path / "b.csv")) == 2 * 4 * 3
    assert (tmp_path / "b.png").exists()


def test_a_model_may_be_in_the_home_folder(run, wide_file, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    run("fit", wide_file, "--model=~/m", *SMALL)
    run("predict", "--model=~/m", "--out=~/out.csv")
    assert {"m", "out.csv"} == {path.name for path in (tmp_path / "home").iterdir()}
    assert not list((tmp_path / "work").iterdir())


def test_numbers_as_names_stay_the_same_series_beside_a_new_one(run, wide, to_long, tmp_path):
    long = to_long(wide).replace({"unique_id": {"a": 1, "b": 2, "c": 3}})
    long.to_csv(tmp_path / "fit.csv", index=False)
    run("fit", tmp_path / "fit.csv", "--model", tmp_path / "m", *SMALL)
    pd.concat([long, long[long["unique_id"] == 1].assign(unique_id="x")]).to_csv(tmp_path / "more.csv", index=False)
    found = run("predict", tmp_path / "more.csv", "--model", tmp_path / "m", "--out", tmp_path / "more_out.csv")
    assert "counts as new" not in found.stderr
    run("predict", tmp_path / "fit.csv", "--model", tmp_path / "m", "--out", tmp_path / "out.csv")
    alone, beside = (pd.read_csv(tmp_path / name, dtype={"unique_id": str}) for name in ("out.csv", "more_out.csv"))
    pd.testing.assert_frame_equal(beside[beside["unique_id"] != "x"].reset_index(drop=True), alone, rtol=1e-4)


@pytest.mark.parametrize("command", ["predict", "update"])
def test_a_row_without_a_series_name_is_refused(run, tiny, wide, to_long, tmp_path, command):
    tiny().fit(to_long(wide.iloc[:100])).save(tmp_path / "m")
    rows = to_long(wide.iloc[100:])
    pd.concat((rows, rows[rows["unique_id"] == "a"].assign(unique_id=None))).to_csv(tmp_path / "x.csv", index=False)
    output = run(command, tmp_path / "x.csv", "--model", tmp_path / "m", code=1).output
    assert "column 'unique_id' has 20 missing values" in output


def test_static_columns_are_read_from_a_file(run, wide, to_long, tmp_path):
    to_long(wide).rename(columns={"unique_id": "shop"}).to_csv(tmp_path / "long.csv", index=False)
    facts = pd.DataFrame({"shop": list(wide), "area": [1.0, 2.0, 4.0], "floors": [1, 1, 2]})
    facts.to_csv(tmp_path / "facts.csv", index=False)
    static = ["--id", "shop", "--static", tmp_path / "facts.csv"]
    run("fit", tmp_path / "long.csv", "--model", tmp_path / "m", *static, *SMALL)
    assert TitansForecaster.load(tmp_path / "m").exogenous == {"stat": ["area", "floors"]}
    for more in ([], [tmp_path / "long.csv", *static]):
        out = ["--out", tmp_path / "f.csv", "--plot", tmp_path / "f.png"]
        run("predict", "--model", tmp_path / "m", *more, *out)
    assert len(pd.read_csv(tmp_path / "f.csv")) == 4 * 3
    run("backtest", tmp_path / "long.csv", "--windows", "1", *static, *SMALL)
    run("tune", tmp_path / "long.csv", "--model", tmp_path / "t", "--trials", "1", *static,
        "--horizon", "4", "--epochs", "1", "--quiet")  # fmt: skip
    assert TitansForecaster.load(tmp_path / "t").exogenous == {"stat": ["area", "floors"]}
    facts.iloc[:2].to_csv(tmp_path / "facts.csv", index=False)
    output = run("fit", tmp_path / "long.csv", "--model", tmp_path / "m2", *static, *SMALL, code=1).output
    assert "--static lacks 1 series" in output


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_a_static_file_may_read_the_names_of_series_otherwise(run, wide, to_long, tmp_path, layout):
    """Text as numbers beside a wide file, numbers as text if it has other series too."""
    named = wide.set_axis([1, 2, 3], axis=1)
    (named if layout == "wide" else to_long(named)).to_csv(tmp_path / "x.csv", index=layout == "wide")
    names = [1, 2, 3] if layout == "wide" else [1, 2, 3, "depot"]
    facts = pd.DataFrame({"unique_id": names, "area": np.arange(len(names)) ** 2})
    facts.to_csv(tmp_path / "facts.csv", index=False)
    static = ["--static", tmp_path / "facts.csv"]
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *static, *SMALL)
    model = TitansForecaster.load(tmp_path / "m")
    np.testing.assert_array_equal(model.context_.stat[:, 0], [0, 1, 4])
    run("predict", tmp_path / "x.csv", "--model", tmp_path / "m", *static)


def test_series_are_mixed_and_rows_kept_as_the_options_say(run, wide, wide_file, tmp_path):
    run("fit", wide_file, "--model", tmp_path / "m", *SMALL, "--multivariate", "--val-size", "0")
    expected = TitansForecaster(h=4, input_size=12, max_epochs=1, multivariate=True, random_state=0, verbose=0).fit(
        wide, val_size=0
    )
    found = TitansForecaster.load(tmp_path / "m")
    assert found.multivariate
    np.testing.assert_allclose(found.predict(), expected.predict(), rtol=1e-6)


def test_an_interrupted_fit_resumes(run, wide_file, tmp_path, monkeypatch):
    call = ["fit", wide_file, "--model", tmp_path / "m", "--checkpoint", tmp_path / "c", *SMALL]
    with monkeypatch.context() as stopped:
        stopped.setattr(TitansForecaster, "_train_memory", lambda *a, **b: 1 / 0)
        CliRunner().invoke(app, [str(a) for a in call])
    assert not (tmp_path / "m").exists()
    assert list((tmp_path / "c").iterdir())
    with monkeypatch.context() as trained:
        trained.setattr(DecayingError, "__call__", lambda *a: 1 / 0)  # no batch is trained again
        assert "saved in" in run(*call).output
    other = run(*call, "--seed", "1", code=1).output
    assert "Error" in other


def test_tune_saves_the_best(run, wide_file, tmp_path):
    arguments = ["--trials", "2", "--storage", tmp_path / "s.db", "--horizon", "4", "--epochs", "1", "--quiet"]
    output = run("tune", wide_file, "--model", tmp_path / "m", *arguments).output
    assert "best of 2 trials" in output
    assert TitansForecaster.load(tmp_path / "m").predict().shape == (4, 3)


@pytest.mark.parametrize(
    ("options", "says"), [([], "Give --storage"), (["--storage", "s.journal"], "storage; the same call continues")]
)
def test_an_interrupted_search_says_what_is_kept(run, wide_file, tmp_path, monkeypatch, options, says):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("titans_ts.tune.train", stopped)
    monkeypatch.chdir(tmp_path)
    assert says in run("tune", wide_file, "--model", tmp_path / "m", *SMALL, *options, code=130).stderr


def test_a_search_skips_series_that_are_too_short_for_the_lookback(run, wide, to_long, tmp_path):
    long = to_long(wide)
    long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[-49])].to_csv(tmp_path / "x.csv", index=False)
    arguments = ["--model", tmp_path / "m", "--trials", "1", "--horizon", "4", "--epochs", "1", "--quiet"]
    for lookback, skipped in (("24", True), ("12", False)):
        output = run("tune", tmp_path / "x.csv", *arguments, "--lookback", lookback, "--val-size", "22").stderr
        assert ("skipped: ['b']" in output) == skipped


def test_a_search_warns_of_the_data_once(run, wide, to_long, tmp_path):
    to_long(wide).assign(price=1.0).to_csv(tmp_path / "x.csv", index=False)
    arguments = ["--trials", "2", "--futr", "price", "--horizon", "4", "--epochs", "1", "--quiet"]
    output = run("tune", tmp_path / "x.csv", "--model", tmp_path / "m", *arguments).stderr
    assert output.count("exogenous columns ['price'] are constant in the training rows") == 1


def test_text_in_a_numeric_column_is_refused_with_advice(run, wide, to_long, tmp_path):
    to_long(wide).assign(kind="sale").to_csv(tmp_path / "x.csv", index=False)
    pd.DataFrame({"unique_id": list(wide), "kind": "sale"}).to_csv(tmp_path / "s.csv", index=False)
    for option, value, where in (("--futr", "kind", ""), ("--static", tmp_path / "s.csv", " of --static")):
        output = run("fit", tmp_path / "x.csv", option, value, "--model", tmp_path / "m", *SMALL, code=1).stderr
        assert f"column 'kind'{where} must be numeric" in output
        assert "Encode categories as columns of 0 and 1." in output


def test_trials_that_failed_or_still_run_are_not_counted(run, wide_file, tmp_path):
    storage = f"sqlite:///{tmp_path / 's.db'}"
    arguments = ["--trials", "1", "--storage", storage, "--horizon", "4", "--epochs", "1", "--quiet"]
    run("tune", wide_file, "--model", tmp_path / "m", *arguments)
    study = optuna.load_study(study_name="titans_ts", storage=storage)
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    study.ask()  # of another process
    assert "best of 1 trials" in run("tune", wide_file, "--model", tmp_path / "m", *arguments).output


def test_update_gives_the_numbers_of_the_library(run, wide, to_long, tmp_path):
    long = to_long(wide).rename(columns={"unique_id": "shop", "ds": "when", "y": "sales"})
    known, newer = long["when"] < wide.index[110], long["when"] >= wide.index[110]
    long[known].to_csv(tmp_path / "known.csv", index=False)
    long[newer].to_csv(tmp_path / "newer.csv", index=False)
    names = ["--id", "shop", "--time", "when", "--target", "sales"]
    run("fit", tmp_path / "known.csv", "--model", tmp_path / "m", *SMALL, *names)
    before = run("predict", "--model", tmp_path / "m").output
    output = run("update", tmp_path / "newer.csv", "--model", tmp_path / "m", "--out", tmp_path / "on").output
    assert f"added 10 rows, up to 2024-01-05 23:00:00; saved in {tmp_path / 'on'}" in output
    expected = TitansForecaster.load(tmp_path / "m").update(
        long[newer].rename(columns={"shop": "unique_id", "when": "ds", "sales": "y"})
    )
    pd.testing.assert_frame_equal(TitansForecaster.load(tmp_path / "on").predict(), expected.predict())
    assert run("predict", "--model", tmp_path / "m").output == before
    run("update", tmp_path / "newer.csv", "--model", tmp_path / "m")  # where it was, and as the file of fit is read
    after = run("predict", "--model", tmp_path / "m", "--level", "80").output
    assert after == run("predict", "--model", tmp_path / "on", "--level", "80").output
    again = run("update", tmp_path / "newer.csv", "--model", tmp_path / "m", code=1).output
    assert "the new rows must start after the known ones, at 2024-01-06" in again
    assert after == run("predict", "--model", tmp_path / "m", "--level", "80").output


@pytest.mark.parametrize("command", ["fit", "predict", "update", "backtest", "tune"])
def test_help_explains_each_command_and_all_of_its_options(run, command):
    assert command in run("--help").output
    text = run(command, "--help").output
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())
    known = get_command(app).commands[command]
    assert known.help.splitlines()[0] in words
    for option in known.params:
        name = option.opts[0] if option.param_type_name == "option" else option.metavar or option.name
        assert name.strip("{}") in text
        assert option.help, name
        # of a long explanation the columns of the page are between the lines
        assert all(word in words for word in option.help.split()), name
    for option in ("--time", "--id", "--target", "--model" if command in ("predict", "update") else "--horizon"):
        assert option in text


def test_errors_are_plain_messages(run, wide, wide_file, tmp_path):
    holed = tmp_path / "holed.csv"
    wide.mask(wide == wide.iloc[7, 1]).to_csv(holed)
    result = run("fit", holed, "--model", tmp_path / "m", *SMALL, code=1)
    assert "Error: the data has 1 values that are NaN" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "m").exists()
    run("fit", holed, "--model", tmp_path / "m", *SMALL, "--missing", "interpolate")
    assert "no saved model at" in run("predict", "--model", tmp_path / "none", code=1).output
    boxed = run("fit", tmp_path / "none.csv", "--model", tmp_path / "m", code=2).output
    assert "does not exist" in " ".join(boxed.replace("│", " ").split())
    assert "no column 'when'" in run("fit", wide_file, "--time", "when", "--model", tmp_path / "m2", code=1).output
    assert (
        "In a wide file every column is a series"
        in run("fit", wide_file, "--target", "a", "--model", tmp_path / "m2", code=1).output
    )


def test_unwritable_outputs_are_refused_before_training(run, wide_file, tmp_path, monkeypatch):
    monkeypatch.setattr(TitansForecaster, "fit", lambda *a, **b: pytest.fail("it was trained"))
    monkeypatch.setattr(TitansForecaster, "cross_validation", lambda *a, **b: pytest.fail("it was trained"))
    (tmp_path / "file").write_text("of somebody")
    for command in ("fit", "tune"):
        output = run(command, wide_file, "--model", tmp_path / "file", "--horizon", "4", code=1).output
        assert f"cannot write a folder to {tmp_path / 'file'}, which is an existing file" in output
    for option, name in (("--plot", "b.xyz"), ("--out", "b.xlsx"), ("--out", "b.parquet.gz"), ("--out", "b.tsv")):
        output = run("backtest", wide_file, option, tmp_path / name, *SMALL, code=1).output
        assert f"as {tmp_path / name}: use one of the endings [" in output
    assert (tmp_path / "file").read_text() == "of somebody"
    for name, command, option in (
        ("m", "fit", "--model"),
        ("n", "tune", "--model"),
        ("b.csv", "backtest", "--out"),
        ("b.png", "backtest", "--plot"),
    ):
        (tmp_path / name).symlink_to(tmp_path / "not mounted" / name)
        output = run(command, wide_file, option, tmp_path / name, "--horizon", "4", code=1).output
        assert f"{tmp_path / name} cannot be written" in " ".join(output.split())


def test_missing_output_folders_are_created(run, wide_file, tmp_path):
    run("fit", wide_file, "--model", tmp_path / "new" / "m", *SMALL)
    run("predict", "--model", tmp_path / "new" / "m", "--out", tmp_path / "newer" / "f.csv")
    written = pd.read_csv(tmp_path / "newer" / "f.csv")
    assert len(written) == 4
    for name, read in (("f.csv.gz", pd.read_csv), ("f.parquet", pd.read_parquet), ("f", pd.read_csv)):
        run("predict", "--model", tmp_path / "new" / "m", "--out", tmp_path / name)
        found = read(tmp_path / name)
        if name == "f.parquet":  # which keeps stamps as stamps, in the index, and all digits
            assert isinstance(found.index, pd.DatetimeIndex)
            found = found.reset_index().assign(ds=lambda table: table["ds"].astype(str))
        pd.testing.assert_frame_equal(found, written, rtol=1e-6, check_dtype=False)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", ["No columns"]),
        ("a,b\n1,2\n".encode("utf-16"), ["neither a CSV file (in UTF-8)", "another encoding as UTF-8"]),
    ],
)
def test_a_file_that_is_not_a_table_is_refused_with_a_plain_message(run, tmp_path, data, says):
    (tmp_path / "x.csv").write_bytes(data)
    output = run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, code=1).output
    assert "Error" in output
    assert all(words in output for words in says)


@pytest.mark.parametrize("kind", ["polars", "matrix"])
def test_predict_without_a_file_works_for_every_layout(run, tiny, wide, tmp_path, kind):
    given = pl.from_pandas(wide.reset_index()) if kind == "polars" else wide.to_numpy()
    model = tiny().fit(given)
    model.save(tmp_path / "m")
    run("predict", "--model", tmp_path / "m", "--out", tmp_path / "f.csv")
    found = pd.read_csv(tmp_path / "f.csv").select_dtypes("number")
    np.testing.assert_allclose(found, np.asarray(model.predict()[:, -3:], dtype=float), rtol=1e-6)


def test_a_wide_file_has_the_series_of_a_model_whose_series_are_named_by_numbers(run, tiny, wide, tmp_path):
    numbered = wide.set_axis([1, 2, 3], axis=1)
    tiny().fit(numbered[:-8]).save(tmp_path / "m")
    numbered[-8:].to_csv(tmp_path / "new.csv")
    run("update", tmp_path / "new.csv", "--model", tmp_path / "m")


def test_a_step_of_integer_stamps_can_be_named(run, wide, tmp_path):
    wide.set_axis(range(0, 240, 2)).rename_axis("ds").to_csv(tmp_path / "x.csv")
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", "--freq", "2", *SMALL)
    assert TitansForecaster.load(tmp_path / "m").freq == 2


def test_a_file_with_only_a_header_is_refused_with_a_plain_message(run, tmp_path):
    (tmp_path / "x.csv").write_text("ds,a\n")
    assert (
        "has no rows, only the header"
        in run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, code=1).output
    )


def test_predict_uses_the_column_names_given_to_fit(run, wide, to_long, tmp_path):
    long = to_long(wide).rename(columns={"unique_id": "shop", "ds": "when", "y": "sales"})
    long.to_csv(tmp_path / "long.csv", index=False)
    names = ["--id", "shop", "--time", "when", "--target", "sales"]
    run("fit", tmp_path / "long.csv", "--model", tmp_path / "m", *SMALL, *names)
    alone = run("predict", tmp_path / "long.csv", "--model", tmp_path / "m").output
    assert alone == run("predict", tmp_path / "long.csv", "--model", tmp_path / "m", *names).output
    long.rename(columns={"sales": "sold"}).to_csv(tmp_path / "other.csv", index=False)
    assert alone == run("predict", tmp_path / "other.csv", "--model", tmp_path / "m", "--target", "sold").output


def test_errors_name_the_options(run, wide, to_long, tmp_path):
    holes = to_long(wide)
    holes.loc[3, "y"] = np.nan
    holes.to_csv(tmp_path / "holes.csv", index=False)
    output = run("fit", tmp_path / "holes.csv", "--model", tmp_path / "m", *SMALL, code=1).output
    assert "--missing interpolate" in output
    assert "missing=" not in output
    to_long(wide).assign(price=1.0).to_csv(tmp_path / "x.csv", index=False)
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, "--futr", "price")
    output = run("predict", "--model", tmp_path / "m", code=1).output
    assert "--future" in output
    assert "futr_df" not in output
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "plain", *SMALL)
    (tmp_path / "s.csv").write_text("unique_id,size\na,1\n")
    for option, file, kind, other in (
        ("--future", "x.csv", "future", "--futr"),
        ("--static", "s.csv", "static", "--static"),
    ):
        given = [tmp_path / "x.csv"] if option == "--static" else []
        output = run("predict", *given, "--model", tmp_path / "plain", option, tmp_path / file, code=1).output
        assert f"{option} is given, but the model has no {kind} columns: fit it with {other}." in output
    output = run("predict", "--model", tmp_path / "plain", "--static", tmp_path / "s.csv", code=1).output
    assert "--static needs a data file: without one, the series of fit keep" in output


@pytest.mark.parametrize("named", [True, False])
def test_a_future_file_may_apply_to_all_series(run, wide, to_long, tmp_path, named):
    long = to_long(wide).rename(columns={"unique_id": "shop"}).assign(warm=np.tile(np.arange(120.0) % 24, 3))
    long.to_csv(tmp_path / "x.csv", index=False)
    names = ["--id", "shop"]
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, "--futr", "warm", *names)
    ahead = pd.DataFrame({"ds": pd.date_range("2024-01-06", periods=4, freq="h"), "warm": [0.0, 1.0, 2.0, 3.0]})
    pd.concat([ahead.assign(shop=name) for name in "abc"]).to_csv(tmp_path / "each.csv", index=False)
    ahead.to_csv(tmp_path / "all.csv", index=False)
    command = ["predict", "--model", tmp_path / "m", *(names if named else []), "--future"]
    assert run(*command, tmp_path / "all.csv").output == run(*command, tmp_path / "each.csv").output


@pytest.mark.parametrize(("option", "value"), [("--epochs", "0"), ("--seed", "-1"), ("--seed", str(2**32))])
@pytest.mark.parametrize("command", ["fit", "backtest", "tune"])
def test_numbers_out_of_range_are_refused_by_their_options(run, wide_file, tmp_path, command, option, value):
    model = [] if command == "backtest" else ["--model", tmp_path / "m"]
    output = run(command, wide_file, *model, *SMALL, option, value, code=2).output
    assert f"Invalid value for '{option}'" in output


def test_advice_is_for_the_command_line(run, wide, to_long, tmp_path):
    def error_for(frame, **options):
        frame.to_csv(tmp_path / "x.csv", sep=";", **options)
        return run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, code=1).output

    german = wide.assign(a="1.234,56")
    advice = "rite its numbers as 1234.56 (1234,56 if the separator is ;), without a thousands separator"
    for words in (error_for(german), error_for(to_long(german), index=False)):
        assert advice in words
        assert "pd." not in words
    assert "give its columns with --id, --time and --target" in error_for(german)
    assert "or give fit the step of the data as --freq." in error_for(wide.drop(wide.index[7]))
    advice = "Fill them or cut them off. For NaN you can also fit with --missing interpolate or --missing mask."
    assert advice in error_for(wide.mask(wide == wide.iloc[7, 1]))
    assert "Pass the step, such as --freq h." in error_for(wide.iloc[:1])
    assert "or pass --freq (such as 'SMS'" in error_for(wide.iloc[[i * (i + 1) // 2 for i in range(12)]])
    turned = wide.iloc[[1, 0, *range(2, len(wide))]]
    assert "the file is not sorted by time: " in error_for(turned)
    assert "Sort it first: its rows by time." in error_for(turned)
    assert "Sort it first: its rows by series and time." in error_for(to_long(turned), index=False)
    assert "not a series: give it as --time." in error_for(wide.assign(date="2024-05-01"))


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_later_files_may_have_months_that_alone_would_be_numbers(run, tiny, wide, to_long, tmp_path, layout):
    frame = wide.iloc[:40].set_axis(pd.date_range("2020-01-01", periods=40, freq="MS", name="ds"))
    model, written = tiny(max_epochs=1), frame.set_axis(frame.index.strftime("%Y%m").rename("ds"))
    if layout == "long":
        frame, written = to_long(frame), to_long(written)
    old = written.index < "202301" if layout == "wide" else written["ds"] < "202301"
    model.fit(frame[old], val_size=0).save(tmp_path / "m")
    written[~old].to_csv(tmp_path / "newer.csv", index=layout == "wide")
    assert "added 4 rows, up to 2023-04-01" in run("update", tmp_path / "newer.csv", "--model", tmp_path / "m").output
    assert TitansForecaster.load(tmp_path / "m").predict().equals(model.update(frame[~old]).predict())
    for stamp, says in (("7", "Write them as dates, or give --date-format"), ("2023-05-01T00:00Z", "give --timezone")):
        (tmp_path / "bad.csv").write_text(f"ds,a,b,c\n{stamp},1,1,1\n")
        assert says in run("update", tmp_path / "bad.csv", "--model", tmp_path / "m", code=1).output


def test_a_wrong_year_is_not_saved_in_place(run, wide, tmp_path):
    wide.iloc[:100].to_csv(tmp_path / "x.csv")
    newer = wide.iloc[100:103]
    newer.to_csv(tmp_path / "newer.csv")
    newer.set_axis(newer.index + pd.DateOffset(years=1)).rename_axis(wide.index.name).to_csv(tmp_path / "wrong.csv")
    stored = ["--model", tmp_path / "m"]
    run("fit", tmp_path / "x.csv", *stored, *SMALL, "--missing", "mask")
    before = run("predict", *stored).output
    output = run("update", tmp_path / "wrong.csv", *stored, code=1).stderr
    assert "the file begins at 2025-01-05" in output
    assert "the 8784 rows between count as missing. If this is wrong, correct its dates." in output
    assert "8784 rows are missing, more than a lookback. Nothing is saved. If its dates are right, give --acc" in output
    assert run("predict", *stored).output == before
    accepted = run("update", tmp_path / "wrong.csv", *stored, "--out", tmp_path / "on", "--accept-gap").output
    assert "added 8787 rows" in accepted
    assert "added 3 rows" in run("update", tmp_path / "newer.csv", *stored).output


def test_added_or_dropped_series_are_named_in_terms_of_files(run, wide, to_long, tmp_path):
    long = to_long(wide).assign(warm=np.tile(np.arange(120.0) % 24, 3))
    ahead = long.assign(ds=long["ds"] + pd.Timedelta("120h"))
    others = ahead.assign(unique_id=ahead["unique_id"] + "!")
    rows = {"x": long, "two": ahead[ahead["unique_id"] != "b"], "four": others}
    for name, frame in rows.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    stored = ["--model", tmp_path / "m"]
    run("fit", tmp_path / "x.csv", *stored, *SMALL, "--futr", "warm", "--missing", "mask")
    output = run("predict", *stored, "--future", tmp_path / "two.csv", code=1).stderr
    assert "To forecast only these, give predict a file of their rows alone. Or add at least one row for each" in output
    assert output.endswith(" other series, which may be empty.\n")
    output = run("update", tmp_path / "four.csv", *stored, code=1).stderr
    assert (
        "Leave out new series here: predict forecasts them, given a file of their rows, and a new fit learns" in output
    )
    output = run("update", tmp_path / "x.csv", *stored, code=1).stderr
    assert "rows may be missing with --missing mask or interpolate." in output


def test_the_warning_about_an_unread_column_says_how_to_declare_it(run, wide, to_long, tmp_path):
    to_long(wide).assign(price=1.0).to_csv(tmp_path / "x.csv", index=False)
    output = run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL).stderr
    assert "are not named by --hist or --futr" in output


def test_progress_bars_are_not_in_stdout(run, wide_file, tmp_path):
    loud = [argument for argument in SMALL if argument != "--quiet"]
    found = run("backtest", wide_file, "--windows", "2", *loud)
    assert "Epoch 0" in found.stderr
    assert re.fullmatch(r" +MAE +RMSE +naive MAE\nunique_id +\n(\S+( +[\d.]+){3}\n)+", found.stdout)


def test_a_backtest_ends_with_the_errors_of_all(run, wide, wide_file, tmp_path):
    out = tmp_path / "x.csv"
    result = run("backtest", wide_file, "--windows", "2", "--level", "80", "--out", out, *SMALL)
    assert "naive forecast: the value 24 rows earlier" in result.stderr
    output = result.stdout
    lines = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in output.splitlines()[2:]}
    each, last = np.array([lines[name] for name in "abc"]), lines["(all)"]
    frame = pd.read_csv(out)
    inside = 100 * frame["y"].between(frame["Titans-lo-80"], frame["Titans-hi-80"]).mean()
    naive = with_naive(frame.assign(ds=pd.to_datetime(frame["ds"]), cutoff=pd.to_datetime(frame["cutoff"])), wide)
    repeated = (naive["y"] - naive["SeasonalNaive"]).abs().mean()
    expected = [each[:, 0].mean(), (each[:, 1] ** 2).mean() ** 0.5, repeated, inside]
    np.testing.assert_allclose(last, expected, rtol=1e-3)


def test_a_backtest_prints_the_errors_of_small_numbers(run, wide, tmp_path):
    (wide * 1e-7).to_csv(tmp_path / "x.csv")
    output = run("backtest", tmp_path / "x.csv", "--windows", "1", "--out", tmp_path / "out.csv", *SMALL).stdout
    printed = [float(line.split()[1]) for line in output.splitlines()[2:5]]
    frame = pd.read_csv(tmp_path / "out.csv")
    expected = (frame["y"] - frame["Titans"]).abs().groupby(frame["unique_id"]).mean()
    np.testing.assert_allclose(printed, expected, rtol=1e-2)


@pytest.fixture
def weekdays(tmp_path):
    """A file with six weeks of hourly loads that occur on weekdays only."""
    steps = pd.date_range("2024-01-01", periods=6 * 168, freq="h", name="ds")
    load = np.where(steps.day_of_week < 5, np.sin(np.pi * steps.hour / 24), 0)
    noise = 0.1 * np.random.default_rng(0).normal(size=len(steps))
    pd.DataFrame({"office": load + noise}, steps).to_csv(tmp_path / "weekdays.csv")
    return tmp_path / "weekdays.csv"


@pytest.mark.parametrize(
    ("options", "hinted"),
    [([], True), (["--calendar"], False), (["--profile"], False), (["--lookback", "168"], False)],
    ids=str,
)
def test_a_backtest_is_compared_with_weekly_values_and_hints_at_weekly_settings(run, weekdays, options, hinted):
    output = run("backtest", weekdays, *SMALL, "--windows", "2", *options).stderr
    assert "naive forecast: the value 168 rows earlier (a week, which was more accurate than a day before" in output
    hint = "Weekdays differ in this data, but --lookback 12 is shorter than a week: try --lookback 168, --calendar or"
    assert (hint in output) == hinted


def test_without_a_weekly_pattern_a_backtest_does_not_mention_weeks(run, wide_file):
    output = run("backtest", wide_file, *SMALL, "--windows", "2").stderr
    assert "naive forecast: the value 24 rows earlier" in output
    assert "week" not in output


def test_a_backtest_reads_its_frame_once_for_everything_without_a_model(run, wide_file, monkeypatch):
    read, whole = [], naive.read_frame
    monkeypatch.setattr(naive, "read_frame", lambda *a, **k: read.append(1) or whole(*a, **k))
    run("backtest", wide_file, *SMALL, "--windows", "2")
    assert len(read) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["backtest", *SMALL, "--windows", "100"], "at --step 4 leave 0 rows.* Lower --windows or --step,"),
        (["backtest", *SMALL, "--level", "80", "--val-size", "0"], "such as --loss quantile\\."),
        (["fit", *SMALL, "--model", "m", "--checkpoint", "c", "--loss", "mse"], "Give another --checkpoint,"),
        (["tune", *SMALL[:2], "--model", "m", "--storage", "s.db"], "Give another --storage\\."),
        (["fit", *SMALL, "--model", "m", "--val-size", "2"], "--val-size 2 of 120 rows: .* at least --horizon 4 rows"),
        (
            ["tune", *SMALL[:2], "--model", "m", "--val-size", "118"],
            "--val-size 118 of 120 rows: .* --lookback \\+ --horizon = 6\\. With --val-size 0, fit trains",
        ),
        (["fit", *SMALL, "--model", "m", "--multivariate"], "--multivariate needs .* or leave out --multivariate\\."),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_advice_names_options(run, wide, to_long, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    open_study("s.db", "titans_ts", {"data": "other"}, None)
    (tmp_path / "c").mkdir()
    torch.save({"titans_fingerprint": {}}, "c/last.ckpt")
    short = to_long(wide).drop(range(7)) if "--multivariate" in arguments else wide.reset_index()
    short.to_csv("x.csv", index=False)
    assert re.search(says, run(*arguments, "x.csv", code=1).output)


def test_a_search_in_a_storage_does_not_promise_the_same_model_again():
    """Processes that share it must draw other settings."""
    commands = get_command(app).commands
    fit, tune = ({p.name: p.help for p in commands[name].params}["seed"] for name in ("fit", "tune"))
    assert fit.endswith("the same seed gives the same model.")
    assert tune == "Random seed of each training; without --storage also of the search."


@pytest.mark.parametrize("command", ["fit", "predict", "update", "backtest", "tune"])
def test_the_short_option_h_prints_help(run, command):
    assert run(command, "-h").output == run(command, "--help").output


def test_column_names_given_to_fit_apply_only_to_files_that_have_them(run, wide, to_long, tmp_path):
    given = to_long(wide)
    given.rename(columns={"unique_id": "shop", "ds": "when", "y": "sales"}).to_csv(tmp_path / "shop.csv", index=False)
    given.to_csv(tmp_path / "usual.csv", index=False)
    wide.to_csv(tmp_path / "wide.csv")
    run(
        "fit",
        tmp_path / "shop.csv",
        "--model",
        tmp_path / "m",
        *SMALL,
        "--id",
        "shop",
        "--time",
        "when",
        "--target",
        "sales",
    )
    output = [run("predict", tmp_path / f"{name}.csv", "--model", tmp_path / "m").output for name in ("shop", "usual")]
    assert output[0] == output[1]
    assert run("predict", tmp_path / "wide.csv", "--model", tmp_path / "m").output.startswith("ds,a,b,c")


def test_series_names_stay_text_in_files_without_types(run, wide, to_long, tmp_path):
    given = to_long(wide[["a", "b"]].set_axis(["001", "120"], axis=1))
    given.to_csv(tmp_path / "both.csv", index=False)
    given[given["unique_id"] == "120"].to_csv(tmp_path / "one.csv", index=False)
    run("fit", tmp_path / "both.csv", "--model", tmp_path / "m", *SMALL)
    both, one = (
        pd.read_csv(
            StringIO(run("predict", tmp_path / name, "--model", tmp_path / "m", "--level", "50").output),
            dtype={"unique_id": str},
        )
        for name in ("both.csv", "one.csv")
    )
    expected = both[both["unique_id"] == "120"].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, expected, rtol=1e-5)


def test_paths_and_column_names_in_messages_are_not_translated(run, wide, tmp_path):
    wide.assign(input_size="x").to_csv(tmp_path / "x.csv")
    assert "'input_size'" in run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, code=1).output
    assert "input_size_12" in run("predict", "--model", tmp_path / "input_size_12", code=1).output
    wide.iloc[:15].to_csv(tmp_path / "short.csv")
    output = run("fit", tmp_path / "short.csv", "--model", tmp_path / "m", *SMALL, code=1).output
    assert "--lookback + --horizon = 16" in output
    assert "lower --lookback or --horizon" in output


def test_a_folder_of_another_model_is_refused_before_training(run, wide_file, tmp_path, monkeypatch):
    save_archive(tmp_path / "m", "DNALanguageModel", {}, {"w": torch.ones(1)})
    monkeypatch.setattr(TitansForecaster, "fit", lambda *args, **options: pytest.fail("trained"))
    for command in ("fit", "tune"):
        output = run(command, wide_file, "--model", tmp_path / "m", code=1).output
        assert "holds a DNALanguageModel, which would be lost" in output


def test_a_backtest_follows_its_options_and_prints_its_errors(run, wide, wide_file, monkeypatch):
    arguments = {}
    frame = pd.DataFrame(
        {
            "unique_id": ["a", "a", "a", "b", "b"],
            "ds": wide.index[[31, 32, 33, 31, 32]],
            "cutoff": wide.index[30],
            "y": [1.0, 2.0, float("nan"), 10.0, 10.0],
            "Titans": [1.0, 6.0, 0.0, 7.0, 14.0],
            "Titans-lo-80": [0.0, 3.0, 0.0, 5.0, 5.0],
            "Titans-hi-80": [2.0, 9.0, 0.0, 11.0, 20.0],
        }
    )
    monkeypatch.setattr(
        TitansForecaster, "cross_validation", lambda self, df, **given: arguments.update(given) or frame
    )
    options = ["--windows", "2", "--step", "3", "--refit", "--val-size", "20", "--level", "80"]
    output = run("backtest", wide_file, *SMALL, *options).stdout
    assert arguments == dict(n_windows=2, step_size=3, refit=True, val_size=20, level=[80.0], static_df=None)
    rows = {row[0]: [float(x) for x in row[1:]] for row in map(str.split, output.splitlines()[-3:])}
    naive = [abs(wide[name].iloc[[7, 8]] - y).mean().round(4) for name, y in (("a", [1.0, 2.0]), ("b", [10.0, 10.0]))]
    expected = {"a": [2.0, 2.8284, naive[0], 50.0], "b": [3.5, 3.5355, naive[1], 100.0],
                "(all)": [2.75, 3.2016, sum(naive) / 2, 75.0]}  # fmt: skip
    assert rows == {name: pytest.approx(numbers) for name, numbers in expected.items()}


def test_a_warning_is_plain_text_and_names_options(run, wide, tmp_path):
    wide.iloc[:18].to_csv(tmp_path / "short.csv")
    result = run("fit", tmp_path / "short.csv", "--model", tmp_path / "m", *SMALL)
    output = result.stderr
    assert "Warning: 18 rows are too few to keep --horizon 4 of them for validation" in output
    assert "or set --val-size 0 to silence this warning." in output
    assert ".py" not in output


def test_a_series_left_out_of_training_is_named_and_forecast_from_its_file(run, wide, to_long, tmp_path):
    long = to_long(wide)
    long[(long["unique_id"] != "b") | (long["ds"] >= wide.index[105])].to_csv(tmp_path / "x.csv", index=False)
    output = run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL).stderr
    assert "1 series begin too late to train on and are skipped: ['b']. predict forecasts them, given a file" in output
    assert "\nb," not in run("predict", "--model", tmp_path / "m").output
    assert "\nb," in run("predict", tmp_path / "x.csv", "--model", tmp_path / "m").output
    late = (long["unique_id"] == "b") & (long["ds"] < wide.index[105]) | (long["unique_id"] == "c") & (
        long["ds"] < wide.index[118]
    )
    long[~late].to_csv(tmp_path / "x.csv", index=False)
    output = run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL).stderr
    assert "['b', 'c']. Given a file of their rows, predict forecasts those with --lookback=12 rows or more." in output


def test_a_forecast_that_is_also_plotted_is_computed_once_and_warns_once(run, wide, tmp_path, monkeypatch):
    wide.to_csv(tmp_path / "x.csv")
    run("fit", tmp_path / "x.csv", "--model", tmp_path / "m", *SMALL, "--val-size", "8")
    made, forecast = [], Model.forecast
    monkeypatch.setattr(Model, "forecast", lambda *given, **named: made.append(1) or forecast(*given, **named))
    output = run("predict", "--model", tmp_path / "m", "--level", "95", "--plot", tmp_path / "f.png").stderr
    assert output.count("intervals of 95 % may be too narrow") == 1
    assert "Give fit a larger --val-size, or use a probabilistic loss such as --loss student_t." in output
    assert (tmp_path / "f.png").exists()
    assert len(made) == 1
