"""Batches of tokens and their arithmetic."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from titans_core import TitansConfig, TitansLM
from titans_core.train.flops import flops_per_token
from titans_core.train.token_data import TokenData


def test_steps_are_shared_and_drawn_as_configured(tokens):
    data = TokenData(tokens, length=32, batch_tokens=1536, micro_batch=4, seed=3)
    data.trainer = SimpleNamespace(world_size=2, accumulate_grad_batches=1, overfit_batches=0)
    data.setup("fit")
    assert data.trainer.accumulate_grad_batches == 6
    batches = data.train_dataloader().batches
    assert (batches.seed, batches.batch_size, batches.together) == (3, 8, 6)
    held_out = data.val_dataloader().batch_sampler
    assert (held_out.windows, held_out.batch_size) == (len(data.val), 8)


@pytest.mark.parametrize(("architecture", "seen"), [("mac", "segment"), ("mag", "window"), ("mal", "window")])
def test_the_arithmetic_of_attention_is_that_of_the_scores_that_are_made(architecture, seen, monkeypatch):
    scored, attend = [], F.scaled_dot_product_attention

    def counting(q, k, v, **options):
        scored.append(len(q) * q.shape[2] * k.shape[2])
        return attend(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)

    def flops(size, length):
        sizes = dict(dim=32, num_layers=2, num_heads=2, hidden=32, vocab_size=16, num_persistent=4)
        model = TitansLM(TitansConfig(architecture=architecture, **sizes, **{seen: size}))
        scored.clear()
        model(torch.zeros(1, length, dtype=torch.long))
        # scores and sums of values, forward and twice that backward
        return flops_per_token(model, length) - 3 * 4 * 32 * sum(scored) / length

    length = 60 if architecture == "mal" else 64  # behind 4 persistent tokens
    without_attention = [flops(size, length) * length for size in (8, 16, 32, 64, 128, 200)]
    assert without_attention == pytest.approx(without_attention[:1] * 6)
