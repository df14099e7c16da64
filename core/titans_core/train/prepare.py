"""Convert text files to packed tokens on disk, read with Hugging Face ``datasets`` in bounded memory."""

import codecs
import contextlib
import glob
import hashlib
import json
import locale
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from gzip import BadGzipFile
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from titans_core.checks import below_one
from titans_core.extras import require
from titans_core.files import held
from titans_core.tokenizers import Tokenizer, load_tokenizer
from titans_core.train.tokens import DESCRIPTION, DTYPES, FORMAT, VERSION

__all__ = ["prepare"]

HOLD_OUT = ("auto", "documents", "tails")
SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_PIECE = 1 << 20  # characters tokenised at once
_UNFINISHED = ".unfinished"


def prepare(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: str | Path | Tokenizer = "bytes",
    *,
    text_key: str = "text",
    val_fraction: float = 0.01,
    hold_out: str = "auto",
    seed: int = 0,
    overwrite: bool = False,
    verbose: int = 1,
) -> dict[str, Any]:
    """Convert text to the files that :class:`titans_core.train.tokens.PackedTokens` reads.

    A text file (``.txt``) is one document; line ends become ``\\n``. In a JSON Lines file (``.jsonl``), each line is
    one document: an object with the text under ``text_key``. Both may be compressed (``.gz``) and must be UTF-8.
    Documents are written in input order, each followed by the end-of-text token. Documents without text are skipped.

    ``out`` receives ``train.bin``, ``val.bin`` (if ``val_fraction`` is above 0) and, last, ``tokens.json``. Data
    without ``tokens.json`` does not load, so an interrupted run leaves nothing usable. Earlier data stays until the new
    data is ready.

    Memory holds one document and the ids of about 1 M characters. A text file is read as a whole: for many GB of text,
    use JSON Lines.

    Args:
        sources: a file, a folder or a list of them; of a folder, all matching files are used, sorted by path. Files are
            ``.txt`` (one document) or ``.jsonl`` (a document per line), both also as ``.gz``.
        out: output folder.
        tokenizer: a tokenizer, or its spec: "bytes", a SentencePiece ``.model`` file, a ``tokenizer.json``, a folder
            that contains either, or a repository on the Hugging Face Hub ("owner/name"); see
            :func:`titans_core.tokenizers.load_tokenizer`.
        text_key: key of the text in JSON Lines objects.
        val_fraction: fraction of the text held out for validation, in [0, 1).
        hold_out: "documents" holds out whole documents, chosen by a hash of ``seed`` and the text, so equal documents
            are always in the same part. "tails" holds out the end of every document; both parts then count as
            documents. The cut is at a line end shortly before the fraction, else at a space, else at the exact
            character. "auto" uses tails for text files, which are mostly long and few, and documents for JSON Lines.
        seed: seed of the hash.
        overwrite: replace packed tokens that already exist in ``out``.
        verbose: 0 hides the progress bar.

    Returns:
        The content of ``tokens.json``.

    Raises:
        FileExistsError: if ``out`` holds packed tokens and ``overwrite`` is False.
        FileNotFoundError: if a source or the tokenizer does not exist.
        ImportError: if a package is missing; the message has the install command.
        ValueError: if a source cannot be read (the message names file and line), a part would be empty, or
            another process is preparing text in ``out``.
    """
    below_one("val_fraction", val_fraction)
    if hold_out not in HOLD_OUT:
        raise ValueError(f"hold_out must be one of {HOLD_OUT}, got {hold_out!r}.")
    val_fraction, seed = float(val_fraction), int(seed)  # JSON takes no numbers of NumPy
    files = _files(sources)
    require("datasets", "preparing text", "lm")
    if isinstance(tokenizer, (str, Path)):
        tokenizer = load_tokenizer(tokenizer)
    out = Path(out).expanduser()
    with _unfinished_in(out, overwrite) as unfinished, contextlib.ExitStack() as at_end:
        dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        parts = {
            name: _Part(unfinished / f"{name}.bin", DTYPES[dtype], tokenizer.vocab_size)
            for name in (("train", "val") if val_fraction else ("train",))
        }
        for part in parts.values():
            at_end.callback(part.give_up)
        held_out = (
            piece
            for path in files
            for text in _documents(path, text_key, unfinished / "cache")
            for piece in _split(text, _cuts_tails(hold_out, path), val_fraction, seed)
        )
        with tqdm(desc="tokens", unit="", unit_scale=True, disable=not verbose) as bar:
            for name, ids, ended in _tokenise(held_out, tokenizer):
                parts[name].write(ids, ended)
                bar.update(len(ids))
        for name, part in parts.items():
            part.close()
            _check_not_empty(name, part, val_fraction, parts, all(_cuts_tails(hold_out, path) for path in files))
        description = {
            "format": FORMAT,
            "version": VERSION,
            "dtype": dtype,
            "vocab_size": tokenizer.vocab_size,
            "tokenizer": {"spec": tokenizer.spec, "fingerprint": tokenizer.fingerprint, "eos_id": tokenizer.eos_id},
            "parts": {name: part.describe() for name, part in parts.items()},
            "val_fraction": val_fraction,
            "hold_out": hold_out,
            "seed": seed,
            "text_key": text_key,
            "sources": [{"file": str(path), "bytes": path.stat().st_size} for path in files],
        }
        (unfinished / DESCRIPTION).write_text(json.dumps(description, indent=1, ensure_ascii=False), encoding="utf-8")
        _publish(unfinished, out, list(parts))
    return description


@contextlib.contextmanager
def _unfinished_in(out: Path, overwrite: bool) -> Iterator[Path]:
    """A new folder in ``out`` for files until they are complete. Meanwhile ``out`` is held against other processes that
    prepare text in it, which would mix their files."""
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as at_end:
        try:
            at_end.enter_context(held(out, wait=False))
        except BlockingIOError:
            raise ValueError(
                f"another process is preparing text in {out}: wait for it, or choose another folder."
            ) from None
        if (out / DESCRIPTION).exists() and not overwrite:
            raise FileExistsError(
                f"{out} already holds packed tokens. Choose another folder, or set overwrite=True (--overwrite true)."
            )
        unfinished = out / _UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a run that was killed
        at_end.callback(shutil.rmtree, unfinished, ignore_errors=True)
        unfinished.mkdir()
        yield unfinished


class _Part:
    """A file of tokens being written."""

    def __init__(self, path: Path, dtype: np.dtype[Any], vocab_size: int) -> None:
        self.path, self.dtype, self.vocab_size = path, dtype, vocab_size
        self.tokens, self.documents = 0, 0
        self._hash = hashlib.sha256()
        self._file = path.open("wb")

    def write(self, ids: list[int], ended: bool) -> None:
        found = np.asarray(ids, dtype=np.int64)
        if found.size and not 0 <= found.min() <= found.max() < self.vocab_size:
            raise ValueError(
                f"the tokenizer returned ids {found.min()} to {found.max()}, but its vocab_size is {self.vocab_size}: "
                "ids must be in [0, vocab_size)."
            )
        data = found.astype(self.dtype).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self.tokens += len(ids)
        self.documents += ended

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def give_up(self) -> None:
        """Close the file, if it is open, as it is: what a full disk did not take would raise an error once more."""
        with contextlib.suppress(OSError):
            self._file.close()

    def describe(self) -> dict[str, Any]:
        return {
            "file": self.path.name,
            "tokens": self.tokens,
            "documents": self.documents,
            "sha256": f"sha256:{self._hash.hexdigest()}",
        }


def _files(sources: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [sources] if isinstance(sources, (str, Path)) else list(sources)
    if not given:
        raise ValueError(f"sources is empty: pass files ({', '.join(SUFFIXES)}) or folders that contain some.")
    files: list[Path] = []
    for source in (Path(each).expanduser() for each in given):
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if path.is_file() and path.name.endswith(SUFFIXES))
            if not found:
                raise ValueError(f"the folder {source} holds no text: expected files {', '.join(SUFFIXES)}.")
            files += found
        elif not source.is_file():
            raise FileNotFoundError(f"no such file or folder: {source}. Check sources.")
        elif not source.name.endswith(SUFFIXES):
            raise ValueError(f"{source} must have a suffix of {', '.join(SUFFIXES)}. Rename or convert it.")
        else:
            files.append(source)
    return list({path.resolve(): path for path in files}.values())  # each once, where it is first named


def _is_text(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".txt")


def _cuts_tails(hold_out: str, path: Path) -> bool:
    return hold_out == "tails" or (hold_out == "auto" and _is_text(path))


def _documents(path: Path, text_key: str, cache: Path) -> Iterator[str]:
    if _is_text(path):
        yield from _rows(path, "document", cache)
        return
    # Read as lines, not as "json": that reader converts texts that look like dates, fails on a key that first appears
    # after its first 10 MB, and does not report the line of an error.
    for number, line in enumerate(_rows(path, "line", cache), start=1):
        if line.strip():
            yield _text_of(line, text_key, f"{path}, line {number}")


