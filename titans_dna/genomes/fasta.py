"""Preparing FASTA files for random access: decompression, indexing, and opening with pyfaidx.

    plain FASTA     read in place
    bgzip           read in place if Biopython is installed, otherwise treated as gzip
    gzip            has no random access: decompressed once into the cache folder, with a warning that names the copy

The index of a file read in place is beside it (``<file>.fai``, as written by samtools), or in the cache folder if that
location is not writable. An index older than its file is rebuilt, with a warning. File names in the cache contain the
size and modification time of the source, so that a copy of a changed source is never used.
"""

import glob
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from titans_core.extras import require
from titans_core.files import UNFINISHED, written_whole
from titans_core.warn import warn_caller
from titans_datasets.cache import place_of_copies, writable
from titans_datasets.gzipped import DAMAGED, is_gzip, open_binary

if TYPE_CHECKING:
    import pyfaidx

__all__ = ["FastaFiles", "named_if_damaged", "prepare"]

# bytes to read for the title of a record: enough for most, and the maximum
_TITLE, _HEAD = 256, 1 << 16
_BLOCK = 1 << 22
# seconds without a write after which the process of an unfinished file is taken for dead
_DEAD = 24 * 60 * 60
# suffixes of interval files, which may be given by mistake
_INTERVALS = (".bed", ".narrowpeak", ".broadpeak", ".gtf", ".gff", ".gff3")
# how messages of Biopython and pyfaidx about damaged blocks begin; others may contain these words in a name
_DAMAGED_BLOCK = ("A BGZF", "BGZF EOF", "Missing BC", "CRC is", "Decompressed to")
_LONGER = "the last line of a sequence is longer than the lines before it."


@dataclass(frozen=True)
class FastaFiles:
    """Paths of the FASTA file to read, its index and, for bgzip, the index of its blocks."""

    file: Path
    index: Path
    blocks: Path | None

    def open(self) -> "pyfaidx.Faidx":
        # pyfaidx.Fasta would create an object for each record
        from pyfaidx import Faidx

        handle = Faidx(
            str(self.file),
            indexname=str(self.index),
            gzi_indexname=str(self.blocks) if self.blocks else None,
            as_raw=True,
            rebuild=False,
        )
        if self.blocks:
            from titans_dna.genomes.blocks import Block

            handle.gzi_index = [Block(b.cstart, b.clen, b.ustart, b.ulen) for b in handle.gzi_index]
        return handle


