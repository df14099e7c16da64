"""Scores of variants, compared with the likelihood of whole haplotypes read from scratch."""

import itertools
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from random_dna import chain

from titans_dna import Variant, reverse_complement
from titans_dna.genomes import sources
from titans_dna.genomes.reference import compare
from titans_dna.genomes.sources import InMemory, marks_of
from titans_dna.inference import questions
from titans_dna.inference import variants as module
from titans_dna.inference.kept_scores import kept_scores
from titans_dna.inference.variants import CELL
from titans_dna.language import DNALanguageModel

ARCHITECTURES = ["lmm", "mac", "mag"]
AFTER = 20


TEXT = chain(1000, seed=8)


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(architecture="lmm"):
        if architecture not in made:
            model = DNALanguageModel(
                architecture,
                dim=16,
                num_layers=1,
                num_heads=2,
                chunk_size=8,
                window=16,
                length=64,
                batch_size=8,
                max_steps=60 if architecture == "lmm" else 4,
                learning_rate=1e-2,
                device="cpu",
                verbose=0,
                random_state=0,
            ).fit([chain(5000)])
            model.model_.double()
            made[architecture] = model
        return made[architecture]

    return get


def variant(start, ref_length, alt, name=""):
    return Variant("0", start, TEXT[start : start + ref_length], alt, name)


def some():
    other = {"A": "C", "C": "G", "G": "T", "T": "A"}
    return [
        variant(0, 1, other[TEXT[0]], "first base"),
        variant(3, 1, other[TEXT[3]], "snv"),
        variant(3, 1, TEXT[3] + "GATTACA", "insertion at the same place"),
        variant(CELL - 1, 2, "TTT"),
        variant(CELL, 5, TEXT[CELL], "deletion over a cell's start"),
        variant(500, 1, other[TEXT[500]]),
        variant(501, 1, other[TEXT[501]]),
        variant(990, 4, "A", "near the end"),
        variant(999, 1, other[TEXT[999]], "last base"),
    ]


