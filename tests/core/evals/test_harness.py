"""The tasks of Table 1 in lm-evaluation-harness: same prompts as in the harness, same scores as by hand."""

import gzip
import importlib.util
import json
import math
import re
from importlib import metadata

import pytest
import torch
import yaml

pytest.importorskip("lm_eval")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers.modeling_outputs import CausalLMOutput

from titans_core import TitansConfig, TitansLM
from titans_core.evals import harness
from titans_core.evals.harness import TABLE_1, TASKS, evaluate_harness, table_1
from titans_core.evals.tasks.local import lines
from titans_core.huggingface import TitansForCausalLM, hf_tokenizer
from titans_datasets.registry import text_info

NAMES = sorted(path.stem for path in TASKS.glob("*.yaml"))
CHOICES = [name for name in NAMES if name not in ("titans_lambada_openai", "titans_wikitext")]
EOS = 257

# a few documents of each task, in the form of its file
MADE = {
    "arc_easy": [
        {"query": "Question: What is wet?", "choices": ["fire", "rain", "sand", "air"], "gold": 1},
        {"query": "Question: Which is a metal?", "choices": ["iron", "wood", "wool", "milk"], "gold": 0},
    ],
    "arc_challenge": [{"query": "Question: Who orbits whom?", "choices": ["a", "bb", "ccc", "dddd"], "gold": 3}],
    "boolq": [
        {"query": "Passage: Snow is cold.\nQuestion: is snow cold?", "choices": ["no", "yes"], "gold": 1},
        {"query": "Passage: Fire is hot.\nQuestion: is fire cold?", "choices": ["no", "yes"], "gold": 0},
    ],
    "hellaswag_val_1000": [
        {
            "activity_label": "Baking",
            "ctx_a": "A man stands [step] in a kitchen. [title] He has flour.",
            "ctx_b": "the man",
            "ctx": "unused",
            "endings": ["flies.", "bakes [substeps] bread.", "sinks.", "melts  away."],
            "label": 1,
        }
    ],
    "lambada_openai": [
        {"context": "She opened the door,\n\nand behind it was the", "continuation": "garden"},
        {"context": "He said “no” and left the", "continuation": "naïve"},
    ],
    "piqa": [
        {"query": "Question: How do I open a jar?\n", "choices": ["Turn its lid.", "Turn the table."], "gold": 0},
        {"query": "Question: dry hair\n", "choices": ["use water", "use a towel"], "gold": 1},
    ],
    "siqa": [
        {
            "context": "Kim fell.",
            "question": "What does Kim feel?",
            "answerA": "pain",
            "answerB": "joy",
            "answerC": "it's fine",
            "label": "3",
        }
    ],
    "winogrande": [
        {
            "context_options": ["Ann thanked Eve as Ann", "Ann thanked Eve as Eve"],
            "continuation": "had helped.",
            "gold": 1,
        }
    ],
}
PAGE = " = Cats = \n \n Cats purr , and sleep . \n \n = = Food = = \n \n They eat @-@ often ! \n \n"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "commonsense").mkdir()
    for name, documents in MADE.items():
        text = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
        (folder / "commonsense" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (folder / "wikitext2").mkdir()
    (folder / "wikitext2" / "test_raw.txt").write_text(" \n" + PAGE + PAGE.replace("Cats", "Dogs"), encoding="utf-8")
    return folder


@pytest.fixture(params=["made", pytest.param("real", marks=pytest.mark.real_data)])
def data(request):
    return request.getfixturevalue("made") if request.param == "made" else request.getfixturevalue("real_data") / "lm"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = TitansConfig(
        architecture="mac", vocab_size=258, dim=16, num_layers=1, num_heads=2, hidden=24, segment=32, chunk_size=16
    )
    return TitansLM(config).eval()


def evaluate(model, tasks, data, **options):
    return evaluate_harness(model, tasks, data=data, **{"tokenizer": "bytes", "bootstrap_iters": 0, **options})


def log_likelihood(model, before, target):
    """Log-probability of the bytes ``target`` after ``before``, and whether each is the most likely one."""
    ids = torch.tensor([[*before, *target]])
    with torch.no_grad():
        logits = model(ids)[0][0, len(before) - 1 : -1].log_softmax(-1)
    target = ids[0, len(before) :]
    return float(logits.gather(1, target[:, None]).sum()), bool((logits.argmax(-1) == target).all())


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_every_column_of_table_1_has_its_task_and_metric():
    assert sorted({task for task, _ in TABLE_1.values()}) == NAMES
    for task, metric in TABLE_1.values():
        text = re.sub(r"!function", "", (TASKS / f"{task}.yaml").read_text())
        own = yaml.safe_load(text)
        if "include" in own:
            own = {**yaml.safe_load(re.sub(r"!function", "", (TASKS / own["include"]).read_text())), **own}
        assert own["task"] == task
        assert own["num_fewshot"] == 0
        assert metric in [entry["metric"] for entry in own["metric_list"]]


@pytest.mark.slow
@pytest.mark.parametrize("task", NAMES)
def test_a_small_model_gets_finite_scores(model, data, task):
    limit = 1 if task == "titans_wikitext" else 3  # a whole page
    found = evaluate(model, [task], data, limit=limit, batch_size=2)
    scores = {name: value for name, value in found["results"][task].items() if name.endswith(",none")}
    scores = {name: value for name, value in scores.items() if "stderr" not in name}
    assert scores
    assert all(math.isfinite(value) for value in scores.values()), scores
    assert all(0 <= value <= 1 for name, value in scores.items() if name.startswith("acc"))


class Knowing(TitansForCausalLM):
    """Certain of the next byte if the input is a prefix of one of its texts, else uniform."""

    texts: tuple[bytes, ...] = ()

    def forward(self, input_ids, **options):
        logits = torch.zeros(*input_ids.shape, self.config.vocab_size)
        for row, ids in zip(logits, input_ids.tolist(), strict=True):
            for text in self.texts:
                for at, byte in enumerate(ids):
                    if at + 1 >= len(text) or byte != text[at]:
                        break
                    row[at, text[at + 1]] = 50
        return CausalLMOutput(logits=logits)


def clean(text):
    """Clean HellaSwag like the harness, which removes marks of WikiHow."""
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def prompts(task, document):
    """The choices of a document as in the harness's own task, written out by hand, and the index of the right one."""
    if task == "titans_winogrande":
        return [f"{before} {document['continuation']}" for before in document["context_options"]], document["gold"]
    if task == "titans_siqa":
        prompt = f"Q: {document['context']} {document['question']}\nA:"
        return [f"{prompt} {document['answer' + letter]}" for letter in "ABC"], int(document["label"]) - 1
    if task == "titans_hellaswag":
        prompt = document["activity_label"] + ": " + document["ctx_a"] + " " + document["ctx_b"].capitalize()
        return [f"{clean(prompt)} {clean(ending)}" for ending in document["endings"]], document["label"]
    prompt = {
        "titans_boolq": document["query"].removeprefix("Passage: ") + "\nAnswer:",
        "titans_piqa": document["query"].removesuffix("\n") + "\nAnswer:",
    }.get(task, document["query"] + "\nAnswer:")
    return [f"{prompt} {choice}" for choice in document["choices"]], document["gold"]


def documents(data, task):
    name = {"titans_hellaswag": "hellaswag_val_1000"}.get(task, task.removeprefix("titans_"))
    text = (data / "commonsense" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def knowing(model, texts):
    wise = Knowing(TitansForCausalLM.from_titans(model).config, model)
    wise.texts = tuple(text.encode() for text in texts)
    return wise


@pytest.mark.parametrize("task", CHOICES)
def test_who_knows_the_right_answers_scores_1_and_the_wrong_ones_0(model, data, task):
    pairs = [prompts(task, document) for document in documents(data, task)[:12]]
    right = knowing(model, [texts[gold] for texts, gold in pairs])
    wrong = knowing(model, [texts[(gold + 1) % len(texts)] for texts, gold in pairs])
    for wise, score in ((right, 1), (wrong, 0)):
        found = evaluate(wise, [task], data, limit=12, batch_size=4)["results"][task]
        assert found["acc,none"] == score
        assert found.get("acc_norm,none", score) == score


def test_a_model_that_knows_the_last_words_has_low_perplexity(model, data):
    name = "titans_lambada_openai"
    texts = [f"{document['context']} {document['continuation']}" for document in documents(data, name)[:12]]
    found = evaluate(knowing(model, texts), [name], data, limit=12, batch_size=4)["results"][name]
    assert found["acc,none"] == 1
    assert found["perplexity,none"] == pytest.approx(1)


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3])
def test_last_words_are_scored_as_by_hand(model, made, batch_size):
    name = "titans_lambada_openai"
    found = evaluate(model, [name], made, batch_size=batch_size)["results"][name]
    by_hand = [
        log_likelihood(model, document["context"].encode(), f" {document['continuation']}".encode())
        for document in MADE["lambada_openai"]
    ]
    assert found["perplexity,none"] == pytest.approx(math.exp(-sum(x for x, _ in by_hand) / 2), rel=1e-4)
    assert found["acc,none"] == sum(greedy for _, greedy in by_hand) / 2


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("task", ["titans_piqa", "titans_winogrande"])
def test_choices_are_scored_as_by_hand(model, data, task, batch_size):
    """acc_norm divides by the characters of a choice, without the space before it."""
    hits, normed = [], []
    for document in documents(data, task)[:5]:
        texts, gold = prompts(task, document)
        choices = document["choices"] if task == "titans_piqa" else [document["continuation"]] * 2
        scores, per = [], []
        for text, choice in zip(texts, choices, strict=True):
            before = text.removesuffix(f" {choice}")
            scores.append(log_likelihood(model, before.encode(), f" {choice}".encode())[0])
            per.append(scores[-1] / len(choice))
        hits.append(scores.index(max(scores)) == gold)
        normed.append(per.index(max(per)) == gold)
    found = evaluate(model, [task], data, limit=5, batch_size=batch_size)["results"][task]
    assert found["acc,none"] == pytest.approx(sum(hits) / len(hits))
    assert found.get("acc_norm,none", sum(normed) / len(normed)) == pytest.approx(sum(normed) / len(normed))


