"""A language model mixed with Markov models: the definition, no look-ahead, and when it helps."""

import math

import numpy as np
import pytest
import torch
from random_dna import bases, chain
from sklearn.exceptions import NotFittedError

from titans_core.archive import ArchiveError, save_archive
from titans_dna import DNALanguageModel, Interval, Mixture, encode, fit_markov, fit_mixture, mixing
from titans_dna.genomes import sources
from titans_dna.genomes.sources import InMemory, cut, intervals_of, marks_of, without
from titans_dna.mixing import _read, _tracked
from titans_dna.pretraining.windows import plan

SMALL = dict(dim=16, num_layers=1, num_heads=2, chunk_size=8, length=256, device="cpu", verbose=0, random_state=0)


def with_repeats(pieces, seed):
    """Half of the text is from the chain, half from four repeated sequences."""
    rng = np.random.default_rng(seed)
    again = [bases(100, 100 + i) for i in range(4)]
    return "".join(chain(100, seed * 1000 + i) + again[rng.integers(4)] for i in range(pieces))


@pytest.fixture(scope="module")
def text():
    return with_repeats(600, 1)


@pytest.fixture(scope="module")
def model(text):
    return DNALanguageModel("lmm", **SMALL, max_steps=30, learning_rate=2e-2).fit([text])


