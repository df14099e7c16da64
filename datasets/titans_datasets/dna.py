"""DNA data sets by name: the GUE tasks, GenomicsBenchmarks (GB), CNNProm, and the genomes that examples use.

    load_dna("tf_0")                                            GUE: official train, dev and test
    load_dna("human_nontata_promoters", genome="GRCh38.fa.gz")  GB: rebuilt from the official coordinates
    load_dna("human_nontata_promoters")                         GB: those official parts whose sequences are here

Files are looked for below ``<data home>/dna`` before anything is fetched:

    gue/<task>/<part>            .parquet, .csv or .tsv with columns seq or sequence, and label or target
    gb/<name>/<part>             the same, or the folders <part>/<class>/*.txt that genomic_benchmarks writes
    gb_intervals/<name>.parquet  or <name>/<part>/<class>.csv.gz as published; coordinates 0-based half-open
    cnnprom/<name>/all           as gue
    genomes/                     FASTA, annotation, variants

Published files are pinned to a commit and checked by sha256; a ``manifest.json`` in ``<data home>/dna`` (a list of
``{"file": ..., "sha256": ...}``) is held to for the files it names.

Sources: GUE, Zhou et al., DNABERT-2 (arXiv:2306.15006); GB, Gresova et al., BMC Genomic Data 24:25 (2023); CNNProm,
Umarov and Solovyev, PLOS ONE 12 (2017).
"""

import gzip
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache as once
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from titans_datasets import cache
from titans_datasets.audit import IntervalAudit, Spans, SplitAudit, audit_intervals, audit_kmers
from titans_datasets.checksum import verify
from titans_datasets.download import advice, download
from titans_datasets.errors import ChecksumError, OfflineError

if TYPE_CHECKING:
    import pandas as pd

    from titans_datasets.registry import DatasetInfo

__all__ = ["DNADataset", "GenomeFiles", "list_dna_datasets", "list_genomes", "load_dna", "load_genome"]

GenomePaths = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]

_SUFFIXES = (".parquet", ".csv", ".tsv")
_STRANDS = str.maketrans("ACGTRYKMBVDH", "TGCAYRMKVBHD")


@dataclass(frozen=True, eq=False)
class DNADataset:
    """Labelled sequences of one data set.

    Attributes:
        name: as in ``list_dna_datasets()``.
        sequences: n strings.
        labels: int64 [n], index into ``classes``.
        split: [n], the official part of each: ``"train"``, ``"dev"``, ``"test"``; ``"all"`` where there is no official
            split.
        classes: class names, sorted.
        intervals: official coordinates of all parts where they are here: columns region, start, end (0-based
            half-open), strand, split, class. Its rows are not those of ``sequences``, unless these were rebuilt from
            them.
        missing: official rows per part whose sequences are not here.
    """

    name: str
    sequences: list[str]
    labels: NDArray[np.int64]
    split: NDArray[np.str_]
    classes: tuple[str, ...]
    intervals: "pd.DataFrame | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)

    def part(self, name: str) -> tuple[list[str], NDArray[np.int64]]:
        """Sequences and labels of one official part.

        Raises:
            ValueError: no such part, or it is not here; the message says how it can be had.
        """
        rows = np.flatnonzero(self.split == name)
        if not len(rows):
            here = ", ".join(dict.fromkeys(self.split.tolist()))
            hint = f" {_how_to_rebuild(self.name)}" if name in self.missing else ""
            raise ValueError(f"{self.name} has no part {name!r} here, only {here}.{hint}")
        return [self.sequences[i] for i in rows], self.labels[rows]

    def audit(self, k: int = 40) -> SplitAudit:
        """What test shares with train: print it before believing a score.

        Official coordinates are compared in full where they are known; k-mers among the sequences that are here.
        """
        return SplitAudit(
            self.name,
            None if self.intervals is None else _audit_frame(self.intervals),
            audit_kmers(self.sequences, np.array(self.classes)[self.labels], self.split, k=k),
        )

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        lengths = [len(s) for s in self.sequences]
        bases = f"{min(lengths)}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
        parts = []
        for part in dict.fromkeys(self.split.tolist()):
            counts = np.bincount(self.labels[self.split == part], minlength=len(self.classes))
            of_class = ", ".join(f"{c} {n}" for c, n in zip(self.classes, counts, strict=True))
            parts.append(f"{part} {counts.sum()} ({of_class})")
        absent = [f"{n} of {part} are not here" for part, n in self.missing.items()]
        return f"DNADataset({self.name!r}: {len(self)} sequences of {bases} bases; {'; '.join(parts + absent)})"


@dataclass(frozen=True)
class GenomeFiles:
    """Paths of a genome's files; annotation and variants are None where there are none."""

    name: str
    fasta: Path
    annotation: Path | None
    variants: Path | None


def list_dna_datasets() -> list[str]:
    """Names that ``load_dna`` accepts."""
    return [*_GUE, *_GB, *_CNNPROM]


def list_genomes() -> list[str]:
    """Names that ``load_genome`` accepts."""
    return list(_GENOMES)


