"""BED, GTF and GFF3 give the same coordinates, although the formats count from 0 or 1."""

import gzip
import pickle

import numpy as np
import pandas as pd
import pytest

from titans_dna.genomes.intervals import Interval, from_frame, read_bed, read_gff
from titans_dna.genomes.tracks import write_bedgraph
from titans_dna.genomes.vcf import Variant, read_vcf

GTF = """\
#!genome-build R64-1-1
IV\tsgd\tgene\t1802\t2953\t.\t+\t.\tgene_id "YDL248W"; gene_name "COS7";
IV\tsgd\tCDS\t1802\t2950\t.\t+\t0\tgene_id "YDL248W";
IV\tsgd\tgene\t3762\t3836\t.\t-\t.\tgene_id "YDL247W-A";
"""
GFF3 = """\
##gff-version 3
IV\tsgd\tgene\t1802\t2953\t.\t+\t.\tID=YDL248W;Name=COS7
track name=genes
IV\tsgd\tregion\t1\t9000\t.\t?\t.\tID=a%20region
IV\tsgd\tgene\t3762\t3836\t.\t-\t.\tID=YDL247W-A
##FASTA
>IV
ACGT
"""
BED = """\
track
browser hide all
track name=genes
IV\t1801\t2953\tYDL248W\t0\t+

IV\t3761\t3836\tYDL247W-A\t0\t-\textra
"""
VCF = """\
##fileformat=VCFv4.2
IV\t5\t.\tA\tC
IV\t7\t.\tA\tC
"""


