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
def test_names_load_only_what_they_need_and_are_not_shadowed_by_submodules():
    code = """
import sys
loaded = lambda *modules: [m for m in modules if m in sys.modules]
from titans_dna import encode, Genome, read_vcf, read_bed
print(loaded("torch", "pandas", "sklearn"))
from titans_dna import DNALanguageModel, TitansDNAClassifier  # untrained
print(loaded("lightning", "optuna", "matplotlib", "torch._dynamo"))
from titans_dna import *
print(reverse_complement("AAC"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "[]", "GTT"]
