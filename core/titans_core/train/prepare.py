"""Text files to packed tokens on disk: read by Hugging Face ``datasets``, in memory that does not grow with them."""

import codecs
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

from titans_core.tokenizers import Tokenizer, load_tokenizer, require
from titans_core.train.tokens import DESCRIPTION, DTYPES, FORMAT, VERSION

__all__ = ["prepare"]

HOLD_OUT = ("auto", "documents", "tails")
SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
_PIECE = 1 << 20  # characters that are tokenised at once
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
    """Turn text into the files that :class:`titans_core.train.tokens.PackedTokens` reads.

    A text file (``.txt``) is one document, of which line ends become ``\\n``. Of a JSON Lines file (``.jsonl``) each
    line is one, an object whose ``text_key`` is its text. Either may be compressed (``.gz``); all are UTF-8. Documents
    are written in the order in which they come, each ended by eos; those without text are left out.

    ``out`` receives ``train.bin``, ``val.bin`` (if ``val_fraction`` is above 0) and, last, ``tokens.json``. What was
    interrupted leaves no ``tokens.json``, and so nothing that loads; an earlier one stays until the new one is ready.

    Memory holds one document, and the ids of some 1 M characters. A text file is read whole: give many GB of text as
    JSON Lines.

    Args:
        sources: files, or folders, of which all such files are taken in the order of their names.
        out: folder to write to.
        tokenizer: one, or what :func:`titans_core.tokenizers.load_tokenizer` takes.
        text_key: of the objects in JSON Lines.
        val_fraction: share of the text that is held out for validation, in [0, 1).
        hold_out: "documents": a document is held out as a whole, if a hash of ``seed`` and its text says so; equal
            documents fall on the same side, whatever their order. "tails": the end of every document is held out, from
            the last line end before the fraction (or the very character, where there is none); both parts are then
            documents. "auto": tails of text files, which are mostly long and few, and documents of JSON Lines.
        seed: of the hash.
        overwrite: replace packed tokens that are in ``out`` already.
        verbose: 0 shows no progress bar.

    Returns:
        What ``tokens.json`` says.

    Raises:
        FileExistsError: if ``out`` holds packed tokens and ``overwrite`` is False.
        FileNotFoundError: if a source or the tokenizer is missing.
        ImportError: if a package is missing; the message names the command to install it.
        ValueError: for sources that cannot be read, naming file and line, and where a part would be empty.
    """
    if not 0 <= val_fraction < 1:
        raise ValueError(f"val_fraction must be in [0, 1), got {val_fraction}.")
    if hold_out not in HOLD_OUT:
        raise ValueError(f"hold_out must be one of {HOLD_OUT}, got {hold_out!r}.")
    files = _files(sources)
    require("datasets", "preparing text")
    if isinstance(tokenizer, (str, Path)):
        tokenizer = load_tokenizer(tokenizer)
    out = Path(out)
    if (out / DESCRIPTION).exists() and not overwrite:
        raise FileExistsError(
            f"{out} holds packed tokens already. Give another folder, or overwrite=True (--overwrite true)."
        )

    unfinished = out / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)  # of a preparation that was killed
    unfinished.mkdir(parents=True)
    dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
    parts = {
        name: _Part(unfinished / f"{name}.bin", DTYPES[dtype], tokenizer.vocab_size)
        for name in (("train", "val") if val_fraction else ("train",))
    }
    try:
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
            _check_not_empty(name, part, val_fraction, parts)
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
    finally:
        for part in parts.values():
            part.close()
        shutil.rmtree(unfinished, ignore_errors=True)
    return description


class _Part:
    """One file of tokens that is being written."""

    def __init__(self, path: Path, dtype: np.dtype[Any], vocab_size: int) -> None:
        self.path, self.dtype, self.vocab_size = path, dtype, vocab_size
        self.tokens, self.documents = 0, 0
        self._hash = hashlib.sha256()
        self._file = path.open("wb")

    def write(self, ids: list[int], ended: bool) -> None:
        found = np.asarray(ids, dtype=np.int64)
        if found.size and not 0 <= found.min() <= found.max() < self.vocab_size:
            raise ValueError(
                f"the tokenizer gave ids {found.min()} to {found.max()}, and its vocab_size is {self.vocab_size}: "
                "ids must be in [0, vocab_size)."
            )
        data = found.astype(self.dtype).tobytes()
        self._file.write(data)
        self._hash.update(data)
        self.tokens += len(ids)
        self.documents += ended

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
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
        raise ValueError(f"sources is empty: give files ({', '.join(SUFFIXES)}) or folders that hold some.")
    files: list[Path] = []
    for source in map(Path, given):
        if source.is_dir():
            found = sorted(path for path in source.rglob("*") if path.is_file() and path.name.endswith(SUFFIXES))
            if not found:
                raise ValueError(f"the folder {source} holds no text: expected files {', '.join(SUFFIXES)}.")
            files += found
        elif not source.is_file():
            raise FileNotFoundError(f"no such file or folder: {source}. Check sources.")
        elif not source.name.endswith(SUFFIXES):
            raise ValueError(f"{source} must be one of {', '.join(SUFFIXES)}. Rename or convert it.")
        else:
            files.append(source)
    return list({path.resolve(): path for path in reversed(files)}.values())[::-1]  # a file that is named twice, once


