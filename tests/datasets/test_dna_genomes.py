"""GB sets cut from a genome at their official coordinates."""

import gzip

import numpy as np
import pandas as pd
import pytest

from titans_datasets.audit import Spans, best_overlap
from titans_datasets.dna import load_dna, load_genome
from titans_datasets.strands import reverse_complement as other_strand
from titans_dna import reverse_complement

OTHER_STRAND = str.maketrans("ACGT", "TGCA")


def bases(n, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def write_genome(path, chromosomes, width=70):
    lines = []
    for name, sequence in chromosomes.items():
        lines += [f">{name} dna", *(sequence[i : i + width] for i in range(0, len(sequence), width))]
    text = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def made_intervals(home, name, sizes, classes, n=60, length=50, seed=0):
    """A GB set of the right form with coordinates on a small genome."""
    rng = np.random.default_rng(seed)
    region = rng.choice(list(sizes), n)
    start = np.array([rng.integers(0, sizes[r] - length) for r in region])
    frame = pd.DataFrame(
        {
            "id": [f"s{i}" for i in range(n)],
            "region": region,
            "start": start,
            "end": start + length,
            "strand": rng.choice(["+", "-"], n),
            "split": rng.choice(["train", "test"], n),
            "class": rng.choice(classes, n),
        }
    )
    (home / "dna" / "gb_intervals").mkdir(parents=True, exist_ok=True)
    frame.to_parquet(home / "dna" / "gb_intervals" / f"{name}.parquet")
    return frame


def cut(chromosomes, row):
    piece = chromosomes[row.region][row.start : row.end].upper()
    return piece.translate(OTHER_STRAND)[::-1] if row.strand == "-" else piece


SIZES = {"chr1": 900, "chr2": 700, "chrX": 400, "chrM": 200}


@pytest.fixture
def chromosomes():
    pieces = {name: bases(size, i) for i, (name, size) in enumerate(SIZES.items())}
    return pieces | {"chr2": pieces["chr2"].lower()}


@pytest.mark.filterwarnings("ignore:.*from another assembly")
@pytest.mark.parametrize("suffix", [".fa", ".fa.gz"])
@pytest.mark.parametrize(
    "naming",
    [
        {},
        {"chr1": "1", "chr2": "2", "chrX": "X", "chrM": "MT"},
    ],
    ids=["UCSC", "Ensembl"],
)
def test_a_set_is_cut_from_a_genome_at_its_coordinates(home, tmp_path, chromosomes, naming, suffix):
    frame = made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    named = {naming.get(name, name): sequence for name, sequence in chromosomes.items()} | {"scaffold": bases(99, 9)}
    path = write_genome(tmp_path / f"genome{suffix}", named)
    data = load_dna("human_enhancers_cohn", genome=path, data_home=home)
    frame = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in frame.itertuples()]
    assert [data.classes[i] for i in data.labels] == frame["class"].tolist()
    assert data.split.tolist() == frame["split"].tolist()
    assert not data.missing
    pd.testing.assert_series_equal(
        data.intervals["start"], frame["start"], check_index=False, obj="rows of intervals and sequences agree"
    )


@pytest.mark.filterwarnings("ignore:.*from another assembly")
@pytest.mark.parametrize("name", ["human_nontata_promoters", "human_enhancers_ensembl", "human_ocr_ensembl"])
def test_other_sets_are_cut_from_a_genome_too(home, tmp_path, chromosomes, name):
    frame = made_intervals(home, name, SIZES, ["negative", "positive"])
    data = load_dna(name, genome=write_genome(tmp_path / "genome.fa", chromosomes), data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]
    assert [data.classes[i] for i in data.labels] == rows["class"].tolist()
    assert not data.missing


@pytest.mark.filterwarnings("ignore:.*from another assembly")
def test_on_a_random_genome_sequences_share_a_40mer_where_intervals_share_40_bases(home, tmp_path, chromosomes):
    made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    data = load_dna("human_enhancers_cohn", genome=write_genome(tmp_path / "g.fa", chromosomes), data_home=home)
    train, test = (data.intervals[data.split == part] for part in ("train", "test"))
    shared = best_overlap(
        Spans(train["region"], train["start"], train["end"]), Spans(test["region"], test["start"], test["end"])
    )[1]
    report = data.audit()
    np.testing.assert_array_equal(~report.kmers.clean[data.split == "test"], shared >= 40)
    assert 0 < report.kmers.shared_with_train < report.intervals.touching


@pytest.mark.filterwarnings("ignore:.*from another assembly")
def test_without_a_strand_the_forward_one_is_read(home, tmp_path, chromosomes):
    frame = made_intervals(home, "human_ensembl_regulatory", SIZES, ["enhancer", "ocr", "promoter"])
    frame.assign(strand=np.nan).to_parquet(home / "dna" / "gb_intervals" / "human_ensembl_regulatory.parquet")
    genome = write_genome(tmp_path / "g.fa", chromosomes)
    data = load_dna("human_ensembl_regulatory", genome=genome, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")]).assign(strand="+")
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]
    assert set(data.classes) == {"enhancer", "ocr", "promoter"}


