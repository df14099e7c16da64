"""Scoring a list of variants with a progress bar and a file of scores, so that an interrupted call can be resumed."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from titans_core import TitansLM
from titans_core.train import digest_of
from titans_datasets.warn import warn_caller
from titans_dna import masked
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.kept_scores import kept_scores
from titans_dna.sources import cut
from titans_dna.variants import variant_scores
from titans_dna.vcf import Variant

if TYPE_CHECKING:
    from titans_dna.questions import Questions

__all__ = ["scored"]

_BLOCK = 1 << 20  # bases read at once to identify a genome


def scored(
    model: "Questions",
    network: TitansLM,
    genome: Genome,
    variants: Sequence[Variant],
    good: NDArray[np.bool_],
    context: int | None,
    context_after: int,
    checkpoint: str | os.PathLike[str] | None,
) -> NDArray[np.float64]:
    """Compute scores, [V], of the variants selected by ``good``; NaN for the others and those without a score.

    Args:
        model: the model to which ``network`` belongs.
        network: the network, ready for inference.
        context, context_after, checkpoint: as in ``score_variants``.

    Raises:
        ValueError: the checkpoint belongs to another call.
        KeyboardInterrupt: the call was interrupted; the message says what is kept.
    """
    usable = np.flatnonzero(good).tolist()
    lengths = sum(len(variants[i].ref) != len(variants[i].alt) for i in usable)
    if lengths and model.objective_ == "masked":
        warn_caller(
            f"{lengths} of {len(usable)} variants are not scored: they are insertions or deletions, which need a model "
            "with objective='next'."
        )
    some = [variants[i] for i in usable]
    done: dict[int, float] = {}  # by index in ``some``
    with ExitStack() as opened:
        kept = None
        if checkpoint is not None:
            identity = _identity(model, genome, some)
            identity |= {"context": context, "context_after": context_after}
            kept = opened.enter_context(kept_scores(checkpoint, identity, some))
            done |= kept.found
        rest = [number for number in range(len(some)) if number not in done]
        bar = opened.enter_context(
            tqdm(total=len(usable), initial=len(done), desc="Variants", disable=model.verbose < 1)
        )
        try:
            for at, score in _found(model, network, genome, [some[i] for i in rest], context, context_after):
                done[rest[at]] = score
                if kept is not None:
                    kept.add(rest[at], some[rest[at]], score)
                bar.update()
        except KeyboardInterrupt:
            kept_now = (
                "Nothing is kept. Set checkpoint to a file to be able to resume."
                if kept is None
                else f"Scores are kept in {checkpoint}; repeat the call to resume."
            )
            raise KeyboardInterrupt(
                f"scoring was interrupted after {len(done)} of {len(usable)} variants. {kept_now}"
            ) from None
    scores = np.full(len(variants), np.nan)
    scores[[usable[number] for number in done]] = list(done.values())
    return scores


def _found(
    model: "Questions",
    network: TitansLM,
    genome: Genome,
    variants: Sequence[Variant],
    context: int | None,
    context_after: int,
) -> Iterator[tuple[int, float]]:
    if model.objective_ == "masked":
        return masked.variant_scores(network, genome, variants, model.length_, model.batch_size)
    return variant_scores(
        network, genome, variants, context=context, context_after=context_after, batch_size=model.batch_size
    )


def _identity(model: "Questions", genome: Genome, variants: Sequence[Variant]) -> dict[str, Any]:
    """What identifies a call, to recognise its scores."""
    sequence, listed = hashlib.sha256(), hashlib.sha256()
    for chrom in dict.fromkeys(variant.chrom for variant in variants):
        sequence.update(f"{chrom}\n".encode())
        for part in cut([Interval(chrom, 0, genome.lengths[chrom])], _BLOCK):
            sequence.update(genome.fetch(part).upper().encode())
    for variant in variants:
        listed.update(f"{astuple(variant)}\n".encode())
    return {
        "model": digest_of(model.model_),
        "objective": model.objective_,
        "length": model.length_,
        "genome": f"sha256:{sequence.hexdigest()}",
        "list of variants": f"sha256:{listed.hexdigest()}",
    }
