"""Inference methods of the language model: bits per base, embeddings, variant scores, surprise, generation."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from titans_core import TitansLM
from titans_core.checks import at_least
from titans_dna.genomes.genome import Genome
from titans_dna.genomes.intervals import Interval
from titans_dna.genomes.sources import InMemory, among, cut, intervals_of, is_source, open_source, records
from titans_dna.genomes.tokenizer import encode
from titans_dna.genomes.vcf import Variants, as_variants
from titans_dna.inference.embed import LAYERS, embed
from titans_dna.inference.generate import written
from titans_dna.inference.masked import BOTH_SIDES, bits_of_hidden, refuse_masked, warn_of_lengths
from titans_dna.inference.masked import variant_scores as masked_scores
from titans_dna.inference.scoring import identity_of, scored
from titans_dna.inference.surprise import bits_of, surprise_of
from titans_dna.inference.variants import checked, variant_scores
from titans_dna.network.stream import reading, stream

if TYPE_CHECKING:
    from titans_dna.markov import MarkovModels

__all__ = ["Questions"]


class Questions:
    """Inference methods of :class:`~titans_dna.DNALanguageModel`."""

    architecture: str
    batch_size: int
    device: str
    verbose: int
    model_: TitansLM
    objective_: str
    length_: int
    holdout_: list[str]
    read_: list[str]

    def bits_per_base(
        self,
        source: Any,
        *,
        chroms: Iterable[str] | None = None,
        regions: Any = None,
        context: int | None = None,
    ) -> float:
        """Compute the mean of ``-log2 P(base | all bases before it)`` over all known bases; 2 for a random guess.

        With ``objective="masked"``, each base is predicted from both sides within its window, with every seventh base
        hidden at a time. This task is easier, so do not compare the result with that of ``objective="next"``.

        Args:
            source: path of a FASTA file, a Genome, or a list of sequences.
            chroms: names of the chromosomes to score. Default: all.
            regions: intervals, a frame of them, or a BED file, to score instead of whole chromosomes. Each is read
                separately on its strand, so bases in two regions count twice.
            context: None reads each chromosome (region, sequence) as one stream, in constant memory. A number cuts it
                into windows of that many bases, each read independently. The memory may drift in streams much longer
                than the training ``length``, so compare both settings. For "transformer", whose state grows with the
                input, and for ``objective="masked"``, None means windows of ``length``.

        Raises:
            NotFittedError: the model is not fitted.
            ValueError: a chromosome is unknown; a region ends beyond its chromosome; or there is no known base.
        """
        config = self._fitted().config
        genome = open_source(source)
        intervals = intervals_of(genome, chroms, regions)
        if context is None and (self.objective_ == "masked" or config.architecture == "transformer"):
            context = self.length_
        if context is not None:
            at_least("context", context)
            intervals = cut(intervals, context)
        total, count = 0.0, 0
        with self._reading() as network:
            for bits in self._bits(network, genome, intervals):
                total += float(np.nansum(bits))
                count += int(np.isfinite(bits).sum())
        if count == 0:
            raise ValueError(f"{genome.path.name} has no known base (A, C, G or T) to score; check the selection.")
        return total / count

    def score(self, source: Any, y: None = None, **where: Any) -> float:
        """Return minus :meth:`bits_per_base`, so that higher is better, as scikit-learn expects."""
        return -self.bits_per_base(source, **where)

    def compare(
        self,
        source: Any,
        *,
        chroms: Iterable[str] | None = None,
        bed: Any = None,
        max_order: int = 12,
        markov: "MarkovModels | None" = None,
        context: int | None = None,
    ) -> pd.DataFrame:
        """Compare bits per base of this model and of Markov models on held-out chromosomes, sorted from best to worst.

        Args:
            source: the genome passed to ``fit``.
            chroms: names of held-out chromosomes to compare on. Default: all held-out chromosomes.
            bed: the regions passed to ``fit``, if any; the Markov models then only count these regions.
            max_order: highest order of the Markov models, which are counted on all chromosomes not held out.
            markov: fitted Markov models to use instead. Fit them with the same ``holdout``, so that they have not
                counted what they are scored on.
            context: window length for this model, as in :meth:`bits_per_base`.

        Returns:
            A DataFrame with the columns ``model, bits_per_base``.

        Raises:
            NotFittedError: the model is not fitted.
            ValueError: a chromosome was not held out in ``fit``, or was read by an earlier one; or the model has
                ``objective="masked"``: it sees both sides of a base, while Markov models see one.
        """
        from titans_dna.markov import fit_markov

        self._fitted()
        refuse_masked(self.objective_, "compare", BOTH_SIDES)
        genome = open_source(source)
        chroms = genome.named(self.holdout_ if chroms is None else chroms)
        if not chroms:
            raise ValueError("fit held out no chromosome to compare on. Fit again with holdout=[...].")
        other = [name for name in chroms if name not in self.holdout_]
        if other:
            raise ValueError(f"{other} was not held out by fit, which held out {self.holdout_}: compare on those.")
        read = among(genome, chroms, self.read_)
        if read:
            raise ValueError(
                f"{read} was not held out in each fit, or is the same sequence as one that was read, so scores there "
                "would be too good."
            )
        markov = fit_markov(genome, max_order, bed=bed, holdout=self.holdout_) if markov is None else markov
        found = markov.bits_per_base(genome, chroms=chroms).melt("order", var_name="kind", value_name="bits_per_base")
        found["model"] = "Markov-" + found["order"].astype(str) + " " + found["kind"]
        bits = self.bits_per_base(genome, chroms=chroms, context=context)
        own = pd.DataFrame({"model": [self.architecture], "bits_per_base": [bits]})
        both = pd.concat([own, found[["model", "bits_per_base"]]], ignore_index=True)
        return both.sort_values("bits_per_base", ignore_index=True, kind="stable")

    def embed(
        self,
        sequences: Any,
        *,
        genome: Any = None,
        both_strands: bool = False,
        layers: Literal["last", "all"] = "last",
    ) -> NDArray[np.float32]:
        """Compute an embedding of each sequence, float32 [N, dim]: the mean of the last hidden states over its bases.

        The embedding of a sequence does not depend on the other sequences or on padding. Sequences are read as streams,
        so memory use does not depend on their length (except for "transformer").

        Args:
            sequences: strings; a FASTA file or a Genome, with one embedding per record; or intervals of ``genome`` (a
                list, a frame or a BED file), each read on its strand.
            genome: path of a FASTA file, or a Genome; required for intervals.
            both_strands: average the embeddings of each sequence and its reverse complement.
            layers: "last", or "all": means of the outputs of all blocks as well, followed by the standard deviations,
                float32 [N, 2 * (num_layers + 1) * dim]. "all" is more informative for a linear model on top.

        Raises:
            NotFittedError: the model is not fitted.
            ValueError: there is no sequence; a sequence is empty or has unknown letters; ``layers`` is unknown; or
                intervals have no genome, or end beyond their chromosome.
        """
        self._fitted()
        if layers not in LAYERS:
            raise ValueError(f"layers must be one of {LAYERS}, got {layers!r}.")
        if genome is None:
            alone = isinstance(sequences, str | Interval) and not is_source(sequences)
            source = open_source(sequences) if is_source(sequences) else InMemory([sequences] if alone else sequences)
            intervals = records(source)
        else:
            source = open_source(genome)
            intervals = intervals_of(source, regions=sequences)
        with self._reading() as network:
            found = embed(network, source, intervals, self.batch_size, layers)
            if both_strands:
                found += embed(network, source, [_other(i) for i in intervals], self.batch_size, layers)
                found /= 2
        return found

    def score_variants(
        self,
        variants: Variants,
        genome: Any,
        *,
        context: int | None = 4096,
        context_after: int = 128,
        mismatch: Literal["error", "skip"] = "error",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> pd.DataFrame:
        """Compute ``log P(alt) - log P(ref)`` of each variant in its genomic context, in nats, averaged over strands.

        A negative score means that the model finds the alternative allele less likely than the reference. SNVs and
        indels are scored, each allele together with ``context_after`` bases after it. The joint likelihood is not
        normalised by length. For the algorithm, see ``titans_dna.inference.variants``.

        With ``objective="masked"``, the variant's bases are hidden and ``length`` bases around them are read.
        Insertions and deletions then have no score (NaN, with a warning).

        Args:
            variants: path of a VCF file, in any order; a frame with the columns ``chrom, start, ref, alt`` (0-based);
                or variants as returned by ``read_vcf``.
            genome: path of the FASTA file, or a Genome.
            context: minimum number of bases read before a variant; at most twice as many are read. None reads all bases
                before it.
            context_after: number of scored bases after the variant.
            mismatch: what to do if REF does not match the genome: "error" raises, "skip" gives NaN with a warning that
                shows examples. If nearly all positions are off by one, an error is raised in both cases, because some
                would match by chance.
            checkpoint: tab-separated file to which scores are written as they are computed. If it holds scores of the
                same call, only the missing ones are computed; scores of another call raise an error. If None, an
                interrupted call keeps nothing.

        Returns:
            A DataFrame with one row per alternative allele, in the given order: ``chrom, start, ref, alt, id, score``
            (0-based). The index of a pandas frame of variants is kept. The score is NaN if an allele contains N.
            Alleles of a VCF file that are not sequences (``<DEL>``, ``*``, IUPAC codes) or are at POS 0 have no row; a
            warning counts them.

        Raises:
            NotFittedError: the model is not fitted.
            ValueError: an argument is out of range; the VCF file is invalid; an allele is not made of A, C, G, T and N;
                REF does not match the genome; or the checkpoint belongs to another call.
            KeyboardInterrupt: the call was interrupted; the message says what is kept.
        """
        self._fitted()
        if context is not None:
            at_least("context", context)
        at_least("context_after", context_after, 0)
        source = open_source(genome)
        given, good = checked(as_variants(variants), source, mismatch)
        columns = {name: [getattr(v, name) for v in given] for name in ("chrom", "start", "ref", "alt", "id")}
        some = [variant for variant, fits in zip(given, good, strict=True) if fits]
        scores = np.full(len(given), np.nan)
        with self._reading() as network:
            if self.objective_ == "masked":
                warn_of_lengths(some)
                scores_of = partial(masked_scores, network, source, length=self.length_, batch_size=self.batch_size)
            else:
                scores_of = partial(
                    variant_scores,
                    network,
                    source,
                    context=context,
                    context_after=context_after,
                    batch_size=self.batch_size,
                )
            identity = {}
            if checkpoint is not None:
                settings = {"objective": self.objective_, "length": self.length_}
                settings |= {"context": context, "context_after": context_after}
                identity = identity_of(network, source, some, settings)
            scores[good] = scored(some, scores_of, checkpoint, identity, progress=bool(self.verbose))
        index = variants.index if isinstance(variants, pd.DataFrame) else None
        return pd.DataFrame({**columns, "score": scores}, index=index)

    def surprise(self, genome: Any, region: Interval | str, *, memory: bool = False) -> pd.DataFrame:
        """Compute how surprising each base of a region is, reading it as one stream.

        Memory use does not depend on the region's length (except for "transformer"). ``bits`` is the surprise of the
        model, ``-log2 P(base | all bases of the region before it)``, NaN at an N. ``memory`` is the surprise of the
        neural memory: the norm of the momentary surprise (the inner gradient caused by reading the base), averaged over
        memories and heads. It has no unit; compare it only within one model. Computing it takes about 40 % longer, up
        to twice as long with "lmm", and four to seven times as long with a deep memory.

        Args:
            genome: path of a FASTA file, or a Genome.
            region: an interval, read on its strand; or text: a chromosome name, ``"IV"``, or ``"IV:1000-2000"``
                (0-based half-open).
            memory: also return the surprise of the memory.

        Returns:
            A DataFrame with one row per base, sorted by position: ``chrom, start, end, bits`` and, if requested,
            ``memory``. Write it with ``write_bedgraph``, plot it with ``plot_track``.

        Raises:
            NotFittedError: the model is not fitted.
            ValueError: a chromosome is unknown; the region ends beyond its chromosome; ``memory`` is requested from a
                model without a memory; or the model has ``objective="masked"``.
        """
        self._fitted()
        why = "; this one has objective='masked'. Use bits_per_base, or fit another model."
        refuse_masked(self.objective_, "surprise", why)
        source = open_source(genome)
        interval = source.interval(region)
        source.check(interval)  # before anything is read
        with self._reading() as network:
            found = surprise_of(network, source, interval, memory)
        if interval.strand == "-":
            found = {name: values[::-1] for name, values in found.items()}
        start = np.arange(interval.start, interval.end)
        chrom = pd.Series([interval.chrom], dtype="category").repeat(len(start)).array
        return pd.DataFrame({"chrom": chrom, "start": start, "end": start + 1, **found})

    def generate(
        self,
        n_bases: int = 1000,
        prompt: str | None = None,
        *,
        n_sequences: int | None = None,
        temperature: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> str | list[str]:
        """Generate DNA: each base is drawn from the model's distribution given all bases before it.

        Memory use does not depend on ``n_bases`` (except for "transformer").

        Args:
            n_bases: number of bases to generate.
            prompt: bases to continue from; they are not part of the result. None starts without a prompt.
            n_sequences: number of sequences to generate in parallel; the result is then a list.
            temperature: 1 samples from the model's distribution; lower values favour likely bases; 0 always takes the
                most likely base.
            random_state: random seed. The same integer gives the same sequences.

        Returns:
            A string of A, C, G and T, or a list of strings if ``n_sequences`` is given.

        Raises:
            NotFittedError: the model is not fitted.
            TypeError: the prompt is not a string.
            ValueError: an argument is out of range; the prompt has an unknown letter; or the model has
                ``objective="masked"``.
        """
        self._fitted()
        why = "; this one has objective='masked' and cannot predict from one side only. Fit another model."
        refuse_masked(self.objective_, "generate", why)
        at_least("n_bases", n_bases)
        if n_sequences is not None:
            at_least("n_sequences", n_sequences)
        if prompt is not None and not isinstance(prompt, str):
            raise TypeError(f"prompt must be a string of bases or None, got {type(prompt).__name__} ({prompt!r:.40}).")
        before = encode(prompt or "", where="prompt")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        with self._reading() as network:
            found = written(network, before, int(n_bases), int(n_sequences or 1), temperature, seed)
        return found[0] if n_sequences is None else found

    def _bits(self, network: TitansLM, genome: Genome, intervals: list[Interval]) -> Iterator[NDArray[np.float64]]:
        if self.objective_ == "masked":
            yield from bits_of_hidden(network, genome, intervals, self.batch_size)
        else:
            for piece in stream(network, genome, intervals, batch_size=self.batch_size):
                yield bits_of(network, piece.hidden, piece.following).cpu().double().numpy()

    @contextmanager
    def _reading(self) -> Iterator[TitansLM]:
        with reading(self._fitted(), self.device) as network, torch.no_grad():
            yield network

    def _fitted(self) -> TitansLM:
        check_is_fitted(self, "model_")
        model: TitansLM = self.model_
        return model


def _other(interval: Interval) -> Interval:
    strand = "+" if interval.strand == "-" else "-"
    return Interval(interval.chrom, interval.start, interval.end, strand, interval.name)
