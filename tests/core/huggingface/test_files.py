"""Models of transformers, saved and loaded."""

import subprocess
import sys
from dataclasses import asdict, fields

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from titans_core import TitansConfig, TitansLM
from titans_core.huggingface import TitansCache, TitansForCausalLM, TitansHFConfig, hf_tokenizer


def test_every_setting_of_the_network_is_one_of_the_configuration(small):
    for field in fields(TitansConfig):
        assert getattr(TitansHFConfig(), field.name) == field.default
    config = TitansHFConfig(architecture="mal", **small, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    assert TitansHFConfig.from_dict(config.to_dict()).titans() == config.titans()
    assert config.hidden_size == 16
    with pytest.raises(ValueError, match="architecture must be one of"):
        TitansHFConfig(architecture="rnn")


@pytest.mark.slow
def test_saved_models_give_the_same_logits_in_a_fresh_process(architectures, wrapped, random_ids, tmp_path):
    ids, expected = random_ids(2, 13), {}
    for name in architectures:
        for tied in (True, False):
            hf = wrapped(name, dtype=torch.float32, tie_embeddings=tied)
            hf.save_pretrained(tmp_path / f"{name}-{tied}")
            expected[f"{name}-{tied}"] = (tied, hf.state_dict(), hf(ids).logits.detach())
    torch.save((ids, expected), tmp_path / "expected.pt")
    code = f"""if True:
        import pathlib, torch, titans_core.huggingface
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(1)
        folder = pathlib.Path({str(tmp_path)!r})
        ids, expected = torch.load(folder / "expected.pt")
        for name, (tied, weights, logits) in expected.items():
            hf, info = AutoModelForCausalLM.from_pretrained(folder / name, output_loading_info=True)
            assert not any(info.values()), (name, info)
            assert not hf.training and hf.config.eos_token_id == hf.generation_config.eos_token_id == 2, name
            assert (hf.model.head.weight is hf.model.embedding.weight) is tied, name
            assert all(torch.equal(value, weights[key]) for key, value in hf.state_dict().items()), name
            # where a weight lies in memory may decide the last bit
            torch.testing.assert_close(hf(ids).logits, logits, rtol=1e-5, atol=1e-5, msg=name)
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_head_of_its_own_is_saved_whatever_the_configuration_said(make_model, random_ids, tmp_path):
    model, ids = make_model("mac", tie_embeddings=True), random_ids(1, 7)
    model.head.weight = torch.nn.Parameter(model.head.weight + 1)
    model.save(tmp_path / "model")
    loaded = TitansLM.load(tmp_path / "model")
    assert torch.equal(loaded(ids)[0], model(ids)[0])
    assert not loaded.config.tie_embeddings


def test_a_model_in_the_other_format_is_refused_with_how_to_load_it(wrapped, random_ids, tmp_path):
    hf, ids = wrapped("mac", dtype=torch.float32), random_ids(1, 7)
    hf.model.save(tmp_path / "ours")
    with pytest.raises(ValueError, match=r"format of TitansLM\.save.*from_titans\(TitansLM\.load\(folder\)\)"):
        TitansForCausalLM.from_pretrained(tmp_path / "ours")
    TitansForCausalLM.from_titans(TitansLM.load(tmp_path / "ours")).save_pretrained(tmp_path / "theirs")
    with pytest.raises(FileNotFoundError, match=r"format of transformers.*from_pretrained\(path\)\.model is the"):
        TitansLM.load(tmp_path / "theirs")
    again = TitansForCausalLM.from_pretrained(str(tmp_path / "theirs")).model
    torch.testing.assert_close(again(ids)[0], hf(ids).logits)


def test_neither_format_is_saved_over_the_other(wrapped, random_ids, tmp_path):
    """Both have their tensors in model.safetensors."""
    one, other, ids = wrapped("mac", seed=1), wrapped("mac", seed=2), random_ids(1, 7)
    one.model.save(tmp_path / "ours")
    with pytest.raises(ValueError, match="holds a TitansLM, which would be lost: choose another folder"):
        other.save_pretrained(tmp_path / "ours")
    assert torch.equal(TitansLM.load(tmp_path / "ours")(ids)[0], one(ids).logits)
    one.save_pretrained(tmp_path / "theirs")
    with pytest.raises(ValueError, match="holds a model of another program, such as transformers, which would be lost"):
        other.model.save(tmp_path / "theirs")
    assert torch.equal(TitansForCausalLM.from_pretrained(tmp_path / "theirs")(ids).logits, one(ids).logits)
    other.save_pretrained(tmp_path / "theirs")
    assert torch.equal(TitansForCausalLM.from_pretrained(tmp_path / "theirs")(ids).logits, other(ids).logits)


def test_weights_that_a_checkpoint_lacks_start_as_new(wrapped, tmp_path):
    hf = wrapped("mac", dtype=torch.float32)
    state = {name: value for name, value in hf.state_dict().items() if "to_gates" not in name}
    hf.save_pretrained(tmp_path, state_dict=state)
    found, new = TitansForCausalLM.from_pretrained(tmp_path).state_dict(), TitansLM(hf.config.titans()).state_dict()
    gates = [name for name in found if "to_gates.bias" in name]
    assert gates
    for name in gates:
        assert torch.equal(found[name], new[name.removeprefix("model.")])
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_bfloat16_is_near_float32_and_keeps_the_memory_in_float32(wrapped, random_ids, architecture, tmp_path):
    hf, ids = wrapped(architecture, dtype=torch.float32), random_ids(2, 13)
    hf.save_pretrained(tmp_path)
    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    output = half(ids, use_cache=True)
    # mac rounds in one layer more: it asks its memory, attends, writes, and asks again
    bound = 0.08 if architecture == "mac" else 0.05
    assert (output.logits.float() - hf(ids).logits).std() < bound * hf(ids).logits.std()
    if architecture != "transformer":
        block = output.past_key_values.parts[0][1].blocks[0]
        memory = getattr(block, "memory", block)
        memory = getattr(memory, "memory", memory)
        assert memory.weights[0].dtype == torch.float32
    found = half.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert found.shape == (2, 19)
    half.save_pretrained(tmp_path / "half")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert again.dtype == torch.bfloat16
    assert torch.equal(again(ids).logits, output.logits)


def test_without_transformers_the_error_names_the_command():
    code = """if True:
        import sys
        sys.modules["transformers"] = None
        from titans_core.evals import harness

        def package():
            import titans_core.huggingface

        for needs_it in (package, lambda: harness.main(["--model", "."])):
            try:
                needs_it()
            except ImportError as error:
                assert "pip install 'titans-suite[hf]'" in str(error), error
            else:
                raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_saved_folder_writes_text_by_itself(make_model, tmp_path):
    hf = TitansForCausalLM.from_titans(make_model("mac", vocab_size=258, dtype=torch.float32), eos_token_id=257)
    hf.save_pretrained(tmp_path)
    hf_tokenizer("bytes").save_pretrained(tmp_path)
    write = transformers.pipeline("text-generation", str(tmp_path), device="cpu", batch_size=2)
    options = dict(max_new_tokens=5, do_sample=False, eos_token_id=None)
    together = write(["A longer prompt", "short"], **options)
    alone = [write(prompt, **options) for prompt in ("A longer prompt", "short")]
    assert [answer[0]["generated_text"] for answer in together] == [answer[0]["generated_text"] for answer in alone]


def test_public_names(small):
    import titans_core.huggingface as module

    assert module.__all__ == ["TitansCache", "TitansForCausalLM", "TitansHFConfig", "hf_tokenizer"]
    assert isinstance(TitansCache(), transformers.Cache)
    assert asdict(TitansHFConfig(**small).titans()) == asdict(TitansConfig(**small))
    with pytest.raises(ValueError, match="hidden_size=32 and dim=16 name the same setting: give one"):
        TitansHFConfig(hidden_size=32, **small)