@pytest.fixture
def write(tmp_path):
    def to(text, name="file.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    return to


def test_one_gene_has_the_same_coordinates_in_every_format(write):
    bed, gtf, gff = read_bed(write(BED, "a.bed")), read_gff(write(GTF, "a.gtf")), read_gff(write(GFF3, "a.gff3"))
    assert bed == gtf == gff
    assert bed[0] == Interval("IV", 1801, 2953, "+", "YDL248W")
    assert len(bed[0]) == 2953 - 1802 + 1
    assert bed[1].strand == "-"


@pytest.mark.parametrize(("text", "read"), [(BED, read_bed), (GTF, read_gff), (GFF3, read_gff)])
def test_gzip_and_windows_line_ends_make_no_difference(write, text, read):
    plain = read(write(text))
    assert read(write(text, "packed.gz")) == plain
    assert read(write(text, "gzip_without_its_suffix")) == plain
    assert read(write(text.replace("\n", "\r\n"))) == plain


@pytest.mark.parametrize(("text", "read"), [(BED, read_bed), (GTF, read_gff), (VCF, lambda path: list(read_vcf(path)))])
def test_lines_that_end_in_carriage_returns_alone_are_named(write, text, read):
    with pytest.raises(ValueError, match=r"line 1: .*carriage returns alone \(old Mac\).*`tr '\\r' '\\n'`"):
        read(write(text.replace("\n", "\r")))
    header, _, rows = text.partition("\n")
    with pytest.raises(ValueError, match=r"line 2: .*carriage returns alone"):
        read(write(f"{header}\n" + rows.replace("\n", "\r")))


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name, text in (("a.bed", BED), ("a.gtf", GTF), ("a.vcf", "##fileformat=VCFv4.2\nIV\t5\t.\tA\tC\n")):
        (tmp_path / name).write_text(text)
    assert read_bed("~/a.bed") == read_gff("~/a.gtf") == read_bed(tmp_path / "a.bed")
    assert list(read_vcf("~/a.vcf")) == [Variant("IV", 4, "A", "C")]
    track = pd.DataFrame({"chrom": ["IV"], "start": [0], "end": [1], "bits": [2.0]})
    write_bedgraph(track, "~/a.bedgraph", header=False)
    assert (tmp_path / "a.bedgraph").read_text() == "IV\t0\t1\t2.0\n"


@pytest.mark.parametrize("read", [read_bed, read_gff, lambda path: list(read_vcf(path))])
def test_a_folder_is_named(tmp_path, read):
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a folder; name the file in it"):
        read(tmp_path)


def test_features_are_chosen_and_named_by_attribute(write):
    path = write(GTF)
    assert [i.name for i in read_gff(path, name="gene_name")] == ["COS7", ""]
    assert len(read_gff(path, None)) == 3
    assert read_gff(write(GFF3, "a.gff3"), "region")[0] == Interval("IV", 0, 9000, ".", "a region")
    with pytest.raises(ValueError, match=r"none of the selected features in .* has the attribute 'Gene_name'"):
        read_gff(path, name="Gene_name")
    with pytest.raises(ValueError, match=r"no feature 'exon'; it has gene \(2\), CDS \(1\)"):
        read_gff(path, "exon")


def test_a_bed_of_three_columns_has_no_strand(write):
    path = write("chr1 10 20\nchr1\t30\t40\n")
    assert read_bed(path) == [Interval("chr1", 10, 20), Interval("chr1", 30, 40)]
    with pytest.raises(ValueError, match=r"file\.txt, line 1: the strand is missing"):
        read_bed(path, require_strand=True)


def test_an_empty_sixth_column_of_a_bed_is_no_strand(write):
    path = write("chr1\t10\t20\tx\t0\t\nchr1\t10\t20\tx\t0\t\t10\n")
    assert read_bed(path) == [Interval("chr1", 10, 20, ".", "x")] * 2
    with pytest.raises(ValueError, match=r"file\.txt, line 1: the strand is missing"):
        read_bed(path, require_strand=True)


def test_a_plus_or_minus_may_be_a_name_in_a_bed_file(write):
    assert read_bed(write("chr1\t10\t20\t+\t0\t-\n")) == [Interval("chr1", 10, 20, "-", "+")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chr1\t10", "2 column"),
        ("chr1\t1O\t20", "start '1O' and end '20' must be whole numbers"),
        ("chr1\t1.0\t20", "must be whole numbers"),
        ("chr1\t20\t20", "must satisfy 0 <= start < end"),
        ("chr1\t-1\t20", "must satisfy 0 <= start < end"),
        ("chr1\t10\t20\tx\t0\t1", "strand '1'; it must be"),
        ("\t10\t20", "chrom is empty"),
        ("chr1\t10\t20\t-", "column 4 of 4 is '-'.*column 6, after name and score"),
        ("chr1\t10\t20\tx\t+", "column 5 of 5 is '\\+'.*column 6, after name and score"),
        ("chr1 10 20 x -", "column 5 of 5 is '-'.*column 6, after name and score"),
    ],
)
def test_a_bad_bed_line_is_named(write, line, message):
    with pytest.raises(ValueError, match=rf"file\.txt, line 2: .*{message}"):
        read_bed(write(f"chr1\t1\t2\n{line}\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("IV\tsgd\tgene\t10\t20\t.\t+\t.", "8 column"),
        ('IV\tsgd\tgene\t0\t20\t.\t+\t.\tgene_id "a";', "positions start at 1"),
        ('IV\tsgd\tgene\t21\t20\t.\t+\t.\tgene_id "a";', "start 21 is above end 20"),
        ('IV\tsgd\tgene\t10\t20\t.\tplus\t.\tgene_id "a";', "strand 'plus'"),
    ],
)
def test_a_bad_gtf_line_is_named(write, line, message):
    with pytest.raises(ValueError, match=rf"line 1: .*{message}"):
        read_gff(write(line + "\n"))


def test_empty_and_binary_files_are_refused(write, tmp_path):
    with pytest.raises(ValueError, match="contains no intervals"):
        read_bed(write("# nothing\n"))
    for feature in ("gene", None):
        with pytest.raises(ValueError, match="contains no features"):
            read_gff(write("# nothing\n"), feature)
    with pytest.raises(FileNotFoundError):
        read_bed(tmp_path / "absent.bed")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(BED.encode() * 99)[:-20])
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_bed(tmp_path / "cut.gz")
    (tmp_path / "binary").write_bytes(b"chr1\t\xff\xfe\n")
    with pytest.raises(ValueError, match="line 1: not UTF-8"):
        read_bed(tmp_path / "binary")


@pytest.mark.parametrize("strand", [None, "", "plus", 1, float("nan")])
def test_a_strand_is_plus_minus_or_point(strand):
    with pytest.raises(ValueError, match=r"strand .*; it must be '\+', '-'"):
        Interval("chr1", 0, 1, strand)


