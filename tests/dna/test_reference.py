"""Comparison of REF with the genome, and explanations of differences."""

import pandas as pd
import pytest
from random_dna import bases

from titans_dna import Genome, Variant, check_reference
from titans_dna.genomes.reference import compare
from titans_dna.genomes.sources import InMemory


def variant_at(records, chrom, start, length=1, alt="A"):
    return Variant(chrom, start, records[chrom][start : start + length], alt)


def test_ref_agrees_with_the_genome_it_was_taken_from(genome, records):
    variants = [
        variant_at(records, "chrI", i, length) for i in (0, 299, 300, 999) for length in (1, 3) if i + length <= 1000
    ]
    check = check_reference(variants, genome)
    assert check.ok
    assert check.n == check.matching == len(variants)
    assert str(check) == f"REF matches the genome in all {len(variants)} variants"
    assert check_reference(variants, genome.path) == check_reference(variants, str(genome.path)) == check


def test_ref_in_another_case_agrees(genome, records):
    base = records["chrI"][350]
    assert base.islower()
    assert check_reference([Variant("chrI", 350, base.upper(), "N")], genome).ok


def test_a_wrong_ref_is_counted_and_explained(genome, records):
    piece = records["chrI"]
    here = next(i for i in range(100, 200) if len(set(piece[i - 1 : i + 2])) == 3)
    wrong = next(base for base in "ACGT" if base not in piece[here - 1 : here + 2])
    check = check_reference(
        [
            Variant("chrI", here, piece[here], "N"),
            Variant("chrI", here, wrong, piece[here]),  # REF and ALT exchanged
            Variant("chrI", here, piece[here + 1], wrong),  # one base off
            Variant("chrI", 999, piece[999] + "A", "C"),  # off the end
            Variant("chr9", 5, "A", "C"),
        ],
        genome,
    )
    assert not check.ok
    assert (check.n, check.matching, check.swapped, check.shifted, check.absent) == (5, 1, 1, 1, 2)
    assert "REF does not match the genome in 4 of 5 variants" in str(check)
    assert "genome has ALT: 1, REF is one base off: 1, position does not exist: 2, other: 0" in str(check)
    assert f"the genome has {piece[here]}" in str(check)
    assert "the genome ends at 1000" in str(check)
    assert "has no such chromosome" in str(check)


def test_a_chromosome_without_bases_ends_at_0(write_fasta):
    check = check_reference([Variant("empty", 0, "A", "C")], write_fasta({"one": "ACGT", "empty": ""}))
    assert check.absent == 1
    assert "empty:0 (0-based) A>C: the genome ends at 0" in str(check)


def test_variants_may_be_a_file_a_frame_or_a_single_variant(genome, records, tmp_path):
    one, wrong = variant_at(records, "chrI", 40, alt="N"), Variant("chrI", 999, records["chrI"][999] + "A", "C")
    variants = [one, variant_at(records, "chrII", 7, 3), wrong]
    expected = check_reference(variants, genome)
    assert (expected.n, expected.matching, expected.absent) == (3, 2, 1)
    vcf = tmp_path / "calls.vcf"
    lines = [f"{v.chrom}\t{v.start + 1}\t.\t{v.ref}\t{v.alt}\n" for v in variants]
    vcf.write_text("##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\n" + "".join(lines))
    frame = pd.DataFrame([{name: getattr(v, name) for name in ("chrom", "start", "ref", "alt")} for v in variants])
    for given in (vcf, str(vcf), frame, iter(variants)):
        assert check_reference(given, genome) == expected
    for single in (one, wrong):
        assert check_reference(single, genome) == check_reference([single], genome)
    with pytest.raises(TypeError, match=r"variants must be Variant\(chrom, start, ref, alt\) .* got \('chrI"):
        check_reference([one, ("chrI", 40, "A", "C")], genome)


def test_ref_may_be_a_base_of_the_genomes_iupac_code(write_fasta, tmp_path):
    genome = Genome(write_fasta({"3": "ACGTMRNACGT"}), cache_dir=tmp_path)
    agree = [Variant("3", 4, "A", "G"), Variant("3", 4, "CA", "C"), Variant("3", 3, "TAG", "T")]
    other = [Variant("3", 4, "T", "G"), Variant("3", 4, "CT", "C"), Variant("3", 6, "A", "G")]
    assert check_reference(agree, genome).matching == 3
    assert check_reference(other, genome).matching == 0


