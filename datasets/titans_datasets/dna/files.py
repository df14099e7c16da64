"""DNA files in ``<data home>/dna``: local files, and published ones that can be downloaded."""

import hashlib
import json
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from titans_datasets import cache
from titans_datasets.checksum import matches, verify
from titans_datasets.download import advice, download
from titans_datasets.errors import ChecksumError, reading
from titans_datasets.sources import dna_files
from titans_datasets.sources.entries import PublishedFile

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["either", "homes", "labelled", "local", "published", "read_parquet", "registered", "searched"]

_SUFFIXES = (".parquet", ".csv", ".tsv")
_COLUMNS = {"seq": ("seq", "sequence"), "label": ("label", "target", "class")}


def labelled(stem: str, home: Path, download: bool, published_as: str | None = None) -> "pd.DataFrame | None":
    """Columns seq and label of one part, from the first file or folder that exists; None if there is none.

    Args:
        stem: path below ``dna/``, without suffix.
        home: data home.
        download: download the file if it is published and missing.
        published_as: stem under which checksum and address are registered, if it differs from ``stem``.
    """
    name = stem if published_as is None else published_as
    # files with a known checksum first
    suffixes = sorted(_SUFFIXES, key=lambda suffix: name + suffix not in dna_files.checksums())
    path = next((p for suffix in suffixes if (p := local(stem + suffix, home, name + suffix)) is not None), None)
    if path is None:
        # only the files of GB may be folders: in a folder the order is lost in which rows of GUE are verified
        if stem.startswith("gb/") and (frame := _from_folder(stem, home)) is not None:
            return frame
        known = registered(name)
        path = published(known, home, download, missing_ok=True) if known else None
    if path is None:
        return None
    frame = _checked(read_parquet(path) if path.suffix == ".parquet" else _read_table(path), path)
    as_csv = f"{name}.csv"
    if name.startswith("gue/") and path.suffix in (".parquet", ".tsv") and as_csv in dna_files.checksums():
        _verify_rows(frame, path, _entry(as_csv))
    return frame


def registered(stem: str) -> str | None:
    """Path below ``dna/`` under which a part is published as one file, or None."""
    return next((stem + suffix for suffix in _SUFFIXES if stem + suffix in dna_files.checksums()), None)


def _from_folder(stem: str, home: Path) -> "pd.DataFrame | None":
    """Columns seq and label of one part as genomic_benchmarks writes it: a folder per class, a file per sequence."""
    import pandas as pd

    for folder in searched(home, stem):
        with reading(folder):
            # hidden ones are of the system or of an editor: ._0.txt of macOS, .ipynb_checkpoints
            files = sorted(folder.glob("[!.]*/[!.]*.txt"))
            sequences = [file.read_text().strip() for file in files]
        if files:
            _refuse_blanks(sequences, map(str, files))
            return pd.DataFrame({"seq": sequences, "label": [file.parent.name for file in files]})
    return None


def _read_table(path: Path) -> "pd.DataFrame":
    """Read a CSV or TSV file, plain or gzip; errors name its path."""
    import pandas as pd

    with reading(path):
        path.open("rb").close()
    try:
        return pd.read_csv(path, sep="\t" if ".tsv" in path.suffixes else ",")
    except (ValueError, EOFError, OSError) as error:  # pandas's errors are ValueErrors, those of gzip the others
        raise ValueError(f"{path} is not a complete table ({error}). Replace it.") from error


def _checked(frame: "pd.DataFrame", path: Path) -> "pd.DataFrame":
    """Columns seq and label of a table. Raises a ValueError unless each row has both, the sequence as text."""
    columns = {new: next((c for c in names if c in frame), None) for new, names in _COLUMNS.items()}
    if None in columns.values():
        raise ValueError(f"{path} has the columns {list(frame)}; expected seq or sequence, and label or target.")
    frame = frame.rename(columns={old: new for new, old in columns.items()})[["seq", "label"]]
    if frame.empty:
        raise ValueError(f"{path} has no rows. Replace it.")
    if frame.isna().any(axis=None):
        row = int(frame.isna().any(axis=1).to_numpy().argmax())
        raise ValueError(f"{path} lacks a sequence or a label in row {row} (0-based, without the header).")
    other = [seq for seq in frame["seq"] if not isinstance(seq, str)]
    if other:
        raise ValueError(f"{path} has a sequence that is not text: {other[0]!r:.60}. Store sequences as letters.")
    _refuse_blanks(frame["seq"], (f"{path}, row {row} (0-based, without the header)" for row in count()))
    return frame


def _refuse_blanks(sequences: Iterable[str], where: Iterable[str]) -> None:
    """Raise a ValueError if a sequence is empty or has a blank; ``where`` has the place of each."""
    for sequence, place in zip(sequences, where, strict=False):
        if sequence.split(maxsplit=1) != [sequence]:
            raise ValueError(
                f"{place}: the sequence is empty or has a blank before, in or after it ({sequence!r:.60}). Remove the "
                "blanks; a base that is not known is written N."
            )


