"""The masked objective: it reads both sides, scores both strands alike, and predicts every base once."""

import numpy as np
import pytest
import torch
from random_dna import bases

from titans_dna import DNALanguageModel, Genome, Interval, TitansDNAClassifier, Variant, reverse_complement
from titans_dna.genomes.tokenizer import PAD, N, encode, encode_batch
from titans_dna.inference import masked
from titans_dna.network.strands import other_strand
from titans_dna.pretraining.masked import masked_base_loss, scores
from titans_dna.pretraining.windows import batch_of

ARCHITECTURES = ["lmm", "mac", "mag", "mal", "gated-deltanet"]


def pairs(n, seed=0):
    """Pairs of a random base and its complement: each is known from one side only."""
    return "".join(x + reverse_complement(x) for x in bases(n // 2, seed))


def small(**changes):
    settings = dict(
        dim=16, num_layers=1, num_heads=2, chunk_size=8, window=16, length=64, batch_size=8, device="cpu", verbose=0
    )
    return DNALanguageModel(**{**settings, "objective": "masked", "random_state": 0, **changes})


@pytest.fixture(scope="module")
def fitted():
    return small(max_steps=75, learning_rate=2e-2).fit([pairs(20_000)])


def ids_of(*sequences):
    return torch.from_numpy(encode_batch(sequences).ids).long()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_other_strand_has_the_complemented_scores(architecture):
    model = small(architecture=architecture, max_steps=2).fit([bases(2000)])
    ids = ids_of(bases(50, 1), bases(31, 2))
    with torch.no_grad():
        here, there = scores(model.model_, ids), scores(model.model_, other_strand(ids))
    for row, length in enumerate((50, 31)):
        torch.testing.assert_close(there[row, :length].flip(0, 1), here[row, :length], rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing(fitted):
    ids = ids_of(bases(50, 1), bases(31, 2))
    with torch.no_grad():
        both, alone = scores(fitted.model_, ids)[1, :31], scores(fitted.model_, ids[1:, :31])[0]
    torch.testing.assert_close(both, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changed", [0, 39])
def test_a_place_sees_both_sides(fitted, changed):
    ids = ids_of(bases(40, 1))
    ids[0, 20] = N
    other = ids.clone()
    other[0, changed] = (ids[0, changed] + 1) % 4
    with torch.no_grad():
        before, after = scores(fitted.model_, ids)[0, 20], scores(fitted.model_, other)[0, 20]
    assert (before - after).abs().max() > 1e-6


@pytest.mark.slow
def test_later_bases_predict_earlier_ones(fitted):
    """Reading in one direction needs at least 1 bit per base here, because the first base of each pair is random.
    Reading both sides needs none, because neighbours are never hidden together."""
    assert fitted.bits_per_base([pairs(2000, 1)]) < 0.3
    one_way = small(objective="next", max_steps=75, learning_rate=2e-2).fit([pairs(20_000)])
    assert one_way.bits_per_base([pairs(2000, 1)]) > 0.9


def test_every_known_base_is_scored_once(fitted):
    sequence = pairs(40, 2)[:21] + "N" + pairs(40, 3)[:13]
    found = []
    for turn in range(7):
        ids = ids_of(sequence)
        hidden = [i for i in range(turn, 35, 7) if sequence[i] != "N"]
        answers = ids[0, hidden]
        ids[0, hidden] = N
        with torch.no_grad():
            log_p = scores(fitted.model_, ids)[0, hidden].log_softmax(-1)
        found += (-log_p[torch.arange(len(hidden)), answers] / np.log(2)).tolist()
    assert len(found) == 34
    assert fitted.bits_per_base([sequence]) == pytest.approx(np.mean(found), rel=1e-4)


def test_the_loss_covers_only_hidden_bases_and_hides_them(fitted):
    network = fitted.model_
    tokens, targets = batch_of([encode(bases(64, i)) for i in range(4)])
    loss, count = masked_base_loss(network.eval(), (tokens, targets))
    assert masked_base_loss(network, (tokens, targets))[0] == loss  # the same bases again
    assert 0.05 * 256 < count < 0.3 * 256
    drawn = torch.rand(targets.shape, generator=torch.Generator().manual_seed(0)) < 0.15
    assert count == drawn.sum()
    ids = targets.where(~drawn, N)
    expected = torch.nn.functional.cross_entropy(scores(network, ids)[drawn], targets[drawn])
    torch.testing.assert_close(loss, expected)
    # what is padding stays padding
    short = batch_of([encode(bases(64, 0)), encode(bases(20, 1))])
    assert (short[0][1, 21:] == PAD).all()
    assert torch.isfinite(masked_base_loss(network, short)[0])


def test_an_unknown_batch_has_no_loss_and_no_error(fitted):
    loss, count = masked_base_loss(fitted.model_.eval(), batch_of([encode("NNNN")]))
    assert (loss.item(), count) == (0, 1)


def test_a_variant_and_its_reverse_have_opposite_scores(fitted, write_fasta, tmp_path):
    sequence = pairs(200, 5)
    genome = Genome(write_fasta({"chr1": sequence}), cache_dir=tmp_path)
    partner = reverse_complement(sequence[100])
    assert sequence[101] == partner
    wrong = next(x for x in "ACGT" if x not in sequence[100:102])
    variant = Variant("chr1", 100, sequence[100], wrong, None)
    score = fitted.score_variants([variant], genome)["score"][0]
    assert score < -1  # it breaks the pair
    changed = Genome(write_fasta({"chr1": sequence[:100] + wrong + sequence[101:]}, "changed.fa"), cache_dir=tmp_path)
    back = fitted.score_variants([Variant("chr1", 100, wrong, sequence[100], None)], changed)["score"][0]
    assert back == pytest.approx(-score, rel=1e-4)
    # neighbours in one batch, several bases at once, the ends of the chromosome
    others = [variant, Variant("chr1", 0, sequence[0], "N", None), Variant("chr1", 198, sequence[198:], "AC", None)]
    found = fitted.score_variants(others, genome)["score"]
    assert found[0] == pytest.approx(score, rel=1e-4)
    assert np.isnan(found[1])
    assert np.isfinite(found[2])


def test_insertions_have_no_score_and_a_warning(fitted, write_fasta, tmp_path):
    genome = Genome(write_fasta({"chr1": pairs(200, 5)}), cache_dir=tmp_path)
    first = pairs(200, 5)[10]
    with pytest.warns(UserWarning, match="1 of 1 variants are not scored: they are insertions or deletions"):
        found = fitted.score_variants([Variant("chr1", 10, first, first + "A", None)], genome)
    assert found["score"].isna().all()


def test_saved_loaded_and_fine_tuned(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = DNALanguageModel.load(tmp_path / "model")
    text = [pairs(300, 6)]
    assert again.bits_per_base(text) == fitted.bits_per_base(text)
    np.testing.assert_array_equal(again.embed(text), fitted.embed(text))
    sequences, labels = [bases(30, i) for i in range(12)], [0, 1] * 6
    classifier = TitansDNAClassifier(pretrained=again, max_epochs=1, random_state=0, verbose=0)
    assert classifier.fit(sequences, labels).predict_proba(sequences).shape == (12, 2)


def test_a_letter_that_is_not_a_base_is_named_with_chromosome_file_and_position(fitted, tmp_path):
    path, text = tmp_path / "x.fa", bases(200, 1)
    path.write_text(f">one\n{text}\n>two\n{text[:150]}*{text[151:]}\n")
    says = r"two of x\.fa has '\*' at position 150 "
    for regions in (None, [Interval("two", 130, 160, "+")], [Interval("two", 130, 160, "-")]):
        with pytest.raises(ValueError, match=says):
            fitted.bits_per_base(path, regions=regions)
    with pytest.raises(ValueError, match=says):
        fitted.score_variants([Variant("two", 145, text[145], "A")], path)


def test_methods_that_need_one_direction_are_refused(fitted):
    with pytest.raises(ValueError, match="objective='next'"):
        fitted.surprise([pairs(100)], "0")
    with pytest.raises(ValueError, match="sees both sides of a base"):
        fitted.compare([pairs(100)], chroms=["0"])


def test_parameters_set_after_fit_do_not_change_the_objective(tmp_path):
    text = [bases(3000)]
    model = small(objective="next", max_steps=2).fit(text)
    expected = model.bits_per_base(text)
    model.set_params(objective="masked", length=8)
    assert model.bits_per_base(text) == expected
    model.save(tmp_path / "m")
    assert DNALanguageModel.load(tmp_path / "m").bits_per_base(text) == pytest.approx(expected, rel=1e-6)


def test_several_bases_are_scored_each_at_its_place_while_all_are_hidden(fitted, write_fasta, tmp_path):
    sequence = bases(200, 5)
    genome = Genome(write_fasta({"chr1": sequence}), cache_dir=tmp_path)
    for start in (60, 197):  # in the middle, and at the chromosome's end
        ref = sequence[start : start + 3]
        alt = "".join("CGTA"["ACGT".index(x)] for x in ref)
        first = start - (64 - 3) // 2  # of a window of length
        ids = ids_of(sequence[first : start + 33])
        ids[0, start - first : start - first + 3] = N
        with torch.no_grad():
            log_p = scores(fitted.model_, ids)[0, start - first : start - first + 3].log_softmax(-1)
        expected = sum(log_p[i, a] - log_p[i, r] for i, (a, r) in enumerate(zip(encode(alt), encode(ref), strict=True)))
        found = fitted.score_variants([Variant("chr1", start, ref, alt)], genome)["score"][0]
        assert found == pytest.approx(float(expected), abs=1e-5)


def test_alternatives_at_one_position_are_read_once(fitted, monkeypatch):
    sequence, read = bases(200, 5), []
    alts = [x for x in "ACGT" if x != sequence[60]]
    given = [Variant("0", 60, sequence[60], alt) for alt in alts]
    alone = [fitted.score_variants([variant], [sequence])["score"][0] for variant in given]
    monkeypatch.setattr(masked, "scores", lambda network, ids: read.append(len(ids)) or scores(network, ids))
    np.testing.assert_allclose(fitted.score_variants(given, [sequence])["score"], alone, atol=1e-6)
    assert read == [1]
