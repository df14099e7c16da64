"""Convert text to token ids and back: byte, SentencePiece and Hugging Face tokenizers with one small interface.

Heavy packages are imported only when a tokenizer is created.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Protocol

from titans_core.extras import require

__all__ = [
    "ByteTokenizer",
    "HuggingFaceTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "load_tokenizer",
]

_EOS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|im_end|>")
_BOS = ("<s>", "<|endoftext|>", "<|begin_of_text|>", "<bos>")


class Tokenizer(Protocol):
    """Interface of a tokenizer.

    Attributes:
        spec: what :func:`load_tokenizer` needs to load it again.
        fingerprint: equal for two tokenizers that produce the same ids.
        vocab_size: ids are in ``[0, vocab_size)``.
        bos_id: id that begins a document, or None.
        eos_id: id that ends a document.
    """

    spec: str
    fingerprint: str
    vocab_size: int
    bos_id: int | None
    eos_id: int

    def encode(self, text: str, bos: bool = False, eos: bool = False, *, continued: bool = False) -> list[int]:
        """Return the ids of ``text``. Text that looks like a special token is ordinary text.

        Args:
            text: the text.
            bos: prepend ``bos_id``.
            eos: append ``eos_id``.
            continued: the text follows a line end instead of starting a document. Tokenizers that put a space before a
                document then add none, so that the joined pieces of a long text decode to that text.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without bos and eos."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``; special tokens are skipped.

        Raises:
            ValueError: if an id is outside the vocabulary.
        """


class ByteTokenizer:
    """The UTF-8 bytes of a text. Ids 0 to 255 are bytes, 256 is bos, 257 is eos, and ``vocab_size`` is 258.

    Decoding restores every text exactly. Ids that are not valid UTF-8, such as those of a text cut within a character,
    decode with the replacement character.
    """

    spec = "bytes"
    fingerprint = "bytes, bos 256, eos 257"
    vocab_size = 258
    bos_id: int | None = 256
    eos_id = 257

    def encode(self, text: str, bos: bool = False, eos: bool = False, *, continued: bool = False) -> list[int]:
        _check_kind(text)
        # surrogatepass: a lone surrogate, which JSON allows, becomes three bytes instead of an error
        return _framed(self, list(text.encode("utf-8", "surrogatepass")), bos, eos)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in _listed(texts)]

    def decode(self, ids: Iterable[int]) -> str:
        data = bytes(i for i in _known(self, ids) if i < 256)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


class SentencePieceTokenizer:
    """A SentencePiece model, such as Llama 2's ``tokenizer.model``.

    Most models are not lossless: SentencePiece writes a space as "▁", so a "▁" in a text decodes to a space.

    Args:
        path: path of the ``.model`` file.

    Raises:
        FileNotFoundError: if the file does not exist.
        ImportError: if sentencepiece is not installed.
        ValueError: if the file is not a SentencePiece model, or has no eos.
    """

    def __init__(self, path: str | Path) -> None:
        require("sentencepiece", "a SentencePiece model", "lm")
        from sentencepiece import SentencePieceProcessor

        path = Path(path).expanduser()
        data = _read(path, "a SentencePiece model")
        self._model = SentencePieceProcessor()
        try:
            loaded = self._model.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise ValueError(f"{path} is not a SentencePiece model, or is damaged ({error}).") from error
        if not loaded or self._model.eos_id() < 0:
            raise ValueError(f"{path} has no end-of-document token (eos): train the model with an eos_id.")
        self.spec = str(path)
        self.fingerprint = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.vocab_size: int = self._model.vocab_size()
        self.bos_id: int | None = self._model.bos_id() if self._model.bos_id() >= 0 else None
        self.eos_id: int = self._model.eos_id()

    def encode(self, text: str, bos: bool = False, eos: bool = False, *, continued: bool = False) -> list[int]:
        return _framed(self, _continued(self._encode, text) if continued else self._encode(text), bos, eos)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        for text in _listed(texts):
            _check_text(text)
        return self._model.encode(list(texts))

    def decode(self, ids: Iterable[int]) -> str:
        return self._model.decode(_known(self, ids))

    def _encode(self, text: str) -> list[int]:
        _check_text(text)
        return self._model.encode(text)


class HuggingFaceTokenizer:
    """A ``tokenizer.json`` of Hugging Face's ``tokenizers``.

    The end and begin tokens are those named in ``tokenizer_config.json`` next to it (``eos_token``, ``bos_token``).
    Without a name there, a special token with a common name is used, such as ``</s>`` or ``<|endoftext|>``. Truncation
    and padding set in the file are disabled.

    Args:
        path_or_name: a ``tokenizer.json``, a folder that contains one, or the name of a repository on the Hugging Face
            Hub ("owner/name"), from which only these two files are downloaded.

    Raises:
        FileNotFoundError: if the file, folder or repository does not exist.
        ImportError: if tokenizers is not installed.
        ValueError: if the file cannot be read, or there is no eos.
    """

    def __init__(self, path_or_name: str | Path) -> None:
        require("tokenizers", "a Hugging Face tokenizer", "lm")
        from tokenizers import Tokenizer as Backend

        path = _tokenizer_json(path_or_name)
        data = _read(path, "a Hugging Face tokenizer")
        try:
            self._model = Backend.from_str(data.decode("utf-8"))
        except Exception as error:  # tokenizers raises plain Exception
            raise ValueError(f"{path} is not a tokenizer.json, or is damaged ({error}).") from error
        self._model.no_truncation()
        self._model.no_padding()
        # "</s>" in a document is ordinary text, not its end
        self._model.encode_special_tokens = True
        named = _config(path.with_name("tokenizer_config.json"))
        eos = self._special(named.get("eos_token"), _EOS)
        if eos is None:
            raise ValueError(
                f"{path}: no token that ends a document is known. Set it in tokenizer_config.json in the same folder, "
                f'as {{"eos_token": "..."}}; found there: {named.get("eos_token")!r}.'
            )
        self.spec = str(path_or_name)
        self.vocab_size: int = max(self._model.get_vocab().values()) + 1
        self.eos_id: int = eos
        self.bos_id: int | None = self._special(named.get("bos_token"), _BOS)
        found = hashlib.sha256(data + f"\n{self.bos_id} {self.eos_id}".encode())
        self.fingerprint = f"sha256:{found.hexdigest()}"

    def encode(self, text: str, bos: bool = False, eos: bool = False, *, continued: bool = False) -> list[int]:
        return _framed(self, _continued(self._encode, text) if continued else self._encode(text), bos, eos)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        for text in _listed(texts):
            _check_text(text)
        return [found.ids for found in self._model.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        return self._model.decode(_known(self, ids), skip_special_tokens=True)

    def _encode(self, text: str) -> list[int]:
        _check_text(text)
        return self._model.encode(text, add_special_tokens=False).ids

    def backend(self) -> Any:
        """Return a new ``tokenizers.Tokenizer`` with the same ids."""
        found = type(self._model).from_str(self._model.to_str())
        found.encode_special_tokens = self._model.encode_special_tokens  # the only setting that to_str() omits
        return found

    def _special(self, named: Any, common: tuple[str, ...]) -> int | None:
        if named is not None:
            return self._model.token_to_id(named["content"] if isinstance(named, dict) else named)
        special = {token.content for token in self._model.get_added_tokens_decoder().values() if token.special}
        return next((self._model.token_to_id(name) for name in common if name in special), None)


def load_tokenizer(spec: str | Path) -> Tokenizer:
    """Load the tokenizer named by ``spec``.

    Args:
        spec: "bytes", a SentencePiece ``.model`` file, a ``tokenizer.json``, a folder that contains either (preferring
            ``tokenizer.json``), or the name of a repository on the Hugging Face Hub ("owner/name").

    Raises:
        FileNotFoundError: if the file, folder or repository does not exist.
        ImportError: if the required package is not installed; the message has the install command.
        ValueError: if ``spec`` is none of these, or cannot be read.
    """
    if str(spec) == "bytes":
        return ByteTokenizer()
    path = Path(spec).expanduser()
    if path.suffix == ".model":
        return SentencePieceTokenizer(path)
    if path.is_dir() and not (path / "tokenizer.json").exists() and (path / "tokenizer.model").exists():
        return SentencePieceTokenizer(path / "tokenizer.model")
    if path.is_file() and path.suffix != ".json":
        raise ValueError(f'tokenizer must be "bytes", a .model file, a tokenizer.json or a folder, got {path}.')
    return HuggingFaceTokenizer(spec)


def _framed(tokenizer: Tokenizer, ids: list[int], bos: bool, eos: bool) -> list[int]:
    if bos and tokenizer.bos_id is None:
        raise ValueError(f"the tokenizer {tokenizer.spec} has no token that begins a document: use bos=False.")
    before = [tokenizer.bos_id] if bos and tokenizer.bos_id is not None else []
    return [*before, *ids, *([tokenizer.eos_id] if eos else [])]


def _continued(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Ids of a text after a line end: encode a line end and the text, and drop the ids of the line end."""
    line_end = encode("\n")
    ids = encode("\n" + text)
    # if a line end is not a separate token, it counts as white space, and the text is encoded like a new document
    return ids[len(line_end) :] if line_end and ids[: len(line_end)] == line_end else encode(text)