def _verify_rows(frame: "pd.DataFrame", path: Path, file: PublishedFile) -> None:
    """Check a table by the checksum of the published CSV, which is that of its rows written in the same form."""
    rows = zip(frame["seq"].astype(str), frame["label"].astype(str), strict=True)
    text = "sequence,label\n" + "".join(f"{sequence},{label}\n" for sequence, label in rows)
    found = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    if found != file.checksum:
        raise ChecksumError(
            f"{path} does not have the rows of the published {file.file}, all and in its order: its {len(frame)} rows, "
            "written as CSV, have the wrong checksum.\n"
            f"  expected {file.checksum}\n"
            f"  found    {found}\n"
            f"{cache.remedy(path, file)}"
        )


def read_parquet(path: Path) -> "pd.DataFrame":
    """Read a Parquet file; errors name its path."""
    import pandas as pd

    with reading(path):
        path.open("rb").close()
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(f"{path} is a Parquet file, which needs pyarrow: pip install 'titans-suite[dna]'") from error
    except (ValueError, OSError) as error:  # all errors of pyarrow are one of these
        raise ValueError(f"{path} is not a complete Parquet file ({error}). Replace it.") from error


def homes(home: Path, relative: str) -> list[Path]:
    """Data homes searched for a file or folder, given by its path below ``dna/``, in this order."""
    return cache.searched(home, f"dna/{relative}".rpartition("/")[0])


def searched(home: Path, relative: str) -> list[Path]:
    """Paths of such a file or folder in those homes; new files belong at the last."""
    return [place / "dna" / relative for place in homes(home, relative)]


def either(paths: Iterable[Path]) -> str:
    """Paths as text: "this or that"."""
    return " or ".join(map(str, paths))


def local(relative: str, home: Path, published_as: str | None = None) -> Path | None:
    """Path of a file below ``dna/``, or None if it does not exist.

    It is verified if its checksum, or that of its decompressed content, is known.
    """
    name = relative if published_as is None else published_as
    for place in homes(home, relative):
        path = place / "dna" / relative
        if cache.is_file(path):
            plain = name.removesuffix(".gz")
            if name in dna_files.checksums():
                file = _entry(name)
                verify(path, path.name, file.checksum, cache.remedy(path, file))
            elif sha256 := _manifest(place / "dna").get(relative):
                remedy = (
                    f"Replace it with the file that {place / 'dna' / 'manifest.json'} lists, or mend its entry there."
                )
                verify(path, path.name, f"sha256:{sha256}", remedy)
            elif plain in dna_files.checksums():
                file = _entry(plain)
                verify(path, path.name.removesuffix(".gz"), file.checksum, cache.remedy(path, file))
            return path
    return None


def _entry(relative: str) -> PublishedFile:
    """A published file, by its path below ``dna/``."""
    sha256 = dna_files.checksums()[relative]
    return PublishedFile(relative, f"dna/{relative}", dna_files.url(relative), f"sha256:{sha256}")


def _unpacked(relative: str, home: Path) -> Path | None:
    """Path of an unpacked copy of a file that is published as ``.gz``; None unless its content is the published."""
    plain = relative.removesuffix(".gz")
    sha256 = dna_files.unpacked().get(plain)
    if plain == relative or sha256 is None:
        return None
    paths = searched(home, plain)
    return next((path for path in paths if cache.is_file(path) and matches(path, path.name, f"sha256:{sha256}")), None)


def _manifest(folder: Path) -> dict[str, str]:
    path = folder / "manifest.json"
    if not cache.is_file(path):
        return {}
    with reading(path):
        text = path.read_text()
    try:
        return {entry["file"]: entry["sha256"] for entry in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        form = '{"file": ..., "sha256": ...}'
        raise ValueError(f"{path} is not a list of {form} ({error!r}). Fix or delete it.") from error


def published(relative: str, home: Path, allow_download: bool, *, missing_ok: bool = False) -> Path | None:
    """Path of a published file below ``dna/``, downloaded if missing; with ``missing_ok``, None if unavailable."""
    path = local(relative, home) or local(f"{relative}.gz", home) or _unpacked(relative, home)
    if path is not None:
        return path
    file = _entry(relative) if relative in dna_files.checksums() else None
    if file is None or not allow_download:
        if missing_ok:
            return None
        paths = searched(home, relative)
        where = "." if file is None else f". Load it once with download=True.\n{advice(file, paths[-1])}"
        raise FileNotFoundError(f"{cache.obstacle(paths)}{either(paths)} is missing{where}")
    target = cache.place_for(file, homes(home, relative)) / file.place
    download(file, target)
    return target
