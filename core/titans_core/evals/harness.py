"""The tasks of the paper's Table 1 in EleutherAI's lm-evaluation-harness, from local files and without a network.

The task files are in ``tasks``. ``python -m titans_core.evals.harness --model folder`` prints the harness's table.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from titans_core.files import written_whole
from titans_core.models import TitansLM
from titans_core.tokenizers import require

__all__ = ["TABLE_1", "TASKS", "evaluate_harness", "table_1"]

TASKS = Path(__file__).parent / "tasks"
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")

# the columns of Table 1: task and metric
TABLE_1 = {
    "wiki_ppl": ("titans_wikitext", "word_perplexity"),
    "lambada_ppl": ("titans_lambada_openai", "perplexity"),
    "lambada_acc": ("titans_lambada_openai", "acc"),
    "piqa": ("titans_piqa", "acc"),
    "hellaswag": ("titans_hellaswag", "acc_norm"),
    "winogrande": ("titans_winogrande", "acc"),
    "arc_e": ("titans_arc_easy", "acc"),
    "arc_c": ("titans_arc_challenge", "acc_norm"),
    "siqa": ("titans_siqa", "acc"),
    "boolq": ("titans_boolq", "acc"),
}


def evaluate_harness(
    model: str | Path | nn.Module,
    tasks: Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    tokenizer: Any = None,
    batch_size: int = 1,
    max_length: int = 4096,
    add_bos_token: bool = False,
    bootstrap_iters: int = 1000,
) -> dict[str, Any]:
    """Run tasks through the harness's own adapter for ``transformers``.

    Args:
        model: a folder that ``save_pretrained`` wrote, loaded to a GPU where there is one; or a
            :class:`~titans_core.TitansLM` or any causal language model of ``transformers``, which stays where it is
            and comes back in the mode it had.
        tasks: names, as the files in ``tasks`` have them; None: all of Table 1.
        data: folder with ``commonsense`` and ``wikitext2`` in it; None: ``$TITANS_DATA_HOME/lm``, or where that is not
            set ``~/.cache/titans_datasets/lm``.
        limit: only so many examples of each task, the first.
        tokenizer: what :func:`titans_core.huggingface.hf_tokenizer` takes ("bytes", a ``.model`` file, a folder), or a
            tokenizer of ``transformers``; None: that in the model's folder.
        batch_size: texts at a time. Scores do not depend on it.
        max_length: tokens that the model sees at once: longer contexts lose their beginning, and WikiText is read in
            windows of it. 4096 is the paper's training length.
        add_bos_token: begin each text with bos. This library's pretraining writes no bos, and ends documents with eos:
            False reads a text as it is, and predicts the first token of one without context from eos.
        bootstrap_iters: resamples for the standard error of a perplexity; 0: no standard errors at all.

    Returns:
        ``results`` by task, with ``versions``, ``n-samples`` and more as the harness reports them, and under
        ``config`` what was evaluated.

    Raises:
        ValueError: an unknown task, a number below 1, or a tokenizer with more tokens than the model.
        FileNotFoundError: no such file of data, or no tokenizer.
        ImportError: a package is missing; the message names the command to install it.
    """
    names = _names(tasks)
    for name, number in (("limit", limit), ("batch_size", batch_size), ("max_length", max_length)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")
    for package in ("transformers", "lm_eval", "accelerate"):
        require(package, "lm-evaluation-harness", "hf")
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    was_training = model.training if isinstance(model, nn.Module) else False
    loaded = _wrapped(model)
    coder = _tokenizer(tokenizer, loaded.name_or_path)
    if len(coder) > loaded.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(coder)} tokens and the model {loaded.config.vocab_size}: give the one that the "
            "model was trained with."
        )
    manager = TaskManager(
        include_path=TASKS, include_defaults=False, metadata={"data": str(data)} if data is not None else None
    )
    try:
        results = lm_eval.evaluate(
            HFLM(
                loaded,
                backend="causal",
                tokenizer=coder,
                batch_size=batch_size,
                max_length=max_length,
                softmax_dtype="float32",
                add_bos_token=add_bos_token,
                prefix_token_id=None if add_bos_token else coder.eos_token_id,
            ),
            manager.load(names),
            limit=limit,
            bootstrap_iters=bootstrap_iters,
            log_samples=False,
        )
    finally:
        loaded.train(was_training)
    # what is left out holds functions and paths of this machine
    about = {name: value for name, value in results.items() if name not in ("configs", "samples")}
    about["config"] = {
        "parameters": loaded.num_parameters(),
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "vocab_size": len(coder),
        "max_length": max_length,
        "add_bos_token": add_bos_token,
        "limit": limit,
        **{package: metadata.version(package) for package in ("lm_eval", "transformers", "torch")},
    }
    return about


def table_1(results: Mapping[str, Any]) -> dict[str, float]:
    """The columns of Table 1 that :func:`evaluate_harness` found: perplexities, and accuracies in percent; with all
    eight tasks also ``avg``, their mean."""
    found = {}
    for column, (task, metric) in TABLE_1.items():
        if task in results["results"]:
            value = results["results"][task][f"{metric},none"]
            found[column] = value if column.endswith("ppl") else 100 * value
    accuracies = [value for column, value in found.items() if not column.endswith("ppl")]
    if len(accuracies) == 8:
        found["avg"] = sum(accuracies) / 8
    return found


def _names(tasks: Sequence[str] | None) -> list[str]:
    known = sorted(path.stem for path in TASKS.glob("*.yaml"))
    names = known if tasks is None else [tasks] if isinstance(tasks, str) else list(tasks)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"tasks must be some of {known}, got {unknown or names}.")
    return names


def _load(folder: str | Path, dtype: str = "auto", device: str = "auto") -> Any:
    from titans_core.huggingface import AutoModelForCausalLM

    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is no folder: give one that save_pretrained wrote.")
    if (Path(folder) / "model.json").is_file() and not (Path(folder) / "config.json").is_file():
        raise ValueError(
            f"{folder} holds a model as TitansLM.save and pretraining leave it. For the harness write it as "
            "transformers does: TitansForCausalLM.from_titans(TitansLM.load(folder)).save_pretrained(other), and its "
            'tokenizer beside it: hf_tokenizer("bytes").save_pretrained(other).'
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to(device)


def _wrapped(model: str | Path | nn.Module) -> Any:
    """The model as ``transformers`` wants it."""
    from titans_core.huggingface import TitansForCausalLM

    if isinstance(model, (str, Path)):
        return _load(model)
    return TitansForCausalLM.from_titans(model) if isinstance(model, TitansLM) else model


def _tokenizer(tokenizer: Any, folder: str) -> Any:
    from titans_core.huggingface import hf_tokenizer

    if tokenizer is None:
        if not folder or not (Path(folder) / "tokenizer_config.json").exists():
            raise FileNotFoundError("the model came with no tokenizer: give 'bytes', a .model file, or a folder.")
        tokenizer = folder
    return hf_tokenizer(tokenizer) if isinstance(tokenizer, (str, Path)) else tokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m titans_core.evals.harness", description=__doc__)
    parser.add_argument("--model", required=True, help="folder that save_pretrained wrote")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help=f"of {', '.join(_names(None))}; default: all")
    parser.add_argument("--tokenizer", help='"bytes", a .model file or a folder; default: that in the model\'s folder')
    parser.add_argument("--data", help="folder with commonsense and wikitext2 in it; default: lm of the data home")
    parser.add_argument("--limit", type=int, help="only so many examples of each task")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=4096, help="tokens that the model sees at once")
    parser.add_argument("--add-bos-token", action="store_true", help="begin each text with bos")
    parser.add_argument("--dtype", default="auto", help=f"{', '.join(DTYPES[1:])}; default: as saved")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ...; default: a GPU where there is one")
    parser.add_argument("--out", type=Path, help="JSON file to write the results to")
    given = parser.parse_args(arguments)
    if given.dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {DTYPES}, got {given.dtype!r}.")
    if given.out is not None:  # before hours of evaluation
        given.out.parent.mkdir(parents=True, exist_ok=True)
        if given.out.is_dir():
            raise ValueError(f"--out {given.out} is a folder: name a file.")
    _names(given.tasks)  # before the model is loaded
    results = evaluate_harness(
        _load(given.model, given.dtype, given.device),
        given.tasks,
        data=given.data,
        limit=given.limit,
        tokenizer=given.tokenizer,
        batch_size=given.batch_size,
        max_length=given.max_length,
        add_bos_token=given.add_bos_token,
    )
    from lm_eval.utils import make_table

    print(make_table(results))
    found = table_1(results)
    print(json.dumps(found))
    if given.out is not None:
        with written_whole(given.out) as part:
            part.write_text(json.dumps({"table_1": found, **results}, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
