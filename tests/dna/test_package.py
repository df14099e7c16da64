"""The public names of titans_dna."""

import subprocess
import sys

import pytest

import titans_dna


def test_the_public_names_are_fixed():
    assert titans_dna.__all__ == [
        "DNALanguageModel",
        "Genome",
        "Interval",
        "Mixture",
        "TitansDNAClassifier",
        "Variant",
        "attribute",
        "check_reference",
        "decode",
        "encode",
        "encode_batch",
        "fit_markov",
        "fit_mixture",
        "from_frame",
        "plot_logo",
        "plot_track",
        "read_bed",
        "read_gff",
        "read_sequences",
        "read_vcf",
        "reverse_complement",
        "write_bedgraph",
    ]
    assert all(hasattr(titans_dna, name) for name in titans_dna.__all__)


def test_importing_is_fast_and_silent():
    code = (
        "import sys, titans_dna\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'pyfaidx', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "unneeded"),
    [
        ("encode, Genome, read_vcf, read_bed", ("torch", "pandas", "sklearn")),
        ("DNALanguageModel, TitansDNAClassifier", ("lightning", "optuna", "matplotlib", "torch._dynamo")),  # untrained
    ],
)
def test_names_load_only_what_they_need(names, unneeded):
    code = f"import sys\nfrom titans_dna import {names}\nprint([m for m in {unneeded} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_public_functions_are_not_shadowed_by_imported_submodules():
    code = (
        "import titans_dna.classifier, titans_dna.language; from titans_dna import *; print(reverse_complement('AAC'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "GTT"