def test_probabilities_of_a_markov_model_agree_with_its_scores(text):
    markov = fit_markov([text], 5)
    ids = encode("ACGTTNACGGTACCATGCA")
    p, seen = markov.probabilities(ids, [2, 5])
    np.testing.assert_allclose(p.sum(-1), 1)
    known = ids < 4
    bits = -np.log2(np.take_along_axis(p[known], ids[known].astype(int)[:, None, None], -1)).mean((0, 2))
    table = markov.bits_per_base(["ACGTTNACGGTACCATGCA"])["interpolated"]
    np.testing.assert_allclose(bits, table[[2, 5]])
    both = text + "N" + text[::-1].translate(str.maketrans("ACGT", "TGCA"))
    for i in range(len(ids)):
        context = "ACGTTNACGGTACCATGCA"[max(0, i - 5) : i]
        follows = [j for j in range(len(both) - 5) if both.startswith(context, j) and both[j + 5] != "N"]
        assert seen[i] == (len(follows) if len(context) == 5 and "N" not in context else 0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_mixture_does_not_depend_on_a_mode_without_gradients(text, model, mode):
    expected = fit_mixture([text], model, order=3)
    with mode():
        found = fit_mixture([text], model, order=3)
    torch.testing.assert_close(found.weights, expected.weights)
    assert not found.weights.is_inference()


@pytest.mark.slow
def test_a_mixture_is_better_than_each_expert_if_they_differ(text, model):
    other = [with_repeats(100, 2)]
    mixture = fit_mixture([text], model)
    alone = model.bits_per_base(other, context=4096)
    counted = fit_markov([text]).bits_per_base(other)[["additive", "interpolated"]].min().min()
    without_model = fit_mixture([text]).bits_per_base(other)
    found = mixture.bits_per_base(other)
    assert found < min(alone, counted) - 0.01
    assert found < without_model < counted
    assert mixture.weights.shape == (7, 5)


def test_weights_are_fitted_on_sequence_that_was_not_counted():
    """Random bases cannot be predicted, but counts seem to predict the sequence that they were counted on."""
    text = [bases(40_000)]
    assert fit_markov(text).bits_per_base(text)["additive"].min() < 1.7
    assert fit_mixture(text).bits_per_base([bases(20_000, 1)]) < 2.01


def test_a_base_is_predicted_from_those_before_it(text, model):
    mixture = fit_mixture([text], model)
    one = text[1000:1200] + "N" + text[1200:1300]
    other = one[:250] + "".join("CGTA"["ACGT".index(b)] for b in one[250:])
    found = []
    for sequence in (one, other):
        (read,) = _read(InMemory([sequence]), [Interval("0", 0, 301)], mixture.model, mixture.markov)
        found.append(read.mixed(mixture.weights).log_softmax(-1))
    assert len(found[0]) == 300
    # base 250 is the 250th known one, the first that differs
    torch.testing.assert_close(found[0][:250], found[1][:250])
    assert not torch.allclose(found[0][250:], found[1][250:], atol=0.1)


def test_bits_are_means_over_known_bases_of_independent_windows(text, model):
    mixture = fit_mixture([text], model, order=5)
    sequence = text[:150] + "NNN" + text[150:260]
    parts = [sequence[:100], sequence[100:200], sequence[200:]]
    counts = [sum(base != "N" for base in part) for part in parts]
    each = [mixture.bits_per_base([part]) for part in parts]
    expected = sum(bits * n for bits, n in zip(each, counts, strict=True)) / sum(counts)
    assert mixture.bits_per_base([sequence], context=100) == pytest.approx(expected, rel=1e-5)
    place = [Interval("1", 0, 263, "-")]
    reverse = sequence[::-1].translate(str.maketrans("ACGTN", "TGCAN"))
    assert mixture.bits_per_base(["A", sequence], regions=place) == pytest.approx(mixture.bits_per_base([reverse]))


def test_impossible_mixtures_are_refused_with_a_reason(text, model):
    with pytest.raises(NotFittedError):
        fit_mixture([text], DNALanguageModel())
    with pytest.raises(ValueError, match="holdout cannot be given with a model"):
        fit_mixture([text], model, holdout=["0"])
    with pytest.raises(ValueError, match="order must be an integer >= 1, got 0"):
        fit_mixture([text], order=0)
    with pytest.raises(ValueError, match="single window"):
        fit_mixture(["ACGT" * 10])
    masked = DNALanguageModel(**SMALL, max_steps=1, objective="masked").fit([text])
    with pytest.raises(ValueError, match="a masked model sees both sides of a base"):
        fit_mixture([text], masked)
    mixture = fit_mixture([text], order=2)
    with pytest.raises(ValueError, match="context must be an integer >= 1"):
        mixture.bits_per_base([text], context=0)
    with pytest.raises(ValueError, match="no known base"):
        mixture.bits_per_base(["NNN"])


def test_repr_of_a_mixture_is_one_line(text, model):
    apart = fit_mixture([text], order=2)
    assert repr(apart) == f"Mixture(no language model, MarkovModels(orders 0 to 2); {len(text):,} bases read)"
    both = fit_mixture([text], model, order=2)
    assert repr(both).startswith("Mixture(DNALanguageModel 'lmm', MarkovModels(orders 0 to 2); ")


def test_holdout_is_not_read():
    texts = [with_repeats(60, 1), with_repeats(60, 2)]
    held, alone = fit_mixture(texts, order=4, holdout=["1"]), fit_mixture(texts[:1], order=4)
    np.testing.assert_array_equal(held.markov.counts[4], alone.markov.counts[4])
    torch.testing.assert_close(held.weights, alone.weights)


def test_regions_are_subtracted_and_cut_into_windows():
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = [
            [Interval("ab"[rng.integers(2)], int(start), int(start + rng.integers(1, 30))) for start in starts]
            for starts in (rng.integers(0, 100, 4), rng.integers(0, 100, 5))
        ]
        wanted, holes = ({(i.chrom, x) for i in part for x in range(i.start, i.end)} for part in places)
        left = [(i.chrom, x) for i in without(*places) for x in range(i.start, i.end)]
        assert left == sorted(wanted - holes)
    assert cut([Interval("a", 5, 12, "-")], 3) == [
        Interval("a", 9, 12, "-"),
        Interval("a", 6, 9, "-"),
        Interval("a", 5, 6, "-"),
    ]


def test_bits_equal_those_computed_by_hand(text):
    """With one expert there are two predictors, the expert and the mixture; the better one is tracked."""
    mixture = fit_mixture([text], order=3)
    sequence = text[700:760]
    ids = encode(sequence).astype(int)
    p, seen = mixture.markov.probabilities(encode(sequence), [3])
    recent, total = 0.0, 0.0
    share = np.array([0.9, 0.1])
    for i, base in enumerate(ids):
        known = [1, math.log1p(seen[i]), float(seen[i] == 0), recent, 0, max(0, recent - 0.3), max(0, recent - 0.7)]
        weight = float(np.dot(known, mixture.weights[:, 0].numpy()))
        scores = p[i, 0] ** weight
        joint = share * [scores[base] / scores.sum(), p[i, 0, base]]
        total -= math.log2(joint.sum())
        share = (1 - 1 / 200) * joint / joint.sum() + np.array([0.9, 0.1]) / 200
        recent += (1 - math.exp(-1 / 32)) * (math.log(4 * p[i, 0, base]) - recent)
    assert mixture.bits_per_base([sequence]) == pytest.approx(total / len(ids), rel=1e-4)


def test_the_mixture_switches_predictors_within_a_few_bases():
    """One predictor is right for 500 bases and the other for the next 500: a switch takes a few bases."""
    right, wrong = torch.full((500,), 0.9), torch.full((500,), 0.01)
    chances = torch.stack((torch.cat((right, wrong)), torch.cat((wrong, right))), dim=1)
    never_wrong = -1000 * math.log(0.9)
    assert never_wrong < _tracked([chances]) < never_wrong + 12  # nats; without a switch they would be thousands
    assert _tracked([chances, chances[:300]]) == pytest.approx(_tracked([chances]) + _tracked([chances[:300]]))


@pytest.mark.slow
def test_a_pattern_absent_from_all_tiles_is_left_to_the_expert_that_knows_it():
    """Weights fitted without a long repeat are far off in it; tracking the best predictor corrects that."""
    motif, body = "TTAGGG" * 700, bases(1_000_000)
    tiles = plan(InMemory([body + motif]), 1024, None, None)[1].intervals()
    place = tiles[10].end + 2000
    assert place + len(motif) + 2000 < tiles[11].start
    text = [body[:place] + motif + body[place:]]
    mixture = fit_mixture(text)
    held = [bases(5000, 1) + motif[:600] + bases(5000, 2)]
    reads = list(_read(InMemory(held), cut(intervals_of(InMemory(held)), 4096), None, mixture.markov))
    alone = -sum(float(read.chances(mixture.weights)[:, 0].double().log().sum()) for read in reads)
    assert alone / math.log(2) / 10_600 > 2.1  # so there is something to put right
    best = mixture.markov.bits_per_base(held)["interpolated"].min()
    assert mixture.bits_per_base(held) < best + 0.01
    assert mixture.bits_per_base([motif[:600]]) < 0.2


def test_a_genome_other_than_the_models_is_refused(text, model):
    with pytest.raises(ValueError, match="Give the genome and regions of its fit"):
        fit_mixture([text[:50_000]], model)
    with pytest.raises(ValueError, match="Give the genome and regions of its fit"):
        fit_mixture([text], model, bed=[Interval("0", 0, 60_000)])
    with pytest.raises(ValueError, match="which are not the same"):
        fit_mixture([text[::-1]], model)


@pytest.mark.filterwarnings("ignore:fit_mixture has read")
def test_chroms_also_restricts_regions(text):
    texts = [text[:30_000], text[30_000:60_000]]
    regions = [Interval("0", 0, 3000), Interval("1", 100, 4000, "-")]
    mixture = fit_mixture(texts, order=3)
    for model in (mixture, mixture.markov):
        found = model.bits_per_base(texts, regions=regions, chroms=["1"])
        np.testing.assert_array_equal(found, model.bits_per_base(texts, regions=regions[1:]))
        with pytest.raises(ValueError, match="no chromosome 'nope'"):
            model.bits_per_base(texts, regions=regions, chroms=["nope"])
        with pytest.raises(ValueError, match="select no sequence"):
            model.bits_per_base(texts, regions=regions[:1], chroms=["1"])


def test_scoring_counted_sequence_is_warned_of(text, model, recwarn):
    texts = [with_repeats(60, 1), with_repeats(60, 2)]
    fit_mixture(texts, order=2, holdout=["1"]).bits_per_base(texts, chroms=["1"])
    fit_mixture([text], model, order=2).bits_per_base([chain(500, 3)])
    fit_mixture(texts, order=2, bed=[Interval("0", 0, 5000)]).bits_per_base(texts, regions=[Interval("0", 5000, 6000)])
    assert not [w for w in recwarn if "scores there are too good" in str(w.message)]
    with pytest.warns(UserWarning, match=r"has read \['0'\], so scores there are too good") as warned:
        fit_mixture(texts, order=2, holdout=["1"]).bits_per_base(texts)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="scores there are too good"):
        fit_mixture([text], model, order=2).bits_per_base([text], regions=[Interval("0", 0, 2000)])


