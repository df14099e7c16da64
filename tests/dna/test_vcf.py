"""Strict reading of VCF files."""

import gzip
import warnings

import pytest

from titans_dna.genomes.vcf import Variant, read_vcf

HEADER = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


@pytest.fixture
def write(tmp_path):
    def to(lines, header=HEADER, name="calls.vcf"):
        path = tmp_path / name
        text = (header + "".join("\t".join(line.split(" ")) + "\n" for line in lines)).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path

    return to


def test_positions_begin_at_zero_and_alleles_are_split(write):
    lines = ["chrI 1 rs1 A C . PASS .", "chrI 10 . AT A,ATT . . ."]
    expected = [Variant("chrI", 0, "A", "C", "rs1"), Variant("chrI", 9, "AT", "A"), Variant("chrI", 9, "AT", "ATT")]
    assert list(read_vcf(write(lines))) == expected
    assert list(read_vcf(write(lines, name="calls.vcf.gz"))) == expected
    assert [v.is_snv for v in expected] == [True, False, False]
    assert expected[1].end == 11


@pytest.mark.parametrize(("ref", "alt", "known"), [("A", "c", True), ("AN", "A", False), ("A", "an", False)])
def test_an_allele_with_an_n_in_either_case_is_not_known(ref, alt, known):
    assert Variant("c", 0, ref, alt).is_known == known


def test_reading_is_streamed(write):
    variants = read_vcf(write(["chrI 5 . A C . . .", "chrI five . A C . . ."]))
    assert next(variants).start == 4
    with pytest.raises(ValueError, match=r"calls\.vcf, line 4: POS is 'five'"):
        next(variants)


def test_alleles_without_a_sequence_are_skipped_and_counted_or_refused(write):
    path = write(
        ["chrI 5 . A <DEL>,C . . .", "chrI 6 . A * . . .", "chrI 7 . A . . . .", "chrI 8 . G G]chrII:1] . . ."]
    )
    with pytest.warns(UserWarning, match="skipped 4 alleles .*first on line 3"):
        assert [v.alt for v in read_vcf(path)] == ["C"]
    with pytest.raises(ValueError, match="line 3: A><DEL> is not made of A, C, G, T and N"):
        list(read_vcf(path, symbolic="error"))
    with pytest.raises(ValueError, match="'skip' or 'error'"):
        read_vcf(path, symbolic="keep")


def test_iupac_codes_are_skipped_and_counted_in_either_allele(write):
    path = write(["chrI 5 . R C . . .", "chrI 6 . A Y,G . . .", "chrI 7 . AC A . . ."])
    with pytest.warns(UserWarning, match="skipped 2 alleles .*IUPAC codes.*first on line 3"):
        assert [(v.start, v.alt) for v in read_vcf(path)] == [(5, "G"), (6, "A")]
    with pytest.raises(ValueError, match="line 3: R>C is not made of A, C, G, T and N"):
        list(read_vcf(path, symbolic="error"))


def test_a_telomere_at_pos_0_is_skipped_and_counted_or_refused(write):
    path = write(["chrI 0 . N ]chrII:1]N,C . . .", "chrI 1 . A C . . ."])
    with pytest.warns(UserWarning, match="skipped 2 alleles .* POS 0, first on line 3"):
        assert [(v.start, v.alt) for v in read_vcf(path)] == [(0, "C")]
    with pytest.raises(ValueError, match="line 3: A>C is at POS 0, before the first base"):
        list(read_vcf(write(["chrI 0 . A C . . ."]), symbolic="error"))


def test_blanks_around_fields_and_alleles_are_ignored(write, tmp_path):
    path = tmp_path / "blanks.vcf"
    path.write_text("##fileformat=VCFv4.2\nchrI\t5 \t.\tA \tC, G \n")
    assert [(v.start, v.ref, v.alt) for v in read_vcf(path)] == [(4, "A", "C"), (4, "A", "G")]


def test_a_file_without_header_is_read_by_its_columns_with_a_warning(write):
    path = write(["I 3080 gk463204 A T"], header="")
    with pytest.warns(UserWarning, match="does not begin with ##fileformat") as warned:
        assert list(read_vcf(path)) == [Variant("I", 3079, "A", "T", "gk463204")]
    assert warned[0].filename == __file__


def test_an_ordinary_file_gives_no_warning(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(read_vcf(write(["chrI 5 . A C . . ."])))) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chrI 5 . A", "4 column"),
        ("chrI -3 . A C . . .", "POS is '-3'"),
        ("chrI 5 . Z C . . .", "REF is 'Z'"),
        ("chrI 5 .  C . . .", "REF is ''"),
    ],
)
def test_a_bad_line_is_named(write, line, message):
    with pytest.raises(ValueError, match=rf"line 3: {message}"):
        list(read_vcf(write([line])))


@pytest.mark.parametrize("given", [("chrI", -1, "A", "C"), ("chrI", 3, "", "C"), ("chrI", 3, "A", "")])
def test_a_variant_must_have_a_position_and_bases(given):
    with pytest.raises(ValueError, match="start must be at least 0, and ref and alt must have at least one base"):
        Variant(*given)


def test_a_variant_must_have_a_chromosome_name_and_an_integer_position():
    with pytest.raises(TypeError, match="chrom must be a string, a name as in the FASTA file, got 4"):
        Variant(4, 0, "A", "C")
    with pytest.raises(TypeError, match=r"IV: positions must be integers, got 1\.0"):
        Variant("IV", 1.0, "A", "C")


def test_the_binary_form_is_named(tmp_path):
    (tmp_path / "calls.bcf").write_bytes(gzip.compress(b"BCF\x02\x02" + bytes(40)))
    with pytest.raises(ValueError, match=r"calls\.bcf is BCF, the binary form of VCF: convert it with `bcftools view"):
        list(read_vcf(tmp_path / "calls.bcf"))
