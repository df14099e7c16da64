"""DNA on the Titans neural memory: sequences, genomes, intervals and variants.

Coordinates are 0-based and half-open everywhere. Attributes are imported when first used, so that
``import titans_dna`` alone loads neither numpy nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from titans_dna.classification.sequences import read_sequences
    from titans_dna.classifier import TitansDNAClassifier
    from titans_dna.genomes.genome import Genome
    from titans_dna.genomes.intervals import Interval, from_frame, read_bed, read_gff
    from titans_dna.genomes.reference import check_reference
    from titans_dna.genomes.tokenizer import decode, encode, encode_batch, reverse_complement
    from titans_dna.genomes.tracks import plot_track, write_bedgraph
    from titans_dna.genomes.vcf import Variant, read_vcf
    from titans_dna.interpret import attribute
    from titans_dna.language import DNALanguageModel
    from titans_dna.logo import plot_logo
    from titans_dna.markov import fit_markov
    from titans_dna.mixing import Mixture, fit_mixture

__all__ = [
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

_HOME = {
    "DNALanguageModel": "titans_dna.language",
    "Genome": "titans_dna.genomes.genome",
    "Interval": "titans_dna.genomes.intervals",
    "Mixture": "titans_dna.mixing",
    "TitansDNAClassifier": "titans_dna.classifier",
    "Variant": "titans_dna.genomes.vcf",
    "attribute": "titans_dna.interpret",
    "check_reference": "titans_dna.genomes.reference",
    "decode": "titans_dna.genomes.tokenizer",
    "encode": "titans_dna.genomes.tokenizer",
    "encode_batch": "titans_dna.genomes.tokenizer",
    "fit_markov": "titans_dna.markov",
    "fit_mixture": "titans_dna.mixing",
    "from_frame": "titans_dna.genomes.intervals",
    "plot_logo": "titans_dna.logo",
    "plot_track": "titans_dna.genomes.tracks",
    "read_bed": "titans_dna.genomes.intervals",
    "read_gff": "titans_dna.genomes.intervals",
    "read_sequences": "titans_dna.classification.sequences",
    "read_vcf": "titans_dna.genomes.vcf",
    "reverse_complement": "titans_dna.genomes.tokenizer",
    "write_bedgraph": "titans_dna.genomes.tracks",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
