"""The project's tokenizers for Hugging Face ``transformers``."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from titans_core.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, load_tokenizer


def hf_tokenizer(spec: str | Path) -> Any:
    """A ``transformers`` tokenizer with the same ids as :func:`titans_core.tokenizers.load_tokenizer`.

    Save it next to the model with ``save_pretrained``.

    It has the begin and end tokens of the original tokenizer. Neither is added automatically, because pretraining
    begins no document with one. Padding is on the left, so that a batch can be continued. The padding token is the
    begin token, if there is one: ``DataCollatorForLanguageModeling`` hides the padding token from the loss wherever it
    occurs, and a model that is never shown the end token does not learn to stop. Where the begin token is the end token
    (GPT-2, Qwen) or missing, padding is the end token: train with labels that are hidden by ``attention_mask`` instead.
    Text that looks like a special token is encoded as ordinary text.

    Args:
        spec: as in ``load_tokenizer``.

    Raises:
        FileNotFoundError, ImportError: as for ``load_tokenizer``.
        ValueError: as for ``load_tokenizer``, or if ``tokenizers`` cannot reproduce this kind of SentencePiece model.
    """
    known = load_tokenizer(spec)
    if isinstance(known, HuggingFaceTokenizer):
        backend = known.backend()
        backend.post_processor = processors.Sequence([])  # it would add a begin token to each text
    else:
        backend = _bytes(known) if isinstance(known, ByteTokenizer) else _sentencepiece(Path(known.spec))
    found = backend.encode(_PROBE, add_special_tokens=False).ids
    if found != known.encode(_PROBE):
        raise ValueError(
            f"{spec} is not a SentencePiece model of the Llama 2 kind (BPE with byte fallback, no normalisation, a "
            "space before the text), so its ids would change. Convert it to a tokenizer.json and pass that folder."
        )
    padding = known.eos_id if known.bos_id is None else known.bos_id
    ids = {"bos_token": known.bos_id, "eos_token": known.eos_id, "pad_token": padding}
    special = {name: backend.id_to_token(i) for name, i in ids.items() if i is not None}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        padding_side="left",
        **special,
    )


# runs of spaces, spaces at both ends, newlines, rare words, characters outside the vocabulary, combining characters
_PROBE = (
    "  Two  spaces,   three;\n\n\tTab: Überraschung 1234.5 🙂 ﬁ Ⅳ é e\u0301 漢字 antidisestablishmentarianism </s> _▁ "
)


def _bytes(known: Tokenizer) -> Backend:
    """One token per byte, named by the printable character that byte-level models use for it."""
    vocab = {character: byte for byte, character in bytes_to_unicode().items()}
    backend = Backend(BPE(vocab | {"<s>": known.bos_id, "</s>": known.eos_id}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(path: Path) -> Backend:
    """The BPE of a SentencePiece model.

    SentencePiece merges the two neighbours whose union has the highest score. So every way to split a piece in two
    known pieces is a merge, ranked by the score of the piece.
    """
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(str(path))
    vocab = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    score = {piece: model.get_score(i) for piece, i in vocab.items() if not (model.is_control(i) or model.is_byte(i))}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(score, key=lambda piece: -score[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in score and piece[cut:] in score
    ]
    unknown = model.id_to_piece(model.unk_id())
    backend = Backend(BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend
