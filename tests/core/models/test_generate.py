"""Generation from a prompt or a state."""

import math

import pytest
import torch

from titans_core.models.generate import draw


@pytest.fixture
def prompt():
    return torch.randint(29, (2, 9), generator=torch.Generator().manual_seed(3))


def test_greedy_takes_the_likeliest_token_of_the_whole_text_each_time(make_model, name, prompt):
    model = make_model(name)
    text = prompt
    for _ in range(12):
        text = torch.cat((text, model(text)[0][:, -1:].argmax(-1)), 1)
    assert torch.equal(model.generate(prompt, max_new_tokens=12), text)


def test_a_book_is_read_once_for_many_questions(make_model, name, prompt):
    model = make_model(name)
    book = torch.randint(29, (2, 30), generator=torch.Generator().manual_seed(4))
    state = model.read(book, piece=7)
    for question in (prompt, prompt[:, :3]):
        expected = model.generate(torch.cat((book, question), 1), max_new_tokens=6)[:, 30:]
        assert torch.equal(model.generate(question, max_new_tokens=6, state=state), expected)


def test_the_same_generator_writes_the_same_text(make_model, prompt):
    model = make_model("mac")

    def write(seed):
        generator = torch.Generator().manual_seed(seed)
        return model.generate(prompt, 20, temperature=1.0, top_k=20, top_p=0.9, generator=generator)

    assert torch.equal(write(0), write(0))
    assert not torch.equal(write(0), write(1))


def test_a_sequence_ends_at_a_stop_token_while_others_continue(make_model, prompt):
    model = make_model("lmm")
    free = model.generate(prompt, 12)[:, 9:]
    stop = int(free[0, 2])
    first = [row.tolist().index(stop) if stop in row else 12 for row in free]
    assert first[0] != first[1]  # else this tests nothing
    written = model.generate(prompt, 12, stop={stop})[:, 9:]
    assert written.shape[1] == min(12, max(first) + 1)
    for row, (text, end) in enumerate(zip(free, first, strict=True)):
        assert torch.equal(written[row, : end + 1], text[: min(end + 1, written.shape[1])])
        assert (written[row, end:] == stop).all()


def test_stream_yields_what_generate_returns(make_model, prompt):
    model = make_model("mal")
    streamed = [token for token, _ in model.stream(prompt, 5)]
    assert torch.equal(torch.stack(streamed, 1), model.generate(prompt, 5)[:, 9:])


def test_the_model_comes_back_in_the_mode_it_had(make_model, prompt):
    model = make_model("lmm").train()
    model.blocks[0].eval()  # as of a frozen part
    before = [module.training for module in model.modules()]
    model.generate(prompt, 1)
    assert [module.training for module in model.modules()] == before


def test_top_k_and_top_p_leave_out_the_rest():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log().repeat(2000, 1)
    generator = torch.Generator().manual_seed(0)

    def drawn(**options):
        options = {"temperature": 1.0, "top_k": None, "top_p": None} | options
        return draw(logits, generator=generator, **options).bincount(minlength=4) / 2000

    torch.testing.assert_close(drawn(), torch.tensor([0.5, 0.25, 0.15, 0.1]), rtol=0, atol=0.04)
    torch.testing.assert_close(drawn(top_k=2), torch.tensor([2 / 3, 1 / 3, 0, 0]), rtol=0, atol=0.04)
    assert drawn(top_p=0.5).tolist() == [1, 0, 0, 0]
    assert drawn(top_p=0.74)[2:].tolist() == [0, 0]
    assert drawn(top_p=0.76)[2] > 0
    assert drawn(top_p=0.01).tolist() == [1, 0, 0, 0]  # the likeliest token always stays
    cold = torch.tensor([0.5, 0.25, 0.15, 0.1]) ** 2
    torch.testing.assert_close(drawn(temperature=0.5), cold / cold.sum(), rtol=0, atol=0.04)


def test_a_top_p_of_1_leaves_nothing_out(monkeypatch):
    given = []
    monkeypatch.setattr(torch, "multinomial", lambda p, *rest, **options: given.append(p) or p.argmax(-1, keepdim=True))
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0))
    draw(logits, 1.0, None, 1.0, None)  # a sum of so many in float32 comes to 1 before the last of them
    assert (given[0] > 0).all()


def test_a_temperature_near_0_takes_the_likeliest_token():
    logits = torch.tensor([[1.0, 3.0, 2.0], [60.0, -60.0, 0.0]])
    for temperature in (1e-3, 1e-30, 1e-42, 1e-46):
        assert draw(logits, temperature, None, 0.9, None).tolist() == [1, 0]


def test_chunked_loss_and_its_gradient_are_those_of_whole_logits(make_model, name, prompt):
    model = make_model(name)
    targets = prompt.roll(-1, 1).masked_fill(prompt < 5, -100)
    expected = torch.nn.functional.cross_entropy(model(prompt)[0].flatten(0, 1), targets.flatten())
    gradient = torch.autograd.grad(expected, model.embedding.weight)[0]
    loss = model.loss(prompt, targets, chunk=4)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(loss, model.embedding.weight)[0], gradient, rtol=1e-5, atol=1e-7)
    shifted = torch.nn.functional.cross_entropy(model(prompt)[0][:, :-1].flatten(0, 1), prompt[:, 1:].flatten())
    torch.testing.assert_close(model.loss(prompt).double(), shifted, rtol=1e-6, atol=1e-6)


def test_an_untrained_model_finds_every_token_about_as_likely(make_config, name):
    from titans_core import TitansLM

    torch.manual_seed(0)
    model = TitansLM(make_config(name, vocab_size=256, dim=32, num_heads=2))
    ids = torch.randint(256, (2, 64))
    # logits of deviation 0.5 cost an eighth more than knowing nothing; tied weights find the same token likely
    assert math.log(256) < model.loss(ids).item() < math.log(256) + 0.4


def test_top_p_applies_after_temperature_and_top_k():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log().repeat(2000, 1)
    generator = torch.Generator().manual_seed(0)

    def drawn(temperature, top_k, top_p):
        return set(draw(logits, temperature, top_k, top_p, generator).tolist())

    assert drawn(1.0, None, 0.6) == {0, 1}
    assert drawn(0.5, None, 0.6) == {0}  # 0.725 of it
    assert drawn(2.0, None, 0.7) == {0, 1, 2}  # 0.370, 0.262, 0.203
    assert drawn(1.0, 2, 0.6) == {0}  # two thirds of what is left


def test_the_model_comes_back_in_the_mode_it_had_after_an_error_too(make_model):
    model = make_model("lmm").train()
    with pytest.raises(ValueError, match=r"\(below vocab_size\), got"):
        model.generate(torch.tensor([[99]]), 1)
    assert model.training
