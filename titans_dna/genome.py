"""A genome in a FASTA file: any stretch of it by coordinates, on either strand, and windows over all of it."""

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from titans_datasets.cache import user_cache
from titans_dna.fasta import FastaFiles, prepare
from titans_dna.intervals import Interval, only_intervals
from titans_dna.tokenizer import encode, reverse_complement, reverse_complement_ids

if TYPE_CHECKING:
    import numpy as np
    import pyfaidx
    from numpy.typing import NDArray

__all__ = ["Genome", "Window"]

# what the mitochondrion's chromosome is called, in lower case and without "chr"
_MITOCHONDRION = ("m", "mt", "mito", "mtdna")
_NOT_ACGT = str.maketrans("", "", "ACGTacgt")


class Window(NamedTuple):
    """One piece of a genome and where it lies; ``sequence`` is read on the interval's strand, in the file's case."""

    interval: Interval
    sequence: str


class Genome:
    """Random access to a FASTA file, plain, gzip or bgzip, through pyfaidx.

    Coordinates are 0-based half-open. A gzip is unpacked once into ``cache_dir``, an index is built once; the rules are
    in ``titans_dna.fasta``. Every process opens the file for itself, after a fork and after unpickling too, so that a
    genome may be given to the workers of a data loader.

    Args:
        path: the FASTA file.
        cache_dir: folder for unpacked copies, and for indexes that cannot lie beside their file; default ``genomes`` in
            the user's cache of titans_datasets.

    Attributes:
        lengths: bases per chromosome, in the file's order.

    Raises:
        FileNotFoundError, ValueError: no such file, or no FASTA that can be indexed; see ``titans_dna.fasta.prepare``.
    """

    lengths: dict[str, int]

    def __init__(self, path: str | os.PathLike[str], *, cache_dir: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path).expanduser().absolute()
        cache = Path(cache_dir).expanduser().absolute() if cache_dir is not None else user_cache() / "genomes"
        self._files: FastaFiles = prepare(self.path, cache)
        self._handle: pyfaidx.Faidx | None = None
        self._pid = -1
        self.lengths = {name: record.rlen for name, record in self._open().index.items()}
        if not any(self.lengths.values()):
            raise ValueError(f"{self.path} has no bases: {len(self.lengths)} sequence(s), all of length 0.")

    def interval(self, region: Interval | str) -> Interval:
        """A region as an interval: one stays as it is; a chromosome's name, ``"IV"``, or ``"IV:1000-2000"``, 0-based
        half-open, is read on strand ``"+"``.

        Raises:
            TypeError: something else.
            ValueError: an unknown chromosome, or text that is no region.
        """
        if isinstance(region, Interval):
            return region
        if not isinstance(region, str):
            raise TypeError(f"region must be an Interval or text such as 'IV:1000-2000', got {region!r:.40}.")
        chrom, _, span = region.rpartition(":")
        first, _, last = span.replace(",", "").partition("-")
        if region in self.lengths or not chrom:
            return Interval(region, 0, self._length(region), "+")
        if not (first.isdecimal() and last.isdecimal()):
            if chrom not in self.lengths:
                self._length(region)  # is a name with a colon, and none of these
            raise ValueError(f"region {region!r} is not understood; write 'IV' or 'IV:1000-2000' (0-based half-open).")
        return Interval(chrom, int(first), int(last), "+")

    def fetch(self, interval: Interval | str) -> str:
        """Bases of a region, as of :meth:`interval`, in the file's case; on strand ``"-"`` the reverse complement.

        Raises:
            TypeError: no region.
            ValueError: unknown chromosome (the message lists the nearest names), or an end beyond the chromosome's.
        """
        interval = self.interval(interval)
        self.check(interval)
        # pyfaidx counts from 1 and includes the end
        sequence: str = self._open().fetch(interval.chrom, interval.start + 1, interval.end)
        if len(sequence) != len(interval):
            raise ValueError(
                f"{self.path} was changed while it was open, or is damaged: {len(sequence)} bases at {interval}."
            )
        return reverse_complement(sequence) if interval.strand == "-" else sequence

    def ids(self, interval: Interval) -> "NDArray[np.uint8]":
        """Tokens of an interval (``titans_dna.encode``).

        Raises:
            ValueError: as :meth:`fetch`; or a letter that is no base, which is named with its place in the file.
        """
        forward = Interval(interval.chrom, interval.start, interval.end, "+")
        found = encode(self.fetch(forward), where=f"{interval.chrom} of {self.path.name}", start=interval.start)
        return reverse_complement_ids(found) if interval.strand == "-" else found

    def windows(
        self,
        length: int,
        stride: int | None = None,
        *,
        chroms: Iterable[str] | None = None,
        holdout: Iterable[str] | None = None,
        regions: Iterable[Interval] | None = None,
        max_n_fraction: float = 1.0,
        drop_last: bool = False,
        shard: tuple[int, int] = (0, 1),
    ) -> Iterator[Window]:
        """Windows in order, read one at a time: memory does not grow with the genome.

        Of each chromosome (or region) the first window begins at its first base, the next one ``stride`` further, and
        the last is the first that reaches the end, cut off there. A region on strand ``"-"`` is walked in its own
        direction, so that with ``stride=length`` the windows' sequences join to that of the region.

        Args:
            length: bases per window, 1 or more.
            stride: bases from one start to the next; default ``length``, so that the windows tile the chromosome.
            chroms: only these chromosomes; default all.
            holdout: not these.
            regions: walk these intervals instead of whole chromosomes; ``chroms`` and ``holdout`` hold for them too.
            max_n_fraction: leave out windows with a larger part of letters other than A C G T; 1 keeps all.
            drop_last: leave out windows that were cut off.
            shard: ``(i, n)``: only windows i, i + n, i + 2n, ... counted before any is left out. The n shards of n
                workers hold every window once.

        Raises:
            ValueError: a number out of range, an unknown chromosome, a region off its chromosome's end, or nothing
                left to walk.
        """
        stride = length if stride is None else stride
        if length < 1 or stride < 1:
            raise ValueError(f"length and stride must be 1 or more, got length={length}, stride={stride}.")
        if not 0 <= max_n_fraction <= 1:
            raise ValueError(f"max_n_fraction must be from 0 to 1, got {max_n_fraction}.")
        index, of = shard
        if not 0 <= index < of:
            raise ValueError(f"shard must be (i, n) with 0 <= i < n, got {shard}.")
        walked = self.regions(chroms, holdout, regions)
        return self._walk(walked, length, stride, max_n_fraction, drop_last, index, of)

    def close(self) -> None:
        """Close the file; it is opened again when next needed."""
        if self._handle is not None and self._pid == os.getpid():
            self._handle.close()
        self._handle = None

    def __enter__(self) -> "Genome":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = list(self.lengths)
        shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        return f"Genome({str(self.path)!r}: {len(names)} sequences ({shown}), {sum(self.lengths.values()):,} bases)"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handle": None, "_pid": -1}

    def _open(self) -> "pyfaidx.Faidx":
        # a handle inherited by a fork shares its position in the file with the parent: two readers would mix
        if self._handle is None or self._pid != os.getpid():
            self._handle, self._pid = self._files.open(), os.getpid()
        return self._handle

    def check(self, interval: Interval) -> None:
        """Raises ValueError for an interval off its chromosome's end, or of a chromosome that is not there."""
        size = self._length(interval.chrom)
        if interval.end > size:
            raise ValueError(
                f"{interval} ends beyond {interval.chrom}, which has {size} bases in {self.path.name} "
                f"(0-based, end exclusive: the last base is {size - 1}, {size})."
            )

    def _length(self, chrom: str) -> int:
        try:
            return self.lengths[chrom]
        except KeyError:
            pass
        names = list(self.lengths)
        raise ValueError(
            f"{self.path.name} has no chromosome {chrom!r}.{self.meant(chrom)}"
            f" It has {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}."
        )

    def meant(self, chrom: str) -> str:
        """A sentence with the names nearest to one that is not there; empty where none is near."""
        same = [name for name in self.lengths if _alike(name) == _alike(chrom)]
        near = same or get_close_matches(chrom, self.lengths, n=3, cutoff=0.5)
        return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""

    def named(self, chroms: Iterable[str] | None, what: str = "chroms") -> list[str]:
        """Names of chromosomes that a caller gave, checked; those of all where that is None.

        Raises:
            TypeError: a name that is no string.
            ValueError: one string instead of a list, or an unknown chromosome.
        """
        if chroms is None:
            return list(self.lengths)
        if isinstance(chroms, str):
            raise ValueError(f"{what} is one string, {chroms!r}; give a list of names: [{chroms!r}].")
        names = list(chroms)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{what} must hold names of chromosomes, strings, got {name!r}.")
            self._length(name)
        return names

    def left_out(self, holdout: Iterable[str] | None) -> list[str]:
        """As :meth:`named`, of chromosomes that are held out; None: none is."""
        return self.named(() if holdout is None else holdout, "holdout")

    def regions(
        self, chroms: Iterable[str] | None, holdout: Iterable[str] | None, regions: Iterable[Interval] | None
    ) -> list[Interval]:
        """The regions, or whole chromosomes, that are in ``chroms`` and not held out; arguments as of :meth:`windows`.

        Raises:
            ValueError: an unknown chromosome, a region off its chromosome's end, or nothing left.
        """
        wanted, left_out = self.named(chroms), self.left_out(holdout)
        kept = set(wanted) - set(left_out)
        if regions is None:
            walked = [Interval(n, 0, size, "+") for n, size in self.lengths.items() if n in kept and size]
        else:
            given = only_intervals(regions)
            for region in given:
                self.check(region)
            walked = [region for region in given if region.chrom in kept]
        if not walked:
            asked = "all chromosomes" if chroms is None else f"chroms={wanted}"
            if regions is not None:
                asked = f"{len(given)} regions" + ("" if chroms is None else f" and {asked}")
            without = f" without holdout={left_out}" if left_out else ""
            raise ValueError(f"{asked}{without} leave nothing of {self.path.name} to walk.")
        return walked

    def _walk(
        self,
        regions: list[Interval],
        length: int,
        stride: int,
        max_n_fraction: float,
        drop_last: bool,
        index: int,
        of: int,
    ) -> Iterator[Window]:
        number = -1
        for region in regions:
            for offset in range(0, len(region), stride):
                if offset and offset - stride + length >= len(region):
                    break  # the window before reached the end
                size = min(length, len(region) - offset)
                if drop_last and size < length:
                    continue
                number += 1
                if number % of != index:
                    continue
                start = region.end - offset - size if region.strand == "-" else region.start + offset
                place = Interval(region.chrom, start, start + size, region.strand, region.name)
                sequence = self.fetch(place)
                if max_n_fraction < 1 and len(sequence.translate(_NOT_ACGT)) > max_n_fraction * size:
                    continue
                yield Window(place, sequence)


def _alike(chrom: str) -> str:
    """The same for names of one chromosome in different files: chrIV and IV, chrM and MT, CHR1 and chr1."""
    bare = chrom.lower().removeprefix("chr")
    return _MITOCHONDRION[0] if bare in _MITOCHONDRION else bare