def test_a_place_has_a_name_and_whole_numbers():
    for place in ((4, 0, 9), (None, 0, 9), (b"chr1", 0, 9)):
        with pytest.raises(TypeError, match="chrom must be a string, a name as in the FASTA file, got"):
            Interval(*place)
    for start, end in ((0.0, 9), (0, 9.0), (None, 9), ("0", "9")):
        with pytest.raises(TypeError, match="chr1: positions must be integers, got"):
            Interval("chr1", start, end)
    assert len(Interval("chr1", np.int64(0), np.uint8(9))) == 9


def test_frames_of_bioframe_and_pyranges_are_read():
    bioframe = pd.DataFrame({"chrom": ["chr1"], "start": [5], "end": [9], "strand": ["-"], "name": ["x"]})
    pyranges = pd.DataFrame({"Chromosome": ["chr1"], "Start": [5], "End": [9], "Strand": ["-"], "Name": ["x"]})
    assert from_frame(bioframe) == from_frame(pyranges) == [Interval("chr1", 5, 9, "-", "x")]
    assert from_frame(bioframe[["chrom", "start", "end"]]) == [Interval("chr1", 5, 9)]
    with pytest.raises(ValueError, match=r"positions count from 1.*Use read_gff"):
        from_frame(bioframe.assign(feature="gene", attributes='gene_id "x";'))
    with pytest.raises(ValueError, match="no column 'end'"):
        from_frame(bioframe.drop(columns="end"))
    with pytest.raises(ValueError, match=r"row 0 of the frame: .*start 9, end 9"):
        from_frame(bioframe.assign(start=9))


def test_a_bad_line_error_survives_another_process(write):
    with pytest.raises(ValueError, match="line 1") as caught:
        read_bed(write("chr1\n"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_a_byte_order_mark_and_blanks_are_ignored(tmp_path):
    path = tmp_path / "places.bed"
    path.write_bytes(b"\xef\xbb\xbfI\t10\t20 \tpeak\t0\t- \r\n")
    assert read_bed(path) == [Interval("I", 10, 20, "-", "peak")]


@pytest.mark.parametrize("text", [GTF, GFF3])
def test_a_gtf_given_as_bed_is_recognised(write, text):
    with pytest.raises(ValueError, match="line 2: columns are those of GTF or GFF3, not BED; use read_gff"):
        read_bed(write(text))


def test_a_header_line_is_recognised(tmp_path):
    path = tmp_path / "places.bed"
    path.write_text("chrom\tstart\tend\nI\t1\t2\n")
    with pytest.raises(ValueError, match=r"line 1: start 'start' .* \(start a header line with #\)"):
        read_bed(path)
    path.write_text("I\t1_0\t20\n")
    with pytest.raises(ValueError, match="start '1_0'"):
        read_bed(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": 10.7}, r"row 0 of the frame: start 10\.7 and end 20 must be whole numbers"),
        ({"chrom": None}, "row 0 of the frame: chrom is empty"),
        ({"start": float("nan")}, r"row 0 of the frame: start is missing\. Drop the row"),
        ({"end": None}, r"row 0 of the frame: end is missing\. Drop the row"),
        ({"start": "x"}, r"row 0 of the frame: start 'x' and end 20 must be whole .*astype\(int\)"),
        ({"end": float("inf")}, "row 0 of the frame: start 10 and end inf must be whole numbers"),
    ],
)
def test_an_invalid_row_of_a_frame_is_named(changes, message):
    row = {"chrom": "I", "start": 10, "end": 20} | changes
    with pytest.raises(ValueError, match=message):
        from_frame(pd.DataFrame([row]))


def test_missing_columns_of_a_frame_are_empty():
    frame = pd.DataFrame({"chrom": ["I"], "start": [1.0], "end": [2.0], "strand": [pd.NA], "name": [float("nan")]})
    assert from_frame(frame) == [Interval("I", 1, 2, ".", "")]


def test_a_gtf_attribute_needs_no_quotes(tmp_path):
    (tmp_path / "a.gtf").write_text('IV\tsgd\tgene\t10\t20\t.\t+\t.\tgene_id YDL1; level 2; gene_name "COS7";\n')
    assert [read_gff(tmp_path / "a.gtf", name=name)[0].name for name in (None, "level", "gene_name")] == [
        "YDL1",
        "2",
        "COS7",
    ]