@pytest.mark.parametrize("max_length", [4096, 20])
def test_wikitext_is_scored_as_by_hand(model, made, max_length):
    """Consecutive windows that start at eos; the last, shorter one also sees the bytes before it."""
    read = " = Cats =\n\nCats purr, and sleep.\n\n== Food ==\n\nThey eat-often!\n"  # PAGE, detokenised
    total, words, size = 0.0, 0, 0
    for text, page in ((read, PAGE[:-1]), (read.replace("Cats", "Dogs") + "\n", PAGE.replace("Cats", "Dogs"))):
        ids = [EOS, *text.encode()]
        for start in range(0, len(ids) - 1, max_length):
            end = min(start + max_length, len(ids) - 1)
            total += log_likelihood(model, ids[max(0, end - max_length) : start + 1], ids[start + 1 : end + 1])[0]
        words, size = words + len(re.split(r"\s+", page)), size + len(page.encode())
    found = evaluate(model, ["titans_wikitext"], made, max_length=max_length)["results"]["titans_wikitext"]
    assert found["word_perplexity,none"] == pytest.approx(math.exp(-total / words), rel=1e-4)
    assert found["bits_per_byte,none"] == pytest.approx(-total / size / math.log(2), rel=1e-5)


@pytest.mark.real_data
def test_wikitext_has_the_pages_of_the_harness(real_data):
    spec = importlib.util.spec_from_file_location("local", TASKS / "local.py")
    local = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(local)
    pages = local.pages("wikitext2/test_raw.txt", data=real_data / "lm")["test"]["page"]
    assert len(pages) == 62  # rows of EleutherAI/wikitext_document_level, wikitext-2-raw-v1, test
    assert pages[0].startswith(" = Robert Boulter = \n")


