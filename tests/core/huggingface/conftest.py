"""Small language models as models of transformers, and texts for them."""

import pytest
import torch

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer")
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="session")
def architectures():
    return ARCHITECTURES


@pytest.fixture(scope="session")
def wrapped(make_model):
    from titans_core.huggingface import TitansForCausalLM

    def make(architecture="mac", **options):
        return TitansForCausalLM.from_titans(make_model(architecture, **options), **IDS).eval()

    return make


@pytest.fixture(scope="session")
def random_ids():
    def draw(B, T, seed=1):
        return torch.randint(3, 29, (B, T), generator=torch.Generator().manual_seed(seed))

    return draw


@pytest.fixture(scope="session")
def padded():
    """Texts of unequal lengths as one batch, and its mask."""

    def pad(texts, side="left"):
        width = max(len(text) for text in texts)
        rows = torch.zeros(len(texts), width, dtype=torch.int64)
        mask = torch.zeros_like(rows)
        for row, real, text in zip(rows, mask, texts, strict=True):
            here = slice(width - len(text), None) if side == "left" else slice(len(text))
            row[here], real[here] = text, 1
        return rows, mask

    return pad