def test_a_set_of_two_references_takes_a_genome_for_each(home, tmp_path, chromosomes):
    transcripts = {"ENST00000371014": bases(300, 20), "ENST00000372073": bases(250, 21)}
    coding = made_intervals(home, "x", {k: len(v) for k, v in transcripts.items()}, ["coding_seqs"], n=20)
    intergenic = made_intervals(home, "x", {"chr2": 700}, ["intergenomic_seqs"], n=20, seed=1)
    frame = pd.concat([coding, intergenic], ignore_index=True)
    name = "demo_coding_vs_intergenomic_seqs"
    frame.to_parquet(home / "dna" / "gb_intervals" / f"{name}.parquet")
    genome = write_genome(tmp_path / "genome.fa", chromosomes)
    cdna = write_genome(tmp_path / "cdna.fa", {f"{name}.7": piece for name, piece in transcripts.items()})
    data = load_dna(name, genome={"coding_seqs": cdna, "intergenomic_seqs": genome}, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes | transcripts, row) for row in rows.itertuples()]
    with pytest.raises(ValueError, match=r"two references: pass genome= as a dict .*'coding_seqs': GRCh38 transcripts"):
        load_dna(name, genome=genome, data_home=home)
    with pytest.raises(ValueError, match=r"genome= has the classes \['coding'\], but .* needs \['coding_seqs', 'inter"):
        load_dna(name, genome={"coding": cdna}, data_home=home)


def test_a_genome_that_does_not_fit_is_refused(home, tmp_path, chromosomes):
    intervals = made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    last = intervals.loc[intervals["region"] == "chr2", "end"].max()

    def load(changed, name="g.fa"):
        return load_dna("human_enhancers_cohn", genome=write_genome(tmp_path / name, changed), data_home=home)

    with pytest.warns(UserWarning, match="chr1 has 900 bases, but 248956422 in GRCh38"):
        load(chromosomes)
    with (
        pytest.warns(UserWarning, match="another assembly"),
        pytest.raises(ValueError, match=r"lacks 1 of 4 regions, first: 'chrX'\. It has chr1, chr2, chrY, chrM; near"),
    ):
        load({"chrY" if name == "chrX" else name: piece for name, piece in chromosomes.items()})
    with (
        pytest.warns(UserWarning, match="another assembly"),
        pytest.raises(
            ValueError, match=rf"chr2:\d+-{last} ends beyond that chromosome in .* has {last - 1} bases\. .* or was cut"
        ),
    ):
        load(chromosomes | {"chr2": chromosomes["chr2"][: last - 1]})
    (tmp_path / "empty.fa").touch()
    with pytest.raises(ValueError, match=r"empty\.fa lacks 4 of 4 regions, first: .* It has no records\. The"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "empty.fa", data_home=home)
    (tmp_path / "text.fa").write_text("no FASTA\n")
    with pytest.raises(ValueError, match="is not a FASTA: it starts with b'no FASTA"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "text.fa", data_home=home)
    with pytest.raises(FileNotFoundError, match="no such genome FASTA"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "absent.fa", data_home=home)
    with pytest.raises(IsADirectoryError, match=r"the genome .* is a folder\. Name the FASTA in it in genome="):
        load_dna("human_enhancers_cohn", genome=tmp_path, data_home=home)
    with pytest.raises(TypeError, match=r"genome must be the path of a FASTA file, .*; got list"):
        load_dna("human_enhancers_cohn", genome=[tmp_path / "g.fa"], data_home=home)
    (tmp_path / "latin.fa").write_bytes(b">chrY Universit\xe9\nACGT\n")
    with pytest.raises(ValueError, match=r"lacks 4 of 4 regions.* It has chrY"):
        load_dna("human_enhancers_cohn", genome=tmp_path / "latin.fa", data_home=home)


@pytest.mark.filterwarnings("ignore:.*from another assembly")
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_packed_genome_that_is_cut_off_or_damaged_is_named(home, tmp_path, chromosomes, damage):
    made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    path = write_genome(tmp_path / "genome.fa.gz", chromosomes)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + (b"" if damage == "cut" else b"\xff" * 8 + whole[middle + 8 :]))
    with pytest.raises(ValueError, match=r"genome\.fa\.gz is not a complete gzip .* Download it again"):
        load_dna("human_enhancers_cohn", genome=path, data_home=home)


