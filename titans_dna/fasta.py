"""A FASTA file made ready for random access: unpacked where it must be, indexed, and opened through pyfaidx.

    plain FASTA     read in place
    bgzip           read in place where Biopython is installed, else as gzip
    gzip            has no random access: unpacked once, into the cache folder, with a warning that says where

The index lies beside a file that is read in place (``<file>.fai``, as samtools writes it), or in the cache folder where
that place cannot be written to. An index older than its file is rebuilt, with a warning. Names in the cache folder
hold the size and time of the source, so that a changed source is never answered from an old copy.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from titans_core.files import written_whole
from titans_datasets.warn import warn_caller
from titans_dna.lines import DAMAGED, is_gzip, open_binary

if TYPE_CHECKING:
    import pyfaidx

__all__ = ["FastaFiles", "prepare"]

# bytes; a record's title is shorter, and mostly shorter than the first
_TITLE, _HEAD = 256, 1 << 16
_BLOCK = 1 << 22
# of files of intervals, which are given where a FASTA file belongs
_INTERVALS = (".bed", ".narrowpeak", ".broadpeak", ".gtf", ".gff", ".gff3")
_LONGER = "a sequence's last line is longer than the lines before it."


@dataclass(frozen=True)
class FastaFiles:
    """Paths by which a FASTA is opened: the file to read, its index and, for bgzip, the index of its blocks."""

    file: Path
    index: Path
    blocks: Path | None

    def open(self) -> "pyfaidx.Faidx":
        # not a Fasta, which makes an object of each record
        from pyfaidx import Faidx

        return Faidx(
            str(self.file),
            indexname=str(self.index),
            gzi_indexname=str(self.blocks) if self.blocks else None,
            as_raw=True,
            rebuild=False,
        )


def prepare(path: Path, cache_dir: Path) -> FastaFiles:
    """Unpack and index ``path`` where that is not yet done.

    Raises:
        ImportError: pyfaidx is not installed.
        FileNotFoundError: no such file.
        ValueError: the file is empty, no FASTA, or one of intervals; it has lines of uneven length, that end in
            blanks, or too many blank ones, or two sequences of one name.
    """
    if find_spec("pyfaidx") is None:
        raise ImportError("reading FASTA needs pyfaidx: pip install 'titans-suite[dna]'")
    if path.name.lower().removesuffix(".gz").endswith(_INTERVALS):
        raise ValueError(
            f"{path} holds intervals: name the FASTA file they lie in as well; "
            "embed(intervals, genome=fasta), classifier.fit((intervals, fasta), y), model.fit(fasta, bed=intervals)."
        )
    if not path.is_file():
        raise FileNotFoundError(f"no FASTA file {path}")
    _check_start(path)
    packed = is_gzip(path)
    in_place = not packed or (_is_bgzip(path) and find_spec("Bio") is not None)
    if packed and not in_place:
        file = _unpacked(path, cache_dir)
        return _indexed(path, FastaFiles(file, _beside(file, ".fai"), None))
    if not packed and path.suffix in (".gz", ".bgz"):
        raise ValueError(f"{path} is named as gzip but is not; rename it without {path.suffix}.")
    files = FastaFiles(path, _beside(path, ".fai"), _beside(path, ".gzi") if packed else None)
    if not os.access(path.parent, os.W_OK) and not _fresh(files):
        cache_dir.mkdir(parents=True, exist_ok=True)
        cached = cache_dir / _key(path)
        files = FastaFiles(path, _beside(cached, ".fai"), _beside(cached, ".gzi") if packed else None)
    return _indexed(path, files)


def _check_start(path: Path) -> None:
    """The first line that is not blank begins a sequence: a mistaken path is told before anything is written."""
    try:
        with open_binary(path) as stream:
            lines = iter(lambda: stream.readline(1 << 16), b"")
            first = next((line for line in lines if line.strip() and not line.startswith(b";")), None)
    except DAMAGED as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); fetch it again.") from error
    if first is None:
        raise ValueError(f"{path} is empty; expected FASTA: lines that begin with '>' and lines of bases.")
    if not first.startswith(b">"):
        raise ValueError(f"{path} is no FASTA: its first line is {first[:40]!r}; expected one that begins with '>'.")


def _is_bgzip(path: Path) -> bool:
    """gzip with the extra field BC, in which bgzip keeps the size of each block; pyfaidx goes by the suffix too."""
    with path.open("rb") as stream:
        head = stream.read(18)
    return path.suffix in (".gz", ".bgz") and len(head) == 18 and bool(head[3] & 4) and head[12:14] == b"BC"


def _key(path: Path) -> str:
    stat = path.stat()
    place = hashlib.sha256(str(path).encode()).hexdigest()[:10]
    return f"{path.name.split('.')[0]}-{place}-{stat.st_size}-{stat.st_mtime_ns}"


def _unpacked(path: Path, cache_dir: Path) -> Path:
    target = cache_dir / f"{_key(path)}.fa"
    if target.exists():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    warn_caller(
        f"{path} is gzip, which has no random access: it is unpacked once, to {target}. "
        "A plain or bgzip file is read in place."
    )
    try:
        with written_whole(target) as part, part.open("wb") as sink, open_binary(path) as source:
            shutil.copyfileobj(source, sink, _BLOCK)
    except DAMAGED as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); fetch it again.") from error
    # copies of what the source was before
    place = target.name.rsplit("-", 2)[0]
    for old in cache_dir.glob(f"{place}-*"):
        if not old.name.startswith(target.stem):
            old.unlink(missing_ok=True)
    return target


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _fresh(files: FastaFiles) -> bool:
    written = files.file.stat().st_mtime_ns
    if not all(p.exists() and p.stat().st_mtime_ns >= written for p in (files.index, files.blocks) if p):
        return False
    return not _misfit(files)


def _misfit(files: FastaFiles) -> str:
    """Empty where an index is of this very file: times do not tell where an older file was moved in its place.

    The title of each record must stand where it says, and the last record must end the file. The last line of each
    must begin where the others' lengths put it: it may be shorter than they, not longer. Of each the first line must
    end in a base: blanks and tabs behind it would be counted as such.

    Returns:
        What is wrong with the file if the index was made of it just now.
    """
    try:
        records = [line.split("\t") for line in files.index.read_text().splitlines()]
        if not records:
            return _LONGER
        with _reading(files) as read:
            for name, *numbers in records:
                length, offset, bases, width = map(int, numbers)
                if not _names(_title(read, offset), name):
                    return _LONGER
                lines, rest = divmod(length - 1, bases) if length else (0, -1)
                if lines and read(offset + lines * width - 1, 1) != b"\n":
                    return _LONGER
                # the last that counts as a base, and the next one: samtools counts blanks to the line's end
                if length and set(read(offset + bases - 1, 2)) & set(b" \t"):
                    return f"lines of {name!r} end in blanks or tabs, which would be counted as bases; remove them."
            return _LONGER if read(offset + lines * width + rest + 1, _HEAD).strip() else ""
    except (ValueError, IndexError, *DAMAGED):
        return _LONGER


def _title(read: Callable[[int, int], bytes], offset: int) -> bytes:
    """The line before a place, without its end; empty where it does not end there, or is too long."""
    for size in (_TITLE, _HEAD):
        begin = max(0, offset - size)
        before = read(begin, offset - begin)
        if before[-1:] != b"\n":
            break
        first = before.rfind(b"\n", 0, -1) + 1
        if first or begin == 0:
            return before[first:-1]
    return b""


def _names(title: bytes, name: str) -> bool:
    """Whether a title is that of this record."""
    text = title[1:].decode(errors="replace").lstrip()
    return title[:1] == b">" and text.startswith(name) and not text[len(name) : len(name) + 1].strip()


@contextmanager
def _reading(files: FastaFiles) -> Iterator[Callable[[int, int], bytes]]:
    """A function of a place in the FASTA, in bytes, and a number of bytes that reads these."""
    if files.blocks is None:
        with files.file.open("rb") as file:
            yield lambda place, size: file.read(size) if file.seek(place) == place else b""
        return
    from Bio.bgzf import BgzfReader, make_virtual_offset

    # where each block begins, packed and unpacked; the first one is not in the index
    blocks = np.fromfile(files.blocks, dtype="<u8")[1:].reshape(-1, 2).astype(np.int64)
    packed, unpacked = np.concatenate(([[0, 0]], blocks)).T
    with BgzfReader(str(files.file), "rb") as reader:

        def read(place: int, size: int) -> bytes:
            block = int(np.searchsorted(unpacked, place, side="right")) - 1
            reader.seek(make_virtual_offset(int(packed[block]), place - int(unpacked[block])))
            found: bytes = reader.read(size)
            return found

        yield read


def _indexed(path: Path, files: FastaFiles) -> FastaFiles:
    if _fresh(files):
        return files
    if files.index.exists():
        warn_caller(f"the index {files.index} is older than {files.file}, or of another: it is rebuilt.")
    from pyfaidx import Faidx, FastaIndexingError

    try:
        with ExitStack() as parts:
            index = parts.enter_context(written_whole(files.index))
            blocks = parts.enter_context(written_whole(files.blocks)) if files.blocks else None
            Faidx(str(files.file), indexname=str(index), gzi_indexname=str(blocks) if blocks else None).close()
            misfit = _misfit(FastaFiles(files.file, index, blocks))
            if misfit:
                raise FastaIndexingError(misfit)
    except (FastaIndexingError, RuntimeError) as error:
        why = str(error)
        if not isinstance(error, FastaIndexingError):
            if "during fasta indexing" not in why:
                raise
            # pyfaidx did not think of two blank lines, and asks to be told
            name = why.partition("at entry ")[2].partition("Please report")[0]
            why = f"{name!r} has blank lines in it or behind it, or a line shorter than the others before its last."
        raise ValueError(
            f"{path} cannot be indexed: {why} A sequence needs a name behind '>', lines of one length (the last may "
            "be shorter), no blank line among them and one at most behind; `seqkit seq -w 60` writes such a file."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no FASTA text ({error}).") from error
    except ValueError as error:
        if "Duplicate key" not in str(error):
            raise
        name = str(error).partition('"')[2].rstrip('"')
        raise ValueError(
            f"{path} has two sequences named {name!r} (the name is the first word after '>'); rename or remove one."
        ) from error
    return files