def test_a_ref_off_by_one_is_recognised_on_both_sides(write_fasta, tmp_path):
    genome = Genome(write_fasta({"x": "ACGTT"}), cache_dir=tmp_path)
    found = [compare(Variant("x", 1, ref, "N"), genome).verdict for ref in ("A", "C", "G", "T")]
    assert found == ["shifted", "matching", "shifted", "other"]


def test_a_deletion_is_not_explained_as_swapped_alleles(write_fasta, tmp_path):
    genome = Genome(write_fasta({"x": "ACGTTCAGGA"}), cache_dir=tmp_path)
    # REF, ALT at the place of GTT; all but the last leave the G that stands there
    verdicts = {("GTT", "G"): "matching", ("GA", "G"): "other", ("GAC", "G"): "other", ("gaa", "G"): "other"}
    verdicts |= {
        ("CG", "C"): "shifted",
        ("TTC", "T"): "shifted",
        ("TT", "G"): "shifted",
    }  # the genome holds G here, too
    verdicts |= {("A", "G"): "swapped", ("C", "G"): "swapped", ("A", "GT"): "swapped", ("AA", "GTT"): "swapped"}
    verdicts |= {("A", "GTTC"): "swapped", ("A", "GTTCAGGA"): "swapped", ("A", "GTTCAGGAA"): "other"}
    assert {alleles: compare(Variant("x", 2, *alleles), genome).verdict for alleles in verdicts} == verdicts


TEXT = bases(3000, seed=5)
SITES = range(10, 2900, 29)


def other_than(base):
    return "ACGT"["ACGT".index(base) - 1]


def snvs(off=0, sites=SITES):
    return [Variant("0", i + off, TEXT[i], other_than(TEXT[i])) for i in sites]


def exchanged(sites=SITES):
    return [Variant("0", i, other_than(TEXT[i]), TEXT[i]) for i in sites]


@pytest.mark.parametrize(("off", "explanation", "text"), [(1, "left", "1 too high"), (-1, "right", "1 too low")])
def test_positions_all_off_by_one_are_recognised_despite_chance_agreement(off, explanation, text):
    indels = [Variant("0", i + off, TEXT[i : i + 3], TEXT[i]) for i in range(20, 2900, 300)]
    check = check_reference([*snvs(off), *indels], InMemory([TEXT]))
    assert 15 < check.matching < 40
    assert check.swapped > 10
    assert (check.explanation, check.is_shifted) == (explanation, True)
    assert text in str(check)
    assert check.n == check.matching + check.swapped + check.shifted + check.absent + check.other


def test_ten_neighbours_off_by_one_are_recognised():
    check = check_reference(snvs(1, range(100, 110)), InMemory([TEXT]))
    assert (check.n - check.matching, check.explanation) == (7, "left")


def test_swapped_alleles_are_recognised_even_if_others_agree():
    check = check_reference([*snvs(), *exchanged(range(15, 2900, 200))], InMemory([TEXT]))
    assert (check.matching, check.swapped, check.explanation) == (100, 15, "swapped")
    assert "REF and ALT are probably exchanged" in str(check)
    assert not check.is_shifted


def test_explanations_possible_by_chance_are_not_given():
    genome = InMemory([TEXT])
    wrong = [Variant("0", v.start, v.alt, v.ref) if i % 2 else v for i, v in enumerate(snvs(1, range(10, 600, 29)))]
    place = next(i for i in SITES if TEXT[i] != TEXT[i + 1])
    lists = {
        "few among many": [*snvs(), *snvs(1, range(15, 2900, 120))],
        "short": snvs(1, range(10, 126, 29)),
        "one place": [Variant("0", place + 1, TEXT[place], alt) for alt in "ACGT"] * 3,
        "all kinds": wrong,
        "deletions, of which ALT says nothing": [
            *(Variant("0", i, TEXT[i] + other_than(TEXT[i + 1]), TEXT[i]) for i in SITES),
            *exchanged([5]),
        ],
    }
    for name, given in lists.items():
        check = check_reference(given, genome)
        assert (check.explanation, check.ok) == ("", False), name


def test_correct_variants_in_repeats_do_not_explain_wrong_ones(genome, records):
    text = "A" * 200 + records["chrI"]
    repeat = [Variant("0", at, "A", "N") for at in range(10, 130)]
    wrong = [Variant("0", at, next(b for b in "ACGT" if b not in text[at - 1 : at + 2]), "N") for at in range(300, 305)]
    check = check_reference([*repeat, *wrong], InMemory([text]))
    assert (check.n, check.matching) == (125, 120)
    assert not check.explanation
