"""A text may be cut anywhere and continued; later tokens do not change earlier outputs."""

import gc
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from titans_core.models.state import LMState, tensors
from titans_core.nn.attention import Attention


def ids_of(B, T, seed=0):
    return torch.randint(29, (B, T), generator=torch.Generator().manual_seed(seed))


# one token; inside a segment, a window, a chunk; at their ends; several cuts
@pytest.mark.parametrize("cuts", [(1,), (4,), (5,), (6,), (12,), (3, 6, 7, 17), tuple(range(1, 23))])
def test_prefill_and_single_tokens_equal_one_pass(make_model, name, cuts):
    model, ids = make_model(name), ids_of(2, 23)
    expected, end = model(ids)
    state, found = None, []
    for part in ids.tensor_split(cuts, dim=1):
        logits, state = model(part, state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-9, atol=1e-9)
    assert state.tokens == end.tokens == 23
    for a, b in zip(tensors(state.blocks), tensors(end.blocks), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_streams_are_exact_in_float32(make_model, name):
    model, ids = make_model(name, dtype=torch.float32), ids_of(2, 40)
    expected, _ = model(ids)
    state, found = None, []
    for token in ids.unbind(1):
        logits, state = model(token[:, None], state)
        found.append(logits)
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("changed", [0, 5, 6, 11, 19])
def test_a_later_token_changes_no_earlier_logits(make_model, name, changed):
    model, ids = make_model(name), ids_of(1, 20)
    other = ids.clone()
    other[0, changed] = (other[0, changed] + 1) % 29
    a, b = model(ids)[0], model(other)[0]
    assert torch.equal(a[:, :changed], b[:, :changed])
    assert not torch.allclose(a[:, changed], b[:, changed])


def test_sequences_of_a_batch_do_not_mix(make_model, name):
    model, ids = make_model(name), ids_of(3, 20)
    torch.testing.assert_close(model(ids)[0][1:2], model(ids[1:2])[0], rtol=1e-9, atol=1e-9)


def test_the_state_does_not_grow_with_the_context(make_model, name):
    model = make_model(name, dtype=torch.float32)
    sizes = [model.read(ids_of(1, T), piece=32).nbytes for T in (60, 600)]
    assert (sizes[0] == sizes[1]) == (name != "transformer")


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_a_state_keeps_nothing_of_what_was_read_alive(make_model, architecture):
    state = make_model(architecture, dtype=torch.float32)(ids_of(1, 600))[1]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors(state.blocks)}
    assert sum(storages.values()) < 3 * state.nbytes


@pytest.mark.parametrize(("tokens", "whole"), [(8, 2), (10, 3)])  # in mid-chunk the weights at its start are kept too
def test_a_linear_memory_keeps_no_unshifted_weights(make_model, tokens, whole):
    model = make_model("lmm", dtype=torch.float32, memory_depth=1, forget_to="start", num_persistent=0)
    memory = model(ids_of(1, tokens))[1].detach().blocks[0].memory
    kept = [*memory.weights, *memory.momentum, *memory.anchor]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    assert sum(storages.values()) == whole * memory.weights[0].nbytes


def test_an_old_state_is_freed_at_once(make_model, name):
    model = make_model(name)
    gc.disable()
    try:
        state = model(ids_of(2, 7))[1]
        for following in (lambda s: model(ids_of(2, 3), s)[1], lambda s: s.detach(), lambda s: s.select([1, 0])):
            old = [weakref.ref(t) for t in tensors(state.blocks)]
            state = following(state).detach()
            kept = {id(t) for t in tensors(state.blocks)}
            assert all(there() is None or id(there()) in kept for there in old)
    finally:
        gc.enable()


def test_a_state_keeps_no_queries_while_all_is_still_seen(make_model, name):
    for t in tensors(make_model(name, dtype=torch.float32)(ids_of(3, 3))[1].blocks):
        assert t.untyped_storage().nbytes() <= 2 * t.nbytes  # a memory and its past surprise may be in one


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_memory_keeps_tokens_beyond_the_reach_of_attention(make_model, architecture):
    model, ids = make_model(architecture, num_layers=1), ids_of(1, 20)
    other = ids.clone()
    other[0, 0] = (other[0, 0] + 1) % 29
    assert (model(ids)[0] - model(other)[0])[:, 14:].abs().max() > 1e-12


