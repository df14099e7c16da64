"""Scoring a list of variants with a progress bar and a file of scores, so that an interrupted call can be resumed."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from titans_core import TitansLM
from titans_core.train import digest_of
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import cut
from titans_dna.genomes.vcf import Variant
from titans_dna.inference.kept_scores import kept_scores

__all__ = ["identity_of", "scored"]

_BLOCK = 1 << 20  # bases read at once to identify a genome


def scored(
    variants: Sequence[Variant],
    scores_of: Callable[[list[Variant]], Iterator[tuple[int, float]]],
    checkpoint: str | os.PathLike[str] | None,
    identity: Mapping[str, Any],
    progress: bool,
) -> NDArray[np.float64]:
    """Compute the score of each variant, [V].

    Args:
        variants: the variants.
        scores_of: yields the index and score of each of the variants it is given, in any order.
        checkpoint: as in ``score_variants``.
        identity: identifies the call in the checkpoint; not used without one.
        progress: show a progress bar.

    Raises:
        ValueError: the checkpoint belongs to another call.
        KeyboardInterrupt: the call was interrupted; the message says what is kept.
    """
    done: dict[int, float] = {}
    with ExitStack() as opened:
        kept = None
        if checkpoint is not None:
            kept = opened.enter_context(kept_scores(checkpoint, identity, variants))
            done |= kept.found
        rest = [number for number in range(len(variants)) if number not in done]
        bar = opened.enter_context(tqdm(total=len(variants), initial=len(done), desc="Variants", disable=not progress))
        try:
            for at, score in scores_of([variants[number] for number in rest]):
                done[rest[at]] = score
                if kept is not None:
                    kept.add(rest[at], variants[rest[at]], score)
                bar.update()
        except KeyboardInterrupt:
            kept_now = (
                "Nothing is kept. Set checkpoint to a file to be able to resume."
                if kept is None
                else f"Scores are kept in {checkpoint}; repeat the call to resume."
            )
            raise KeyboardInterrupt(
                f"scoring was interrupted after {len(done)} of {len(variants)} variants. {kept_now}"
            ) from None
    return np.array([done[number] for number in range(len(variants))], dtype=np.float64)


def identity_of(
    network: TitansLM, genome: Genome, variants: Sequence[Variant], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What identifies a call, to recognise its scores: fingerprints of its inputs, and its settings."""
    sequence, listed = hashlib.sha256(), hashlib.sha256()
    for chrom in dict.fromkeys(variant.chrom for variant in variants):
        sequence.update(f"{chrom}\n".encode())
        for part in cut([Interval(chrom, 0, genome.lengths[chrom])], _BLOCK):
            sequence.update(genome.fetch(part).upper().encode())
    for v in variants:
        # the text of NumPy's numbers and strings has their type
        listed.update(f"{(str(v.chrom), int(v.start), str(v.ref), str(v.alt), str(v.id))}\n".encode())
    return {
        "model": digest_of(network),
        "genome": f"sha256:{sequence.hexdigest()}",
        "list of variants": f"sha256:{listed.hexdigest()}",
        **settings,
    }
