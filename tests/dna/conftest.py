"""Small genomes made in the test, and the real ones where they are at hand."""

import gzip

import pytest
from random_dna import bases

from titans_dna import Genome

WIDTH = 60


def fasta_text(records, width=WIDTH):
    """FASTA of a dict of name to bases."""
    lines = []
    for name, sequence in records.items():
        lines.append(f">{name} described")
        lines += [sequence[i : i + width] for i in range(0, len(sequence), width)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def write_fasta(tmp_path):
    def write(records, name="genome.fa"):
        path = tmp_path / name
        text = fasta_text(records).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path

    return write


@pytest.fixture
def records():
    """Three chromosomes: mixed case, a stretch of N, and one that ends on a full line."""
    one = bases(1000, 1)
    return {
        "chrI": one[:300] + one[300:400].lower() + one[400:],
        "chrII": bases(200, 2) + "N" * 100 + bases(123, 3),
        "chrIII": bases(2 * WIDTH, 4),
    }


@pytest.fixture
def genome(write_fasta, records, tmp_path):
    return Genome(write_fasta(records), cache_dir=tmp_path / "cache")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder that ``~`` stands for, which is not the working folder."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def open_genome(tmp_path):
    return lambda path: Genome(path, cache_dir=tmp_path / "cache")


@pytest.fixture(scope="session")
def real_genome(real_data, tmp_path_factory):
    """``real_genome("yeast")``: unpacked once per session, away from the read-only data."""
    from titans_datasets.dna import load_genome

    cache = tmp_path_factory.mktemp("genomes")
    opened = {}

    def get(name):
        if name not in opened:
            with pytest.warns(UserWarning, match="is decompressed once"):
                opened[name] = Genome(load_genome(name, download=False).fasta, cache_dir=cache)
        return opened[name]

    return get
