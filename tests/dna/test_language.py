"""A language model of DNA: what it learns, and that streaming, resuming and saving do not change it."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pyfaidx
import pytest
import torch
from random_dna import bases, chain
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from titans_dna import Genome, Interval, Variant, language, reverse_complement
from titans_dna.genomes.sources import InMemory
from titans_dna.inference import questions
from titans_dna.language import DNALanguageModel
from titans_dna.markov import fit_markov

SMALL = dict(dim=16, num_layers=1, num_heads=2, window=16, length=64, batch_size=8, device="cpu", verbose=0)
TRUE_BITS = -0.85 * np.log2(0.85) - 0.15 * np.log2(0.05)


def small(**changes):
    return DNALanguageModel(**{**SMALL, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def fitted():
    return small(max_steps=100, learning_rate=1e-2).fit([chain(20_000)])


def test_a_markov_chain_is_learned_to_near_its_entropy(fitted):
    """Order 0 needs 2 bits; the entropy of the chain is the lower bound."""
    bits = fitted.bits_per_base([chain(3000, seed=1)])
    assert TRUE_BITS - 0.05 < bits < TRUE_BITS + 0.15
    assert fitted.score([chain(3000, seed=1)]) == -bits


def test_a_single_window_gives_no_validation_and_a_warning():
    with pytest.warns(UserWarning, match=r"only one window, of 64 bases.*cannot stop early") as warned:
        model = small(max_steps=2).fit([chain(64)])
    assert warned[0].filename == __file__
    assert "val_loss" not in model.history_.epochs[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(max_steps=2).fit([chain(128)])


def test_both_strands_are_learned(fitted):
    text = chain(3000, seed=1)
    assert fitted.bits_per_base([reverse_complement(text)]) == pytest.approx(fitted.bits_per_base([text]), abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "deep"),
    [(name, deep) for name in ("lmm", "mac", "mag", "mal") for deep in (False, True)] + [("gated-deltanet", False)],
)
def test_a_stream_in_pieces_has_the_bits_of_one_call(architecture, deep, monkeypatch):
    memory = dict(memory_depth=2, chunk_size=8) if deep else {}
    model = small(architecture=architecture, max_steps=2, **memory).fit([chain(2000)])
    text = chain(301, seed=2)
    whole = model.bits_per_base([text])
    # beside a shorter one, which ends on the way
    monkeypatch.setattr(questions, "stream", partial(questions.stream, piece=37))
    assert model.bits_per_base([text]) == pytest.approx(whole, abs=1e-6)
    both = model.bits_per_base([text, text[:100]])
    assert both == pytest.approx((301 * whole + 100 * model.bits_per_base([text[:100]])) / 401, abs=1e-6)


@pytest.mark.parametrize("kind", ["model", "markov"])
def test_each_region_is_read_separately_and_overlaps_count_twice(fitted, kind):
    source = InMemory([chain(600, seed=4)])
    one, two = Interval("0", 0, 300), Interval("0", 100, 300)

    def bits(*regions):
        if kind == "model":
            return fitted.bits_per_base(source, regions=regions)
        return fit_markov([chain(2000)], order=2).bits_per_base(source, regions=regions)["additive"][2]

    assert bits(one, two) == pytest.approx((300 * bits(one) + 200 * bits(two)) / 500, abs=1e-6)
    assert bits(one, one) == pytest.approx(bits(one), abs=1e-6)


def test_bits_follow_from_the_networks_probabilities(fitted):
    text = chain(50, seed=3)
    ids = torch.tensor([[4, *("ACGT".index(x) for x in text)]])
    with torch.no_grad():
        logits = fitted.model_(ids[:, :-1])[0][0, :, :4]
    expected = -logits.log_softmax(-1)[torch.arange(50), ids[0, 1:]].mean() / np.log(2)
    assert fitted.bits_per_base([text]) == pytest.approx(float(expected), abs=1e-6)


def test_windows_are_read_independently(fitted):
    text = chain(1000, seed=4)
    apart = fitted.bits_per_base([text[i : i + 100] for i in range(0, 1000, 100)])
    assert fitted.bits_per_base([text], context=100) == pytest.approx(apart, abs=1e-6)


def test_an_unknown_base_is_read_but_not_scored(fitted):
    text = chain(200, seed=5)
    with_n = text[:100] + "NNNN" + text[104:]
    track = fitted.surprise(InMemory([with_n]), "0")
    assert track["bits"].isna().to_numpy().nonzero()[0].tolist() == [100, 101, 102, 103]
    assert fitted.bits_per_base([with_n]) == pytest.approx(track["bits"].mean(), abs=1e-6)
    with pytest.raises(ValueError, match="no known base"):
        fitted.bits_per_base(["NNNN"])


@pytest.mark.parametrize("objective", ["next", "masked"])
def test_resumed_training_equals_unbroken_training(objective, tmp_path, monkeypatch):
    monkeypatch.setattr(language, "EPOCH", 3)
    text, model = [chain(3000)], small(max_steps=12, objective=objective)
    unbroken = clone(model).fit(text)
    calls, loss = [], language.LOSSES[objective]

    def breaks(network, batch):
        calls.append(None)
        if len(calls) == 14:  # in the fourth epoch of 3 batches and 1 of validation
            raise RuntimeError("power cut")
        return loss(network, batch)

    monkeypatch.setitem(language.LOSSES, objective, breaks)
    with pytest.raises(RuntimeError, match="power cut"):
        clone(model).fit(text, checkpoint_dir=tmp_path)
    monkeypatch.setitem(language.LOSSES, objective, loss)
    resumed = clone(model).fit(text, checkpoint_dir=tmp_path)
    assert resumed.history_ == unbroken.history_
    for ours, theirs in zip(resumed.model_.parameters(), unbroken.model_.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="checkpoint of another run: random_state is 0 there and 7 here"):
        clone(model).set_params(random_state=7).fit(text, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="; max_steps is 12 there and 120 here"):
        clone(model).set_params(max_steps=120).fit(text, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="checkpoint of another run: the sequence differs"):
        clone(model).fit([chain(3000, seed=9)], checkpoint_dir=tmp_path)


def test_a_language_model_resumes_saves_and_loads_in_the_home_folder(home, monkeypatch):
    monkeypatch.setattr(language, "EPOCH", 1)
    calls, loss, text = [], language.LOSSES["next"], [chain(1000)]

    def breaks(network, batch):
        calls.append(network.training)
        if calls.count(True) == 3:
            raise RuntimeError("power cut")
        return loss(network, batch)

    monkeypatch.setitem(language.LOSSES, "next", breaks)
    with pytest.raises(RuntimeError, match="power cut"):
        small(max_steps=4).fit(text, checkpoint_dir="~/run")
    assert (home / "run" / "last.ckpt").exists()
    resumed = small(max_steps=4).fit(text, checkpoint_dir="~/run")
    assert calls.count(True) == 3 + 2
    resumed.save("~/model")
    assert (home / "model" / "model.json").exists()
    assert DNALanguageModel.load("~/model").bits_per_base(text) == resumed.bits_per_base(text)


def test_a_random_state_object_cannot_be_resumed_from(tmp_path):
    model = small(max_steps=1, random_state=np.random.RandomState(0))
    with pytest.raises(ValueError, match="checkpoint_dir needs random_state to be an integer or None"):
        model.fit([chain(500)], checkpoint_dir=tmp_path)


def test_saved_and_loaded_it_gives_the_same_numbers(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = DNALanguageModel.load(tmp_path / "model")
    text = [chain(200, seed=1), bases(77)]
    np.testing.assert_array_equal(again.embed(text), fitted.embed(text))
    assert again.bits_per_base(text) == fitted.bits_per_base(text)
    assert again.get_params() == fitted.get_params()
    assert (again.history_, again.holdout_, again.n_bases_) == (fitted.history_, [], fitted.n_bases_)


def test_one_seed_is_one_model():
    one, two = (small(max_steps=2).fit([chain(1000)]) for _ in range(2))
    assert one.bits_per_base([bases(100)]) == two.bits_per_base([bases(100)])
    other = small(max_steps=2, random_state=1).fit([chain(1000)])
    assert other.bits_per_base([bases(100)]) != one.bits_per_base([bases(100)])


def test_an_embedding_does_not_depend_on_its_neighbours(fitted):
    texts = [chain(n, seed=n) for n in (5, 300, 64, 1)]
    together = fitted.embed(texts)
    assert together.shape == (4, 16)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(fitted.embed([text])[0], vector, atol=1e-5)


def test_an_embedding_is_the_mean_over_the_bases(fitted):
    text = chain(40, seed=6)
    ids = torch.tensor([[4, *("ACGT".index(x) for x in text)]])
    with torch.no_grad():
        hidden = fitted.model_.hidden(ids)[0][0, 1:]
    np.testing.assert_allclose(fitted.embed([text])[0], hidden.mean(0).numpy(), atol=1e-5)


def test_numbers_become_float64_on_the_cpu_only(fitted, monkeypatch):
    """MPS has no float64. For a tensor on it stands, here, each that was not moved to the CPU."""
    moved, text = [], chain(40, seed=6)
    cpu, double = torch.Tensor.cpu, torch.Tensor.double
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: moved.append(cpu(x)) or moved[-1])
    monkeypatch.setattr(torch.Tensor, "double", lambda x: double(next(there for there in moved if there is x)))
    fitted.bits_per_base([text])
    fitted.embed([text], layers="all")
    fitted.score_variants([Variant("0", 9, text[9], "AC")], [text])


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mal"])
def test_an_embedding_of_all_layers_is_their_moments(architecture, monkeypatch):
    model = small(architecture=architecture, num_layers=2, max_steps=1).fit([chain(500)])
    texts = [chain(40, seed=6), bases(25, 1)]
    found = model.embed(texts, layers="all")
    assert found.shape == (2, 2 * 3 * 16)
    network = model.model_
    for text, vector in zip(texts, found, strict=True):
        x = network.embedding(torch.tensor([[4, *("ACGT".index(base) for base in text)]]))
        outputs = []
        with torch.no_grad():
            for block in network.blocks:
                x = block(x)[0]
                outputs.append(x)
            outputs.append(network.norm(x))
        each = torch.cat(outputs, -1)[0, 1:].double()
        expected = torch.cat((each.mean(0), each.std(0, correction=0)))
        np.testing.assert_allclose(vector, expected, atol=1e-4)
    # in pieces it is the same, and nothing goes on listening
    monkeypatch.setattr("titans_dna.inference.embed.stream", partial(questions.stream, piece=16))
    np.testing.assert_allclose(model.embed(texts, layers="all"), found, atol=1e-4)
    assert not any(block._forward_hooks for block in network.blocks)
    np.testing.assert_allclose(found[:, 32:48], model.embed(texts), atol=1e-5)
    with pytest.raises(ValueError, match="layers must be one of"):
        model.embed(texts, layers="first")


def test_with_both_strands_a_sequence_and_its_other_strand_have_one_embedding(fitted):
    text = chain(90, seed=7)
    np.testing.assert_allclose(
        fitted.embed([text], both_strands=True), fitted.embed([reverse_complement(text)], both_strands=True), atol=1e-5
    )


def test_an_interval_is_embedded_as_its_sequence(fitted, genome):
    places = [Interval("chrI", 20, 90, "-"), Interval("chrIII", 0, 120)]
    np.testing.assert_allclose(
        fitted.embed(places, genome=genome), fitted.embed([genome.fetch(p) for p in places]), atol=1e-6
    )
    with pytest.raises(ValueError, match="give their FASTA file as genome="):
        fitted.embed(places)


def test_intervals_to_embed_may_be_a_file_or_a_frame(fitted, genome, tmp_path):
    places = [Interval("chrI", 20, 90, "-"), Interval("chrIII", 0, 120)]
    bed = tmp_path / "places.bed"
    bed.write_text("chrI\t20\t90\t\t0\t-\nchrIII\t0\t120\n")
    expected = fitted.embed(places, genome=genome)
    np.testing.assert_array_equal(fitted.embed(bed, genome=genome.path), expected)
    np.testing.assert_array_equal(fitted.embed(bed, genome=genome), expected)
    frame = pd.DataFrame({"chrom": ["chrI", "chrIII"], "start": [20, 0], "end": [90, 120], "strand": ["-", "."]})
    np.testing.assert_array_equal(fitted.embed(frame, genome=genome), expected)
    with pytest.raises(ValueError, match=r"got a pair of intervals and their FASTA file.* embed\(intervals, genome"):
        fitted.embed((bed, genome.path))
    with pytest.raises(TypeError, match="if it has intervals, their FASTA file as genome="):
        fitted.embed(frame)
    with pytest.raises(TypeError, match=r"must be Interval\(chrom, start, end\), got 'ACGT'"):
        fitted.embed(["ACGT"], genome=genome)


def test_unreadable_inputs_are_a_type_error(fitted, genome):
    with pytest.raises(TypeError, match="give its column of sequences"):
        fitted.embed(pd.DataFrame({"sequence": ["ACGT"]}))
    with pytest.raises(TypeError, match="region must be an Interval or text"):
        fitted.surprise(genome, None)
    with pytest.raises(TypeError, match=r"variants must be Variant\(chrom, start, ref, alt\)"):
        fitted.score_variants([("chrI", 3, "A", "C")], genome)
    np.testing.assert_array_equal(fitted.embed([b"ACGT"]), fitted.embed(["ACGT"]))


def test_markov_models_compared_with_a_model_count_only_in_its_regions(write_fasta, tmp_path):
    genome = Genome(write_fasta({"one": "A" * 600 + chain(600), "two": chain(400, seed=1)}), cache_dir=tmp_path)
    bed = [Interval("one", 600, 1200)]
    model = small(max_steps=1).fit(genome, bed=bed, holdout=["two"])
    table = model.compare(genome, chroms=["two"], max_order=1, bed=bed)
    by_hand = model.compare(genome, chroms=["two"], markov=fit_markov(genome, 1, bed=bed))
    pd.testing.assert_frame_equal(table, by_hand)
    assert table["bits_per_base"].min() < model.compare(genome, chroms=["two"], max_order=1)["bits_per_base"].min()


def test_the_holdout_is_neither_trained_on_nor_counted(write_fasta, tmp_path):
    genome = Genome(write_fasta({"one": chain(3000), "two": chain(2000, seed=1)}), cache_dir=tmp_path)
    model = small(max_steps=2).fit(genome, holdout=(name for name in ["two"]))
    assert model.holdout_ == ["two"]
    # the other chromosome's sequence has no influence at all
    alone = small(max_steps=2).fit(Genome(write_fasta({"one": chain(3000)}, "one.fa"), cache_dir=tmp_path))
    assert model.bits_per_base([bases(50)]) == alone.bits_per_base([bases(50)])
    table = model.compare(genome, chroms=["two"], max_order=2)
    assert len(table) == 1 + 3 * 2
    assert table["bits_per_base"].is_monotonic_increasing
    own = model.compare(genome, max_order=0, context=7).set_index("model")["bits_per_base"]["mag"]
    assert own == model.bits_per_base(genome, chroms=["two"], context=7)
    assert own != model.bits_per_base(genome, chroms=["two"])
    with pytest.raises(ValueError, match=r"\['one'\] was not held out by fit, which held out \['two'\]"):
        model.compare(genome, chroms=["one"])


def test_a_genome_shorter_than_a_window_is_one_window(write_fasta, tmp_path):
    model = small(max_steps=1).fit(Genome(write_fasta({"tiny": bases(30)}), cache_dir=tmp_path))
    assert model.n_bases_ == 30


@pytest.mark.parametrize("architecture", ["lmm", "mac", "mag", "mal"])
def test_sequences_shorter_than_a_chunk_are_learned_and_read(architecture):
    model = small(architecture=architecture, memory_depth=2, max_steps=2).fit(["ACG", "T", "GATTACA"] * 4)
    assert model.model_.config.chunk_size == 16
    assert np.isfinite(model.bits_per_base(["ACG", "T"]))
    assert np.isfinite(model.embed(["A", "CG"])).all()


def test_arguments_of_fit_reach_the_training(monkeypatch):
    class StopError(Exception):
        pass

    def stop(network, loss, train, val, options, identity):
        assert (options.patience, options.progress, options.max_epochs) == (3, True, 3)
        assert (len(train), len(val)) == (100, 2)
        raise StopError

    monkeypatch.setattr(language, "train_network", stop)
    with pytest.raises(StopError):
        small(patience=3, verbose=1, max_steps=300).fit([chain(64 * 240)])


def test_a_path_may_be_given_instead_of_a_genome(write_fasta):
    path = write_fasta({"one": chain(600), "two": "acgtn" * 40})
    model = small(max_steps=1).fit(str(path), bed=[Interval("one", 100, 500)], holdout=["two"])
    assert model.n_bases_ < 400
    assert model.bits_per_base(path, chroms=["two"]) > 0


def test_bad_input_is_refused(write_fasta, tmp_path, fitted):
    empty = tmp_path / "empty.fa"
    empty.write_text("")
    path = write_fasta({"chrIV": bases(200), "chrV": bases(200)})
    with pytest.raises(ValueError, match="is empty; expected FASTA"):
        small().fit(empty)
    with pytest.raises(ValueError, match=r"no chromosome 'IV'\. Did you mean 'chrIV'\?"):
        small().fit(path, holdout=["IV"])
    with pytest.raises(ValueError, match="give a list of names"):
        small().fit(path, holdout="chrIV")
    with pytest.raises(ValueError, match="select no sequence"):
        small().fit(path, holdout=["chrIV", "chrV"])
    for second in ("peaks.bed", ["chrV"]):
        with pytest.raises(TypeError, match=r"regions as bed=, and chromosomes to leave out as holdout="):
            small().fit(path, second)
    with pytest.raises(ValueError, match="every window is more than half unknown"):
        small().fit(["N" * 500])
    with pytest.raises(ValueError, match="sequence 1 is empty"):
        small().fit(["ACGT", ""])
    with pytest.raises(ValueError, match=r"read as the path .* put it in a list"):
        small().fit("ACGTACGTACGT")
    with pytest.raises(ValueError, match="objective must be one of"):
        small(objective="span").fit(path)
    with pytest.raises(ValueError, match="forget_to must be one of"):
        small(forget_to="mean").fit(path)
    with pytest.raises(ValueError, match="architecture must be one of"):
        small(architecture="lstm").fit(path)
    with pytest.raises(ValueError, match="max_steps must be an integer >= 1, got 0"):
        small(max_steps=0).fit(path)
    for rate in (0, None, float("inf")):
        with pytest.raises(ValueError, match=f"learning_rate must be positive and finite, got {rate}"):
            small(learning_rate=rate).fit(path)
    with pytest.raises(NotFittedError):
        small().bits_per_base(path)
    with pytest.raises(ValueError, match="ends beyond chrIV"):
        fitted.bits_per_base(path, regions=[Interval("chrIV", 0, 300)])


def test_scoring_leaves_random_states_and_the_model_unchanged(fitted):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    small(max_steps=1).fit([chain(500)])
    assert torch.equal(torch.get_rng_state(), before)
    fitted.model_.train()
    fitted.embed([bases(10)])
    assert fitted.model_.training
    fitted.model_.eval()


def test_a_fasta_file_is_embedded_record_by_record(fitted, genome, tmp_path):
    expected = fitted.embed([genome.fetch(name) for name in genome.lengths])
    with pyfaidx.Fasta(str(genome.path)) as open_there:
        for given in (genome, genome.path, str(genome.path), open_there):
            np.testing.assert_array_equal(fitted.embed(given), expected)
    for name in ("genes.bed", "genes.bed.gz"):
        with pytest.raises(ValueError, match="contains intervals: give their FASTA file"):
            fitted.embed(tmp_path / name)
    (tmp_path / "some.fa").write_text(">a\nACGT\n>b\n>c\nACGT\n")
    with pytest.raises(ValueError, match=r"records without bases: \['b'\]"):
        fitted.embed(tmp_path / "some.fa")
    with pytest.raises(TypeError, match=r"use list\(d"):
        fitted.embed({"a": "ACGT"})


@pytest.mark.parametrize("architecture", ["mac", "mag"])
def test_settings_reach_the_network(architecture):
    settings = dict(dim=16, num_layers=1, num_heads=2, memory_depth=3, forget_to="zero", chunk_size=4)
    text = bases(200, seed=0)
    model = DNALanguageModel(
        architecture,
        **settings,
        hidden=24,
        window=12,
        length=32,
        batch_size=2,
        max_steps=1,
        device="cpu",
        random_state=0,
        verbose=0,
    ).fit([text])
    config = model.model_.config
    assert {name: getattr(config, name) for name in settings} == settings
    assert (config.architecture, config.hidden, config.window, config.segment) == (architecture, 24, 12, 12)
    assert model.set_params(hidden=None).fit([text]).model_.config.hidden == 32


@pytest.mark.parametrize(("depth", "chunk_size"), [(1, 1), (2, 16), (3, 16)])
def test_the_default_chunk_size_depends_on_the_memory_depth(depth, chunk_size):
    model = small(memory_depth=depth, max_steps=1).fit([chain(200)])
    assert (model.model_.config.memory_depth, model.model_.config.chunk_size) == (depth, chunk_size)
    assert model.chunk_size is None
    assert model.set_params(chunk_size=4).fit([chain(200)]).model_.config.chunk_size == 4
    with pytest.raises(ValueError, match="chunk_size must be an integer >= 1, got 0"):
        small(chunk_size=0).fit([chain(200)])


def test_the_default_is_a_linear_memory_with_attention_to_512_bases():
    model = DNALanguageModel(max_steps=1, batch_size=1, length=64, device="cpu", verbose=0).fit([chain(200)])
    config = model.model_.config
    assert (config.architecture, config.window, config.memory_depth, config.chunk_size) == ("mag", 512, 1, 1)


def test_a_transformer_reads_windows_of_its_training_length_by_default():
    text = bases(200, seed=1)
    settings = dict(dim=16, num_layers=1, num_heads=2, length=32, batch_size=4, device="cpu", random_state=0, verbose=0)
    model = DNALanguageModel("transformer", **settings, max_steps=2).fit([text])
    bits = model.bits_per_base([text])
    assert bits == pytest.approx(model.bits_per_base([text], context=32), abs=1e-9)
    assert bits != pytest.approx(model.bits_per_base([text], context=200), abs=1e-6)
