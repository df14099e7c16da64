"""Attributions add up, agree with predictions of mutated sequences, and find a planted motif."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from sklearn.exceptions import NotFittedError

from titans_dna import DNALanguageModel, TitansDNAClassifier, attribute, plot_logo, reverse_complement
from titans_dna.interpret import METHODS, log_odds
from titans_dna.network.strands import NETWORKS

MOTIF = "TGACTCAGC"


def planted(n, seed=0, length=40):
    """Random sequences; every second one has the motif in the middle."""
    rng = np.random.default_rng(seed)
    X = ["".join(rng.choice(list("ACGT"), length)) for _ in range(n)]
    at = (length - len(MOTIF)) // 2
    X = [x[:at] + MOTIF + x[at + len(MOTIF) :] if i % 2 else x for i, x in enumerate(X)]
    return X, np.array(["no", "yes"] * (n // 2))


def small(**changes):
    settings = dict(dim=16, num_layers=1, max_epochs=3, batch_size=16, device="cpu", random_state=0, verbose=0)
    return TitansDNAClassifier(**settings | changes)


@pytest.fixture(scope="module")
def fitted():
    X, y = planted(300)
    model = small(max_epochs=8, learning_rate=1e-2, dropout=0.0).fit(X, y)
    assert model.score(*planted(60, seed=1)) > 0.95
    return model


@pytest.fixture(scope="module")
def of_each_kind():
    """A classifier for each strand option, and one with a language model."""
    X, y = planted(40)
    made = {way: small(reverse_complement=way, max_epochs=1).fit(X, y) for way in NETWORKS}
    language = DNALanguageModel(
        dim=16, num_layers=1, num_heads=2, chunk_size=8, length=32, max_steps=2, device="cpu", random_state=0, verbose=0
    ).fit(X)
    made["pretrained"] = small(pretrained=language, max_epochs=1).fit(X, y)
    return made


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attributions_do_not_depend_on_a_mode_without_gradients(fitted, tmp_path, mode):
    X, _ = planted(2, seed=2)
    fitted.save(tmp_path)
    for method in METHODS:
        expected = attribute(fitted, X, method=method, steps=8)
        with mode():
            for model in (fitted, type(fitted).load(tmp_path)):
                for found, frame in zip(attribute(model, X, method=method, steps=8), expected, strict=True):
                    pd.testing.assert_frame_equal(found, frame)


def odds_of(model, sequence, target):
    p = model.predict_proba([sequence])[0, model.classes_.tolist().index(target)]
    return np.log(p / (1 - p))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*NETWORKS, "pretrained"])
def test_gradients_add_up_to_the_change_of_the_score(of_each_kind, kind):
    model, (X, _) = of_each_kind[kind], planted(2, seed=2, length=20)
    for sequence in (X[0], X[1][:9]):
        # the path has kinks, where another position becomes the maximum: at 256 steps the sum is off by up to 0.04
        (found,) = attribute(model, [sequence], "yes", steps=1024)
        gained = odds_of(model, sequence, "yes") - odds_of(model, "N" * len(sequence), "yes")
        assert found.attrs["score"] == pytest.approx(odds_of(model, sequence, "yes"), abs=1e-5)
        assert found["importance"].sum() == pytest.approx(gained, abs=0.02 * max(1, abs(gained)))
        assert found.attrs["gap"] == pytest.approx(found["importance"].sum() - gained, abs=1e-4)
        assert "".join(found["base"]) == sequence


def test_attributions_from_the_mean_of_the_bases_add_up_too(of_each_kind):
    model, (X, _) = of_each_kind["average"], planted(2, seed=3)
    sequence = X[0] + "N"
    (found,) = attribute(model, [sequence], "yes", background="composition", steps=256)
    shares = torch.tensor([[sequence.count(base) for base in "ACGT"]]) / len(sequence)
    with torch.no_grad():
        start = float(log_odds(model.network_(shares.expand(1, len(sequence), 4)), 1)[0])
    gained = odds_of(model, sequence, "yes") - start
    assert found["importance"].sum() == pytest.approx(gained, abs=0.02 * max(1, abs(gained)))


@pytest.mark.parametrize("kind", ["average", "pretrained"])
def test_mutagenesis_equals_predicting_mutated_sequences(of_each_kind, kind):
    model, sequence = of_each_kind[kind], "ACGTTNGCA"
    (found,) = attribute(model, [sequence], "no", "mutagenesis")
    before = odds_of(model, sequence, "no")
    for at, letter in enumerate(sequence):
        for base in "ACGT":
            changed = sequence[:at] + base + sequence[at + 1 :]
            expected = 0 if base == letter else odds_of(model, changed, "no") - before
            assert found.loc[at, base] == pytest.approx(expected, abs=1e-4)
    others = [[base for base in "ACGT" if base != letter] for letter in sequence]
    means = [-found.loc[at, bases].astype(float).mean() for at, bases in enumerate(others)]
    np.testing.assert_allclose(found["importance"], means, atol=1e-5)


@pytest.mark.parametrize("method", ["gradients", "mutagenesis"])
def test_a_planted_motif_has_the_highest_attributions(fitted, method):
    X, _ = planted(20, seed=4)
    at = (40 - len(MOTIF)) // 2
    found = attribute(fitted, X[1::2], "yes", method, steps=64)
    inside = np.mean([f["importance"][at : at + len(MOTIF)].mean() for f in found])
    outside = np.mean([f["importance"].drop(range(at, at + len(MOTIF))).abs().mean() for f in found])
    assert inside > 3 * outside


@pytest.mark.parametrize("kind", ["average", "equivariant"])
@pytest.mark.parametrize("method", ["gradients", "mutagenesis"])
def test_the_other_strand_has_the_mirrored_attributions(of_each_kind, kind, method):
    sequence = planted(2, seed=5)[0][1]
    here, there = attribute(of_each_kind[kind], [sequence, reverse_complement(sequence)], "yes", method, steps=16)
    np.testing.assert_allclose(there["importance"][::-1], here["importance"], atol=1e-4)
    np.testing.assert_allclose(there[list("TGCA")][::-1], here[list("ACGT")], atol=1e-4)


def test_without_a_target_the_predicted_class_is_attributed(fitted):
    X, _ = planted(6, seed=6)
    found = attribute(fitted, [*X, X[0][:20]], method="mutagenesis")
    assert [f.attrs["target"] for f in found] == fitted.predict([*X, X[0][:20]]).tolist()
    assert [len(f) for f in found] == [40] * 6 + [20]


def test_scores_of_several_classes_are_log_odds():
    logits = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 0.0]])
    p = logits.softmax(-1)
    for target in range(3):
        expected = (p[:, target] / (1 - p[:, target])).log()
        torch.testing.assert_close(log_odds(logits, target), expected)


def test_impossible_attributions_are_refused(fitted):
    for options, message in [
        ({"target": "maybe"}, r"target must be one of \['no', 'yes'\], got 'maybe'"),
        ({"method": "guess"}, "method must be one of"),
        ({"background": "zeros"}, "background must be one of"),
        ({"steps": 0}, "steps must be an integer >= 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            attribute(fitted, ["ACGT"], **options)
    with pytest.raises(ValueError, match="empty"):
        attribute(fitted, [])
    with pytest.raises(NotFittedError):
        attribute(small(), ["ACGT"])
    with pytest.raises(TypeError, match="must be a TitansDNAClassifier"):
        attribute("model", ["ACGT"])


def test_a_logo_has_its_letters(fitted):
    (found,) = attribute(fitted, planted(2, seed=7)[0][1:], "yes", method="mutagenesis")
    ax = plot_logo(found, 10, 20)
    assert ax.get_ylabel() == "importance for yes"
    assert ax.get_xlim() == pytest.approx((9.5, 19.5), abs=0.1)
    assert len(ax.patches) >= 10
    table = np.zeros((5, 4), dtype=np.float32)
    table[:, 2] = 1
    _, mine = plt.subplots()
    assert plot_logo(table, ax=mine) is mine
    assert mine.get_ylim()[1] >= 1
    plt.close("all")
    with pytest.raises(ValueError, match=r"table \[L, 4\]; got shape \(5, 3\)"):
        plot_logo(table[:, :3])
    for start in (7, -1):
        with pytest.raises(ValueError, match=f"nothing to draw from start={start}.*positions 0 to 4"):
            plot_logo(table, start)
    assert plot_logo(found.iloc[12:18]).get_xlim() == pytest.approx((11.5, 17.5), abs=0.1)
    plt.close("all")
    with pytest.raises(TypeError, match=r"list of 1 frames; give one of them, such as scores\[0\]"):
        plot_logo([found])
    with pytest.raises(ValueError, match="not finite"):
        plot_logo(np.full((2, 4), np.nan))
