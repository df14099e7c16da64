"""Access to a genome in a FASTA file: sequences by coordinates, on either strand, and windows."""

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from titans_core.checks import at_least
from titans_dna.genomes.fasta import FastaFiles, named_if_damaged, prepare
from titans_dna.genomes.intervals import Interval, only_intervals
from titans_dna.genomes.tokenizer import encode, reverse_complement, reverse_complement_ids

if TYPE_CHECKING:
    import numpy as np
    import pyfaidx
    from numpy.typing import NDArray

__all__ = ["Genome", "Window"]

# names of the mitochondrial chromosome, in lower case and without "chr"
_MITOCHONDRION = ("m", "mt", "mito", "mtdna")
_NOT_ACGT = str.maketrans("", "", "ACGTacgt")


class Window(NamedTuple):
    """A window of a genome: its interval, and its sequence on the interval's strand, in the case of the file."""

    interval: Interval
    sequence: str


class Genome:
    """Random access to a FASTA file, plain, gzip or bgzip, through pyfaidx.

    Coordinates are 0-based half-open. A gzip file is decompressed once into ``cache_dir``, and an index is built once;
    see ``titans_dna.genomes.fasta``. Each process opens the file itself, also after a fork or unpickling, so a genome
    can be passed to the workers of a data loader.

    Args:
        path: the FASTA file.
        cache_dir: folder for decompressed files, and for indexes that cannot be written beside their file. Default:
            ``genomes`` in the data home of titans_datasets (``TITANS_DATA_HOME``, else the user's cache), or in the
            user's cache if the data home cannot be written to.

    Attributes:
        lengths: number of bases of each chromosome, in the order of the file.

    Raises:
        FileNotFoundError, IsADirectoryError: the file does not exist, or is a folder.
        PermissionError: ``cache_dir`` is needed and cannot be written to.
        ValueError: the file is not a FASTA file that can be indexed; see ``titans_dna.genomes.fasta.prepare``.
    """

    lengths: dict[str, int]

    def __init__(self, path: str | os.PathLike[str], *, cache_dir: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path).expanduser().absolute()
        cache = None if cache_dir is None else Path(cache_dir).expanduser().absolute()
        self._files: FastaFiles = prepare(self.path, cache)
        self._handle: pyfaidx.Faidx | None = None
        self._pid = -1
        self.lengths = {name: record.rlen for name, record in self._open().index.items()}
        if not any(self.lengths.values()):
            raise ValueError(f"{self.path} contains no bases: all {len(self.lengths)} sequence(s) are empty.")

    def interval(self, region: Interval | str) -> Interval:
        """Convert a region to an interval.

        An Interval is returned unchanged. Text is a chromosome name, ``"IV"``, or ``"IV:1000-2000"`` (0-based
        half-open), on strand ``"+"``.

        Raises:
            TypeError: the region is neither an Interval nor a string.
            ValueError: the chromosome is unknown or has no bases, or the text is not a region.
        """
        if isinstance(region, Interval):
            return region
        if not isinstance(region, str):
            raise TypeError(f"region must be an Interval or text such as 'IV:1000-2000', got {region!r:.40}.")
        chrom, _, span = region.rpartition(":")
        first, _, last = span.replace(",", "").partition("-")
        if region in self.lengths or not chrom:
            size = self._length(region)
            if size == 0:
                raise ValueError(f"{region} of {self.path.name} has no bases; leave it out.")
            return Interval(region, 0, size, "+")
        if not (first.isdecimal() and last.isdecimal()):
            if chrom not in self.lengths:
                self._length(region)  # raises: the text is an unknown name with a colon
            raise ValueError(f"region {region!r} is not valid; write 'IV' or 'IV:1000-2000' (0-based, half-open).")
        return Interval(chrom, int(first), int(last), "+")

    def fetch(self, interval: Interval | str) -> str:
        """Return the sequence of a region (as in :meth:`interval`), in the case of the file.

        On strand ``"-"`` it is the reverse complement.

        Raises:
            TypeError: the region is neither an Interval nor a string.
            ValueError: the chromosome is unknown (the message suggests similar names), or the region ends beyond it.
        """
        interval = self.interval(interval)
        self.check(interval)
        with named_if_damaged(self.path):  # pyfaidx counts from 1 and includes the end
            sequence: str = self._open().fetch(interval.chrom, interval.start + 1, interval.end)
        if len(sequence) != len(interval):
            raise ValueError(
                f"{self.path} was changed while it was open, or is damaged: got {len(sequence)} bases for {interval}. "
                "Open it again."
            )
        if interval.strand != "-":
            return sequence
        return reverse_complement(sequence, where=self._where(interval), start=interval.start)

    def ids(self, interval: Interval) -> "NDArray[np.uint8]":
        """Return the tokens of an interval (see ``titans_dna.encode``).

        Raises:
            ValueError: as in :meth:`fetch`; or a letter is not a base (the message gives its position).
        """
        forward = Interval(interval.chrom, interval.start, interval.end, "+")
        found = encode(self.fetch(forward), where=self._where(interval), start=interval.start)
        return reverse_complement_ids(found) if interval.strand == "-" else found

    def _where(self, interval: Interval) -> str:
        return f"{interval.chrom} of {self.path.name}"

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
        """Iterate over windows in order, reading one at a time, so memory use does not depend on genome size.

        The first window of a chromosome (or region) starts at its first base, and each next window ``stride`` bases
        later. The first window that reaches the end is truncated there, and is the last. Regions on strand ``"-"`` are
        traversed in reverse, so with ``stride=length`` the window sequences concatenate to the sequence of the region.

        Args:
            length: number of bases per window, at least 1.
            stride: distance between window starts. Default: ``length``, so that windows do not overlap.
            chroms: names of the chromosomes to include. Default: all.
            holdout: names of the chromosomes to exclude.
            regions: intervals to traverse instead of whole chromosomes; ``chroms`` and ``holdout`` also apply to them.
            max_n_fraction: skip windows with a larger fraction of letters other than A, C, G and T; 1 keeps all.
            drop_last: skip truncated windows.
            shard: ``(i, n)`` yields only windows i, i + n, i + 2n, ..., counted before ``max_n_fraction`` is applied.
                The n shards of n workers contain each window once.

        Raises:
            ValueError: a number is out of range; a chromosome is unknown; a region ends beyond its chromosome; or
                nothing is left.
        """
        stride = length if stride is None else stride
        at_least("length", length)
        at_least("stride", stride)
        if not 0 <= max_n_fraction <= 1:
            raise ValueError(f"max_n_fraction must be between 0 and 1, got {max_n_fraction}.")
        index, of = shard
        if not 0 <= index < of:
            raise ValueError(f"shard must be (i, n) with 0 <= i < n, got {shard}.")
        walked = self.regions(chroms, holdout, regions)
        return self._walk(walked, length, stride, max_n_fraction, drop_last, index, of)

    def close(self) -> None:
        """Close the file. It is reopened when needed."""
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
        # a forked process shares the file position with its parent, so reads would mix
        if self._handle is None or self._pid != os.getpid():
            self._handle, self._pid = self._files.open(), os.getpid()
        return self._handle

    def check(self, interval: Interval) -> None:
        """Raise ValueError if the chromosome of an interval is unknown, or the interval ends beyond it."""
        size = self._length(interval.chrom)
        if interval.end > size:
            raise ValueError(
                f"{interval} ends beyond {interval.chrom}, which has {size} bases in {self.path.name}. Coordinates are "
                f"0-based and end-exclusive, so the end can be at most {size}."
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
        """Return a sentence that suggests the most similar names, or an empty string if there are none."""
        same = [name for name in self.lengths if _normalised(name) == _normalised(chrom)]
        near = same or get_close_matches(chrom, self.lengths, n=3, cutoff=0.5)
        return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""

    def named(self, chroms: Iterable[str] | None, what: str = "chroms") -> list[str]:
        """Check names of chromosomes and return them as a list; None means all.

        Raises:
            TypeError: a name is not a string.
            ValueError: ``chroms`` is one string instead of a list, or a chromosome is unknown.
        """
        if chroms is None:
            return list(self.lengths)
        if isinstance(chroms, str):
            raise ValueError(f"{what} is a string, {chroms!r}; give a list of names: [{chroms!r}].")
        names = list(chroms)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"{what} must be a list of chromosome names (strings), got the item {name!r}.")
            self._length(name)
        return names

    def left_out(self, holdout: Iterable[str] | None) -> list[str]:
        """As :meth:`named`, for held-out chromosomes; None means none."""
        return self.named(() if holdout is None else holdout, "holdout")

    def regions(
        self, chroms: Iterable[str] | None, holdout: Iterable[str] | None, regions: Iterable[Interval] | None
    ) -> list[Interval]:
        """Return the regions, or whole chromosomes, selected by the arguments of :meth:`windows`.

        Raises:
            ValueError: a chromosome is unknown; a region ends beyond its chromosome; or nothing is left.
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
            selection = "all chromosomes" if chroms is None else f"chroms={wanted}"
            if regions is not None:
                selection = f"{len(given)} regions" + ("" if chroms is None else f" and {selection}")
            without = f" without holdout={left_out}" if left_out else ""
            raise ValueError(f"{selection}{without} select no sequence of {self.path.name}. Change the selection.")
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
                    break  # the previous window reached the end
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


def _normalised(chrom: str) -> str:
    """Normalised name, equal for different spellings: chrIV and IV, chrM and MT, CHR1 and chr1."""
    bare = chrom.lower().removeprefix("chr")
    return _MITOCHONDRION[0] if bare in _MITOCHONDRION else bare