def test_counted_sequence_of_another_name_is_warned_of(recwarn):
    texts = [with_repeats(60, 1), with_repeats(60, 2)]
    mixture = fit_mixture(texts, order=2, bed=[Interval("0", 0, 5000)])
    turned = texts[::-1]
    mixture.bits_per_base(turned, chroms=["0"])
    mixture.bits_per_base(turned, regions=[Interval("1", 5000, 6000)])
    assert not [w for w in recwarn if "scores there are too good" in str(w.message)]
    for places in ({"chroms": ["1"]}, {"regions": [Interval("1", 4000, 6000)]}):
        with pytest.warns(UserWarning, match=r"fit_mixture has read \['1'\]"):
            mixture.bits_per_base(turned, **places)
    twice = [texts[0]] * 2
    mixture = fit_mixture(twice, order=2, bed=[Interval("0", 0, 5000), Interval("1", 7000, 8000)])
    with pytest.warns(UserWarning, match=r"fit_mixture has read \['0', '1'\]"):
        mixture.bits_per_base(twice, regions=[Interval("0", 0, 500), Interval("1", 7000, 7500)])


def test_sequence_that_the_language_model_read_in_an_earlier_fit_is_warned_of(tmp_path, recwarn):
    earlier, texts = [bases(1000, 1), bases(1000, 2)], [bases(1000, 3), bases(1000, 4)]
    model = DNALanguageModel("lmm", **SMALL, max_steps=1, warm_start=True)
    model.fit(earlier, holdout=["1"]).fit(texts, holdout=["1"])
    fit_mixture(texts, model, order=2).save(tmp_path / "mixture")
    mixture = Mixture.load(tmp_path / "mixture")
    for held_out in (earlier, texts):
        mixture.bits_per_base(held_out, chroms=["1"])
    assert not [w for w in recwarn if "scores there are too good" in str(w.message)]
    with pytest.warns(UserWarning, match=r"an earlier fit of the language model has read \['0'\]") as warned:
        mixture.bits_per_base(earlier)
    assert [w.filename for w in warned] == [__file__]
    with pytest.warns(UserWarning, match=r"fit_mixture has read \['0'\]") as warned:
        mixture.bits_per_base(texts)
    assert len(warned) == 1


