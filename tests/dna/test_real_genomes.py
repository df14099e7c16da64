"""Published genomes, their genes and their variants."""

from collections import Counter

import pytest

from titans_datasets.dna import load_genome
from titans_dna import DNALanguageModel, Interval, check_reference, encode, read_bed, read_gff, read_vcf

pytestmark = pytest.mark.real_data


def test_yeast_has_its_chromosomes(real_genome):
    yeast = real_genome("yeast")
    assert len(yeast.lengths) == 17
    assert sum(yeast.lengths.values()) == 12_157_105
    assert yeast.lengths["IV"] == 1_531_933
    with pytest.raises(ValueError, match=r"no chromosome 'chrIV'\. Did you mean 'IV'\?"):
        yeast.fetch(Interval("chrIV", 0, 1))


STREAM = """
import sys
from pathlib import Path
import torch
from titans_dna import DNALanguageModel, Genome

torch.set_num_threads(1)
genome, model = Genome(sys.argv[1]), DNALanguageModel.load(sys.argv[2])


def read(**selected):
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    return model.bits_per_base(genome, **selected), megabytes("VmHWM")


read(regions=genome.interval("IV:0-5000"))  # what is imported and allocated once
_, part = read(regions=genome.interval("IV:0-50000"))
bits, whole = read(chroms=["I"])
print(bits, whole - part)
"""


@pytest.mark.slow
def test_a_whole_chromosome_is_one_stream_in_constant_memory(real_genome, measured, tmp_path):
    small = dict(architecture="lmm", dim=32, num_layers=1, num_heads=2, length=64, batch_size=8, max_steps=1, verbose=0)
    DNALanguageModel(**small).fit(["ACGT" * 500]).save(tmp_path / "model")  # here, where Lightning is imported
    bits, growth = measured(STREAM, str(real_genome("yeast")._files.file), str(tmp_path / "model"))
    assert 1.9 < bits < 2.5  # of a model that learned nothing, over 230,000 bases
    assert growth < 10  # one activation for each base more is 23; what malloc holds back differs by up to 3.7


def test_windows_over_yeast_hold_every_base(real_genome):
    yeast = real_genome("yeast")
    assert sum(len(w.sequence) for w in yeast.windows(4096, holdout=["IV"])) == 12_157_105 - 1_531_933
    chromosome = "".join(w.sequence for w in yeast.windows(1000, chroms=["IV"]))
    assert len(chromosome) == 1_531_933
    assert (encode(chromosome) < 4).all()


def test_yeast_genes_begin_with_a_start_and_end_with_a_stop_codon(real_genome, real_data):
    """Coordinates and strands of the GTF match the FASTA; nothing is off by one."""
    yeast, gtf = real_genome("yeast"), load_genome("yeast", download=False).annotation
    starts = Counter(yeast.fetch(i) for i in read_gff(gtf, "start_codon") if i.chrom != "Mito" and len(i) == 3)
    stops = Counter(yeast.fetch(i) for i in read_gff(gtf, "stop_codon") if len(i) == 3)
    assert starts["ATG"] > 0.999 * starts.total()
    assert set(stops) == {"TAA", "TAG", "TGA"}


def test_a_gene_in_bed_is_the_gene_in_gtf(real_data, tmp_path):
    genes = read_gff(load_genome("yeast", download=False).annotation)
    assert genes[0] == Interval("IV", 1801, 2953, "+", "YDL248W")
    path = tmp_path / "genes.bed"
    path.write_text("".join(f"{g.chrom}\t{g.start}\t{g.end}\t{g.name}\t0\t{g.strand}\n" for g in genes))
    assert read_bed(path, require_strand=True) == genes


def test_genes_of_ecoli_lie_on_its_chromosome(real_genome, real_data):
    ecoli, files = real_genome("ecoli"), load_genome("ecoli", download=False)
    assert ecoli.lengths == {"NC_000913.3": 4_641_652}
    coding = read_gff(files.annotation, "CDS")
    starts = Counter(ecoli.fetch(i)[:3] for i in coding)
    assert sum(starts[codon] for codon in ("ATG", "GTG", "TTG")) > 0.99 * starts.total()


def test_n_of_human_chr1_is_left_out(real_genome):
    human = real_genome("human_hg19_chr1_3mb")
    kept = sum(len(w.sequence) for w in human.windows(1000, max_n_fraction=0))
    assert 3_004_950 - 210_000 - 20_000 < kept <= 3_004_950 - 210_000
    assert any(base.islower() for base in human.fetch(Interval("chr1", 20_000, 21_000)))


def test_ref_of_the_worm_variants_agrees_except_for_ten(real_genome, real_data):
    with pytest.warns(UserWarning, match="does not begin with ##fileformat"):
        variants = list(read_vcf(load_genome("celegans_1pct", download=False).variants))
    check = check_reference(variants, real_genome("celegans_1pct"))
    assert (check.n, check.matching, check.absent) == (8713, 8703, 0)
    assert "REF does not match the genome in 10 of 8713 variants" in str(check)
