"""FASTA files: compressed or not, with our index or another, changed later, damaged."""

import gzip
import os
import random
import shutil
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from titans_core.files import written_whole
from titans_datasets import cache
from titans_dna import Genome, Interval, read_sequences
from titans_dna.genomes import fasta


def bgzip(path, text):
    bgzf = pytest.importorskip("Bio.bgzf")
    with bgzf.BgzfWriter(str(path)) as sink:
        sink.write(text)
    return path


def test_plain_gzip_and_bgzip_hold_the_same_genome(write_fasta, records, open_genome, tmp_path):
    plain = open_genome(write_fasta(records))
    with pytest.warns(UserWarning, match="is decompressed once"):
        packed = open_genome(write_fasta(records, "packed.fa.gz"))
    blocks = open_genome(bgzip(tmp_path / "blocks.fa.gz", write_fasta(records, "again.fa").read_text()))
    for genome in (packed, blocks):
        assert genome.lengths == plain.lengths
        for place in (Interval("chrI", 0, 1000), Interval("chrII", 190, 310, "-"), Interval("chrIII", 119, 120)):
            assert genome.fetch(place) == plain.fetch(place)


@pytest.mark.parametrize("width", [70, 320_000])  # in one line, the base at 65,531 is the first of a block
def test_bgzip_of_many_blocks_is_read_in_place(open_genome, tmp_path, width):
    bases = "ACGTTGCA" * 40_000
    text = ">one\n" + "\n".join(bases[i : i + width] for i in range(0, len(bases), width)) + "\n"
    genome = open_genome(bgzip(tmp_path / "blocks.fa.gz", text))
    for start in (0, 65_270, 65_279, 65_280, 65_281, 65_530, 65_531, 200_000, len(bases) - 5):
        assert genome.fetch(Interval("one", start, start + 5)) == bases[start : start + 5]
    assert genome.fetch(Interval("one", 0, len(bases))) == bases
    assert not (tmp_path / "cache").exists()


