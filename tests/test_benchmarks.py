"""The benchmark scripts: cells, tables, and peers with the settings of their scripts."""

import ast
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
WORK = """
import os, sys, time
from pathlib import Path
from cells import work

def run(key):
    Path(f"began-{key[0]}-{os.getpid()}").touch()
    time.sleep(60 if sys.argv[1] == "hangs" else 0.3)
    return {"error": 0.5}

work(Path("results.jsonl"), [(i,) for i in range(4)], ("cell",), run)
"""


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def start(tmp_path):
    (tmp_path / "work.py").write_text(WORK)

    def begin(how):
        path = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); sys.argv = ['work.py', {how!r}]; "
        code = path + "exec(open('work.py').read())"
        return subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    return begin


def test_each_cell_is_run_once_and_again_where_its_process_died(start, tmp_path):
    hanging = start("hangs")
    while not list(tmp_path.glob("began-0-*")):
        assert hanging.poll() is None
    beside = start("works")
    assert "0: another process is running it" in beside.communicate()[0]
    hanging.kill()
    hanging.wait()
    together = [start("works"), start("works")]
    assert [process.wait() for process in together] == [0, 0]
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted(row["cell"] for row in rows) == [0, 1, 2, 3]
    assert all({"date", "commit", "machine", "versions"} <= set(row) for row in rows)