def _known(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    try:
        known = [index(i) for i in ids]
    except TypeError as error:  # a string, a batch, floats or None
        raise TypeError(f"ids must be the token ids of one text, such as [72, 105], got {ids!r:.80}.") from error
    strange = next((i for i in known if not 0 <= i < tokenizer.vocab_size), None)
    if strange is not None:
        raise ValueError(
            f"the tokenizer {tokenizer.spec} has ids 0 to {tokenizer.vocab_size - 1}, got {strange}: "
            "decode with the tokenizer that produced the ids."
        )
    return known


def _listed(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise TypeError("texts is a single string: pass a list of texts, or call encode for one text.")
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a list of texts, got {type(texts).__name__}.")
    return texts


def _check_kind(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}.")


def _check_text(text: str) -> None:
    _check_kind(text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text has an unpaired surrogate ({text[error.start]!r} at {error.start}), which is not a valid "
            "character: remove or replace it."
        ) from error


def _read(path: Path, what: str) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path} (expected {what}). Check the path.")
    return path.read_bytes()


def _config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}). Fix or delete it.") from error
    return found if isinstance(found, dict) else {}


def _tokenizer_json(path_or_name: str | Path) -> Path:
    path, name = Path(path_or_name).expanduser(), str(path_or_name)
    if path.is_dir():
        return path / "tokenizer.json"
    like_a_name = len(path.parts) == 2 and path.suffix != ".json" and not name.startswith(".")
    # if the parent folder exists, a missing name is a mistake, not a repository to download
    if path.exists() or not like_a_name or path.is_absolute() or path.parent.exists():
        return path
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    require("huggingface_hub", "a tokenizer of the Hugging Face Hub", "lm")
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        found = Path(huggingface_hub.hf_hub_download(name, "tokenizer.json"))
        try:
            huggingface_hub.hf_hub_download(name, "tokenizer_config.json")
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError):  # it may exist, but could not be downloaded
                raise
    except Exception as error:  # many error types: no such name, no access, no network
        raise FileNotFoundError(
            f"{name} is neither a local file nor folder, and its tokenizer.json could not be downloaded from the "
            f"Hugging Face Hub ({error}). Check the path or the name, and the network."
        ) from error
    return found