@pytest.mark.real_data
def test_a_sentencepiece_model_is_scored_by_its_pieces(real_data):
    torch.manual_seed(0)
    model = TitansLM(TitansConfig(architecture="lmm", dim=8, num_layers=1, num_heads=2, hidden=8)).eval()
    name, coder = "titans_lambada_openai", hf_tokenizer(real_data / "lm" / "tokenizer" / "llama2_tokenizer.model")
    found = evaluate(model, [name], real_data / "lm", limit=2, tokenizer=coder)["results"][name]
    total = 0.0
    for document in documents(real_data / "lm", name)[:2]:
        before = coder.encode(document["context"])
        whole = coder.encode(f"{document['context']} {document['continuation']}")
        total += log_likelihood(model, before, whole[len(before) :])[0]
    assert found["perplexity,none"] == pytest.approx(math.exp(-total / 2), rel=1e-4)


def test_texts_of_unequal_length_are_written_on_as_alone(model):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    def write(batch_size):
        coder = hf_tokenizer("bytes")
        lm = HFLM(TitansForCausalLM.from_titans(model), tokenizer=coder, batch_size=batch_size, max_length=512)
        options = {"until": ["\n\n"], "max_gen_toks": 8, "do_sample": False}
        prompts = ("A long prompt, and longer still", "short", "of another length")
        requests = [Instance("generate_until", {}, (prompt, dict(options)), i) for i, prompt in enumerate(prompts)]
        return lm.generate_until(requests, disable_tqdm=True)

    assert write(3) == write(1)


