"""The public face of titans_dna."""

import subprocess
import sys

import titans_dna


def test_the_public_names_are_few_and_pinned():
    assert titans_dna.__all__ == [
        "DNALanguageModel",
        "Genome",
        "Interval",
        "TitansDNAClassifier",
        "Variant",
        "attribute",
        "check_reference",
        "decode",
        "encode",
        "encode_batch",
        "fit_markov",
        "fit_mixture",
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


def test_importing_is_cheap_and_silent():
    code = (
        "import sys, titans_dna\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'pyfaidx', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_sequences_and_genomes_need_no_torch():
    code = (
        "import sys\n"
        "from titans_dna import encode, Genome, read_vcf, read_bed\n"
        "print([m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_estimators_need_no_lightning_before_they_train():
    code = (
        "import sys\n"
        "from titans_dna import DNALanguageModel, TitansDNAClassifier\n"
        "print([m for m in ('lightning', 'optuna', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_stays_what_it_is_whatever_else_is_imported():
    code = (
        "import titans_dna.classifier, titans_dna.language; from titans_dna import *; print(reverse_complement('AAC'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "GTT"