def test_many_contigs_are_compared_with_what_was_counted_in_one_pass(monkeypatch):
    contigs, passes = [bases(40, i) for i in range(50)], []
    mixture = fit_mixture(contigs, order=1)
    monkeypatch.setattr(mixing, "without", lambda *given: passes.append(given) or without(*given))
    with pytest.warns(UserWarning, match=r"fit_mixture has read \['0', '1', '10'"):
        mixture.bits_per_base(contigs)
    assert len(passes) == 1


def test_weights_are_fitted_with_counts_of_the_other_tiles(monkeypatch):
    counted, count = [], mixing.fit_markov

    def recorded(*given, bed=None, **options):
        counted.append(bed)
        return count(*given, bed=bed, **options)

    monkeypatch.setattr(mixing, "fit_markov", recorded)
    text = [bases(40_000)]
    mixing.fit_mixture(text, order=2)
    held = plan(InMemory(text), 1024, None, [])[1].intervals()
    assert held
    assert not any(a.start < b.end and b.start < a.end for a in counted[0] for b in held)
    assert counted[1] is None  # and afterwards of all


def test_different_sequences_with_the_same_names_and_lengths_give_no_warning(recwarn):
    mine, other = ([bases(2000, seed + i) for i in range(40)] for seed in (0, 100))
    fit_mixture(mine, order=2).bits_per_base(other)
    assert not [w for w in recwarn if "scores there are too good" in str(w.message)]


def test_a_saved_mixture_is_the_same_mixture(text, model, tmp_path):
    other = [with_repeats(20, 2)]
    for name, expected in (("both", fit_mixture([text], model, order=5)), ("counts", fit_mixture([text], order=10))):
        expected.save(tmp_path / name)
        found = Mixture.load(tmp_path / name)
        assert found.bits_per_base(other) == expected.bits_per_base(other)
        assert repr(found) == repr(expected)
        for ours, theirs in zip(found.markov.counts, expected.markov.counts, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
        with pytest.warns(UserWarning, match=r"fit_mixture has read \['0'\]"):
            found.bits_per_base([text])


def test_a_mixture_does_not_overwrite_or_load_other_models(text, model, tmp_path):
    model.save(tmp_path / "model")
    with pytest.raises(ArchiveError, match="holds a DNALanguageModel, which would be lost"):
        fit_mixture([text], order=2).save(tmp_path / "model")
    with pytest.raises(ArchiveError, match="holds a DNALanguageModel, not a Mixture"):
        Mixture.load(tmp_path / "model")
    save_archive(tmp_path / "older", "Mixture", {"model": "sha256:0"}, {})
    with pytest.raises(ArchiveError, match="older was saved by another version"):
        Mixture.load(tmp_path / "older")
    with pytest.raises(FileNotFoundError, match="no saved model"):
        Mixture.load(tmp_path / "nothing")


def test_sequences_that_differ_in_one_base_have_other_marks_unless_they_are_long(monkeypatch):
    text = chain(300)
    changed = text[:50] + ("A" if text[50] != "A" else "C") + text[51:]
    genome = InMemory([text, changed, text.lower()])
    first, second, third = (marks_of(genome, chrom) for chrom in genome.lengths)
    assert first == third != second
    monkeypatch.setattr(sources, "WHOLE", 299)  # samples of 32 bases at every 38th
    assert len({marks_of(genome, chrom) for chrom in genome.lengths}) == 2
    between = text[:35] + ("A" if text[35] != "A" else "C") + text[36:]
    assert marks_of(InMemory([between]), "0") == marks_of(InMemory([text]), "0")