@pytest.mark.real_data
def test_pieces_of_worm_and_human_are_cut_as_they_stand_in_their_fasta(real_data, home):
    """Official coordinates within the available pieces (the human one is of another assembly, only for this test)."""
    files = {"worm": load_genome("celegans_1pct", data_home=real_data, download=False).fasta}
    files["human"] = load_genome("human_hg19_chr1_3mb", data_home=real_data, download=False).fasta
    chromosomes = {}
    for path in files.values():
        for record in gzip.decompress(path.read_bytes()).decode().split(">")[1:]:
            header, _, body = record.partition("\n")
            chromosomes[header.split()[0]] = body.replace("\n", "")
    frame = pd.read_parquet(real_data / "dna" / "gb_intervals" / "demo_human_or_worm.parquet")
    sizes = frame["region"].astype(str).map({name: len(piece) for name, piece in chromosomes.items()}).fillna(0)
    frame = frame[frame["end"] <= sizes].reset_index(drop=True)
    assert frame["class"].value_counts().min() > 20
    (home / "dna" / "gb_intervals").mkdir(parents=True)
    frame.to_parquet(home / "dna" / "gb_intervals" / "demo_human_or_worm.parquet")
    with pytest.warns(UserWarning, match="another assembly"):
        data = load_dna("demo_human_or_worm", genome=files, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]


@pytest.mark.slow
@pytest.mark.real_data
def test_drosophila_is_cut_at_all_official_coordinates_from_a_generated_genome_of_its_size(real_data, tmp_path):
    """6914 intervals on 137 million random bases: all steps, except for the real FASTA."""
    frame = pd.read_parquet(real_data / "dna" / "gb_intervals" / "drosophila_enhancers_stark.parquet")
    rng = np.random.default_rng(0)
    chromosomes = {}
    with (tmp_path / "dm.fa").open("wb") as sink:
        for region, end in frame.groupby("region", observed=True)["end"].max().items():
            rows = np.full((end // 100 + 1, 101), ord("\n"), dtype=np.uint8)
            rows[:, :100] = np.frombuffer(b"ACGT", dtype=np.uint8)[rng.integers(0, 4, (len(rows), 100), dtype=np.uint8)]
            sink.write(f">{region.removeprefix('chr')}\n".encode() + rows.tobytes())
            chromosomes[region] = rows[:, :100].tobytes()
    with pytest.warns(UserWarning, match="another assembly"):
        data = load_dna("drosophila_enhancers_stark", genome=tmp_path / "dm.fa", data_home=real_data)
    assert {part: len(data.part(part)[0]) for part in ("train", "test")} == {"train": 5184, "test": 1730}
    ends = data.intervals[["region", "start", "end"]].itertuples(index=False)
    assert data.sequences == [chromosomes[region][start:end].decode() for region, start, end in ends]
    # sequences that overlap share their bases, and on random bases no others do
    report = data.audit()
    assert abs(report.kmers.shared_with_train - report.intervals.touching) < 0.02


def test_the_other_strand_of_a_code_is_the_code_of_the_other_bases():
    letters = "ACGTNRYSWKMBDHV"
    assert other_strand(letters) == reverse_complement(letters)


@pytest.mark.filterwarnings("ignore:.*from another assembly", "ignore:.* intervals; ")
def test_coordinates_with_repeated_index_are_cut_in_their_order(home, tmp_path, chromosomes):
    frame = made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    path = home / "dna" / "gb_intervals" / "human_enhancers_cohn.parquet"
    frame.set_axis(np.arange(len(frame)) // 2).to_parquet(path)
    genome = write_genome(tmp_path / "g.fa", chromosomes)
    data = load_dna("human_enhancers_cohn", genome=genome, data_home=home)
    rows = pd.concat([frame[frame["split"] == part] for part in ("train", "test")])
    assert data.sequences == [cut(chromosomes, row) for row in rows.itertuples()]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda frame: frame.drop(columns="strand"), r"lacks the columns \['strand'\]"),
        (lambda frame: frame.assign(start=frame["start"] + 0.5), "start has the type float64"),
        (lambda frame: frame.assign(split="dev"), "split 'dev' is not one of"),
        (lambda frame: frame.assign(**{"class": "other"}), "class 'other' is not one of"),
        (lambda frame: frame.assign(strand="-1"), "strand '-1' is not one of"),
        (lambda frame: frame.assign(end=frame["start"]), r"row 0 \(0-based\) is empty"),
    ],
    ids=["columns", "floats", "split", "class", "strand", "empty"],
)
def test_coordinates_that_are_not_the_official_ones_are_refused(home, tmp_path, chromosomes, change, says):
    frame = made_intervals(home, "human_enhancers_cohn", SIZES, ["negative", "positive"])
    change(frame).to_parquet(home / "dna" / "gb_intervals" / "human_enhancers_cohn.parquet")
    genome = write_genome(tmp_path / "g.fa", chromosomes)
    with pytest.raises(ValueError, match=rf"human_enhancers_cohn\.parquet does not have the official .*{says}"):
        load_dna("human_enhancers_cohn", genome=genome, data_home=home)
