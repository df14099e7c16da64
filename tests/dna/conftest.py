"""Small genomes made in the test, and the real ones where they are at hand."""

import gzip

import numpy as np
import pytest

from titans_dna import Genome

WIDTH = 60


def random_bases(n, seed=0):
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), n))


def fasta_text(records, width=WIDTH):
    """FASTA of a dict of name to bases."""
    lines = []
    for name, bases in records.items():
        lines.append(f">{name} described")
        lines += [bases[i : i + width] for i in range(0, len(bases), width)]
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
    one = random_bases(1000, 1)
    return {
        "chrI": one[:300] + one[300:400].lower() + one[400:],
        "chrII": random_bases(200, 2) + "N" * 100 + random_bases(123, 3),
        "chrIII": random_bases(2 * WIDTH, 4),
    }


@pytest.fixture
def genome(write_fasta, records, tmp_path):
    return Genome(write_fasta(records), cache_dir=tmp_path / "cache")


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
            with pytest.warns(UserWarning, match="is unpacked once"):
                opened[name] = Genome(load_genome(name, download=False).fasta, cache_dir=cache)
        return opened[name]

    return get
