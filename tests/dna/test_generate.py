"""DNA that a language model writes: drawn from what it says of the next base, and of bases alone."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from titans_dna import DNALanguageModel, encode
from titans_dna.stream import log_probabilities
from titans_dna.tokenizer import N

SMALL = dict(dim=16, num_layers=1, num_heads=2, window=16, length=64, batch_size=8, device="cpu", verbose=0)
TEXT = "".join("ACGT"[i] for i in np.cumsum(np.where(np.random.default_rng(0).random(9000) < 0.85, 1, 2)) % 4)


def small(**changes):
    return DNALanguageModel(**{**SMALL, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def fitted():
    return small(max_steps=60, learning_rate=1e-2).fit([TEXT])


def chances(model, prompt):
    """What the network says of the base behind a prompt, [4]."""
    ids = torch.tensor([[N, *encode(prompt)]])
    with torch.no_grad():
        return log_probabilities(model.model_, model.model_.hidden(ids)[0][0, -1]).exp().numpy()


def test_only_bases_are_generated_even_if_other_tokens_are_more_likely(fitted):
    head = fitted.model_.head.weight
    before = head.detach().clone()
    try:
        head.data[4:] = 50 * head.data[:1].abs()
        found = fitted.generate(300, random_state=0)
    finally:
        head.data.copy_(before)
    assert len(found) == 300
    assert set(found) <= set("ACGT")


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("prompt", [None, "ACGTACGTAAC"])
def test_bases_are_drawn_with_the_probabilities_of_the_model(fitted, prompt, temperature):
    found = fitted.generate(1, prompt, n_sequences=4000, temperature=temperature, random_state=0)
    expected = chances(fitted, prompt or "") ** (1 / temperature)
    assert np.array([found.count(base) / 4000 for base in "ACGT"]) == pytest.approx(expected / expected.sum(), abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal", "transformer", "gated-deltanet"])
def test_at_temperature_0_each_base_is_the_most_likely_one(architecture):
    model = small(architecture=architecture, max_steps=4, learning_rate=1e-2).fit([TEXT[:2000]])
    prompt = TEXT[:50]
    found = model.generate(40, prompt, temperature=0)
    for i, base in enumerate(found):
        assert base == "ACGT"[chances(model, prompt + found[:i]).argmax()]
    assert model.generate(40, prompt, n_sequences=2, temperature=0) == [found, found]


@pytest.mark.slow
def test_generated_sequence_resembles_the_training_sequence(fitted):
    found = encode(fitted.generate(800, random_state=1)).astype(int)
    steps = np.bincount((found[1:] - found[:-1]) % 4, minlength=4) / 799
    assert steps == pytest.approx([0, 0.85, 0.15, 0], abs=0.06)


def test_the_same_seed_generates_the_same_and_the_model_is_unchanged(fitted):
    fitted.model_.train()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    found = fitted.generate(50, "acgtn", random_state=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert fitted.model_.training
    fitted.model_.eval()
    assert fitted.generate(50, "ACGTN", random_state=3) == found != fitted.generate(50, "ACGTN", random_state=4)
    assert fitted.generate(50, "ACGTN", random_state=np.random.RandomState(3)) == found
    two = fitted.generate(50, n_sequences=2, random_state=3)
    assert two[0] != two[1]
    assert fitted.generate(50, "", random_state=3) == fitted.generate(50, random_state=3)


def test_impossible_generations_are_refused_with_a_reason(fitted):
    with pytest.raises(NotFittedError):
        small().generate(5)
    with pytest.raises(ValueError, match="n_bases must be an integer >= 1, got 0"):
        fitted.generate(0)
    with pytest.raises(ValueError, match="n_sequences must be an integer >= 1, got 0"):
        fitted.generate(5, n_sequences=0)
    with pytest.raises(ValueError, match="temperature must be at least 0"):
        fitted.generate(5, temperature=-1)
    with pytest.raises(TypeError, match="prompt must be a string of bases or None, got list"):
        fitted.generate(5, ["ACGT"])
    with pytest.raises(ValueError, match="prompt has 'X' at position 2"):
        fitted.generate(5, "ACX")
    masked = small(objective="masked", max_steps=2).fit([TEXT[:2000]])
    with pytest.raises(ValueError, match=r"generate needs a model with objective='next'"):
        masked.generate(5)
