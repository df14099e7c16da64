"""Configurations and their errors, sizes of the presets, and errors on the model's inputs."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from titans_core import LMState, TitansConfig, TitansLM
from titans_core.archive import ArchiveError, save_archive
from titans_core.models import presets

SIZES = {"170m": 170e6, "340m": 340e6, "400m": 400e6, "760m": 760e6}


def test_overrides_of_a_preset_are_applied():
    changes = {"chunk_size": 64, "momentum": True, "memory_depth": 2, "num_persistent": 8}
    for preset in ("gated-deltanet-170m", "lmm-170m"):
        config = TitansConfig.preset(preset, **changes)
        assert {name: getattr(config, name) for name in changes} == changes
    assert TitansConfig.preset("gated-deltanet-170m").chunk_size == 1
    assert TitansConfig.preset("mac-170m", architecture="mag").architecture == "mag"


@pytest.mark.parametrize("preset", presets())
def test_a_preset_has_the_parameters_that_its_name_says(preset):
    config = TitansConfig.preset(preset)
    with torch.device("meta"):
        model = TitansLM(config)
    assert config.vocab_size == 32_000
    assert config.tie_embeddings
    assert model.num_parameters() == pytest.approx(SIZES[preset.rpartition("-")[2]], rel=0.03)
    assert model.num_parameters(embeddings=False) == model.num_parameters() - 32_000 * config.dim


def test_untied_embeddings_are_counted_twice(make_config):
    tied, untied = (TitansLM(make_config("lmm", tie_embeddings=t)).num_parameters() for t in (True, False))
    assert untied - tied == 29 * 16


def test_a_preset_can_be_changed():
    config = TitansConfig.preset("MAG-170M", vocab_size=256, window=64)
    assert (config.architecture, config.vocab_size, config.window, config.dim) == ("mag", 256, 64, 768)


@pytest.mark.parametrize("wrong", ["mac", "mac-1b", "rnn-170m", ""])
def test_an_unknown_preset_is_refused_with_those_there_are(wrong):
    with pytest.raises(ValueError, match=r"mac-170m.*gated-deltanet-760m"):
        TitansConfig.preset(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "rnn"}, "architecture must be one of"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"window": 2.5}, "window must be an integer"),
        ({"dim": 20, "num_heads": 3}, "multiple of 4"),
        ({"num_persistent": -1}, "num_persistent must be at least 0"),
        ({"momentum": "no"}, "momentum must be True or False"),
        ({"memory_expansion": 0}, "memory_expansion must be a positive number"),
        ({"rope_base": -1.0}, "rope_base must be a positive number"),
    ],
)
def test_a_wrong_setting_is_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TitansConfig(**changes)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 29]]), r"in 0\.\.28.*got 29.*tokenizer"),
        (torch.tensor([[-1, 2]]), "got -1"),
        (torch.zeros(1, 0, dtype=torch.int64), "at least one token"),
        (torch.tensor([1, 2]), r"\[B, T\]"),
        (torch.tensor([[1.0]]), "integer|int64"),
        ([[1, 2]], "list"),
    ],
)
def test_wrong_ids_are_refused(make_model, ids, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_model("lmm")(ids)


def test_a_state_of_another_model_or_batch_is_refused(make_model):
    ids = torch.ones(2, 4, dtype=torch.int64)
    state = make_model("mac")(ids)[1]
    with pytest.raises(ValueError, match="segment 6 there and 7 here"):
        make_model("mac", segment=7)(ids, state)
    with pytest.raises(ValueError, match=r"2 sequences, but ids has 1.*select"):
        make_model("mac")(ids[:1], state)
    with pytest.raises(TypeError, match="LMState"):
        make_model("mac")(ids, state.blocks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": 2.5}, "top_k must be an integer"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be an integer"),
        ({"temperature": None}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature must be at least 0"),
        ({"stop": 5}, r"stop must be a collection of token ids, such as \[5\]"),
        ({"stop": [1.5]}, r"stop must be a collection of token ids, such as \[257\], got \[1\.5\]"),
    ],
)
def test_wrong_options_of_generate_are_refused(make_model, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_model("lmm").generate(torch.ones(1, 2, dtype=torch.int64), **options)


def test_a_prompt_that_is_not_a_tensor_is_refused(make_model):
    with pytest.raises(TypeError, match=r"torch.tensor\(\[\[1, 2\]\]\)"):
        make_model("lmm").generate([1, 2], 3)
    for piece in (0, 2.5):
        with pytest.raises(ValueError, match=f"piece must be an integer >= 1, got {piece}"):
            make_model("lmm").read(torch.ones(1, 2, dtype=torch.int64), piece=piece)
        with pytest.raises(ValueError, match=f"chunk must be an integer >= 1, got {piece}"):
            make_model("lmm").loss(torch.ones(1, 2, dtype=torch.int64), chunk=piece)


@pytest.mark.parametrize("name", ["lmm", "mac"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_saved_model_keeps_its_dtype_and_its_ties(make_model, tmp_path, name, dtype):
    model = make_model(name).to(dtype)
    model.save(tmp_path)
    loaded = TitansLM.load(tmp_path)
    ids = torch.ones(1, 5, dtype=torch.int64)
    assert torch.equal(loaded(ids)[0], model(ids)[0])
    assert loaded.head.weight is loaded.embedding.weight
    assert all(p.dtype == dtype and p.requires_grad for p in loaded.parameters())


def test_ids_may_be_int32(make_model):
    model, ids = make_model("lmm"), torch.ones(1, 5, dtype=torch.int64)
    assert torch.equal(model.loss(ids.int()), model.loss(ids))


def test_an_empty_prompt_is_refused(make_model):
    with pytest.raises(ValueError, match="at least one token"):
        make_model("lmm").generate(torch.ones(1, 0, dtype=torch.int64))


def test_a_file_that_is_not_a_state_is_refused(tmp_path):
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no such file: .*LMState\.save"):
            LMState.load(path)
    (tmp_path / "text.safetensors").write_text("this is no state, nor any other tensor file at all")
    with pytest.raises(ValueError, match="cannot be read"):
        LMState.load(tmp_path / "text.safetensors")
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="is not a saved state"):
        LMState.load(tmp_path / "other.safetensors")


def test_a_model_saved_by_another_version_is_reported(make_model, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import save_file

    model, path = make_model("lmm"), tmp_path / "state.safetensors"
    model.read(torch.ones(1, 3, dtype=torch.int64)).save(path)
    with safe_open(path, "pt") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["titans_state"])
    save_file(dict(list(kept.items())[1:]), path, metadata={"titans_state": json.dumps(about)})
    with pytest.raises(ValueError, match="is damaged"):
        LMState.load(path)
    known = about["tree"]
    about["tree"] = [{"kind": "AnotherState", "parts": {}}]
    save_file(kept, path, metadata={"titans_state": json.dumps(about)})
    with pytest.raises(ValueError, match="is damaged or from another version"):
        LMState.load(path)
    about["tree"] = known
    about["config"]["new_option"] = 1
    save_file(kept, path, metadata={"titans_state": json.dumps(about)})
    with pytest.raises(ValueError, match=r"newer version.*\['new_option'\]"):
        LMState.load(path)
    save_archive(tmp_path / "model", "TitansLM", {"config": about["config"]}, {})
    with pytest.raises(ArchiveError, match=r"newer version.*\['new_option'\]: upgrade"):
        TitansLM.load(tmp_path / "model")


def test_tensors_that_are_too_many_are_named(make_model, tmp_path):
    model = make_model("lmm")
    tensors = dict(model.state_dict()) | {"other": torch.ones(1)}
    del tensors["head.weight"]
    save_archive(tmp_path, "TitansLM", {"config": asdict(model.config)}, tensors)
    with pytest.raises(ArchiveError, match=r"missing tensors \[\], unexpected tensors \['other'\]"):
        TitansLM.load(tmp_path)


def test_numbers_of_numpy_are_taken_as_pythons():
    config = TitansConfig(dim=np.int64(32), num_heads=np.int32(2), rope_base=np.float32(100))
    assert config == TitansConfig(dim=32, num_heads=2, rope_base=100.0)
    assert {type(config.dim), type(config.num_heads), type(config.rope_base)} == {int, float}


def test_a_loss_is_as_exact_as_its_model(make_model):
    model, ids = make_model("lmm"), torch.arange(6)[None]
    expected = torch.nn.functional.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), ids[0, 1:])
    assert model.loss(ids).dtype == torch.float64
    torch.testing.assert_close(model.loss(ids), expected, rtol=1e-14, atol=0)
    assert model.bfloat16().loss(ids).dtype == torch.float32


def test_targets_of_another_shape_are_refused(make_model):
    ids = torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 3\), got \(3, 2\)"):
        make_model("lmm").loss(ids, ids.T)


@pytest.mark.parametrize("config", ["mac-170m", {"architecture": "mac"}])
def test_a_model_is_made_from_a_configuration(config):
    with pytest.raises(TypeError, match=r"config must be a TitansConfig, got .*TitansConfig\.preset"):
        TitansLM(config)


@pytest.mark.parametrize("wrong", [-1, 256])
def test_targets_outside_the_vocabulary_are_refused(make_model, wrong):
    model, ids = make_model("lmm"), torch.arange(6)[None]
    assert model.config.vocab_size <= 256
    targets = torch.tensor([[1, -100, wrong, 2, 3, 4]])
    with pytest.raises(ValueError, match=f"targets must be in .* or equal ignore_index=-100, got {wrong}"):
        model.loss(ids, targets)


def test_targets_are_token_ids(make_model):
    ids = torch.arange(6)[None]
    with pytest.raises(TypeError, match=r"targets must be integer token ids, got torch\.float32"):
        make_model("lmm").loss(ids, ids.float())
    with pytest.raises(TypeError, match="targets must be a tensor of token ids, got list"):
        make_model("lmm").loss(torch.ones(1, 3, dtype=torch.int64), [[1, 2, 3]])