def prepare(path: Path, cache_dir: Path | None) -> FastaFiles:
    """Decompress and index ``path`` if needed.

    Args:
        path: path of the FASTA file.
        cache_dir: the cache folder, created if needed. None: ``genomes`` in the data home of titans_datasets, or in
            the user's cache if the data home cannot be written to.

    Raises:
        ImportError: pyfaidx is not installed.
        FileNotFoundError, IsADirectoryError: the file does not exist, or is a folder.
        PermissionError: the cache folder is needed and cannot be written to.
        OSError: the index cannot be written, for example because a disk is full.
        ValueError: the file is empty, is not FASTA or contains intervals; it has lines of unequal length, trailing
            blanks or too many blank lines; or two sequences have the same name.
    """
    require("pyfaidx", "reading FASTA", "dna")
    if path.name.lower().removesuffix(".gz").endswith(_INTERVALS):
        raise ValueError(
            f"{path} contains intervals: give their FASTA file as well, for example embed(intervals, genome=fasta), "
            "classifier.fit((intervals, fasta), y) or model.fit(fasta, bed=intervals)."
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the FASTA file in it.")
    if not path.is_file():
        raise FileNotFoundError(f"FASTA file {path} does not exist.")
    _check_start(path)
    packed = is_gzip(path)
    in_place = not packed or (_is_bgzip(path) and find_spec("Bio") is not None)
    if not packed and path.suffix in (".gz", ".bgz"):
        raise ValueError(f"{path} is named like gzip but is not compressed; rename it without {path.suffix}.")
    files = FastaFiles(path, _with_suffix(path, ".fai"), _with_suffix(path, ".gzi") if packed else None)
    if in_place and (writable(path.parent) or _fresh(files)):
        _remove_leftovers(path.parent, glob.escape(path.name))
        return _indexed(path, files)
    if cache_dir is None:
        cache_dir = place_of_copies("genomes")
    _remove_leftovers(cache_dir)
    if not in_place:
        file = _unpacked(path, cache_dir)
        return _indexed(path, FastaFiles(file, _with_suffix(file, ".fai"), None))
    cached = cache_dir / _key(path)
    files = FastaFiles(path, _with_suffix(cached, ".fai"), _with_suffix(cached, ".gzi") if packed else None)
    return _indexed(path, files)


def _make(folder: Path) -> None:
    """Create a folder if needed, and raise PermissionError if it cannot be written to."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder.is_dir() and writable(folder)):
        raise PermissionError(
            f"{folder}, the folder for decompressed files and indexes, cannot be written to. Open the file with "
            "Genome(path, cache_dir=...) and a writable folder, or set TITANS_DATA_HOME to one."
        )


def _remove_leftovers(folder: Path, of: str = "") -> None:
    """Remove what killed processes left unfinished, only beside the file ``of`` if given. A live process writes all
    the time, so its files are never old."""
    for part in folder.glob(of + UNFINISHED):
        with suppress(OSError):  # gone by now, or of another user
            if time.time() - part.stat().st_mtime > _DEAD:
                part.unlink()


def _check_start(path: Path) -> None:
    """Check the first line that is not blank, so that a wrong path is reported before anything is written."""
    with named_if_damaged(path), open_binary(path) as stream:
        lines = iter(lambda: stream.readline(1 << 16), b"")
        first = next((line for line in lines if line.strip() and not line.startswith(b";")), None)
    if first is None:
        raise ValueError(f"{path} is empty; expected FASTA: lines that begin with '>', followed by lines of bases.")
    if first.startswith(b"\xef\xbb\xbf"):
        raise ValueError(f"{path} begins with a byte order mark, which an index cannot skip: save it without (UTF-8).")
    if not first.startswith(b">"):
        raise ValueError(f"{path} is not FASTA: its first line is {first[:40]!r}, but must begin with '>'.")
    if not first.endswith(b"\n") and b"\r" in first.rstrip():
        raise ValueError(
            f"{path} ends its lines in carriage returns alone (old Mac), which an index cannot follow: convert them to "
            r"line feeds, for example with `tr '\r' '\n'`."
        )


def _is_bgzip(path: Path) -> bool:
    """Whether a gzip file has the extra field BC, in which bgzip stores block sizes, and a suffix pyfaidx accepts."""
    with path.open("rb") as stream:
        head = stream.read(18)
    return path.suffix in (".gz", ".bgz") and len(head) == 18 and bool(head[3] & 4) and head[12:14] == b"BC"


def _key(path: Path) -> str:
    stat = path.stat()
    place = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
    return f"{path.name.split('.')[0]}-{place}-{stat.st_size}-{stat.st_mtime_ns}"


def _unpacked(path: Path, cache_dir: Path) -> Path:
    target = cache_dir / f"{_key(path)}.fa"
    if target.exists():
        return target
    _make(cache_dir)
    warn_caller(
        f"{path} is gzip, which has no random access: it is decompressed once, to {target}. "
        "Plain and bgzip files are read in place."
    )
    with (
        named_if_damaged(path),
        written_whole(target) as part,
        part.open("wb") as sink,
        open_binary(path) as source,
    ):
        shutil.copyfileobj(source, sink, _BLOCK)
    # remove copies of earlier versions of the source
    place = target.name.rsplit("-", 2)[0]
    for old in cache_dir.glob(f"{glob.escape(place)}-*"):
        if not old.name.startswith(target.stem) and not old.match(UNFINISHED):
            old.unlink(missing_ok=True)
    return target


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _fresh(files: FastaFiles) -> bool:
    written = files.file.stat().st_mtime_ns
    if not all(p.exists() and p.stat().st_mtime_ns >= written for p in (files.index, files.blocks) if p):
        return False
    return not _mismatch(files)


def _mismatch(files: FastaFiles) -> str:
    """Check that an index belongs to this file; times do not show that an older file was moved in its place.

    Each record's title must be where the index says, and the last record must end the file. The last line of each
    record must begin where the length of the other lines puts it, and may be shorter, but not longer. The first and
    the last line must end in a base, because trailing blanks and tabs would be counted as bases.

    Returns:
        An empty string, or what is wrong with the file if the index was just made from it.
    """
    try:
        records = [line.split("\t") for line in files.index.read_text().splitlines()]
        if not records:
            return _LONGER
        with _reading(files) as read:
            for name, *numbers in records:
                length, offset, bases, width = map(int, numbers)
                if not _names(_title(read, offset), name):
                    return f"the title {name[:40]!r} has no line break within {_HEAD:,} bytes; add it before the bases."
                lines, rest = divmod(length - 1, bases) if length else (0, -1)
                if lines and read(offset + lines * width - 1, 1) != b"\n":
                    return _LONGER
                # the last character of a line counted as a base, and the next: samtools counts blanks to the line end
                ends = (offset + bases - 1, offset + lines * width + rest) if length else ()
                if any(set(read(end, 2)) & set(b" \t") for end in ends):
                    return f"lines of {name!r} end in blanks or tabs, which would be counted as bases; remove them."
            return _LONGER if read(offset + lines * width + rest + 1, _HEAD).strip() else ""
    except (ValueError, IndexError, *DAMAGED):
        return _LONGER


def _title(read: Callable[[int, int], bytes], offset: int) -> bytes:
    """The line that ends at this offset, without its line break, which the last line of a file may lack; empty if there
    is none or it is too long."""
    for size in (_TITLE, _HEAD):
        begin = max(0, offset - size)
        before = read(begin, offset - begin)
        if before[-1:] != b"\n" and read(offset, 1):
            break
        first = before.rfind(b"\n", 0, -1) + 1
        if first or begin == 0:
            return before[first:].removesuffix(b"\n")
    return b""


def _names(title: bytes, name: str) -> bool:
    """Whether this is the title line of the named record."""
    text = title[1:].decode(errors="replace").lstrip()
    return title[:1] == b">" and text.startswith(name) and not text[len(name) : len(name) + 1].strip()


@contextmanager
def _reading(files: FastaFiles) -> Iterator[Callable[[int, int], bytes]]:
    """A function ``read(offset, size)`` that returns bytes of the uncompressed FASTA."""
    if files.blocks is None:
        with files.file.open("rb") as file:
            yield lambda place, size: file.read(size) if file.seek(place) == place else b""
        return
    from Bio.bgzf import BgzfReader, make_virtual_offset

    # offsets of each block, compressed and uncompressed; the index omits the first block
    blocks = np.fromfile(files.blocks, dtype="<u8")[1:].reshape(-1, 2).astype(np.int64)
    packed, unpacked = np.concatenate(([[0, 0]], blocks)).T
    with BgzfReader(str(files.file), "rb") as reader:

        def read(place: int, size: int) -> bytes:
            block = int(np.searchsorted(unpacked, place, side="right")) - 1
            reader.seek(make_virtual_offset(int(packed[block]), place - int(unpacked[block])))
            found: bytes = reader.read(size)
            return found

        yield read


@contextmanager
def named_if_damaged(path: Path) -> Iterator[None]:
    """Turn the errors of gzip, Biopython and pyfaidx about damaged content into a ValueError that names the file."""
    try:
        yield
    except (ValueError, RuntimeError, OSError, *DAMAGED) as error:
        if not isinstance(error, DAMAGED) and not str(error).startswith(_DAMAGED_BLOCK):
            raise
        raise ValueError(f"{path} is truncated or damaged ({error}); download it again.") from error


def _indexed(path: Path, files: FastaFiles) -> FastaFiles:
    if _fresh(files):
        return files
    _make(files.index.parent)
    if files.index.exists():
        warn_caller(f"the index {files.index} is older than {files.file} or belongs to another file: it is rebuilt.")
    from pyfaidx import Faidx, FastaIndexingError

    try:
        with ExitStack() as parts:
            index = parts.enter_context(written_whole(files.index))
            blocks = parts.enter_context(written_whole(files.blocks)) if files.blocks else None
            with named_if_damaged(path):
                Faidx(str(files.file), indexname=str(index), gzi_indexname=str(blocks) if blocks else None).close()
            mismatch = _mismatch(FastaFiles(files.file, index, blocks))
            if mismatch:
                raise FastaIndexingError(mismatch)
    except (FastaIndexingError, RuntimeError) as error:
        why = str(error)
        if not isinstance(error, FastaIndexingError):
            if "during fasta indexing" not in why:
                raise
            # replace pyfaidx's message, which asks users to report a bug, although blank lines are the cause
            name = why.partition("at entry ")[2].partition("Please report")[0]
            why = f"{name!r} contains or is followed by blank lines, or has a short line before its last."
        raise ValueError(
            f"{path} cannot be indexed: {why} A sequence needs a name after '>', lines of one length (the last may be "
            "shorter), no blank lines inside and at most one after it; `seqkit seq -w 60` reformats such a file."
        ) from error
    except OSError as error:
        # pyfaidx does not say why, and names options of its own functions
        if "may not be writable" not in str(error) or error.__context__ is None:
            raise
        raise OSError(
            f"the index {files.index} cannot be written: {error.__context__}. Make room there and in the folder for "
            "temporary files, or copy the FASTA file to a disk that has room."
        ) from error.__context__
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a FASTA text file ({error}). Give a FASTA file, plain or gzip.") from error
    except ValueError as error:
        if "Duplicate key" not in str(error):
            raise
        name = str(error).partition('"')[2].rstrip('"')
        raise ValueError(
            f"{path} has two sequences named {name!r} (the name is the first word after '>'); rename or remove one."
        ) from error
    return files
