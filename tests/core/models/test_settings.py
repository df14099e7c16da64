"""Effects of the settings of a model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from titans_core import NeuralMemory, TitansLM


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_the_settings_of_the_memory_reach_every_block(make_config, architecture):
    settings = dict(memory_depth=3, memory_expansion=1.5, chunk_size=7, conv_size=3)
    switches = dict(momentum=False, forget=False, forget_to="start")
    model = TitansLM(make_config(architecture, **settings, **switches))
    memories = [module for module in model.modules() if isinstance(module, NeuralMemory)]
    assert len(memories) == 2
    for memory in memories:
        assert [tuple(w.shape) for w in memory.weights] == [(2, 8, 12), (2, 12, 12), (2, 12, 8)]
        assert (memory.chunk_size, memory.conv.weight.shape[1]) == (7, 3)
        assert {name: getattr(memory, name) for name in switches} == switches


@pytest.mark.parametrize("architecture", ["mac", "mag", "mal", "transformer"])
def test_the_base_of_rotary_positions_reaches_attention(make_model, architecture):
    ids = torch.arange(12)[None]
    one, other = (make_model(architecture, rope_base=base)(ids)[0] for base in (10_000.0, 10.0))
    assert (one - other).abs().max() > 1e-6


def test_matrices_start_at_the_scale_of_what_they_read_and_what_is_written_smaller(make_config):
    torch.manual_seed(0)
    model = TitansLM(make_config("lmm", dim=64, hidden=128, num_layers=2))
    expected = {
        "embedding.weight": 0.5 * 64**-0.5,
        "blocks.0.mlp.into.weight": 64**-0.5,
        "blocks.0.mlp.out.weight": 0.5 * 128**-0.5,
        "blocks.1.mixer.memory.out.weight": 0.5 * 64**-0.5,
        "blocks.1.mixer.memory.weights.0": 32**-0.5,
        "blocks.1.mixer.memory.weights.1": 0.1 * 64**-0.5,
    }
    found = {name: float(p.detach().std()) for name, p in model.named_parameters() if name in expected}
    assert found == pytest.approx(expected, rel=0.1)


def test_a_loss_continues_from_a_state(make_model):
    model, ids = make_model("mac"), torch.arange(20)[None]
    expected = F.cross_entropy(model(ids)[0][0, 12:19], ids[0, 13:])
    torch.testing.assert_close(model.loss(ids[:, 12:], state=model.read(ids[:, :12])), expected)


def test_sizes_of_pieces_may_be_numbers_of_numpy(make_model):
    model, ids = make_model("mac"), torch.arange(20)[None]
    state, expected = model.read(ids, piece=np.int64(7)), model.read(ids, piece=7)
    assert torch.equal(model(ids, state)[0], model(ids, expected)[0])
    assert torch.equal(model.loss(ids, chunk=np.int64(7)), model.loss(ids, chunk=7))


def test_targets_that_are_ignored_do_not_count_whichever_they_are(make_model):
    model, ids = make_model("lmm"), torch.arange(20)[None]
    targets = ids % 4
    kept = targets[0] != 3
    expected = F.cross_entropy(model(ids)[0][0, kept], targets[0, kept])
    torch.testing.assert_close(model.loss(ids, targets, ignore_index=3), expected)


def test_a_model_that_was_loaded_is_in_evaluation_mode(make_model, tmp_path):
    make_model("lmm").train().save(tmp_path)
    assert not TitansLM.load(tmp_path).training


def test_a_loss_checks_ids_as_a_forward_pass_does(make_model):
    model, ids = make_model("lmm"), torch.arange(6)
    for given, error, says in (
        (ids, ValueError, r"ids must be \[B, T\], got shape \(6,\)"),
        ([[1, 2, 3]], TypeError, "ids must be a tensor of int64 or int32 token ids, got list"),
        (torch.tensor([[1, 2, model.config.vocab_size]]), ValueError, r"\(below vocab_size\), got"),
    ):
        with pytest.raises(error, match=says):
            model.loss(given)


def test_a_model_that_could_not_be_loaded_is_not_saved(make_model, tmp_path):
    model = make_model("lmm")
    model.embedding = nn.Embedding(40, model.config.dim, dtype=torch.float64)
    model.head.weight = model.embedding.weight
    with pytest.raises(ValueError, match=r"no longer matches its config.*\['embedding.weight'\]"):
        model.save(tmp_path / "m")
    model.config = replace(model.config, vocab_size=40)
    model.save(tmp_path / "m")
    ids = torch.arange(30, 40)[None]
    assert torch.equal(TitansLM.load(tmp_path / "m")(ids)[0], model(ids)[0])
    nn.utils.parametrizations.weight_norm(model.blocks[0].mlp.out)
    with pytest.raises(ValueError, match=r"mlp.out.weight'.*state_dict"):
        model.save(tmp_path / "m")
    assert torch.equal(TitansLM.load(tmp_path / "m").embedding.weight, model.embedding.weight)
