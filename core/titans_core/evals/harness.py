"""The tasks of the paper's Table 1 in EleutherAI's lm-evaluation-harness, from local files and without a network.

The task files are in ``tasks``. ``python -m titans_core.evals.harness --model folder`` prints the harness's table.
"""

import argparse
import copy
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from titans_core.checks import at_least
from titans_core.extras import require
from titans_core.files import written_whole
from titans_core.models import TitansLM
from titans_core.models.generate import evaluating

__all__ = ["TABLE_1", "TASKS", "evaluate_harness", "table_1"]

TASKS = Path(__file__).parent / "tasks"
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")

# columns of Table 1: task and metric
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
    """Run tasks with the harness's own adapter for ``transformers``.

    Args:
        model: a folder written by ``save_pretrained``, which is loaded to a GPU if there is one; or a
            :class:`~titans_core.TitansLM` or causal language model of ``transformers``. A model object stays on its
            device, and its training mode is restored.
        tasks: names of the files in ``tasks``. None: all of Table 1.
        data: folder that contains ``commonsense`` and ``wikitext2``. None: where ``titans_datasets`` stores downloads,
            ``$TITANS_DATA_HOME/lm``, or ``titans_datasets/lm`` in the user's cache (``$XDG_CACHE_HOME`` or
            ``~/.cache``).
        limit: maximum number of examples per task; the first ones are used.
        tokenizer: a spec for :func:`titans_core.huggingface.hf_tokenizer` ("bytes", a ``.model`` file, a folder), or a
            tokenizer of ``transformers``. None: the one in the model's folder.
        batch_size: number of texts per batch. Scores do not depend on it, unless windows of a long text that are read
            in one batch are equal: lm_eval 0.4.13 then takes one for the other.
        max_length: maximum number of tokens in the context. Longer contexts are cut at the beginning, and WikiText is
            read in windows of this length. 4096 is the paper's training length.
        add_bos_token: start each text with the begin token. This library's pretraining writes no begin token and ends
            documents with the end token. False reads a text unchanged and predicts its first token, if it has no
            context, from the end token.
        bootstrap_iters: number of resamples for the standard error of a perplexity. 0: no standard errors at all.

    Returns:
        ``results`` by task, with ``versions``, ``n-samples`` and other entries of the harness's report, and the
        evaluation settings under ``config``.

    Raises:
        ValueError: if a task is unknown, a number is below 1, or the tokenizer has more tokens than the model.
        FileNotFoundError: if a data file or the tokenizer is missing.
        ImportError: if a package is missing; the message has the install command.
    """
    names = _names(tasks)
    for name, number in (("limit", limit), ("batch_size", batch_size), ("max_length", max_length)):
        if number is not None:
            at_least(name, number, 1)
    for package in ("transformers", "lm_eval", "accelerate"):
        require(package, "lm-evaluation-harness", "hf")
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    loaded = _wrapped(model)
    coder = _tokenizer(tokenizer, loaded.name_or_path)
    if len(coder) > loaded.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(coder)} tokens, but the model only {loaded.config.vocab_size}: use the tokenizer "
            "that the model was trained with."
        )
    manager = TaskManager(
        include_path=TASKS, include_defaults=False, metadata={"data": str(data)} if data is not None else None
    )
    try:
        with evaluating(loaded):
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
    except AssertionError as error:  # of lm_eval, without a message
        raise ValueError(
            f"the harness stopped, probably because max_length={max_length} is less than the tokens of an answer: "
            "give a larger one."
        ) from error
    # the omitted entries hold functions and local paths
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
    """Columns of Table 1 found by :func:`evaluate_harness`: perplexities, and accuracies in percent.

    With all eight accuracy tasks, also ``avg``, their mean. ``hellaswag`` is of a tenth of the published questions.
    """
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
    from titans_core.huggingface import AutoModelForCausalLM  # says what to install if transformers is missing
    from titans_core.huggingface.model import refuse_saved

    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: pass a folder written by save_pretrained.")
    refuse_saved(folder)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.to(device)


def _wrapped(model: str | Path | nn.Module) -> Any:
    """Load or wrap the model as a ``transformers`` model."""
    from titans_core.huggingface import TitansForCausalLM

    if isinstance(model, (str, Path)):
        return _load(model)
    return TitansForCausalLM.from_titans(model) if isinstance(model, TitansLM) else model


def _tokenizer(tokenizer: Any, folder: str) -> Any:
    from titans_core.huggingface import hf_tokenizer

    if tokenizer is None:
        if not folder or not (Path(folder) / "tokenizer_config.json").exists():
            raise FileNotFoundError("the model has no tokenizer: set tokenizer to 'bytes', a .model file or a folder.")
        tokenizer = folder
    # a copy: the harness sets the padding token of one that has none
    return hf_tokenizer(tokenizer) if isinstance(tokenizer, (str, Path)) else copy.deepcopy(tokenizer)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m titans_core.evals.harness", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--model", required=True, help="folder written by save_pretrained")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help=f"any of {', '.join(_names(None))}; default: all")
    parser.add_argument("--tokenizer", help='"bytes", a .model file or a folder; default: the model\'s own')
    parser.add_argument("--data", help="folder with commonsense and wikitext2; default: lm in the data home")
    parser.add_argument("--limit", type=int, help="maximum number of examples per task")
    parser.add_argument("--batch-size", type=int, default=1, help="texts in a batch; default: 1")
    parser.add_argument("--max-length", type=int, default=4096, help="maximum context in tokens; default: 4096")
    parser.add_argument("--add-bos-token", action="store_true", help="start each text with the begin token")
    parser.add_argument("--dtype", default="auto", help=f"{', '.join(DTYPES[1:])}; default: as saved")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ...; default: a GPU if available")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    given = parser.parse_args(arguments)
    if given.dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {DTYPES}, got {given.dtype!r}.")
    if given.out is not None:  # check before hours of evaluation
        given.out = given.out.expanduser()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        if given.out.is_dir():
            raise ValueError(f"--out {given.out} is a folder: set it to a file.")
    _names(given.tasks)  # check before loading the model
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