def test_a_model_is_left_unchanged(model, made):
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    for training in (True, False):
        evaluate(model.train(training), ["titans_piqa"], made)
        assert model.training is training
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tokenizer_is_left_without_a_padding_token(model, made):
    tokenizer = hf_tokenizer("bytes")
    tokenizer.pad_token = None
    assert evaluate(model, ["titans_piqa"], made, tokenizer=tokenizer) == evaluate(model, ["titans_piqa"], made)
    assert tokenizer.pad_token is None


# -- results -----------------------------------------------------------------------------------------------------------


def test_table_1_is_in_percent_and_its_mean_is_of_all_eight(model, made):
    found = evaluate(model, None, made)
    table = table_1(found)
    assert list(table) == [*TABLE_1, "avg"]
    assert table["boolq"] == 100 * found["results"]["titans_boolq"]["acc,none"]
    assert table["avg"] == pytest.approx(sum(v for k, v in table.items() if k != "avg" and "ppl" not in k) / 8)
    assert list(table_1({"results": {"titans_siqa": {"acc,none": 0.25}}}).items()) == [("siqa", 25.0)]


def test_the_command_prints_a_table_and_writes_no_path(model, made, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    TitansForCausalLM.from_titans(model).save_pretrained(tmp_path / "model")
    hf_tokenizer("bytes").save_pretrained(tmp_path / "model")
    given = ["--model", tmp_path / "model", "--data", made, "--out", "~/results/all.json", "--limit", 1]
    harness.main([*map(str, given), "--device", "cpu", "--tasks", "titans_piqa", "titans_siqa"])
    printed = capsys.readouterr().out
    assert re.search(r"titans_piqa.*\n.*acc_norm", printed)
    assert not (tmp_path / "~").exists()
    text = (tmp_path / "results" / "all.json").read_text()
    found = json.loads(text)
    assert found["n-samples"]["titans_piqa"] == {"original": 2, "effective": 1}
    assert found["table_1"].keys() == {"piqa", "siqa"}
    assert found["config"]["parameters"] == model.num_parameters()
    assert str(tmp_path) not in text
    assert str(made) not in text


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_an_unknown_task_is_refused_with_those_there_are(model):
    for tasks in (["hellaswag"], []):
        with pytest.raises(ValueError, match=r"tasks must be some of \['titans_arc_challenge'.*got"):
            evaluate_harness(model, tasks)


def test_missing_data_is_named(model, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*piqa\.jsonl.*load\('piqa'\).*TITANS_DATA_HOME"):
        evaluate(model, ["titans_piqa"], tmp_path)
    monkeypatch.delenv("TITANS_DATA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no such file: .*titans_datasets/lm/.*piqa\.jsonl"):
        evaluate(model, ["titans_piqa"], None)


@pytest.mark.parametrize(
    ("home", "variables"),
    [
        ("lm", {"TITANS_DATA_HOME": "{here}"}),
        ("lm", {"TITANS_DATA_HOME": "~", "HOME": "{here}"}),
        ("titans_datasets/lm", {"XDG_CACHE_HOME": "{here}"}),
        (".cache/titans_datasets/lm", {"HOME": "{here}"}),
    ],
)
def test_the_data_home_is_found_where_the_loaders_have_theirs(made, tmp_path, monkeypatch, home, variables):
    for name in ("TITANS_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(here=tmp_path))
    (tmp_path / home).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / home).symlink_to(made)
    assert list(lines("commonsense/siqa.jsonl")["test"]) == MADE["siqa"]


def test_without_a_folder_of_ones_own_files_must_be_the_published_ones(model, made, tmp_path, monkeypatch):
    """A file that was cut off at a line would be scored without a word."""
    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path))
    (tmp_path / "lm").symlink_to(made)
    with pytest.raises(ValueError, match=r"siqa\.jsonl is not the published file.* sha256 is \w{64}.*load\('siqa'\)"):
        evaluate(model, ["titans_siqa"], None)


