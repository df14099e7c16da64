"""Batches of tokens and their arithmetic."""

from types import SimpleNamespace

import pytest
import torch

from titans_core import TitansConfig, TitansLM
from titans_core.train.flops import flops_per_token
from titans_core.train.token_data import TokenData


def test_steps_are_shared_and_drawn_as_asked(tokens):
    data = TokenData(tokens, length=32, batch_tokens=1536, micro_batch=4, seed=3)
    data.trainer = SimpleNamespace(world_size=2, accumulate_grad_batches=1)
    data.setup("fit")
    assert data.trainer.accumulate_grad_batches == 6
    batches = data.train_dataloader().batches
    assert (batches.seed, batches.batch_size, batches.together) == (3, 8, 6)
    held_out = data.val_dataloader().batch_sampler
    assert (held_out.windows, held_out.batch_size) == (len(data.val), 8)


@pytest.mark.parametrize(("architecture", "seen"), [("mac", "segment"), ("mag", "window"), ("mal", "window")])
def test_the_arithmetic_of_attention_is_that_of_the_tokens_it_sees(architecture, seen):
    def flops(size, length=64):
        sizes = dict(dim=32, num_layers=2, num_heads=2, hidden=32, vocab_size=16, num_persistent=4)
        with torch.device("meta"):
            return flops_per_token(TitansLM(TitansConfig(architecture=architecture, **sizes, **{seen: size})), length)

    # 4 dim for each token, twice as many as a window has, in two layers, forward and twice that backward
    assert flops(24) - flops(8) == 3 * 2 * 4 * 32 * 2 * 16
    assert flops(48, length=20) == flops(20, length=20)