def test_a_window_ends_where_it_says():
    attention = Attention(16, 2, window=5, num_persistent=2).double()
    x = torch.randn(1, 20, 16, dtype=torch.float64)
    y = x.clone()
    y[:, 3] += 1
    same = (attention(x)[0] == attention(y)[0]).all(-1)[0]
    assert same.tolist() == [True] * 3 + [False] * 5 + [True] * 12


def test_gradients_flow_through_a_state_that_is_gone_on_from(make_model, name):
    model, ids = make_model(name), ids_of(1, 20)

    def gradient(cut):
        model.zero_grad()
        if cut:
            first, state = model(ids[:, :cut])
            logits = torch.cat((first, model(ids[:, cut:], state)[0]), 1)
        else:
            logits = model(ids)[0]
        logits.square().mean().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters()}

    whole, halves = gradient(0), gradient(13)
    for n, g in whole.items():
        torch.testing.assert_close(halves[n], g, rtol=1e-7, atol=1e-9 * float(g.abs().max() + 1), msg=n)


def test_a_state_can_be_used_many_times_and_is_not_changed(make_model, name):
    model, ids = make_model(name), ids_of(1, 20)
    state = model.read(ids)
    before = [t.clone() for t in tensors(state.blocks)]
    first = model(ids[:, :4], state)[0]
    model(ids[:, 4:9], state)
    assert torch.equal(model(ids[:, :4], state)[0], first)
    assert all(torch.equal(a, b) for a, b in zip(tensors(state.blocks), before, strict=True))


@pytest.mark.parametrize("tokens", [24, 25])
def test_shared_tensors_of_a_state_are_stored_once(make_model, name, tokens, tmp_path):
    """At the ends of chunks and segments the weights are also the anchor of the gradients."""
    state = make_model(name).read(ids_of(2, tokens))
    state.save(tmp_path / "state")
    loaded = LMState.load(tmp_path / "state")
    assert loaded.nbytes == state.select(torch.tensor([1, 0])).nbytes == state.nbytes
    assert (tmp_path / "state").stat().st_size < state.nbytes + 20_000


def test_a_saved_state_is_gone_on_from_alike(make_model, name, tmp_path):
    from titans_core import LMState

    model, ids = make_model(name), ids_of(2, 21)
    state = model.read(ids)
    state.save(tmp_path / "book.safetensors")
    loaded = LMState.load(tmp_path / "book.safetensors")
    assert loaded.tokens == 21
    assert torch.equal(model(ids, loaded)[0], model(ids, state)[0])


def test_a_damaged_state_is_refused(make_model, tmp_path):
    path = tmp_path / "book.safetensors"
    make_model("mac").read(ids_of(1, 5)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    with pytest.raises(ValueError, match=r"is damaged: its tensors do not match their checksum"):
        LMState.load(path)
    path.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match="cannot be read as a saved state"):
        LMState.load(path)
    (tmp_path / "whole").write_bytes(whole)
    for text in ("[1]", "null", '{"format": 1}'):
        save_file(load_file(tmp_path / "whole"), path, {"titans_state": text})
        with pytest.raises(ValueError, match="is not a saved state of format 2"):
            LMState.load(path)


def test_a_state_in_use_does_not_change_when_its_file_does(make_model, tmp_path, monkeypatch):
    from titans_core import LMState

    model, ids, path = make_model("transformer"), ids_of(1, 40), tmp_path / "book.safetensors"
    model.read(ids).save(path)
    state = LMState.load(path)
    expected = model(ids, state)[0]
    model.read(ids[:, :3]).save(path)
    assert torch.equal(model(ids, state)[0], expected)
    # a saving that is cut off leaves what was there
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.read(ids).save(path)
    assert LMState.load(path).tokens == 3
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_selected_rows_continue_as_those_sequences(make_model, name):
    model, ids = make_model(name), ids_of(3, 17)
    state = model.read(ids)
    rows = torch.tensor([2, 0, 2])
    expected = model(ids, state)[0][rows]
    torch.testing.assert_close(model(ids[rows], state.select(rows))[0], expected, rtol=1e-9, atol=1e-9)


def test_all_windows_share_one_mask():
    """The mask has the size of a window for any length and batch, and is not stored per block."""
    layer, x = Attention(16, 2, window=32), torch.randn(4, 32 * 20, 16)
    kept = []

    def keep(t):
        kept.append(t.untyped_storage().nbytes())
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        layer(x)[0].sum().backward()
    queries = x.numel() * 4
    assert max(kept) <= 3 * queries  # queries, keys and values of all heads, in one tensor


def test_a_state_is_cut_from_the_graph_as_a_whole(make_model, name):
    model, ids = make_model(name), torch.arange(20)[None]
    state = model(ids)[1]
    assert any(t.requires_grad for t in tensors(state.blocks))
    cut = state.detach()
    assert not any(t.requires_grad for t in tensors(cut.blocks))
    assert cut.tokens == 20
    assert torch.equal(model(ids, cut)[0], model(ids, state)[0])


def test_sequences_are_chosen_by_numbers_of_any_kind(make_model):
    model = make_model("mag")
    state = model(torch.arange(18).reshape(3, 6))[1]
    expected = list(tensors(state.select(torch.tensor([2, 0])).blocks))
    for rows in ([2, 0], (2, 0), range(2, -1, -2)):
        for a, b in zip(tensors(state.select(rows).blocks), expected, strict=True):
            assert torch.equal(a, b)
    small = state.select(torch.tensor([2, 0], dtype=torch.uint8))
    assert all(torch.equal(a, b) for a, b in zip(tensors(small.blocks), expected, strict=True))
    indices = "integer indices of sequences"
    for rows, says in (([], indices), (0, indices), ([True], indices), ([3], "from 0 to 2"), ([-1], "from 0 to 2")):
        with pytest.raises(ValueError, match=says):
            state.select(rows)


@pytest.mark.parametrize("name", ["lmm", "mac", "mag", "mal", "transformer"])
def test_a_state_on_another_device_is_refused_with_a_plain_message(make_model, name):
    model, ids = make_model(name), torch.arange(6)[None]
    state = model(ids)[1].to("meta")
    with pytest.raises(ValueError, match=r"state is on meta, but the model is on cpu: use state\.to\('cpu'\)"):
        model(ids, state)


def test_a_state_in_a_checkpoint_of_ones_own_is_read_without_unpickling(make_model, name, tmp_path):
    model, ids = make_model(name), ids_of(2, 9)
    state = model(ids)[1].detach()
    torch.save({"state": state}, tmp_path / "own.pt")
    found = torch.load(tmp_path / "own.pt", weights_only=True)["state"]
    assert torch.equal(model(ids, found)[0], model(ids, state)[0])


def test_a_state_outlives_a_change_of_tying(make_model, tmp_path):
    model, ids = make_model("mag", tie_embeddings=True), ids_of(1, 9)
    model.head.weight = torch.nn.Parameter(model.head.weight.detach() + 1)
    state = model(ids)[1]
    model.save(tmp_path / "m")
    assert torch.equal(type(model).load(tmp_path / "m")(ids, state)[0], model(ids, state)[0])


def test_a_state_may_be_in_a_new_folder_of_the_home_folder(make_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    make_model("lmm")(torch.arange(6)[None])[1].save("~/new/book.safetensors")
    assert (tmp_path / "home" / "new" / "book.safetensors").is_file()
    assert LMState.load("~/new/book.safetensors").tokens == 6
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_who_may_read_a_new_file_may_read_a_state(make_model, tmp_path):
    path, plain = tmp_path / "book.safetensors", tmp_path / "plain"
    make_model("lmm")(torch.arange(6)[None])[1].save(path)
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_the_folder_of_a_state_is_made(make_model, tmp_path):
    state = make_model("lmm")(torch.arange(6)[None])[1]
    state.save(tmp_path / "new" / "book.safetensors")
    assert LMState.load(tmp_path / "new" / "book.safetensors").tokens == 6


def test_sizes_are_found_without_values(make_model, name):
    found = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            model = make_model(name)
        logits, state = model(ids_of(2, 9).to(device))
        logits.sum().backward()
        parts = [logits, *tensors(state.blocks), *(p.grad for p in model.parameters() if p.grad is not None)]
        found.append([(x.shape, x.dtype) for x in parts])
        assert {x.device.type for x in parts} == {device}
    assert found[0] == found[1]