def test_every_task_has_the_name_and_checksum_of_the_loaders():
    for path in TASKS.glob("*.yaml"):
        given = yaml.load(path.read_text().replace("!function", ""), Loader=yaml.SafeLoader)["dataset_kwargs"]
        (file,) = text_info(given["published"]).files.values()
        assert (f"lm/{given['file']}", f"sha256:{given['sha256']}") == (file.place, file.checksum), path.stem


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_file_is_named(tmp_path, suffix):
    text = b'{"a": 1}\n' * 99
    (tmp_path / f"file.jsonl{suffix}").write_bytes((gzip.compress(text) if suffix else text)[:-4])
    with pytest.raises(ValueError, match=rf"file\.jsonl{suffix} is not a complete"):
        lines("file.jsonl", str(tmp_path))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_downloads_in_the_users_cache_are_found_plain_or_gzip(made, tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("TITANS_DATA_HOME", str(tmp_path / "read-only"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (made / "commonsense" / "piqa.jsonl").read_bytes()
    path = tmp_path / "titans_datasets" / "lm" / "commonsense" / f"piqa.jsonl{suffix}"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(text) if suffix else text)
    assert list(lines("commonsense/piqa.jsonl")["test"]) == MADE["piqa"]
    with pytest.raises(
        FileNotFoundError, match=r"no such file: .*read-only/lm/.* or .*/titans_datasets/lm/.*siqa\.jsonl"
    ):
        lines("commonsense/siqa.jsonl")


def test_a_tokenizer_that_does_not_fit_is_refused(model, made, tmp_path, monkeypatch):
    small = TitansLM(TitansConfig(architecture="lmm", vocab_size=100, dim=8, num_layers=1, num_heads=2, hidden=8))
    with pytest.raises(ValueError, match="tokenizer has 258 tokens, but the model only 100"):
        evaluate(small, ["titans_piqa"], made)
    hf_tokenizer("bytes").save_pretrained(tmp_path / "of another")
    monkeypatch.chdir(tmp_path / "of another")
    with pytest.raises(FileNotFoundError, match="the model has no tokenizer: set tokenizer to 'bytes'"):
        evaluate(model, ["titans_piqa"], made, tokenizer=None)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        evaluate(tmp_path / "none", ["titans_piqa"], made)


def test_a_missing_package_is_an_error_that_names_the_command(model, monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(harness.metadata, "version", version)
    with pytest.raises(ImportError, match=r"pip install 'titans-suite\[hf\]'"):
        evaluate_harness(model, ["titans_piqa"])


def test_public_names():
    assert harness.__all__ == ["TABLE_1", "TASKS", "evaluate_harness", "table_1"]


@pytest.mark.parametrize("number", ["limit", "batch_size", "max_length"])
def test_numbers_below_one_are_refused(model, number):
    with pytest.raises(ValueError, match=f"{number} must be an integer >= 1, got 0"):
        evaluate_harness(model, ["titans_piqa"], **{number: 0})


def test_impossible_options_are_refused(model, made, tmp_path):
    model.save(tmp_path / "pretrained")
    (tmp_path / "results").mkdir()
    with pytest.raises(ValueError, match="max_length=2 is less than the tokens of an answer: give a larger one"):
        evaluate_harness(model, ["titans_piqa"], data=made, tokenizer="bytes", max_length=2)
    for options, says in (
        (["--model", tmp_path / "pretrained"], "holds a model in the format of TitansLM.save"),
        (["--model", tmp_path / "none", "--out", tmp_path / "results"], "results is a folder: set it to a file"),
        (["--model", tmp_path / "none", "--dtype", "float33"], "--dtype must be one of"),
    ):
        with pytest.raises(ValueError, match=says):
            harness.main([str(x) for x in options])
