"""What a fitted language model of DNA can be asked: bits per base, vectors, scores of variants, surprise."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from titans_core import TitansLM
from titans_core.checks import at_least
from titans_dna.embed import LAYERS, embed
from titans_dna.generate import written
from titans_dna.genome import Genome
from titans_dna.intervals import Interval
from titans_dna.masked import bits_of_hidden
from titans_dna.scoring import scored
from titans_dna.sources import InMemory, asked, cut, is_source, open_source, records
from titans_dna.stream import reading, stream
from titans_dna.surprise import bits_of, surprise_of
from titans_dna.tokenizer import encode
from titans_dna.variants import checked
from titans_dna.vcf import Variant, read_vcf, variants_of

if TYPE_CHECKING:
    from titans_dna.markov import MarkovModels

__all__ = ["Questions"]


class Questions:
    """The half of :class:`~titans_dna.DNALanguageModel` that reads with what the other half, ``fit``, has learned."""

    architecture: str
    batch_size: int
    device: str
    verbose: int
    model_: TitansLM
    objective_: str
    length_: int
    holdout_: list[str]

    def bits_per_base(
        self,
        source: Any,
        *,
        chroms: Iterable[str] | None = None,
        regions: Any = None,
        context: int | None = None,
    ) -> float:
        """Mean of ``-log2 P(base | all bases before it)`` over all known bases: 2 for a model that knows nothing.

        With ``objective="masked"`` a base is predicted from its whole window, on both sides, every seventh base hidden
        at a time: an easier question, whose bits are not to be compared with the others.

        Args:
            source: path of a FASTA file, a Genome, or a list of sequences.
            chroms: only these chromosomes; default all.
            regions: intervals, a frame of them, or a BED file, instead of whole chromosomes. Each is read by itself, on
                its strand, so a base that lies in two of them counts twice.
            context: None: every chromosome (region, sequence) is read in one stream, from its first base to its last,
                in constant memory. Else it is cut into windows of so many bases, each read anew. A memory may drift
                where a stream is far longer than the ``length`` it was trained on: compare the two. With
                "transformer", whose state grows with what it read, and with ``objective="masked"``, None means windows
                of ``length``.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: an unknown chromosome, a region off its end, no known base.
        """
        config = self._fitted().config
        genome = open_source(source)
        intervals = asked(genome, chroms, regions)
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
            raise ValueError(f"{genome.path.name} has no known base (A C G T) to score.")
        return total / count

    def score(self, source: Any, y: None = None, **where: Any) -> float:
        """Minus :meth:`bits_per_base`: higher is better, as sklearn wants it."""
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
        """Bits per base of this model on held-out chromosomes beside Markov models of the others, best first.

        Args:
            source: the genome of ``fit``.
            chroms: of those that were held out; default all of them.
            bed: the regions of ``fit``, if it was given any: the Markov models then count there only, too.
            max_order: highest order of the Markov models, counted on every chromosome that was not held out.
            markov: Markov models counted before, instead.
            context: of this model, as in :meth:`bits_per_base`.

        Returns:
            Columns ``model, bits_per_base``.

        Raises:
            ValueError: chromosomes that ``fit`` was not told to hold out; or a model of hidden bases, which sees both
                sides of a base where Markov models see one.
        """
        from titans_dna.markov import fit_markov

        self._fitted()
        if self.objective_ == "masked":
            raise ValueError("Markov models see one side of a base: compare a model with objective='next'.")
        genome = open_source(source)
        chroms = genome.named(self.holdout_ if chroms is None else chroms)
        if not chroms:
            raise ValueError("fit held out no chromosome, so there is none to compare on: fit with holdout=[...].")
        seen = [name for name in chroms if name not in self.holdout_]
        if seen:
            raise ValueError(
                f"fit was not told to hold out {seen}: scores there would flatter it. It held out {self.holdout_}."
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
        """A vector for each sequence, float32 [N, dim]: the mean of the last hidden states over its bases.

        A sequence's vector does not depend on the others, nor on padding. Sequences of any length are read in a stream,
        in constant memory but for "transformer".

        Args:
            sequences: strings, or a FASTA file or Genome, a record each; or intervals of ``genome``, a frame of them or
                a BED file, each read on its strand.
            genome: path of a FASTA file, or a Genome; for intervals.
            both_strands: the mean of the vectors of a sequence and of its reverse complement.
            layers: "last", or "all": what every block puts out too, and behind the means the standard deviations over
                the bases; float32 [N, 2 * (num_layers + 1) * dim]. It tells more to a regression on top.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: no sequence, an empty one, unknown letters or layers, intervals without a genome or off its end.
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
            intervals = asked(source, regions=sequences)
        with self._reading() as network:
            found = embed(network, source, intervals, self.batch_size, layers)
            if both_strands:
                found += embed(network, source, [_other(i) for i in intervals], self.batch_size, layers)
                found /= 2
        return found

    def score_variants(
        self,
        variants: str | os.PathLike[str] | pd.DataFrame | Variant | Iterable[Variant],
        genome: Any,
        *,
        context: int | None = 4096,
        context_after: int = 128,
        mismatch: Literal["error", "skip"] = "error",
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> pd.DataFrame:
        """``log P(alt) - log P(ref)`` of each variant in its place, in nats, the mean of both strands.

        Negative: the model finds the alternative allele less likely than the reference. SNVs and indels; each allele
        counts with ``context_after`` bases behind it. The likelihood is joint, and not divided by length. How memory is
        read once for neighbours is told in ``titans_dna.variants``.

        With ``objective="masked"`` the bases in question are hidden, and ``length`` bases around them are read; then
        there is no score for insertions and deletions (NaN, with a warning).

        Args:
            variants: path of a VCF file, in any order; a frame ``chrom, start, ref, alt`` (0-based); or variants as
                ``read_vcf`` gives them.
            genome: path of the FASTA file, or a Genome.
            context: at least so many bases before a variant are read, and at most twice as many; None: all, from the
                chromosome's end.
            context_after: bases behind the variant that count.
            mismatch: where REF is not what the genome holds: "error", or "skip": the score is NaN, with a warning that
                counts and shows them. Positions that are all off by one are an error in either case: some REF would
                agree by chance.
            checkpoint: a file to write scores to as they are found, tab-separated. If it holds some of this very call,
                only the others are read for; scores of any other call are refused. Without it an interrupted call keeps
                nothing.

        Returns:
            One row per alternative allele, in the order given: ``chrom, start, ref, alt, id, score``, 0-based. The
            score is NaN where an allele has an N. Alleles of a VCF that are no sequence (``<DEL>``, ``*``, IUPAC codes)
            or stand at POS 0 have no row: a warning counts them.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: an argument out of range, a bad VCF, an allele that is not of bases A C G T N, REF that
                disagrees with the genome, or a checkpoint of another call.
            KeyboardInterrupt: as it came; the message says what is kept.
        """
        self._fitted()
        if context is not None:
            at_least("context", context)
        at_least("context_after", context_after, 0)
        source = open_source(genome)
        if isinstance(variants, str | os.PathLike):
            variants = read_vcf(Path(variants))
        elif hasattr(variants, "columns"):
            variants = variants_of(variants)
        given, good = checked([variants] if isinstance(variants, Variant) else variants, source, mismatch)
        columns = {name: [getattr(v, name) for v in given] for name in ("chrom", "start", "ref", "alt", "id")}
        with self._reading() as network:
            scores = scored(self, network, source, given, good, context, context_after, checkpoint)
        return pd.DataFrame({**columns, "score": scores})

    def surprise(self, genome: Any, region: Interval | str, *, memory: bool = False) -> pd.DataFrame:
        """How surprising each base of a region is, read in one stream in constant memory ("transformer": memory grows).

        ``bits`` is the surprise of the model: ``-log2 P(base | all bases of the region before it)``, NaN at an N.
        ``memory`` is the surprise of its memory: the norm of the momentary surprise, the inner gradient that the base
        causes when it is read (mean over the memories and their heads; no unit, to compare within one model). It takes
        about two fifths longer, of a memory alone ("lmm") up to twice as long, of a deep one four to seven times.

        Args:
            genome: path of a FASTA file, or a Genome.
            region: an interval, read on its strand; or a chromosome's name, ``"IV"``, or ``"IV:1000-2000"``, 0-based
                half-open.
            memory: give the memory's surprise too.

        Returns:
            One row per base, by position: ``chrom, start, end, bits`` and ``memory``. To write it:
            ``titans_dna.tracks.write_bedgraph``; to draw it: ``plot_track``.

        Raises:
            NotFittedError: before ``fit``.
            ValueError: an unknown chromosome, a region off its end, ``memory`` of a model that has none, or a model of
                hidden bases, which reads nothing in one direction.
        """
        self._fitted()
        if self.objective_ == "masked":
            raise ValueError(
                "surprise is of a model that reads a stream: fit one with objective='next'. bits_per_base scores this."
            )
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
        """Write DNA: base after base, each drawn from what the model says of it after all bases before.

        The memory it takes does not grow with ``n_bases`` ("transformer": it does).

        Args:
            n_bases: to write.
            prompt: bases to go on from; they are read first, and are no part of what is returned. None: from nothing.
            n_sequences: write so many, side by side, and return a list.
            temperature: 1 draws as the model says; below 1 the likelier bases more often; 0 always takes the likeliest.
            random_state: seed of what is drawn; the same integer writes the same.

        Returns:
            A string of A, C, G and T; with ``n_sequences`` a list of them.

        Raises:
            NotFittedError: before ``fit``.
            TypeError: a prompt that is no string.
            ValueError: an argument out of range, an unknown letter, or a model of hidden bases.
        """
        self._fitted()
        if self.objective_ == "masked":
            raise ValueError(
                "generate is of a model of next bases: fit one with objective='next'. This one fills gaps, and writes "
                "nothing in one direction."
            )
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
                yield bits_of(network, piece.hidden, piece.following).double().cpu().numpy()

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
