"""Small language models as models of transformers, and texts for them."""

import pytest
import torch

from titans_core import TitansConfig, TitansLM

ARCHITECTURES = ("lmm", "mac", "mag", "mal", "transformer")
SMALL = dict(
    vocab_size=29, dim=16, num_layers=2, num_heads=2, hidden=24, window=5, segment=6, num_persistent=3, chunk_size=4
)
IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.fixture(scope="session")
def architectures():
    return ARCHITECTURES


@pytest.fixture(scope="session")
def small():
    return SMALL


@pytest.fixture(scope="session")
def titans():
    def make(architecture="mac", dtype=torch.float64, **changes):
        torch.manual_seed(0)
        model = TitansLM(TitansConfig(architecture=architecture, **{**SMALL, **changes})).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():  # logits far enough apart that no rounding decides
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def wrapped(titans):
    from titans_core.huggingface import TitansForCausalLM

    def make(*args, **options):
        return TitansForCausalLM.from_titans(titans(*args, **options), **IDS).eval()

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
        rows, mask = (
            torch.zeros(len(texts), width, dtype=torch.int64),
            torch.zeros(len(texts), width, dtype=torch.int64),
        )
        for row, real, text in zip(rows, mask, texts, strict=True):
            here = slice(width - len(text), None) if side == "left" else slice(len(text))
            row[here], real[here] = text, 1
        return rows, mask

    return pad