def _rows(path: Path, sample_by: str, cache: Path) -> Iterator[str]:
    from datasets import IterableDataset

    if path.suffix == ".gz" and codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8":
        # datasets always opens compressed files with the system's encoding
        raise ValueError(
            f"{path}: this system reads compressed text as {locale.getpreferredencoding(False)}, not as "
            "UTF-8. Set PYTHONUTF8=1, or decompress the file."
        )
    # not load_dataset: it reports every use to the Hub, and waits for it if there is no network
    rows = IterableDataset.from_text(
        glob.escape(str(path.absolute())),
        sample_by=sample_by,
        cache_dir=str(cache),  # the default would leave an empty file per source in the user's cache
    )
    try:
        for number, row in enumerate(rows):
            yield row["text"] if number else row["text"].removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}). Convert it to UTF-8.") from error
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be decompressed: it is truncated, damaged or not a gzip file ({error}). Get it again."
        ) from error


def _text_of(line: str, text_key: str, where: str) -> str:
    expected = f'expected an object such as {{"{text_key}": "..."}}'
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON ({error}); {expected} on each line.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: {expected}, got {type(found).__name__}.")
    if text_key not in found:
        raise ValueError(f"{where}: no key {text_key!r}, only {sorted(found)}. Set text_key to the key of the text.")
    text = found[text_key]
    if not isinstance(text, str):
        raise ValueError(f"{where}: {text_key!r} must be a string, got {type(text).__name__}. Fix or remove the line.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: {text_key!r} has an unpaired surrogate, which is not a valid character ({error}). Fix or remove "
            "the line."
        ) from error
    return text


def _split(text: str, tails: bool, val_fraction: float, seed: int) -> Iterator[tuple[str, str]]:
    """The document, or its two parts, each with the name of its part."""
    if not val_fraction:
        yield "train", text
    elif tails:
        most = round(len(text) * (1 - val_fraction))
        near = max(0, 2 * most - len(text))  # hold out at most twice the fraction
        cut = text.rfind("\n", near, most) + 1 or text.rfind(" ", near, most) + 1 or most
        yield "train", text[:cut]
        yield "val", text[cut:]
    else:
        found = hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest()
        yield ("val" if int.from_bytes(found, "big") < val_fraction * 2**64 else "train"), text


def _tokenise(documents: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[str, list[int], bool]]:
    """Ids of the documents in order, with the name of the part, and whether the document ends there."""
    batch: list[tuple[str, str]] = []
    size = 0
    for name, text in documents:
        if not text:
            continue
        if batch and size + len(text) > _PIECE:
            yield from _encode_batch(batch, tokenizer)
            batch, size = [], 0
        if len(text) > _PIECE:
            yield from _encode_long(name, text, tokenizer)
        else:
            batch.append((name, text))
            size += len(text)
    if batch:
        yield from _encode_batch(batch, tokenizer)


def _encode_batch(batch: list[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[str, list[int], bool]]:
    encoded = tokenizer.encode_batch([text for _, text in batch])
    for (name, _), ids in zip(batch, encoded, strict=True):
        yield name, [*ids, tokenizer.eos_id], True


def _encode_long(name: str, text: str, tokenizer: Tokenizer) -> Iterator[tuple[str, list[int], bool]]:
    """Tokenise a long document in pieces, cut at line ends, because a tokenizer may need 200 bytes per character."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        last = end >= len(text)
        yield name, tokenizer.encode(text[start:end], eos=last, continued=start > 0), last
        start = end


def _check_not_empty(name: str, part: _Part, val_fraction: float, parts: dict[str, _Part], tails: bool) -> None:
    if part.tokens:
        return
    if not any(other.tokens for other in parts.values()):
        raise ValueError("the sources contain no text: every file or document is empty. Check sources.")
    raise ValueError(
        f"the part {name!r} would be empty: val_fraction={val_fraction} of {sum(p.documents for p in parts.values())} "
        "documents. Change val_fraction (0: no validation part)"
        + ("." if tails else " or seed, or hold out the ends of documents with hold_out='tails'.")
    )


def _publish(unfinished: Path, out: Path, names: list[str]) -> None:
    """Move finished files into place, ``tokens.json`` last, because nothing loads without it."""
    (out / DESCRIPTION).unlink(missing_ok=True)
    for old in out.glob("*.bin"):
        if old.stem in ("train", "val") and old.stem not in names:
            old.unlink()
    for name in names:
        os.replace(unfinished / f"{name}.bin", out / f"{name}.bin")
    os.replace(unfinished / DESCRIPTION, out / DESCRIPTION)


if __name__ == "__main__":
    require("jsonargparse", "this command", "lm")
    from jsonargparse import auto_cli

    try:
        auto_cli(prepare, prog="python -m titans_core.train.prepare")
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