def test_a_row_has_its_share_of_a_core(benchmarks, tmp_path, monkeypatch):
    import cells
    from records import read

    now, used = [0.0], [0.0]
    monkeypatch.setattr(cells.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(cells.os, "times", lambda: (used[0], 0.0, 0.0, 0.0, 0.0))

    def run(key):
        now[0] += 10
        used[0] += 10 * key[0]
        return {"seconds": 10}

    cells.work(tmp_path / "r.jsonl", [(1.0,), (0.5,)], ("share",), run)
    assert [(row["seconds"], row["core_share"]) for row in read(tmp_path / "r.jsonl")] == [(10, 1.0), (10, 0.5)]


def test_a_row_that_was_cut_off_is_named(benchmarks, tmp_path):
    from records import append, read

    file = tmp_path / "results.jsonl"
    append(file, {"cell": 0})
    assert read(file)[0]["cell"] == 0
    with file.open("a") as stream:
        stream.write('{"cell": 1, "err')
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2 is not a complete row: delete it"):
        read(file)


def test_settings_of_peers_are_written_down_for_every_cell(benchmarks):
    from forecast_search import SETS
    from table3_peers import HORIZONS, SCRIPTS, Script, settings

    for name in SCRIPTS:
        for dataset in SETS:
            for h in HORIZONS:
                given = settings(name, dataset, h)
                assert json.loads(json.dumps(given)) == given
                assert Script(**given).network


def test_a_peer_is_scored_by_its_best_epoch(benchmarks):
    from table3_peers import best_weights

    module, callback = torch.nn.Linear(1, 1), best_weights()
    for error, weight in ((0.5, 1.0), (0.3, 2.0), (0.4, 3.0)):
        torch.nn.init.constant_(module.weight, weight)
        trainer = SimpleNamespace(callback_metrics={"ptl/val_loss": torch.tensor(error)}, sanity_checking=False)
        callback.on_validation_end(trainer, module)
    callback.on_train_end(None, module)
    assert module.weight.item() == 2.0


@pytest.mark.parametrize(("name", "step"), [("DLinear", 1), ("DLinear", 2), ("SOFTS", 1), ("SOFTS", 3)])
def test_a_peer_draws_the_same_windows_quickly(benchmarks, name, step):
    from quick_windows import draw_quickly

    models = pytest.importorskip("neuralforecast.models")
    sizes = {"h": 3, "input_size": 5, "step_size": step, "random_seed": 0}
    if name == "SOFTS":
        sizes |= {"n_series": 4, "hidden_size": 8, "d_core": 8, "d_ff": 8, "e_layers": 1}
    model = getattr(models, name)(**sizes)
    model.val_size, model.test_size = 4, 6
    values = torch.randn(4, 2, 40)
    values[:, 1] = torch.rand(4, 40) < (0.08 if name == "SOFTS" else 0.3)  # gaps of all lengths
    batch = {"temporal": values, "temporal_cols": pd.Index(["y", "available_mask"]), "y_idx": 0}
    before = model._create_windows(batch, "train")
    draw_quickly(model)
    after = model._create_windows(batch, "train")
    assert 0 < len(before[3]) < before[0].shape[0]
    assert torch.equal(after[3], before[3])
    assert torch.equal(after[0][after[3]], before[0][before[3]])
    assert torch.equal(model._create_windows(batch, "val")[0], type(model)._create_windows(model, batch, "val")[0])


def test_novels_are_looked_for_where_every_set_is(benchmarks, tmp_path, monkeypatch):
    from lm_bytes import novels

    monkeypatch.delenv("TITANS_DATA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"put it at\n  .*titans_datasets/lm/gutenberg/books\.jsonl\.gz"):
        novels("train")


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_parses_its_arguments(script):
    """``--help`` must not start a measurement."""
    text = script.read_text()
    names = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    called = {
        node.func.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert "__main__" not in text or "ArgumentParser" in names or "over_seeds" in called


@pytest.mark.filterwarnings("error::matplotlib.MatplotlibDeprecationWarning")
def test_pictures_show_the_result_files(benchmarks):
    import pictures_models
    from records import RESULTS, read
    from tables_dna import DNABERT_2, VQDNA

    axis = pictures_models.gue().axes[0]
    shown = {series.get_label(): len(series.get_offsets()) for series in axis.collections}
    rows = [row["model"] for row in read(RESULTS / "dna_gue.jsonl")]
    assert list(shown.values()) == [
        *(rows.count(m) for m in ("kmers", "cnn", "titans")),
        len(DNABERT_2),
        len(VQDNA),
    ]

    for axis in pictures_models.forecast_table3().axes:
        own = [row for row in pictures_models.standing() if row["dataset"] == axis.get_title()]
        seeds = Counter(row["seed"] for row in own if row["model"] == "titans")
        assert len(axis.collections[-1].get_offsets()) == list(seeds.values()).count(4) > 0  # horizons


def test_settings_whose_horizons_are_not_all_there_are_not_shown(benchmarks):
    from tables_ts import HORIZONS, _current, _mean_of_four, _newest

    def rows(settings, horizons, seed=0, mse=0.4):
        return [{"settings": settings, "h": h, "seed": seed, "mse": mse, "mae": 0.5} for h in horizons]

    old, new = {"recipe": 1}, {"recipe": 2}
    assert _newest(rows(old, HORIZONS) + rows(new, HORIZONS[:3])) == old
    assert _newest(rows(old, HORIZONS) + rows(new, HORIZONS)) == new
    assert _mean_of_four(rows(old, HORIZONS) + rows(old, HORIZONS[:2], seed=1, mse=9.0)) == "0.400 / 0.500 (1)"
    assert _mean_of_four(rows(old, HORIZONS[:2])) is None
    both = rows(old, HORIZONS) + rows(new, HORIZONS)
    assert _current(both, old) == rows(old, HORIZONS)  # the rule's, though others are newer
    assert _current(both, {"recipe": 3}) == _current(both, None) == rows(new, HORIZONS)
    assert _current(rows(old, HORIZONS) + rows(new, HORIZONS[:3]), new) == rows(old, HORIZONS)


@pytest.fixture
def search(benchmarks, monkeypatch):
    """The rule with given errors by settings, for one set; other settings count as not run yet."""
    import forecast_search

    errors = {}
    monkeypatch.setattr(forecast_search, "_errors", lambda dataset, lookback: errors)
    return forecast_search, errors


def test_an_answer_is_the_default_unless_another_is_better_by_more_than_the_margin(search):
    rule, _ = search
    assert rule._answer([1.0, 1.2, 0.995]) == 0
    assert rule._answer([1.0, 0.98, 0.985]) == 1
    assert rule._answer([1.0, 0.99]) == 0


def test_the_rule_asks_one_question_after_the_other(search):
    rule, errors = search
    assert rule.chosen("any") is None
    switches = rule._progress("any")[1]
    assert len(set(switches)) == 8
    assert {s[3] for s in switches} == {rule.FIRST}
    errors |= dict.fromkeys(switches, 1.0)
    errors[True, False, True, rule.FIRST] = 0.9
    best, missing = rule._progress("any")
    assert best == (True, False, True, rule.FIRST)
    assert missing == [(True, False, True, dropout) for dropout in (rule.DEFAULT, 0.1)]
    errors |= {missing[0]: 0.905, missing[1]: 0.95}  # the default is worse than the first by less than the margin
    found = dict(zip(rule.NAMES, (True, False, True, rule.DEFAULT), strict=True))
    assert rule.chosen("any") == {**found, "recipe": rule.recipe_of(rule.TRAINED, True)}


def test_a_mixture_is_a_pair_of_forecasters_at_each_lookback(search, monkeypatch, capsys):
    import forecast_table3

    rule, errors = search
    assert rule.of_lookbacks("any") is None
    errors |= dict.fromkeys(itertools.product((False, True), (False, True), (False, True), (0.1, 0.3, 0.5)), 1.0)
    members = rule.ensemble_of_lookbacks(**rule.of_lookbacks("any")).forecasters
    assert [(one.input_size, one.exogenous) for one in members] == list(
        itertools.product((96, 336), ({}, {"profile": ["day"]}))
    )
    assert {one.dropout for one in members} == {rule.DEFAULT}
    assert forecast_table3.lookback_of("lookbacks", "any", searched=True) == 336
    monkeypatch.setattr(sys, "argv", ["forecast_table3.py", "--models", "lookbacks"])
    with pytest.raises(SystemExit):
        forecast_table3.main()
    assert "lookbacks has other lookbacks than 96: give --searched" in capsys.readouterr().err


def test_the_rule_uses_only_rows_of_the_current_recipe(benchmarks, tmp_path, monkeypatch):
    """The recipe number with a profile differs from that without."""
    import forecast_search as rule
    from records import append

    monkeypatch.setattr(rule, "FILE", tmp_path / "search.jsonl")
    for profile in (False, True):
        of = (False, True, profile, rule.FIRST)
        for recipe, error in ((rule.RECIPE, 1.0), (rule.RECIPE + rule.WITH_PROFILE, 2.0)):
            for part in rule.PARTS:
                key = ("ETTh1", 96, part, recipe, *of)
                append(rule.FILE, {**dict(zip(rule.FIELDS, key, strict=True)), "mse": error, "mae": 0.5})
    errors = rule._errors("ETTh1", 96)
    assert errors == {(False, True, False, rule.FIRST): 1.5, (False, True, True, rule.FIRST): 2.5}
    cells = rule._cells("ETTh1", (96,), list(errors))
    assert [key[3] for key in cells] == 2 * [rule.RECIPE] + 2 * [rule.RECIPE + rule.WITH_PROFILE]
    with pytest.raises(ValueError, match="recipe 3 now, not by 6"):
        rule.forecaster(False, True, False, rule.FIRST, rule.TRAINED + rule.WITH_PROFILE)


@pytest.mark.slow
def test_table_4_goes_from_a_fasta_to_scores(benchmarks, tmp_path, monkeypatch):
    """The command on a set of 48 sequences, without local files and with a genome."""
    import dna_table4
    import numpy as np
    import pandas as pd
    from records import read

    starts = np.random.default_rng(0).integers(0, 4000, 48)
    split = ["train"] * 32 + ["test"] * 16
    intervals = {"region": ["chr1", "chr2"] * 24, "start": starts, "end": starts + 250, "strand": "+", "split": split}
    places = tmp_path / "home" / "dna" / "gb_intervals"
    places.mkdir(parents=True)
    frame = pd.DataFrame({**intervals, "class": ["positive", "positive", "negative", "negative"] * 12})
    frame.to_parquet(places / "human_enhancers_cohn.parquet")
    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(dna_table4, "FILE", tmp_path / "real.jsonl")
    monkeypatch.setattr(dna_table4, "GENERATED", tmp_path / "generated.jsonl")
    monkeypatch.setattr(dna_table4, "ROWS", 16)
    monkeypatch.setattr(dna_table4, "LINES", 10)
    fork = get_context("fork")  # a process of its own as well, which need not begin with all imports
    monkeypatch.setattr(dna_table4.multiprocessing, "get_context", lambda method: fork)
    classifier = partial(dna_table4.TitansDNAClassifier, max_epochs=2, device="cpu")
    monkeypatch.setattr(dna_table4, "TitansDNAClassifier", classifier)

    command = ["dna_table4.py", "--sets", "human_enhancers_cohn"]
    monkeypatch.setattr(sys, "argv", [*command, "--generated"])
    dna_table4.main()
    (row,) = read(tmp_path / "generated.jsonl")
    assert row["training_bases"] == 32 * 250
    assert (row["tests"], row["trained_on"], row["epochs"]) == (16, 16, 1)
    assert row["seconds_per_epoch"] > 0 < row["peak_mib"]

    genome = tmp_path / "genome.fa"
    dna_table4.generate(genome, ("human_enhancers_cohn",))
    monkeypatch.setattr(sys, "argv", [*command, "--genome", str(genome), "--seeds", "1"])
    dna_table4.main()
    (row,) = read(tmp_path / "real.jsonl")
    assert (row["seed"], row["tests"], row["trained_on"]) == (1, 16, 32)
    assert 0 < row["clean_tests"] <= 16
    assert 0 <= row["accuracy"] <= 1


def test_a_saved_language_model_of_other_settings_is_not_scored(benchmarks, tmp_path, monkeypatch):
    import dna_language

    (tmp_path / "genome.fa").write_text(">IV\n" + "".join(np.random.default_rng(0).choice(list("ACGT"), 400)) + "\n")
    size = {"dim": 8, "num_layers": 1, "num_heads": 1}
    small = {"SIZE": size, "PARAMETERS": 1000, "LENGTH": 32, "BATCH": 2, "STEPS": 1}
    for name, value in {"CHECKPOINTS": tmp_path, **small}.items():
        monkeypatch.setattr(dna_language, name, value)
    genome = dna_language.Genome(tmp_path / "genome.fa")
    monkeypatch.setattr(dna_language, "genome_of", lambda name: (genome, None, []))
    fitted = dna_language.trained("yeast", "transformer", 0)
    assert dna_language.trained("yeast", "transformer", 0).digest_ == fitted.digest_
    monkeypatch.setattr(dna_language, "STEPS", 2)
    with pytest.raises(ValueError, match=r"yeast-transformer-0 has a model of other settings: remove it"):
        dna_language.trained("yeast", "transformer", 0)


def test_hyenadna_is_not_left_out_because_the_others_were_measured(benchmarks, tmp_path, monkeypatch, capsys):
    import dna_speed
    from records import read

    monkeypatch.setattr(dna_speed, "FILE", tmp_path / "speed.jsonl")
    monkeypatch.setattr(dna_speed, "run", lambda key, hyena_file: {"parameters": {"lmm": 1}})
    monkeypatch.setattr(sys, "argv", ["dna_speed.py"])
    dna_speed.main()
    assert [row["what"] for row in read(dna_speed.FILE)] == ["training", "streaming"]
    monkeypatch.setattr(sys, "argv", ["dna_speed.py", "--hyena", "standalone_hyenadna.py"])
    with pytest.raises(SystemExit):
        dna_speed.main()
    assert "has the training without hyenadna: remove that row" in capsys.readouterr().err


@pytest.fixture
def memory_gpu(benchmarks, monkeypatch, tmp_path):
    import memory_gpu

    monkeypatch.setattr(memory_gpu, "FILE", tmp_path / "rows.jsonl")
    return memory_gpu


def rows_of(memory_gpu):
    return [json.loads(line) for line in memory_gpu.FILE.read_text().splitlines()]


def test_a_row_of_another_device_or_commit_does_not_count_as_done(memory_gpu, monkeypatch):
    s = memory_gpu.Shapes(smoke=False)
    found = [({"T": 1}, lambda: {"forward": {}})]
    for name, commit in (("H100", "a"), ("H200", "a"), ("H100", "b"), ("H100", "b")):
        s.name = name
        monkeypatch.setattr(memory_gpu, "COMMIT", commit)
        monkeypatch.setattr("records.COMMIT", commit)
        memory_gpu.run(found, s, end=float("inf"))
    assert [(row["device"], row["commit"]) for row in rows_of(memory_gpu)] == [
        ("H100", "a"),
        ("H200", "a"),
        ("H100", "b"),
    ]


def test_the_gpu_script_says_what_is_not_installed(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    run = subprocess.run(
        [FOLDER / "run_gpu.sh", tmp_path], env={**os.environ, "PYTHON": str(bare)}, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert run.stderr.startswith("torch, triton, safetensors, scikit-learn cannot be imported: install what is missing")


def test_forward_is_kept_where_backward_fails(memory_gpu):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, dy):
            raise torch.OutOfMemoryError("no room")

    x = torch.ones(2, requires_grad=True)
    found = memory_gpu.throughput(lambda: lambda: Fails.apply(x), memory_gpu.Shapes(smoke=True))
    assert found["forward"]["median"] > 0
    assert found["unavailable"] == "OutOfMemoryError: no room"
    assert "forward+backward" not in found


@pytest.mark.parametrize(
    ("code", "reason"), [("exit(3)", "its process ended with 3"), ("import time; time.sleep(60)", "out of time")]
)
def test_a_peer_that_dies_or_hangs_is_a_row_with_the_reason(memory_gpu, monkeypatch, tmp_path, code, reason):
    script = tmp_path / "peer.py"
    script.write_text(code)
    monkeypatch.setattr(memory_gpu, "__file__", str(script))
    monkeypatch.setattr(memory_gpu, "PEER_SECONDS", 1 if "sleep" in code else 60)
    memory_gpu.run_apart("a peer", [({"T": 1}, dict)], memory_gpu.Shapes(smoke=False), end=float("inf"))
    assert [row["unavailable"] for row in rows_of(memory_gpu)] == [reason]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_case_of_the_gpu_benchmark_that_is_ours_runs_in_small(memory_gpu, monkeypatch, capsys, dtype):
    monkeypatch.setattr(memory_gpu, "LEAST", 1)
    monkeypatch.setattr(memory_gpu, "REPEATS", 1)
    small = memory_gpu.Shapes(smoke=True)
    small.dtype = dtype
    small.memories = small.memories[:1] + small.memories[3:5]
    monkeypatch.setattr(memory_gpu, "Shapes", lambda smoke: small)
    peers = {"gated_delta_layer", "gated_delta_operator", "mamba2_layer", "peer_layer"}
    for name in peers:
        monkeypatch.setattr(memory_gpu, name, lambda T, s: 1 / 0)
    memory_gpu.main(["--smoke"])
    rows = [ast.literal_eval(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["case"]["part"] for row in rows} == {"layer", "operator", "decoding", "one sequence"}
    ours = [row for row in rows if row["case"]["side"] in ("ours", "attention (SDPA)")]
    assert not [row for row in ours if "unavailable" in row]
    assert all(row["case"]["backend"] for row in ours if row["case"]["side"] == "ours")
    assert all("ZeroDivisionError" in row["unavailable"] for row in rows if row not in ours)
    assert not memory_gpu.FILE.exists()


@pytest.mark.parametrize(("name", "file"), [("ECL", "electricity.txt.gz"), ("traffic", "traffic.txt.gz")])
def test_generated_data_go_the_whole_way_of_a_set(benchmarks, tmp_path, name, file):
    from generated import in_place_of, waves

    from titans_datasets import ChecksumError, info, load
    from titans_ts.evaluation import load_protocol

    published, values = info(name), waves(1000, 7)
    with in_place_of(name, tmp_path, values):
        frame, data = load(name), load_protocol(name)
        assert frame.index[0] == pd.Timestamp(published.start)
        np.testing.assert_allclose(frame, values, rtol=1e-5)
        assert (data.split.train.stop, data.split.val.stop, data.split.test.stop) == (700, 800, 1000)
        np.testing.assert_allclose(data.values[:700].std(axis=0), 1)
        with (tmp_path / "ts" / file).open("ab") as stream:
            stream.write(b"1")
        with pytest.raises(ChecksumError):
            load(name)
    assert info(name) == published
    assert published.published.file == file


def test_one_command_searches_and_scores_the_large_sets(benchmarks, tmp_path, monkeypatch, capsys):
    """On generated data in the published layout, with a tiny network and one of the four horizons."""
    import forecast_search
    import forecast_table3
    from generated import in_place_of, waves
    from records import read

    small = {"dim": 4, "num_layers": 1, "patch_size": 48, "max_epochs": 1, "batch_size": 512}
    forecaster = forecast_search.forecaster
    made = []

    def in_a_moment(*args, **options):
        made.append(args or options)
        return forecaster(*args, **{**options, **small})

    monkeypatch.setattr(forecast_search, "forecaster", in_a_moment)
    monkeypatch.setitem(forecast_table3.OURS, "titans", (forecast_search.chosen, in_a_moment))
    for module in (forecast_search, forecast_table3):
        monkeypatch.setattr(module, "FILE", tmp_path / f"{module.__name__}.jsonl")
    monkeypatch.setattr(forecast_table3, "HORIZONS", (96,))
    arguments = ["--sets", "traffic", "--seeds", "0", "--models", "titans", "DLinear"]
    monkeypatch.setattr(sys, "argv", ["forecast_table3.py", *arguments])
    with in_place_of("traffic", tmp_path / "home", waves(1000, 3)):
        forecast_table3.main()
        count = len(made)
        forecast_table3.main()
    assert len(made) == count > 8  # the search and the test, once
    assert "there are no settings of DLinear" in capsys.readouterr().out
    row = read(forecast_table3.FILE)[0]
    assert (row["dataset"], row["h"], row["n_windows"]) == ("traffic", 96, 200 - 96 + 1)
    assert row["settings"] == forecast_search.chosen("traffic")
    assert row["mse"] > 0


def test_epochs_are_timed_on_the_available_device(benchmarks, monkeypatch, capsys):
    import forecast_gpu

    monkeypatch.setattr(sys, "argv", ["forecast_gpu.py", "--smoke"])
    forecast_gpu.main()
    row = ast.literal_eval(capsys.readouterr().out.splitlines()[0])
    assert row["epochs"] == forecast_gpu.EPOCHS - 1
    assert 0 < row["epoch_seconds"] < row["fit_seconds"]


def test_a_table_states_the_origin_of_the_rows_it_shows(benchmarks):
    import tables_dna
    import tables_memory
    from records import RESULTS, read

    def commits(*files, **wanted):
        rows = [row for file in files for row in read(RESULTS / f"{file}.jsonl")]
        return {row["commit"] for row in rows if all(row.get(name) == value for name, value in wanted.items())}

    stated = []
    for make in (tables_memory.memory_cpu, tables_memory.memory_cpu_range, tables_dna.pretraining):
        make(lambda rows: stated.append({row["commit"] for row in rows}))
    assert stated[:2] == 2 * [commits("memory_cpu", "memory_cpu_peak")]
    tasks = {row["task"] for row in read(RESULTS / "dna_pretraining.jsonl")}
    beside = [commits("dna_gue", model="titans", task=task) for task in tasks]
    assert stated[2] == commits("dna_pretraining").union(*beside)


def test_memory_beside_the_speed_of_a_cpu_is_of_that_cpu(benchmarks, tmp_path, monkeypatch):
    import tables_memory

    def row(machine, ours, peer):
        sides = {"ours": ours, "peer": peer}
        of = {side: {mode: value for mode in ("forward", "forward+backward")} for side, value in sides.items()}
        return json.dumps({"case": tables_memory.CASES[0], "machine": machine, "commit": machine, "repeats": 7, **of})

    speeds = [row(machine, {"median": 2.0}, {"median": 1.0}) for machine in ("A, 2 cores", "B, 2 cores")]
    peaks = [row("A, 2 cores", 9, 10), row("A, 2 cores", 2, 10), row("B, 2 cores", 5, 10)]
    monkeypatch.setattr(tables_memory, "RESULTS", tmp_path)
    (tmp_path / "memory_cpu.jsonl").write_text("\n".join(speeds))
    for there, of_b, note in ((peaks[:2], "0.20", "measured on the A only; A, 2 cores B"), (peaks, "0.50", "")):
        (tmp_path / "memory_cpu_peak.jsonl").write_text("\n".join(there))
        table = tables_memory.memory_cpu_range(lambda rows: " ".join(dict.fromkeys(r["commit"] for r in rows)))
        assert "| default | A | 1 | 2.00x to 2.00x | 2.00x to 2.00x | 0.20x to 0.20x |" in table
        assert f"| default | B | 1 | 2.00x to 2.00x | 2.00x to 2.00x | {of_b}x to {of_b}x |" in table
        assert note in table
        assert ("only" in table) == bool(note)


def test_speeds_on_a_gpu_are_the_newest_of_one_device(benchmarks, tmp_path, monkeypatch):
    import tables_memory

    def row(device, commit, T, **found):
        case = {"part": "layer", "side": "ours", "depth": 1, "expansion": 1, "backend": "triton", "T": T}
        return {"case": case, "device": device, "commit": commit, "versions": {"triton": "3"}, **found}

    def speed(millions):
        return {mode: {"median": 1e6 * millions} for mode in ("forward", "forward+backward")}

    rows = [
        row("A", "a", 1, **speed(9)),
        row("A", "a", 4, **speed(9)),
        row("B", "b", 1, **speed(1)),
        row("B", "c", 1, **speed(2)),
        row("B", "c", 2, **speed(3)),
        row("B", "d", 2, unavailable="out of time"),
        row("B", "d", 3, unavailable="out of time"),
    ]
    (tmp_path / "memory_gpu.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    monkeypatch.setattr(tables_memory, "RESULTS", tmp_path)
    table = tables_memory.memory_gpu(lambda rows: " ".join(dict.fromkeys(r["commit"] for r in rows)))
    assert "| part | 1 | 2 | 3 |" in table
    assert "| linear memory (triton), layer | 2.00 / 2.00 | 3.00 / 3.00 | - |" in table
    assert "B, Triton 3; c d." in table


def test_the_stream_says_how_many_tokens_its_last_time_is_of(benchmarks, tmp_path, monkeypatch):
    import tables_lm

    points = [[102_400, 280.0, 18.0, 1024], [204_800, 280.0, 18.0, 1024], [235_000, 290.0, 19.0, 1024]]
    row = {"model": "lmm", "tokens": 235_000, "points": points}
    (tmp_path / "lm_stream.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setattr(tables_lm, "RESULTS", tmp_path)
    table = tables_lm.stream(lambda rows: "here")
    assert "µs per token, first 0.1 M | last 0.03 M | state |" in table
    assert "| lmm | 280 MiB | 290 MiB | 18.0 | 19.0 | 1 KiB |" in table


def test_intervals_of_another_seed_are_not_shown_as_those_of_seed_0(benchmarks, tmp_path, monkeypatch):
    import tables_ts
    from records import RESULTS, read

    (first, *_) = [row for row in read(RESULTS / "forecast_coverage.jsonl") if row["recipe"] == tables_ts.TRAINED]
    rows = [{**first, "seed": seed, "commit": commit} for seed, commit in ((0, "a"), (1, "b"))]
    (tmp_path / "forecast_coverage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(tables_ts, "RESULTS", tmp_path)
    table = tables_ts.coverage(lambda rows: " ".join(row["commit"] for row in rows))
    assert table.endswith("(lower is better). a, 1 thread, seed 0.")


def test_memories_are_not_compared_at_a_lookback_that_is_not_chosen_yet(benchmarks, monkeypatch):
    import forecast_recipe

    ran = []
    monkeypatch.setattr(forecast_recipe, "work", lambda file, cells, *_: ran.extend(key[1] for key in cells))
    monkeypatch.setattr(forecast_recipe, "chosen_lookback", lambda dataset: None)
    monkeypatch.setattr(sys, "argv", ["forecast_recipe.py", "--memories", "--sets", "ETTh1"])
    with pytest.raises(SystemExit, match="lookback of ETTh1 is not chosen yet"):
        forecast_recipe.main()
    assert set(ran) == {96}