def scores_from_scratch(model, text, variants, context=None):
    """By whole haplotypes, read in one call, side by side: from the start of the block before, or of the text."""
    readings = []
    for v in variants:
        turned = reverse_complement(text), len(text) - v.end, reverse_complement(v.ref), reverse_complement(v.alt)
        for strand, start, ref, alt in ((text, v.start, v.ref, v.alt), turned):
            assert all(x == y for x, y in zip(strand[start : start + len(ref)], ref, strict=True) if x in "ACGT")
            begin = 0 if context is None else max(0, (start // context - 1) * context)
            lead, after = strand[begin:start], strand[start + len(ref) :][:AFTER]
            readings += [(lead, alt + after), (lead, ref + after)]
    width = max(len(lead + bases) for lead, bases in readings)
    ids = torch.full((len(readings), 1 + width), 4)  # no model sees what is filled up at the end
    counted = torch.zeros(len(readings), width, dtype=torch.bool)
    for row, (lead, bases) in enumerate(readings):
        known = torch.tensor(["ACGT".find(x) % 5 for x in lead + bases])
        ids[row, 1 : 1 + len(known)] = known
        counted[row, len(lead) : len(known)] = known[len(lead) :] < 4
    with torch.no_grad():
        log_p = model.model_(ids[:, :-1])[0][..., :4].log_softmax(-1)
    found = log_p.gather(-1, ids[:, 1:, None].clamp(max=3))[..., 0]
    alt, ref = torch.where(counted, found, 0).sum(1).unflatten(0, (-1, 2, 2)).unbind(-1)
    return (alt - ref).mean(1)  # over the strands


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_shared_state_gives_the_scores_of_the_whole_prefix(models, architecture):
    model = models(architecture)
    found = model.score_variants(some(), InMemory([TEXT]), context=None, context_after=AFTER)
    expected = scores_from_scratch(model, TEXT, some())
    np.testing.assert_allclose(found["score"], expected, atol=1e-5)
    assert found["id"].tolist() == [v.id for v in some()]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("context", [1, 50, 300])
def test_a_block_is_read_from_context_bases_before_it(models, architecture, context):
    model = models(architecture)
    found = model.score_variants(some(), InMemory([TEXT]), context=context, context_after=AFTER)
    expected = scores_from_scratch(model, TEXT, some(), context)
    np.testing.assert_allclose(found["score"], expected, atol=1e-5)


def test_neighbours_share_what_was_read_before_them(models, monkeypatch):
    """50 adjacent variants need a few readings of the sequence before them, not 50."""
    model, text, read = models(), chain(12_000, seed=8), []
    hidden = model.model_.hidden
    monkeypatch.setattr(model.model_, "hidden", lambda ids, state=None: read.append(ids.numel()) or hidden(ids, state))

    def tokens(variants):
        read.clear()
        model.score_variants(variants, InMemory([text]), context=None, context_after=AFTER)
        return sum(read)

    changed = {"A": "C", "C": "G", "G": "T", "T": "A"}
    neighbours = [Variant("0", i, text[i], changed[text[i]]) for i in range(6000, 6050)]
    one = tokens(neighbours[:1])
    assert one > 12_000  # both strands, each from its beginning
    assert tokens(neighbours) < 4 * one


def other_than(base):
    return [x for x in "ACGT" if x != base]


def test_further_alternatives_of_a_site_only_read_their_own_haplotype(models, monkeypatch):
    model, read = models(), []
    hidden = model.model_.hidden
    monkeypatch.setattr(model.model_, "hidden", lambda ids, state=None: read.append(ids.numel()) or hidden(ids, state))

    def tokens(n):
        read.clear()
        model.score_variants([variant(500, 1, alt) for alt in other_than(TEXT[500])[:n]], InMemory([TEXT]), context=200)
        return sum(read)

    haplotype = 2 * (CELL + 1 + 128)  # on both strands, from the start of its cell at most
    assert 2 * 256 < tokens(3) - tokens(1) <= 2 * haplotype


def random_variants(text, n, rng):
    """SNVs with several alternatives, insertions and deletions, as many near the ends as elsewhere."""
    found = []
    for _ in range(n):
        start = int(
            rng.choice([rng.integers(0, 12), rng.integers(0, len(text)), rng.integers(len(text) - 12, len(text))])
        )
        ref = text[start : start + int(rng.choice([1, 1, 2, 70]))]
        ref = "".join("A" if base in "RWM" else base for base in ref)
        if "N" in ref:
            continue
        sizes = rng.choice([1, 1, 2, 5, 90], 2)
        found += [Variant("0", start, ref, "".join(rng.choice(list("ACGT"), size))) for size in sizes]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("context", [None, 150])
def test_random_variants_have_the_scores_of_haplotypes_read_from_scratch(models, architecture, context, monkeypatch):
    monkeypatch.setattr(module, "_STEP", 37)
    model, rng = models(architecture), np.random.default_rng(3)
    text = list(TEXT[:500])
    for at, letter in ((90, "R"), (91, "M"), (200, "N"), (260, "W"), (496, "R")):
        text[at] = letter
    text = "".join(text)
    variants = [
        *random_variants(text, 8, rng),
        Variant("0", 90, "AA", "C"),  # where the genome has codes that stand for them
        Variant("0", 89, text[89] + "A", text[89]),
        Variant("0", 260, "A", "T"),
        Variant("0", 496, "G", "C"),
    ]

    found = model.score_variants(variants, InMemory([text]), context=context, context_after=AFTER)["score"]
    np.testing.assert_allclose(found, scores_from_scratch(model, text, variants, context), atol=1e-5)


def test_alt_that_equals_ref_scores_0(models):
    same = [variant(7, 1, TEXT[7]), variant(200, 6, TEXT[200:206].lower())]
    np.testing.assert_allclose(models().score_variants(same, InMemory([TEXT]))["score"], 0, atol=1e-9)


def test_both_strands_of_a_variant_have_one_score(models):
    mirrored = [Variant("0", len(TEXT) - v.end, reverse_complement(v.ref), reverse_complement(v.alt)) for v in some()]
    for context in (None, 100):
        one = models().score_variants(some(), InMemory([TEXT]), context=context)
        two = models().score_variants(mirrored, InMemory([reverse_complement(TEXT)]), context=context)
        np.testing.assert_allclose(one["score"], two["score"], atol=1e-9)


def test_neither_order_nor_neighbours_nor_batches_matter(models):
    model, source = models(), InMemory([TEXT, chain(300, seed=9)])
    variants = [*some(), Variant("1", 250, source.sequences["1"][250], "A"), Variant("1", 5, "N", "N")][:-1]
    together = model.score_variants(variants, source, context=100)["score"]
    backwards = model.score_variants(variants[::-1], source, context=100)["score"][::-1]
    np.testing.assert_allclose(together, backwards, atol=1e-9)
    alone = [model.score_variants([v], source, context=100)["score"][0] for v in variants]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    model.set_params(batch_size=1)
    np.testing.assert_allclose(model.score_variants(variants, source, context=100)["score"], together, atol=1e-9)
    model.set_params(batch_size=8)


def test_variants_that_break_the_chain_have_low_scores(models):
    """Changing a base of a regular stretch makes the steps to and from it unlikely."""
    inner = [i for i in range(1, 999) if all(ord_(TEXT[i + j]) == ord_(TEXT[i + j - 1], 1) for j in (0, 1))][:40]
    broken = [variant(i, 1, "ACGT"[("ACGT".index(TEXT[i]) + 2) % 4]) for i in inner]
    assert (models().score_variants(broken, InMemory([TEXT]))["score"] < -2).all()


def ord_(base, step=0):
    return ("ACGT".index(base) + step) % 4


def test_an_allele_with_n_has_no_score(models):
    found = models().score_variants([variant(5, 1, "N"), variant(6, 1, "A")], InMemory([TEXT]))
    assert found["score"].isna().tolist() == [True, False]


def write_vcf(path, rows):
    lines = ["##fileformat=VCFv4.2", "#CHROM\tPOS\tID\tREF\tALT"]
    path.write_text("\n".join([*lines, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_vcf_gives_one_row_per_allele_in_its_order(models, write_fasta, tmp_path):
    fasta = write_fasta({"chr1": TEXT})
    # not sorted: blocks are sorted inside, and scores come back in the order of the file
    vcf = write_vcf(tmp_path / "calls.vcf", [("chr1", 701, ".", TEXT[700], "A,C"), ("chr1", 11, "x", TEXT[10], "GG")])
    found = models().score_variants(str(vcf), fasta)
    assert list(found) == ["chrom", "start", "ref", "alt", "id", "score"]
    assert found["start"].tolist() == [700, 700, 10]
    assert found["id"].tolist() == ["", "", "x"]
    assert found["score"].notna().all()


def test_a_wrong_ref_is_an_error_or_is_left_unscored(models, write_fasta, tmp_path):
    fasta = write_fasta({"chr1": TEXT})
    wrong = "A" if TEXT[10] != "A" else "C"
    vcf = write_vcf(
        tmp_path / "calls.vcf",
        [("chr1", 11, ".", wrong, "G"), ("chr1", 21, ".", TEXT[20], "GG"), ("chr9", 1, ".", "A", "C")],
    )
    with pytest.raises(ValueError, match=r"REF does not match the genome in 2 of 3 variants"):
        models().score_variants(vcf, fasta)
    with pytest.warns(UserWarning, match="2 of 3 variants are not scored") as warned:
        found = models().score_variants(vcf, fasta, mismatch="skip")
    assert warned[0].filename == __file__
    assert "position does not exist: 1" in str(warned[0].message)
    assert "chr9:0 (0-based) A>C: the genome has no such chromosome. Did you mean 'chr1'?" in str(warned[0].message)
    assert found["score"].isna().tolist() == [True, False, True]
    with pytest.raises(ValueError, match="mismatch must be 'error' or 'skip'"):
        models().score_variants(vcf, fasta, mismatch="ignore")
    with pytest.raises(ValueError, match="context must be an integer >= 1, got 0"):
        models().score_variants(vcf, fasta, context=0)


@pytest.mark.parametrize("off", [-1, 1])
def test_positions_that_are_all_off_by_one_cannot_be_skipped(models, off):
    given = [Variant("0", i + off, TEXT[i], "N") for i in range(10, 200, 7)]
    assert any(TEXT[v.start] == v.ref for v in given)  # by chance
    with pytest.raises(ValueError, match=r"(?s)1 too (high|low).*would only score variants that match by chance"):
        models().score_variants(given, InMemory([TEXT]), mismatch="skip")
    few = [Variant("0", i, TEXT[i], "A") for i in range(10, 40, 7)] + given[:3]
    with pytest.warns(UserWarning, match="of 8 variants are not scored"):
        models().score_variants(few, InMemory([TEXT]), mismatch="skip")


@pytest.mark.parametrize("alt", ["-", "<DEL>", "A,C", "R", "*", "U"])
def test_an_allele_that_is_not_a_sequence_is_named(models, alt):
    for bad in (variant(4, 1, alt), Variant("0", 4, alt, "A")):
        with pytest.raises(
            ValueError, match=rf"variant 1 \(0-based\), {re.escape(str(bad))}: .* one alternative allele per variant"
        ):
            models().score_variants([variant(3, 1, "A"), bad], InMemory([TEXT]))


def test_every_ref_is_looked_up_once(models, monkeypatch):
    compared, given = [], [variant(3, 1, "A"), Variant("0", 4, "N", "A")]
    monkeypatch.setattr(module, "compare", lambda variant, genome: compared.append(variant) or compare(variant, genome))
    with pytest.raises(ValueError, match="in 1 of 2 variants"):
        models().score_variants(given, InMemory([TEXT]))
    assert compared == given


def test_no_variants_give_an_empty_frame(models):
    assert models().score_variants([], InMemory([TEXT])).empty


def test_a_frame_of_variants_is_scored_as_they_are(models):
    model, source = models(), InMemory([TEXT])
    expected = model.score_variants(some(), source)
    selected = expected.set_index(np.arange(len(expected)) * 2)  # so that scores can be assigned to it
    pd.testing.assert_frame_equal(model.score_variants(selected.drop(columns="score"), source), selected)
    with pytest.raises(ValueError, match=r"the frame lacks the columns \['alt'\]"):
        model.score_variants(expected.drop(columns="alt"), source)
    with pytest.raises(ValueError, match=r"row 1 of the frame: start 7.5 must be a whole number"):
        model.score_variants(expected.assign(start=[7.0, 7.5, *expected["start"][2:]]), source)
    for start, says in (
        (np.nan, r"start is missing\. Drop the row"),
        (np.inf, "start inf must be a whole number"),
        ("9", r"start '9' must be .*astype\(int\)"),
    ):
        with pytest.raises(ValueError, match=rf"row 1 of the frame: {says}"):
            model.score_variants(expected.assign(start=[7.0, start, *expected["start"][2:]]), source)
    for alt, says in ((np.nan, "row 0 of the frame: alt is missing"), ("G,T", "row 0 .* one allele per row")):
        with pytest.raises(ValueError, match=says):
            model.score_variants(expected.assign(alt=[alt, *expected["alt"][1:]]), source)
    pd.testing.assert_frame_equal(
        model.score_variants(pl.from_pandas(expected.drop(columns="score")), source), expected
    )


def interrupted(models, monkeypatch, at, variants, **more):
    """Interrupt the call after this many scores; returns the message."""
    given = module.variant_scores

    def breaks(*args, **kwargs):
        yield from itertools.islice(given(*args, **kwargs), at)
        raise KeyboardInterrupt

    monkeypatch.setattr(questions, "variant_scores", breaks)
    with pytest.raises(KeyboardInterrupt) as caught:
        models().score_variants(variants, InMemory([TEXT]), context=50, **more)
    monkeypatch.setattr(questions, "variant_scores", given)
    return str(caught.value)


def test_an_interrupted_call_resumes_from_its_checkpoint(models, monkeypatch, tmp_path):
    path, model = tmp_path / "scores.tsv", models()
    variants = [*some(), variant(7, 1, "N")]
    expected = model.score_variants(variants, InMemory([TEXT]), context=50)
    message = interrupted(models, monkeypatch, 4, variants, checkpoint=path)
    assert (
        message
        == f"scoring was interrupted after 4 of 10 variants. Scores are kept in {path}; repeat the call to resume."
    )
    kept = pd.read_csv(path, sep="\t", comment="#")
    assert list(kept) == ["number", "chrom", "start", "ref", "alt", "score"]
    np.testing.assert_allclose(kept["score"], expected["score"][kept["number"]], atol=1e-9)
    assert kept["start"].tolist() == expected["start"][kept["number"]].tolist()

    path.write_text(path.read_text() + "3\t0\t1")  # killed while it wrote a line
    scored, given = [], module.variant_scores
    monkeypatch.setattr(questions, "variant_scores", lambda *a, **k: scored.append(a[2]) or given(*a, **k))
    for left in (6, 0):  # and once more when all is there
        found = model.score_variants(variants, InMemory([TEXT]), context=50, checkpoint=path)
        pd.testing.assert_frame_equal(found, expected, atol=1e-9)
        assert len(scored.pop()) == left
    assert len(pd.read_csv(path, sep="\t", comment="#")) == 10


def test_a_checkpoint_identifies_variants_by_content_not_position(models, tmp_path):
    """Positions used to count unscored variants too, so moving one of these mixed up the scores of the others."""
    good, model, path = some(), models(), tmp_path / "scores.tsv"
    bad = Variant("0", 900, {"A": "C"}.get(TEXT[900], "A"), "G")
    source = InMemory([TEXT])
    scored = {}
    for at in (0, 4, len(good)):
        variants = [*good[:at], bad, *good[at:]]
        with pytest.warns(UserWarning, match="not scored"):
            found = model.score_variants(variants, source, context=50, mismatch="skip", checkpoint=path)["score"]
        assert np.flatnonzero(found.isna()).tolist() == [at]
        scored[at] = found.drop(index=at).to_numpy()
    np.testing.assert_array_equal(scored[4], scored[0])
    np.testing.assert_array_equal(scored[len(good)], scored[0])
    of_numpy = [Variant(v.chrom, np.int64(v.start), np.str_(v.ref), v.alt, v.id) for v in good]
    np.testing.assert_array_equal(
        model.score_variants(of_numpy, source, context=50, checkpoint=path)["score"], scored[0]
    )


def test_a_checkpoint_in_use_by_another_program_is_not_changed(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "scores.tsv"
    with path.open("a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another program is writing to "), kept_scores(path, {}, []):
            pass
    with kept_scores(path, {"a": 1}, [variant(7, 1, "A")]) as kept:
        kept.add(0, variant(7, 1, "A"), 0.5)
        with pytest.raises(ValueError, match="another program is writing to "), kept_scores(path, {"a": 1}, []):
            pass
    with kept_scores(path, {"a": 1}, [variant(7, 1, "A")]) as kept:
        assert kept.found == {0: 0.5}


def test_without_a_checkpoint_the_interruption_message_suggests_one(models, monkeypatch):
    message = interrupted(models, monkeypatch, 2, some())
    assert message.endswith("after 2 of 9 variants. Nothing is kept. Set checkpoint to a file to be able to resume.")


def test_scores_of_another_call_are_refused_and_kept(models, tmp_path):
    path, model, source = tmp_path / "scores.tsv", models(), InMemory([TEXT])
    model.score_variants(some(), source, context=np.int64(50), checkpoint=path)
    model.score_variants(some(), source, context=50, checkpoint=path)
    before = path.read_text()
    changed = InMemory([TEXT[:600] + chain(400, seed=9)])
    for says, variants, genome, more in (
        ("context is 50 there and 60 here", some(), source, {"context": 60}),
        ("the list of variants differs", some()[1:], source, {"context": 50}),
        ("the genome differs", some()[:-2], changed, {"context": 50}),
        ("the model differs", some(), source, {"context": 50}),
    ):
        scoring_model = models("mag") if "model" in says else model
        with pytest.raises(ValueError, match=rf"scores of another call: .*{says}.* or delete .* to start again"):
            scoring_model.score_variants(variants, genome, checkpoint=path, **more)
    assert path.read_text() == before
    for text in ("a file of mine", "number\tscore\n1\t2\n", before + "one\t0\t1\tA\tC\t0.5\n", before + "99\t2\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"was not written by score_variants|has an invalid line"):
            model.score_variants(some(), source, context=50, checkpoint=path)
        assert path.read_text() == text


def test_scores_of_a_genome_with_other_bases_next_to_the_variants_are_refused(models, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "WHOLE", 0)
    path, given = tmp_path / "scores.tsv", [variant(560, 1, other_than(TEXT[560])[0])]
    changed = TEXT[:540] + "A" * 10 + TEXT[550:]
    assert changed != TEXT
    assert marks_of(InMemory([changed]), "0") == marks_of(InMemory([TEXT]), "0")
    expected = models().score_variants(given, InMemory([TEXT]), context=50, checkpoint=path)
    with pytest.raises(ValueError, match="scores of another call: the genome differs"):
        models().score_variants(given, InMemory([changed]), context=50, checkpoint=path)
    for same in (TEXT, TEXT.lower()):
        found = models().score_variants(given, InMemory([same]), context=50, checkpoint=path)
        pd.testing.assert_frame_equal(found, expected)


def test_a_checkpoint_may_be_in_the_home_folder(models, home):
    models().score_variants(some(), InMemory([TEXT]), context=50, checkpoint="~/scores.tsv")
    assert len(pd.read_csv(home / "scores.tsv", sep="\t", comment="#")) == len(some())


def test_a_checkpoint_must_be_a_file_in_an_existing_folder(models, tmp_path):
    for path, says in (
        (tmp_path, "is a folder; give the path of a file in it"),
        (tmp_path / "no" / "s.tsv", "create it first"),
    ):
        with pytest.raises(OSError, match=says):
            models().score_variants(some(), InMemory([TEXT]), checkpoint=path)


def test_a_progress_bar_is_shown(models, capsys):
    models().set_params(verbose=1).score_variants(some(), InMemory([TEXT]), context=50)
    assert "Variants: 100%" in capsys.readouterr().err
    models().set_params(verbose=0).score_variants(some(), InMemory([TEXT]), context=50)
    assert capsys.readouterr().err == ""