def _is_text(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".txt")


def _cuts_tails(hold_out: str, path: Path) -> bool:
    return hold_out == "tails" or (hold_out == "auto" and _is_text(path))


def _documents(path: Path, text_key: str, cache: Path) -> Iterator[str]:
    if _is_text(path):
        yield from _rows(path, "document", cache)
        return
    # Read as lines, not as "json": that reader takes texts that look like dates for dates, stops at a key that first
    # comes after its first 10 MB, and does not say in which line something is wrong.
    for number, line in enumerate(_rows(path, "line", cache), start=1):
        if line.strip():
            yield _text_of(line, text_key, f"{path}, line {number}")


def _rows(path: Path, sample_by: str, cache: Path) -> Iterator[str]:
    from datasets import IterableDataset

    if path.suffix == ".gz" and codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8":
        # datasets opens a compressed file in the encoding of the system, whatever it is told
        raise ValueError(
            f"{path}: this system reads compressed text as {locale.getpreferredencoding(False)}, not as "
            "UTF-8. Set PYTHONUTF8=1, or unpack it."
        )
    # not load_dataset: it tells the Hub of every use, and waits for it where there is no network
    rows = IterableDataset.from_text(
        glob.escape(str(path.absolute())),
        sample_by=sample_by,
        cache_dir=str(cache),  # it would leave an empty file in the user's cache for each source
    )
    try:
        for number, row in enumerate(rows):
            yield row["text"] if number else row["text"].removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}). Convert it.") from error
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked; it is cut short, damaged or no gzip file ({error}).") from error


def _text_of(line: str, text_key: str, where: str) -> str:
    expected = f'expected an object such as {{"{text_key}": "..."}}'
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON ({error}); {expected} on each line.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: {expected}, got {type(found).__name__}.")
    if text_key not in found:
        raise ValueError(f"{where}: no key {text_key!r}, only {sorted(found)}. Name the key of the text in text_key.")
    text = found[text_key]
    if not isinstance(text, str):
        raise ValueError(f"{where}: {text_key!r} must be a string, got {type(text).__name__}. Mend or remove the line.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where}: {text_key!r} holds half a surrogate pair, which is no character ({error})."
        ) from error
    return text


def _split(text: str, tails: bool, val_fraction: float, seed: int) -> Iterator[tuple[str, str]]:
    """The document, or its two parts, each with the name of the part it belongs to."""
    if not val_fraction:
        yield "train", text
    elif tails:
        most = round(len(text) * (1 - val_fraction))
        near = max(0, 2 * most - len(text))  # so that no more than twice the fraction is held out
        cut = text.rfind("\n", near, most) + 1 or text.rfind(" ", near, most) + 1 or most
        yield "train", text[:cut]
        yield "val", text[cut:]
    else:
        found = hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=8).digest()
        yield ("val" if int.from_bytes(found, "big") < val_fraction * 2**64 else "train"), text


def _tokenise(documents: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> Iterator[tuple[str, list[int], bool]]:
    """Ids of the documents in their order, with the name of the part, and whether the document ends there."""
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
    """A tokenizer may need 200 bytes for a character, so a long document is tokenised in pieces, cut at line ends."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        last = end >= len(text)
        yield name, tokenizer.encode(text[start:end], eos=last, continued=start > 0), last
        start = end


def _check_not_empty(name: str, part: _Part, val_fraction: float, parts: dict[str, _Part]) -> None:
    if part.tokens:
        return
    if not any(other.tokens for other in parts.values()):
        raise ValueError("the sources hold no text at all: every file or document is empty.")
    raise ValueError(
        f"the part {name!r} would be empty: val_fraction={val_fraction} of {sum(p.documents for p in parts.values())} "
        "documents. Change val_fraction (0: no validation part) or seed, or hold out tails of documents: "
        "hold_out='tails'."
    )


def _publish(unfinished: Path, out: Path, names: list[str]) -> None:
    """Move finished files to their place; ``tokens.json``, without which nothing loads, last."""
    (out / DESCRIPTION).unlink(missing_ok=True)
    for old in out.glob("*.bin"):
        if old.stem in ("train", "val") and old.stem not in names:
            old.unlink()
    for name in names:
        os.replace(unfinished / f"{name}.bin", out / f"{name}.bin")
    os.replace(unfinished / DESCRIPTION, out / DESCRIPTION)


if __name__ == "__main__":
    require("jsonargparse", "this command")
    from jsonargparse import auto_cli

    try:
        auto_cli(prepare)
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