# the last is in Latin-1; systems other than Linux have no such names
@pytest.mark.parametrize("name", ["packed.fa.gz", "cat[1].fa.gz", *["caf\udce9.fa.gz"] * (sys.platform == "linux")])
def test_a_gzip_is_unpacked_once_and_again_when_it_changes(write_fasta, records, open_genome, tmp_path, name):
    path = write_fasta(records, name)
    with pytest.warns(UserWarning, match="is decompressed once"):
        open_genome(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_genome(path)
    write_fasta({"other": "ACGT" * 100}, name)
    with pytest.warns(UserWarning, match="is decompressed once"):
        assert list(open_genome(path).lengths) == ["other"]
    assert len(list((tmp_path / "cache").glob("*.fa"))) == 1
    assert not list((tmp_path / "cache").glob("*.part*"))


def test_parts_that_killed_processes_left_are_removed_and_those_being_written_stay(
    write_fasta, records, open_genome, tmp_path
):
    path = write_fasta(records, "packed.fa.gz")
    with pytest.warns(UserWarning, match="is decompressed once"):
        open_genome(path)
    (target,) = (tmp_path / "cache").glob("*.fa")
    unfinished = [written_whole(target) for _ in range(2)]
    left, live = (one.__enter__() for one in unfinished)
    mine = target.with_name("mine.part.fa")
    for part in (left, live, mine):
        part.touch()
    for part in (left, mine):
        os.utime(part, (1, 1))
    open_genome(path)
    assert not left.exists()
    write_fasta({"other": "ACGT" * 100}, "packed.fa.gz")
    with pytest.warns(UserWarning, match="is decompressed once"):
        open_genome(path)
    assert live.exists()
    assert mine.exists()
    assert not target.exists()


def test_an_index_that_a_killed_process_left_unfinished_is_removed_and_no_other_file(write_fasta, records, open_genome):
    path = write_fasta(records)
    indexes = (path.with_name(f"{name}.fai") for name in (path.name, path.name, "x.fa"))
    left, live, other = (written_whole(index).__enter__() for index in indexes)
    for part in (left, live, other):
        part.touch()
    for part in (left, other):
        os.utime(part, (1, 1))
    open_genome(path)
    assert [part.exists() for part in (left, live, other)] == [False, True, True]


def test_copies_are_in_the_data_home_or_else_in_the_users_cache(write_fasta, records, tmp_path, monkeypatch):
    path, home = write_fasta(records, "packed.fa.gz"), tmp_path / "data"
    monkeypatch.setenv("TITANS_DATA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.warns(UserWarning, match=rf"decompressed once, to {home}"):
        Genome(path)
    (home / "genomes").chmod(0o555)  # respected by a superuser too
    with pytest.warns(UserWarning, match=rf"decompressed once, to {cache.user_cache()}"):
        Genome(path)


def test_an_index_older_than_its_fasta_is_rebuilt_with_a_warning(write_fasta, records, open_genome):
    path = write_fasta(records)
    open_genome(path)
    index = path.with_name("genome.fa.fai")
    assert index.exists()
    write_fasta({"chrI": "ACGT" * 50})
    os.utime(index, (1, 1))
    with pytest.warns(UserWarning, match=r"genome\.fa\.fai is older than .*: it is rebuilt"):
        genome = open_genome(path)
    assert genome.lengths == {"chrI": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_genome(path).fetch(Interval("chrI", 198, 200)) == "GT"


def test_a_warning_points_to_the_callers_line(write_fasta, records):
    path = write_fasta(records)
    read_sequences(path)
    os.utime(path.with_name("genome.fa.fai"), (1, 1))
    with pytest.warns(UserWarning, match="is rebuilt") as warned:
        read_sequences(path)
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    "other",
    [
        {"M": "G" * 10, "I": "A" * 10, "II": "C" * 10},  # one more before
        {"I": "A" * 10, "II": "C" * 10, "III": "G" * 10},  # one more behind
        {"I": "A" * 10, "II": "C" * 12},  # longer
        {"I": "A" * 10, "X": "C" * 10},  # named otherwise
    ],
)
def test_an_index_of_another_file_is_rebuilt_even_if_newer(write_fasta, open_genome, other):
    path = write_fasta({"I": "A" * 10, "II": "C" * 10})
    open_genome(path)
    write_fasta(other)
    os.utime(path, (1, 1))  # as mv, cp -p and tar leave it
    with pytest.warns(UserWarning, match="or belongs to another file: it is rebuilt"):
        genome = open_genome(path)
    assert genome.lengths == {name: len(bases) for name, bases in other.items()}
    assert genome.fetch(Interval("I", 0, 10)) == "A" * 10


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", [["I", "III", "II", "IV"], ["I", "XX", "III", "IV"]])
def test_an_index_with_a_different_name_in_the_middle_is_rebuilt(write_fasta, open_genome, tmp_path, names, packed):
    def write(records):
        path = write_fasta(records)
        return bgzip(tmp_path / "genome.fa.gz", path.read_text()) if packed else path

    open_genome(write(dict.fromkeys(("I", "II", "III", "IV"), "A" * 70)))
    path = write(dict(zip(names, ("A" * 70, "C" * 70, "G" * 70, "T" * 70), strict=True)))
    os.utime(path, (1, 1))
    with pytest.warns(UserWarning, match="or belongs to another file: it is rebuilt"):
        genome = open_genome(path)
    assert list(genome.lengths) == names
    assert genome.fetch(Interval(names[1], 60, 70)) == "C" * 10


def test_an_empty_index_is_rebuilt(write_fasta, open_genome):
    path = write_fasta({"one": "ACGT"})
    path.with_name("genome.fa.fai").touch()
    with pytest.warns(UserWarning, match="or belongs to another file: it is rebuilt"):
        assert open_genome(path).lengths == {"one": 4}


@pytest.mark.parametrize("title", ["two", " two", "two of\tthree", "two\u00a0of three", "two " + "x" * 1000, "two\r"])
def test_text_after_the_names_does_not_invalidate_an_index(tmp_path, open_genome, title):
    path = tmp_path / "genome.fa"
    path.write_bytes(f">one\nACGT\n>{title}\nACG\n>three\nACGT\n".encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert open_genome(path).lengths == {"one": 4, "two": 3, "three": 4}


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("length", [7, 60, 120, 121])
def test_an_index_that_fits_is_kept(tmp_path, open_genome, length, end):
    path = tmp_path / "genome.fa"
    lines = ["".join("ACGT"[i % 4] for i in range(length))[at : at + 60] for at in range(0, length, 60)]
    path.write_text(">one of two\nACGT\n>two\n" + "\n".join(lines) + end)
    open_genome(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_genome(path).lengths == {"one": 4, "two": length}


@pytest.mark.parametrize("end", ["\n\n\n", "\n\n\n\n"])
@pytest.mark.parametrize("length", [7, 60, 120, 121])
def test_blank_lines_at_the_end_are_refused_with_a_plain_message(tmp_path, open_genome, length, end):
    path = tmp_path / "genome.fa"
    lines = [("ACGT" * 40)[at : min(at + 60, length)] for at in range(0, length, 60)]
    path.write_text(">one\nACGT\n>two\n" + "\n".join(lines) + end)
    with pytest.raises(ValueError, match=r"genome\.fa cannot be indexed: .*at most one after it") as error:
        open_genome(path)
    assert "report this" not in str(error.value)


def test_trailing_blanks_are_refused_even_if_an_index_ignores_them(tmp_path, open_genome):
    path = tmp_path / "genome.fa"
    path.write_text(">one\nACGT  \nAC  \n")
    path.with_name("genome.fa.fai").write_text("one\t6\t5\t4\t7\n")  # as samtools writes it
    with pytest.warns(UserWarning, match="is rebuilt"), pytest.raises(ValueError, match="'one' end in blanks or tabs"):
        open_genome(path)


def test_the_index_lies_in_the_cache_where_the_folder_is_read_only(
    write_fasta, records, open_genome, tmp_path, monkeypatch
):
    path = write_fasta(records)
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != path.parent)
    assert open_genome(path).fetch(Interval("chrIII", 0, 3)) == records["chrIII"][:3]
    assert not path.with_name("genome.fa.fai").exists()
    assert list((tmp_path / "cache").glob("genome-*.fai"))


def test_a_cache_folder_that_cannot_be_written_to_is_named(write_fasta, records, open_genome, tmp_path, monkeypatch):
    plain, packed, cache = write_fasta(records), write_fasta(records, "packed.fa.gz"), tmp_path / "cache"
    access = os.access
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != tmp_path and access(folder, mode))
    message = r"cache, the folder for .*, cannot be written to\. Open the file with Genome\(path, cache_dir=\.\.\.\)"
    cache.touch()  # a file in its place
    for path in (plain, packed):
        with pytest.raises(PermissionError, match=message):
            open_genome(path)
    cache.unlink()
    cache.mkdir()
    monkeypatch.setattr(os, "access", lambda folder, mode: folder != cache and access(folder, mode))
    with pytest.raises(PermissionError, match=message):
        open_genome(packed)


def test_an_index_that_cannot_be_written_is_reported_with_the_reason(write_fasta, records, open_genome, tmp_path):
    resource = pytest.importorskip("resource")
    path = write_fasta(records)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # in place of a full disk
    try:
        with pytest.raises(OSError, match=r"the index .*\.fai cannot be written: .*File too large.* Make room there"):
            open_genome(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert open_genome(path).lengths


def test_a_file_that_is_read_in_place_needs_no_cache_folder(write_fasta, records, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert Genome(write_fasta(records)).fetch(Interval("chrIII", 0, 3)) == records["chrIII"][:3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"genome\.fa is empty"),
        ("\n\n", r"genome\.fa is empty"),
        (">one\n>two\n", "contains no bases"),
        (">one\n>two", "contains no bases"),
        ("\ufeff>a\nACGT\n", "begins with a byte order mark, which an index cannot skip"),
        ("ACGT\n", r"is not FASTA: its first line is b'ACGT"),
        (">one\nACGT\n>one\nACGT\n", "two sequences named 'one'"),
        (">one\nAC\nACGT\n", "last line of a sequence is longer"),
        (">one\nAC\nACGT\n>two\nACGT\n", "last line of a sequence is longer"),
        (">\nACGT\n", "needs a name"),
        (">one\nACGT\nACGTACGT\nAC\nACGT\n", "lines of one length"),
        (">one\nACGT\n\n\n>two\nACGT\n", "'one' contains or is followed by blank lines.* at most one after it"),
        (">one\nACGT\nAC\nACGT\n\n>two\nACGT\n", "'one' contains .* a short line before its last"),
        (">one\nACGT\n>two\nACGT \nACGT \nA\n", "lines of 'two' end in blanks or tabs"),
        (">one\nACGT\t\t\r\n>two\nACGT\r\n", "lines of 'one' end in blanks or tabs"),
        (">one\nACGT ", "lines of 'one' end in blanks or tabs"),
        (">one\nACGT\nAC ", "lines of 'one' end in blanks or tabs"),
        (">one\nACGT\nACG \n", "lines of 'one' end in blanks or tabs"),
        (">one\nACGT\nA\t\t\n>two\nACGT\n", "lines of 'one' end in blanks or tabs"),
        (">one\r\nACGT\r\nAC \r\n", "lines of 'one' end in blanks or tabs"),
        (">one\rACGT\r>two\rACGT\r", "carriage returns alone .*: convert them to line feeds, for example with `tr"),
        (">one " + "ACGT" * 300_000, "the title 'one' has no line break within 65,536 bytes"),
        (">" + "ACGT" * 300_000 + "\nACGT\n", "the title '(ACGT){10}' has no line break within 65,536 bytes"),
        (">one\nACGT\n>two " + "x" * 70_000 + "\nACGT\n", "the title 'two' has no line break within 65,536 bytes"),
    ],
)
@pytest.mark.filterwarnings("ignore:the index")
def test_a_bad_fasta_is_refused_with_a_reason_and_leaves_no_partial_files(tmp_path, open_genome, text, message):
    path = tmp_path / "genome.fa"
    for _ in range(2):  # the second time as the first
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_genome(path)
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize(
    "text", [">one\nACGT\nAC\n>two", ">one\r\nACGT\r\nAC\r\n>two x", ">one\nACGTAC\n>" + "x" * 500]
)
@pytest.mark.parametrize("name", ["genome.fa", "genome.fa.gz"])
def test_a_title_without_a_line_break_ends_a_file(tmp_path, open_genome, text, name):
    path = tmp_path / name
    if name.endswith(".gz"):
        bgzip(path, text)
    else:
        path.write_bytes(text.encode())
    for _ in range(2):  # the second time by the index of the first
        genome = open_genome(path)
        assert list(genome.lengths.values()) == [6, 0]
        assert genome.fetch("one") == "ACGTAC"


def test_damaged_and_misnamed_files_have_different_errors(tmp_path, open_genome):
    with pytest.raises(FileNotFoundError, match=r"FASTA file .*absent\.fa does not exist"):
        open_genome(tmp_path / "absent.fa")
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a folder; name the FASTA file in it"):
        open_genome(tmp_path)
    (tmp_path / "plain.fa.gz").write_text(">one\nACGT\n")
    with pytest.raises(ValueError, match="named like gzip but is not compressed"):
        open_genome(tmp_path / "plain.fa.gz")
    (tmp_path / "cut.fa.gz").write_bytes(gzip.compress(os.urandom(10_000).hex().join([">one\n", "\n"]).encode())[:-100])
    with pytest.warns(UserWarning, match="decompressed once"), pytest.raises(ValueError, match="truncated or damaged"):
        open_genome(tmp_path / "cut.fa.gz")
    (tmp_path / "broken.fa.gz").write_bytes(gzip.compress(b">one\nACGT\n")[:11] + b"broken")
    with pytest.raises(ValueError, match="truncated or damaged"):
        open_genome(tmp_path / "broken.fa.gz")
    assert not list(tmp_path.rglob("*.part*"))


@pytest.mark.parametrize("name", ["CRC", "BGZF", "Decompressed"])
def test_a_name_that_looks_like_damage_is_only_a_name(tmp_path, open_genome, name):
    (tmp_path / "twice.fa").write_text(f">{name}\nAC\n>{name}\nGT\n")
    with pytest.raises(ValueError, match=rf"twice\.fa has two sequences named '{name}' \(the name"):
        open_genome(tmp_path / "twice.fa")
    (tmp_path / "blank.fa").write_text(f">{name}\nAC\n\n\n>other\nGT\n")
    with pytest.raises(ValueError, match=f"cannot be indexed: '{name}' contains or is followed by blank lines"):
        open_genome(tmp_path / "blank.fa")
    path = tmp_path / name / "genome.fa"
    path.parent.mkdir()
    path.write_text(">one\nAC\n")
    with open_genome(path) as genome:
        genome.close()
        path.unlink()
        with pytest.raises(OSError, match="Cannot read FASTA"):
            genome.fetch("one")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("longer", [1, 40, 130])
def test_a_longer_last_line_is_refused_even_with_an_index(tmp_path, open_genome, packed, longer):
    from pyfaidx import Faidx

    lines = ["ACGTA" * 12] * 3 + ["G" * (60 + longer)]
    text = ">one\n" + "\n".join(lines) + "\n>two\n" + "AC" * 40 + "\n"
    path = tmp_path / "genome.fa"
    path.write_text(text)
    if packed:
        path = bgzip(tmp_path / "genome.fa.gz", text)
    Faidx(str(path)).close()  # lets such a line pass, and reads other bases than are there
    with (
        pytest.warns(UserWarning, match="is rebuilt"),
        pytest.raises(ValueError, match="last line of a sequence is longer"),
    ):
        open_genome(path)


def test_an_index_of_another_bgzip_is_rebuilt_even_if_newer(write_fasta, open_genome, tmp_path):
    pytest.importorskip("Bio.bgzf")
    path, bases = tmp_path / "genome.fa.gz", "ACGTTGCA" * 20_000
    bgzip(path, write_fasta({"one": bases, "two": "G" * 70}, "first.fa").read_text())
    open_genome(path)
    other = bgzip(tmp_path / "other.fa.gz", write_fasta({"one": "T" + bases, "two": "C" * 70}, "second.fa").read_text())
    shutil.move(other, path)
    os.utime(path, (1, 1))
    with pytest.warns(UserWarning, match="or belongs to another file: it is rebuilt"):
        genome = open_genome(path)
    assert genome.lengths == {"one": len(bases) + 1, "two": 70}
    assert genome.fetch(Interval("one", 150_000, 150_008)) == bases[149_999:150_007]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_genome(path).fetch(Interval("two", 60, 70)) == "C" * 10


def test_threads_that_open_a_file_at_once_all_get_it(tmp_path, open_genome):
    path = tmp_path / "many.fa"
    path.write_text("".join(f">record{i}\nACGT\n" for i in range(3000)))
    for _ in range(3):
        path.with_name("many.fa.fai").unlink(missing_ok=True)
        with ThreadPoolExecutor(4) as pool:
            opened = list(pool.map(open_genome, [path] * 4))
        assert {len(genome.lengths) for genome in opened} == {3000}
    assert not list(tmp_path.glob("*.part*"))


def test_a_file_that_changes_while_open_is_reported(write_fasta, open_genome):
    path = write_fasta({"one": "ACGT" * 100})
    genome = open_genome(path)
    path.write_text(">one\nACGT\n")
    with pytest.raises(ValueError, match="was changed while it was open"):
        genome.fetch(Interval("one", 300, 310))


def test_without_biopython_a_bgzip_is_unpacked_like_a_gzip(write_fasta, records, open_genome, tmp_path, monkeypatch):
    path = bgzip(tmp_path / "blocks.fa.gz", write_fasta(records).read_text())
    monkeypatch.setattr("titans_dna.genomes.fasta.find_spec", lambda name: None if name == "Bio" else name)
    with pytest.warns(UserWarning, match="is decompressed once"):
        assert open_genome(path).fetch(Interval("chrI", 10, 20)) == records["chrI"][10:20]


def test_without_pyfaidx_the_error_says_how_to_install_it(write_fasta, records, open_genome, monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    path = write_fasta(records)
    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ImportError, match=r"pip install 'titans-suite\[dna\]'"):
        open_genome(path)


def test_an_index_is_checked_once_when_its_file_is_opened(write_fasta, records, open_genome, monkeypatch):
    path, checked = write_fasta(records), []
    open_genome(path)
    mismatch = fasta._mismatch
    monkeypatch.setattr(fasta, "_mismatch", lambda files: checked.append(files.index) or mismatch(files))
    open_genome(path)
    assert len(checked) == 1


@pytest.mark.parametrize("at", [40, -200, -28])  # the last 28 bytes are a block of their own, which marks the end
def test_a_truncated_bgzip_is_said_to_be_damaged(tmp_path, open_genome, at):
    path = bgzip(tmp_path / "genome.fa.gz", ">one\n" + "\n".join(["ACGTTGCA" * 8] * 3000) + "\n")
    path.write_bytes(path.read_bytes()[:at])
    with pytest.raises(ValueError, match=r"genome.fa.gz is truncated or damaged .*; download it again"):
        open_genome(path)


def test_a_bgzip_that_was_damaged_after_it_was_indexed_is_said_to_be(tmp_path, open_genome):
    rng = random.Random(0)
    text = "".join(rng.choices("ACGT", k=300_000))
    path = bgzip(tmp_path / "genome.fa.gz", f">one\n{text}\n")
    genome = open_genome(path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"genome.fa.gz is truncated or damaged"):
        genome.fetch(Interval("one", 0, 300_000))