def load_dna(
    name: str,
    *,
    genome: GenomePaths | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> DNADataset:
    """One labelled set with its official split.

    Args:
        name: one of ``list_dna_datasets()``, in any case; GUE promoters also without ``prom_``.
        genome: for GB: the reference FASTA, plain or gzip, from which all sequences are cut at the official
            coordinates; for a set of two references a dict of class name to FASTA. Chromosomes may be named as Ensembl
            does (1, MT) or UCSC (chr1, chrM).
        data_home: default ``TITANS_DATA_HOME``, else the user's cache.
        download: fetch published files that are missing.

    Returns:
        Sequences in upper case. Of a GB set without ``genome`` only those parts whose sequences are here, with a
        warning that says what is missing.

    Raises:
        ValueError: unknown name; or the genome lacks a chromosome or ends before an interval.
        FileNotFoundError: nothing of the set is here; the message says how to get it.
        OfflineError, ChecksumError: a file cannot be fetched, or is not the published one.
    """
    name, home = _known(name), cache.data_home(data_home)
    if name in _GB:
        return _load_gb(name, genome, home, download)
    if genome is not None:
        raise ValueError(f"{name} is published as sequences; genome= serves the sets {', '.join(_GB)}.")
    if name in _GUE:
        # as here, as the published archive has it, and that flattened
        published = _gue_folder(name)
        folders = [f"gue/{folder}" for folder in (name, published, published.replace("/", "_"))]
        parts: tuple[str, ...] = ("train", "dev", "test")
    else:
        folders, parts = [f"cnnprom/{name}"], ("all",)
    there = (folder for folder in folders for place in _homes(home) if (place / "dna" / folder).is_dir())
    folder = next(there, folders[0])
    frames = {part: _labelled(f"{folder}/{part}", home, download) for part in parts}
    absent = [part for part, frame in frames.items() if frame is None]
    if absent:
        raise FileNotFoundError(
            f"{name} lacks {', '.join(absent)} in {home / 'dna' / folder}. Put them there as <part>.csv with columns "
            "sequence, label" + (", or load with download=True." if name in _GUE else ".")
        )
    return _dataset(name, {part: frame for part, frame in frames.items() if frame is not None}, ("0", "1"))


def load_genome(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> GenomeFiles:
    """Files of a genome for examples and tests, fetched where they are missing.

    Args:
        name: one of ``list_genomes()``, in any case. Those that end in ``_1pct`` are the first 1 % of each chromosome.

    Raises:
        ValueError: unknown name.
        FileNotFoundError, OfflineError, ChecksumError: as ``load_dna``.
    """
    home = cache.data_home(data_home)
    found = {known.lower(): known for known in _GENOMES}.get(name.lower())
    if found is None:
        raise ValueError(f"Unknown genome {name!r}; known are {', '.join(_GENOMES)}.")
    paths = [file and _published(f"genomes/{file}", home, download) for file in _GENOMES[found]]
    return GenomeFiles(found, cast(Path, paths[0]), paths[1] or None, paths[2] or None)


def _known(name: str) -> str:
    names = {known.lower(): known for known in list_dna_datasets()}
    names |= {known.removeprefix("prom_"): known for known in _GUE}
    if name.lower() in names:
        return names[name.lower()]
    close = get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean {names[close[0]]!r}?" if close else ""
    raise ValueError(f"Unknown DNA set {name!r}; known are {', '.join(list_dna_datasets())}.{hint}")


# ---- GenomicsBenchmarks


def _load_gb(name: str, genome: GenomePaths | None, home: Path, download: bool) -> DNADataset:
    entry = _GB[name]
    intervals = _intervals(name, home, download and genome is not None)
    if genome is not None:
        if intervals is None:
            raise FileNotFoundError(
                f"the official coordinates of {name} are not in {home / 'dna' / 'gb_intervals'}; load with "
                "download=True, or put the .csv.gz files of "
                f"{_ADDRESS['gb_intervals']}/{name} there as <part>/<class>.csv.gz."
            )
        sequences = _cut(intervals, _paths(name, genome), entry)
        frame = intervals[["split", "class"]].assign(seq=sequences)
        parts = {part: frame[frame["split"] == part] for part in ("train", "test")}
        whole = _dataset(name, {p: f.rename(columns={"class": "label"}) for p, f in parts.items()}, entry.file_classes)
        rows = np.concatenate([np.flatnonzero(intervals["split"] == part) for part in parts])
        return _with(whole, intervals.iloc[rows].reset_index(drop=True), {})
    frames = {}
    for part in ("train", "test"):
        labelled = _labelled(f"gb/{name}/{part}", home, download)
        if labelled is None:  # a stratified sample for smoke tests
            labelled = _labelled(f"gb/{name}/{part}_500perclass", home, download=False)
        if labelled is not None:
            frames[part] = labelled
    if not frames:
        raise FileNotFoundError(f"no sequences of {name} in {home / 'dna' / 'gb' / name}. {_how_to_rebuild(name)}")
    official = {part: sum(counts[part == "test"] for counts in entry.counts.values()) for part in ("train", "test")}
    missing = {part: n - len(frames.get(part, ())) for part, n in official.items() if n != len(frames.get(part, ()))}
    if missing:
        absent = ", ".join(f"{n} of {official[part]} {part} sequences" for part, n in missing.items())
        warnings.warn(f"{name}: {absent} are not here. {_how_to_rebuild(name)}", stacklevel=3)
    return _with(_dataset(name, frames, entry.file_classes), intervals, missing)


def _how_to_rebuild(name: str) -> str:
    if name not in _GB:
        return ""
    references = {reference: _REFERENCES[reference][0] for reference in _GB[name].references.values()}
    files = " and ".join(f"{reference} ({url})" for reference, url in references.items())
    one = "genome=<path>" if len(references) == 1 else f"genome={dict.fromkeys(_GB[name].references, '<path>')}"
    return (
        f"All are rebuilt with {one} from the reference {files}; or fetch {_ZENODO}/{name}_v0.zip and unpack it into "
        "dna/gb of the data home."
    )


def _intervals(name: str, home: Path, download: bool) -> "pd.DataFrame | None":
    """Official coordinates in the order of the published files, or None."""
    import pandas as pd

    columns = ["region", "start", "end", "strand", "split", "class"]
    local = _local(f"gb_intervals/{name}.parquet", home)
    if local is not None:
        frame = pd.read_parquet(local)[columns]
    else:
        pieces = []
        for part in ("train", "test"):
            for label in _GB[name].counts:
                path = _published(f"gb_intervals/{name}/{part}/{label}.csv.gz", home, download, missing_ok=True)
                if path is None:
                    return None
                pieces.append(pd.read_csv(path, dtype={"region": str}).assign(split=part, **{"class": label}))
        frame = pd.concat(pieces, ignore_index=True)[columns]
    # without a strand (human_ensembl_regulatory) the published sequences are those of the forward one
    text = frame[["region", "strand", "split", "class"]].astype(object).where(frame.notna(), "+").astype(str)
    return frame.assign(**{column: text[column] for column in text})


def _audit_frame(frame: "pd.DataFrame") -> IntervalAudit:
    train, test = (frame[frame["split"] == part] for part in ("train", "test"))
    return audit_intervals(
        Spans(train["region"], train["start"], train["end"]),
        train["class"],
        Spans(test["region"], test["start"], test["end"]),
        test["class"],
    )


def _paths(name: str, genome: GenomePaths) -> dict[str, Path]:
    """FASTA of each class."""
    references = _GB[name].references
    if isinstance(genome, Mapping):
        if set(genome) != set(references):
            raise ValueError(f"genome= has the classes {sorted(genome)}; {name} needs {sorted(references)}.")
        return {label: Path(path).expanduser() for label, path in genome.items()}
    if len(set(references.values())) > 1:
        raise ValueError(
            f"{name} is cut from two references; give genome= as a dict of class to FASTA: "
            + ", ".join(f"{label!r}: {reference}" for label, reference in references.items())
        )
    return dict.fromkeys(references, Path(genome).expanduser())


def _cut(intervals: "pd.DataFrame", paths: Mapping[str, Path], entry: "_GBSet") -> list[str]:
    """Sequence of every interval, on its strand; each FASTA is read once, one chromosome in memory at a time."""
    found = dict[int, str]()
    for path in dict.fromkeys(paths.values()):
        labels = [label for label, of_class in paths.items() if of_class == path]
        reference = entry.references[labels[0]]
        of_path = intervals[intervals["class"].isin(labels)]
        rows = {str(region): group for region, group in of_path.groupby("region", sort=False)}
        names: list[str] = []
        for region, chromosome in _chromosomes(path, rows.keys(), names):
            _check_assembly(region, len(chromosome), reference, path)
            for row, start, end, strand in rows[region][["start", "end", "strand"]].itertuples():
                if end > len(chromosome):
                    raise ValueError(
                        f"{region}:{start}-{end} ends beyond that chromosome of {path}, which has {len(chromosome)} "
                        f"bases; the coordinates are of {reference}, this is another assembly."
                    )
                piece = chromosome[start:end].decode().upper()
                found[row] = piece.translate(_STRANDS)[::-1] if strand == "-" else piece
        absent = [region for region, group in rows.items() if group.index[0] not in found]
        if absent:
            near = get_close_matches(absent[0], names, n=3)
            raise ValueError(
                f"{path} lacks {len(absent)} of {len(rows)} regions, first: {absent[0]!r}. "
                f"It has {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}{f'; near: {near}' if near else ''}. "
                f"Needed is {reference}: {_REFERENCES[reference][0]}"
            )
    return [found[row] for row in intervals.index]


def _check_assembly(region: str, size: int, reference: str, path: Path) -> None:
    _, chromosome, expected = _REFERENCES[reference]
    if region == chromosome and size != expected:
        warnings.warn(
            f"{path}: {region} has {size} bases, in {reference} it has {expected}. From another assembly the sequences "
            "are not the official ones.",
            stacklevel=5,
        )


def _regions(record: str) -> set[str]:
    """Names that the coordinates may use for a FASTA record: 1 or chr1, MT or chrM, a transcript without version."""
    bare = record.split(".")[0] if record.startswith("ENS") else record
    plain = bare.removeprefix("chr")
    if plain in ("M", "MT", "MtDNA", "mitochondrion_genome"):
        return {bare, "MtDNA", "chrM", "chrMT"}
    return {bare, plain, f"chr{plain}"}


def _chromosomes(path: Path, wanted: Collection[str], names: list[str]) -> Iterator[tuple[str, bytearray]]:
    """Wanted regions of a FASTA, plain or gzip, and their bases; ``names`` collects the names of all records."""
    if not path.is_file():
        raise FileNotFoundError(f"no genome FASTA {path}")
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    regions, bases = set[str](), bytearray()
    with gzip.open(path, "rb") if packed else path.open("rb") as stream:
        for line in chain(stream, [b">"]):  # one more header, behind which the last record ends
            if line.startswith(b">"):
                for region in regions:
                    yield region, bases
                names.append(line[1:].decode().split(maxsplit=1)[0] if line[1:].strip() else "")
                regions, bases = _regions(names[-1]).intersection(wanted), bytearray()
            elif regions:
                bases += line.strip()
            elif not names and line.strip():
                raise ValueError(f"{path} is no FASTA: it begins with {line[:40]!r}, expected a line with '>'.")
    names.pop()


# ---- files


def _dataset(name: str, frames: Mapping[str, "pd.DataFrame"], file_classes: tuple[str, ...]) -> DNADataset:
    """Frames of seq and label per part; a label that is a number i means ``file_classes[i]``."""
    classes = tuple(sorted(file_classes))
    ids = {c: i for i, c in enumerate(classes)} | {str(i): classes.index(c) for i, c in enumerate(file_classes)}
    labels = np.concatenate([frame["label"].astype(str).to_numpy(dtype=object) for frame in frames.values()])
    unknown = sorted(set(labels) - ids.keys())
    if unknown:
        raise ValueError(f"{name} has labels {unknown[:5]}; expected {classes}, or numbers 0 to {len(classes) - 1}.")
    return DNADataset(
        name,
        [s for frame in frames.values() for s in frame["seq"].str.upper()],
        np.fromiter((ids[label] for label in labels), dtype=np.int64, count=len(labels)),
        np.concatenate([np.full(len(frame), part) for part, frame in frames.items()]),
        classes,
    )


def _with(data: DNADataset, intervals: "pd.DataFrame | None", missing: Mapping[str, int]) -> DNADataset:
    return DNADataset(data.name, data.sequences, data.labels, data.split, data.classes, intervals, missing)


def _labelled(stem: str, home: Path, download: bool) -> "pd.DataFrame | None":
    """Columns seq and label of one part, from the first of the files and folders it may be in; None without any."""
    import pandas as pd

    path = next((p for suffix in _SUFFIXES if (p := _local(stem + suffix, home)) is not None), None)
    if path is None:
        folders = (place / "dna" / stem for place in _homes(home))
        files = next((found for folder in folders if (found := sorted(folder.glob("*/*.txt")))), [])
        if files:
            return pd.DataFrame(
                {"seq": [f.read_text().strip() for f in files], "label": [f.parent.name for f in files]}
            )
        known = next((stem + suffix for suffix in _SUFFIXES if stem + suffix in _checksums()), None)
        path = _published(known, home, download, missing_ok=True) if known else None
    if path is None:
        return None
    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
    else:
        frame = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    columns = {new: next((c for c in names if c in frame), None) for new, names in _COLUMNS.items()}
    if None in columns.values():
        raise ValueError(f"{path} has the columns {list(frame)}; expected seq or sequence, and label or target.")
    frame = frame.rename(columns={old: new for new, old in columns.items()})[["seq", "label"]]
    if frame.isna().any(axis=None):
        row = int(frame.isna().any(axis=1).to_numpy().argmax())
        raise ValueError(f"{path} lacks a sequence or a label in row {row} (from 0, header not counted).")
    return frame


_COLUMNS = {"seq": ("seq", "sequence"), "label": ("label", "target", "class")}


def _homes(home: Path) -> list[Path]:
    return list(dict.fromkeys([home, cache.user_cache()]))


def _local(relative: str, home: Path) -> Path | None:
    """The file below ``dna/``, checked where its checksum is known; None where it is not there."""
    for place in _homes(home):
        path = place / "dna" / relative
        if path.is_file():
            sha256 = _checksums().get(relative) or _manifest(place / "dna").get(relative)
            if sha256:
                verify(path, path.name, f"sha256:{sha256}")
            return path
    return None


def _manifest(folder: Path) -> dict[str, str]:
    path = folder / "manifest.json"
    return {entry["file"]: entry["sha256"] for entry in json.loads(path.read_text())} if path.is_file() else {}


class _Published(NamedTuple):
    """What ``download`` asks of a registered file."""

    name: str
    file: str
    url: str
    checksum: str


def _published(relative: str, home: Path, allow_download: bool, *, missing_ok: bool = False) -> Path | None:
    """A published file below ``dna/``, fetched where it is missing; with ``missing_ok`` None where it may not be."""
    path = _local(relative, home) or _local(f"{relative}.gz", home)
    if path is not None:
        return path
    sha256 = _checksums().get(relative)
    place = next((p for p in _homes(home) if _writable(p)), None)
    if sha256 is None or not allow_download or place is None:
        if missing_ok:
            return None
        raise FileNotFoundError(
            f"{home / 'dna' / relative} is missing"
            + ("" if sha256 is None else f"; load with download=True, or fetch {_url(relative)} (sha256 {sha256})")
            + "."
        )
    target = place / "dna" / relative
    entry = _Published(relative, target.name, _url(relative), f"sha256:{sha256}")
    info = cast("DatasetInfo", entry)
    try:
        download(info, target)
    except (OfflineError, ChecksumError) as error:
        by_hand = (
            f"To bring it by hand, fetch {entry.url} where there is a network and put it at\n  {target}\n"
            f"  checksum {entry.checksum} (`sha256sum`)"
        )
        raise type(error)(str(error).replace(advice(info, target), by_hand)) from None
    return target


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


# ---- what is published where


class _GBSet(NamedTuple):
    """One GB set.

    references: reference of each class. counts: official (train, test) sequences of each class. file_classes: class
    names in the order in which published tables number them.
    """

    references: dict[str, str]
    counts: dict[str, tuple[int, int]]
    file_classes: tuple[str, ...]


def _gb(reference: str | dict[str, str], numbered: tuple[str, ...] = (), **counts: tuple[int, int]) -> _GBSet:
    references = dict.fromkeys(counts, reference) if isinstance(reference, str) else reference
    return _GBSet(references, counts, numbered or tuple(sorted(counts)))


_GUE = (
    *(f"tf_{i}" for i in range(4)),
    *("mouse_0", "mouse_2"),
    *("prom_core_all", "prom_core_notata", "prom_core_tata", "prom_300_tata"),
)
_GB = {
    "human_nontata_promoters": _gb("GRCh38", negative=(12355, 4119), positive=(14742, 4915)),
    "human_enhancers_cohn": _gb("GRCh38", negative=(10422, 3474), positive=(10421, 3474)),
    "human_enhancers_ensembl": _gb("GRCh38", negative=(61936, 15485), positive=(61936, 15485)),
    "human_ocr_ensembl": _gb("GRCh38", negative=(69902, 17476), positive=(69902, 17476)),
    # tables of this set number its classes in another order than that of their names: seen from the lengths, as 599
    # and 202 bases are typical of promoters, multiples of 200 of enhancers
    "human_ensembl_regulatory": _gb(
        "GRCh38",
        ("promoter", "enhancer", "ocr"),
        enhancer=(85512, 21378),
        ocr=(69902, 17476),
        promoter=(75934, 18859),
    ),
    "demo_coding_vs_intergenomic_seqs": _gb(
        {"coding_seqs": "GRCh38 transcripts", "intergenomic_seqs": "GRCh38"},
        coding_seqs=(37500, 12500),
        intergenomic_seqs=(37500, 12500),
    ),
    "demo_human_or_worm": _gb({"human": "GRCh38", "worm": "WBcel235"}, human=(37500, 12500), worm=(37500, 12500)),
    "drosophila_enhancers_stark": _gb("BDGP6.28", negative=(2592, 865), positive=(2592, 865)),
    "dummy_mouse_enhancers_ensembl": _gb("GRCm38", negative=(484, 121), positive=(484, 121)),
}
_CNNPROM = ("ecoli_sigma70", "arabidopsis_tata", "arabidopsis_nontata")

_ENSEMBL = "http://ftp.ensembl.org/pub"
# address, and a chromosome by whose length the assembly is known
_REFERENCES = {
    "GRCh38": (
        f"{_ENSEMBL}/release-97/fasta/homo_sapiens/dna/Homo_sapiens.GRCh38.dna.toplevel.fa.gz",
        "chr1",
        248_956_422,
    ),
    "GRCh38 transcripts": (
        f"{_ENSEMBL}/release-97/fasta/homo_sapiens/cdna/Homo_sapiens.GRCh38.cdna.all.fa.gz",
        "",
        0,
    ),
    "GRCm38": (
        f"{_ENSEMBL}/release-100/fasta/mus_musculus/dna/Mus_musculus.GRCm38.dna.toplevel.fa.gz",
        "chr1",
        195_471_971,
    ),
    "BDGP6.28": (
        f"{_ENSEMBL}/release-100/fasta/drosophila_melanogaster/dna/Drosophila_melanogaster.BDGP6.28.dna.toplevel.fa.gz",
        "chr2L",
        23_513_712,
    ),
    "WBcel235": (
        f"{_ENSEMBL}/release-104/fasta/caenorhabditis_elegans/dna/Caenorhabditis_elegans.WBcel235.dna.toplevel.fa.gz",
        "I",
        15_072_434,
    ),
}
_ZENODO = "https://zenodo.org/records/16605299/files"
_GITHUB = "https://raw.githubusercontent.com"
_ADDRESS = {
    "gue": f"{_GITHUB}/wds-seu/DeepGene/486343e5212361d6cd7ed03c624f430ed3d5f02e/data/GUE",
    "gb_intervals": f"{_GITHUB}/ML-Bioinfo-CEITEC/genomic_benchmarks/605d8539830e16c85abe7826990958303ffc5e1c/datasets",
}
_FM_HUB = (
    f"{_GITHUB}/allison-eunse/ai4h-inspired-fm-benchmark-hub/169e8f9fb294a5fdfa7ef9de7a7a67b9707dbb21/"
    "toy_data/genomics/dna_sequences"
)
_MCB185 = f"{_GITHUB}/iankorf/MCB185/fc3c33ed5dacad55e15ba971178b42b08bff2825/data"
_DATACORE = f"{_GITHUB}/KorfLab/datacore/9f0501d5c4f19c0f359d0e457a3299da963b8e3e"
_YEAST = f"{_GITHUB}/rpolicastro/yeast_data/d7220d4f5b7cbc481be814623a8b02a2c9468d3a/genome"
_SINGLE_ADDRESS = {
    "gb/human_nontata_promoters/test.tsv": f"{_FM_HUB}/promoters_nontata/test.tsv",
    "gb/human_enhancers_cohn/test.tsv": f"{_FM_HUB}/enhancers_cohn/test.tsv",
    "gb/drosophila_enhancers_stark/test.csv": (
        f"{_GITHUB}/BioGeMT/agentomics-ml/b942b1ab474088e4f68561ce29ab36d4b41138b9/"
        "datasets/drosophila_enhancers_stark/test.csv"
    ),
    "genomes/yeast_R64-1-1.fa.gz": f"{_YEAST}/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
    "genomes/yeast_R64-1-1.96.gtf.gz": f"{_YEAST}/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
    "genomes/ecoli_K12_MG1655.fna.gz": f"{_MCB185}/GCF_000005845.2_ASM584v2_genomic.fna.gz",
    "genomes/ecoli_K12_MG1655.gff.gz": f"{_MCB185}/GCF_000005845.2_ASM584v2_genomic.gff.gz",
    "genomes/celegans_first1pct_MCB185.fa.gz": f"{_MCB185}/C.elegans.fa.gz",
    "genomes/celegans_1pct_variants.vcf.gz": f"{_MCB185}/C.elegans.vcf.gz",
    "genomes/arabidopsis_1pct.fa": f"{_DATACORE}/genome_athaliana/1pct.fa",
    "genomes/drosophila_1pct.fa": f"{_DATACORE}/genome_dmelanogaster/1pct.fa",
    "genomes/human_hg19_chr1_first3Mb.fa.gz": f"{_DATACORE}/project_rloop/chr1.fa.gz",
}
# FASTA, annotation, variants
_GENOMES = {
    "yeast": ("yeast_R64-1-1.fa.gz", "yeast_R64-1-1.96.gtf.gz", ""),
    "ecoli": ("ecoli_K12_MG1655.fna.gz", "ecoli_K12_MG1655.gff.gz", ""),
    "celegans_1pct": ("celegans_first1pct_MCB185.fa.gz", "", "celegans_1pct_variants.vcf.gz"),
    "arabidopsis_1pct": ("arabidopsis_1pct.fa", "", ""),
    "drosophila_1pct": ("drosophila_1pct.fa", "", ""),
    "human_hg19_chr1_3mb": ("human_hg19_chr1_first3Mb.fa.gz", "", ""),
}


def _url(relative: str) -> str:
    if relative in _SINGLE_ADDRESS:
        return _SINGLE_ADDRESS[relative]
    collection, folder, file = relative.split("/", 2)
    return f"{_ADDRESS[collection]}/{_gue_folder(folder) if collection == 'gue' else folder}/{file}"


def _gue_folder(task: str) -> str:
    """Folder of a task in the published archive: tf/0, prom/prom_core_all."""
    return f"prom/{task}" if task.startswith("prom_") else task.replace("_", "/")


@once
def _checksums() -> dict[str, str]:
    """sha256 of published files by their place below ``dna/``."""
    found, folder = {}, ""
    for line in _SHA256.strip().splitlines():
        if line.endswith("/"):
            folder = line
        else:
            file, sha256 = line.split()
            found[folder + file] = sha256
    return found


# a line that ends in / is the folder of those below it
_SHA256 = """
gb/human_nontata_promoters/
  test.tsv e223768c9a846506581e702b412211d71290107b798bb1b220b10a158f591e35
gb/human_enhancers_cohn/
  test.tsv 285b359415300d55b929cb67c861169f5227a40a76a1e98cd14c8a2753d12e1a
gb/drosophila_enhancers_stark/
  test.csv af93ef4a9135bde2ad0f9bbfb75948ed92e86067ef7390de2bfc81dc7f8538e6
gb_intervals/demo_coding_vs_intergenomic_seqs/
  test/coding_seqs.csv.gz a691325db74c7a60667ec554180a4a0abae6698163590b3738076157ec8795e6
  test/intergenomic_seqs.csv.gz d6c8adff76b78650c28272789539878a7b449fd810244e0e356095f5efe146f2
  train/coding_seqs.csv.gz ad92694e4e4fedb8d7c65f40acc09846c813ab888306708716904768138199b5
  train/intergenomic_seqs.csv.gz 5fab0e675ed84de90891e76c7dbb62c0d5818dae6102dfed5f702d5727b1c70f
gb_intervals/demo_human_or_worm/
  test/human.csv.gz 212ae29139f907d0e4a09eec70f68baf60247cd4cea70a169a9071c310b9b440
  test/worm.csv.gz d84e82e217db4cf5928e956e22497358b344d1a6e44a937113b6ec48990bf06b
  train/human.csv.gz 22f68cbbdff80656bd40a07efed301a8a916ef10d071279c6723454eede3b5d4
  train/worm.csv.gz 0a96e43816ca0c4c79d261655c482904f79a0221d1ee3ea5eb7074b40ccff1c0
gb_intervals/drosophila_enhancers_stark/
  test/negative.csv.gz 0ae8a73e61e7701519529b7eca7c4e86734b6f8218d3611bca701d4c0ae1a1f0
  test/positive.csv.gz cf5b4168b130195e31789f303f26453db6b773a66c2427eacca8dc984bad0631
  train/negative.csv.gz cc689f7b18809c00b41fae294822d0b1b3e1f121f43f307b6a815e163e4b23b6
  train/positive.csv.gz 81475ec3679c26f630d5791b807b7f8042834d8192ce0aa107211f8ed8b8c5e9
gb_intervals/dummy_mouse_enhancers_ensembl/
  test/negative.csv.gz dd1a9f785a8ee28b574c4323a0ff4b22ce4b51497e62d8b6efa933884aaa3f67
  test/positive.csv.gz 8e994651cb1d212ea098b1990e0d131b2648588ad5b9c3d79aab820dba311394
  train/negative.csv.gz e37f47dff8e70e98a16c607ee4428e5b2314970fc8c3f94563865e3349cf7e50
  train/positive.csv.gz f8fc8d280584eba5e942d775f33a5ef5818200415469fa9487d3a2552894caf0
gb_intervals/human_enhancers_cohn/
  test/negative.csv.gz f42d72a8453f1fedd155d6c3a62acf245b54da930c9e15a504527f295d3831d1
  test/positive.csv.gz 4ac66408838e3a049dcb3a5c2e78160237af6d03f46eacc2082a85693ca254c8
  train/negative.csv.gz 3c0bebb5754b4789c77a9f6c7acccdc9a0e69d5a7bcc5a8f45f7c848fa9dcfba
  train/positive.csv.gz c878a094f035eeea2d0a353c0e6fd21fe9791f1d61f52f9d45d051c5017e1b64
gb_intervals/human_enhancers_ensembl/
  test/negative.csv.gz aa64649b6e9c758896d0a3c51ea4e1908fad978e26092032633abb88d11012cd
  test/positive.csv.gz c642664f6e2b4874ae5ccb4c1cfb5ae79c53b09bbb3ab017f23063e780bc21f0
  train/negative.csv.gz 5f941efbebaf8fb655b61b39692340a579c562bcdcc6146d6e476cb98a1c3546
  train/positive.csv.gz 849037a959214342195d4e6f7f9540ea15d7131a367bfe177a4f4217c0d35d58
gb_intervals/human_ensembl_regulatory/
  test/enhancer.csv.gz 9fda6ef997fe70a358a46c4ad0933d7539a9c96701731f1a8f99fe6d72c991e6
  test/ocr.csv.gz 8e2edd5e93048706e4b3c3abaec46c08dd2ca88d9214c70f27ae150cd6c8901a
  test/promoter.csv.gz 386e73cb4f02e9e77b1d28ae4a8a96f8277a08d6c4f990c0b0fb77e810530940
  train/enhancer.csv.gz c73d99042ad888721a222876b9d6ac1eb9ed31e4cadd60ecd770c69e065f247f
  train/ocr.csv.gz 4b920e2dc8abc50ecf2c7cb44f6addc3e4704943b8579adfab54c42d7af421ee
  train/promoter.csv.gz 688c883b91c297314c8d14f316d50926a70ae04f7c0f7501cffbe2e8e4455f0e
gb_intervals/human_nontata_promoters/
  test/negative.csv.gz 3dd480a549f5e4b12770038e4ecc7f55cbec8101aa89b146fa9c4546ff7fad84
  test/positive.csv.gz 062277be939aea6538fe5e8a84792916835707e303e833d5ac1e6263c7416894
  train/negative.csv.gz 44b93cc1eb1273645d4123078809d9012bed3933605f4da906723a971b5a730e
  train/positive.csv.gz 8d8824518233a49cd02d9854a28154078bc69f3509719855dd4127a9024a44c9
gb_intervals/human_ocr_ensembl/
  test/negative.csv.gz 496fbac5d9d20517ca77d693d196ce5cea26bf2c685f29bfc5dc53efe074636b
  test/positive.csv.gz 133a59bb3af0633fb79ba84cbd37bae2c2fac7ab0981c10e89cdf7c5cc1252db
  train/negative.csv.gz fab89f7eb09e77c3914f686647c56b1da14afba9c9fb19bc974c3756dab31139
  train/positive.csv.gz 498b7b696b0782e493ce470399c79f8f90455823bcf10d86da433e9653e9cd98
gue/prom_core_all/
  train.csv a36e0bbf2b59e01479bb904534d310041b493fec9221ccd74b518893d74054ed
  dev.csv 98dd5d2b5df3c93cad9fa0a4a36078d28fa95b7bf9ab73fb2e5ba1fa74877f2b
  test.csv b1babbb52abd0fb5328eccc4ce8ab60d0a58d28bdc88c30f8e2140cf1684ce0c
gue/prom_core_notata/
  train.csv 78bfa494d14fa12f3a661fbd37b8d252f3cf9edf4a8f98d60832fb56e6f9aab9
  dev.csv ced43fdbc8c76187fe0589dfeef07f4554c3374837236b80b02eea392795d548
  test.csv 1ef44c266ca1368e8b438f6b0565b865aa203de8e1c89fc513357311b58bf97c
gue/prom_core_tata/
  train.csv 6ff19d1296628f1ff30f663f154596aeda27e2c48b8d8c35926029a33c64d3fb
  dev.csv dcacb3b86726376899ad4023339ccaae04a9150f41c34268b4ab38e447316a70
  test.csv 35ba337b4f1f3ca53c5045d51ab6eaedbd382619527a38d4a41f5402015dbad4
gue/prom_300_tata/
  train.csv d0dd45bad89aee2564b8831d38a393989942d79b673203e7eb50e19ec8e6242e
  dev.csv 4de0f8163d964e4004f0a11036d9a9c5ec6fe2ad5953f962acf66150a2f44592
  test.csv 30432e9845277559043c2bb3bfed37b9bc7efc15748880f3adeeaddc16b76deb
gue/tf_0/
  train.csv 930080e019fb92961cbd71998839466c2fc4c34da8fc174999a2ed04ef46822f
  dev.csv 17ff638046d146102a86b727adc9ddead9f1f1793577a38961e1f3319da7f738
  test.csv d29934d0df424a91ef70f6a62671d9d1c4661b485d7010983b49c8bcfba6aeab
gue/tf_1/
  train.csv 29dc3c962cc4e4d7161238bb4d0b84583f7794b246a622f81bf30e83e3ae8685
  dev.csv fbffd591300e9ef192d131c139322cbe8e3fb87fae4f52236f64588d3975b8d1
  test.csv 8995d9d9176d56aa6e3a7014dfcf61ad45bc25a59fba1faca9864250ce42008a
gue/tf_2/
  train.csv 7f7483c2179242b6f42dd3578640e1496478e56e627e8fabd2ac79e088b1cbaa
  dev.csv 002168deb50cebb8dc94a9268e220d0ffa49068e4d9ae28b5873b74ba287c4a1
  test.csv 78de7c31aea4393b98387f6768cc9144fc912c9391c6b20d27028e355a95c4f1
gue/tf_3/
  train.csv c4191038363919af593d4f68428e00e6320e3a35902575f1c5c0828954e25a88
  dev.csv b878776f73bd503a371d1d8c0a77058da409ff3f3799901e017f764b07a0d0ef
  test.csv 56d8d76fdcf98c8a444b26794099ef26185872371f62a7565f602181dd533903
gue/mouse_0/
  train.csv 6f507b130c5a94c63f4a36748da66579cd682a34f7296ab08e4805ee75091a35
  dev.csv f44e2d3e29a778364d329cfef046deccdfb484c12af6dde7f04b7de8bcb8bf9a
  test.csv e2c54b74410f1d263f9dcba371f0d50b5f207960673e385cd4b95989e3e6d6be
gue/mouse_2/
  train.csv 23dbd0ca3b6153ffc9028ab05034abdc61aaf618bfa2d93e86f4bce798a0efde
  dev.csv b05b11fc0ca80aff8191dc5560a309c35c5e1ca014af138ec2bb640e821a4e04
  test.csv 09f08a1428c9e1b8076ad85582b5c302490fa05c86757c40470605cdfe047b50
genomes/
  yeast_R64-1-1.fa.gz 06ce55bae25c4efdabb3318dcd8d77cc226a52b9d722463a610c2260f31387b3
  yeast_R64-1-1.96.gtf.gz 03d0922fc974b00681c7ac30f5cc93794578ac193487a3e68b63270e378ba0ee
  ecoli_K12_MG1655.fna.gz 254606e2722f64ca0906dfc1d41bceac41be72c335627c23f831b007939c8a48
  ecoli_K12_MG1655.gff.gz f7da4447a53cd85a86438553cf28ac000f0cb36c4d9b01f41fee00715cc789e8
  human_hg19_chr1_first3Mb.fa.gz dfac870163eb1ceb440b853809f435017b7edf97205a8a6b9d9b90f037f2b355
  arabidopsis_1pct.fa 981007ff762bfe66b5ba627f4bcb4f828298c9fe0482a8505a25d659661e52b8
  drosophila_1pct.fa fbe979047de7bb954880a12ccc2ecc7399498976fbf9254a67264a89a533376d
  celegans_1pct_variants.vcf.gz 6fec33c907f4351392ba639a7b4648a7189a41986b868adc2c9e6d959470cbb9
  celegans_first1pct_MCB185.fa.gz 18c747265ab3493fbfe0d0dd4936b60d2a8f7d4c150184208d9b3bc9ee3469f2
"""
