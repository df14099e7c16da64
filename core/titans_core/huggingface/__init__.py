"""Titans language models for Hugging Face ``transformers``: ``AutoModelForCausalLM``, ``generate``.

Importing this package registers the classes. They wrap a :class:`~titans_core.TitansLM` without copying it::

    TitansForCausalLM.from_titans(model, eos_token_id=2).save_pretrained("folder")
    AutoModelForCausalLM.from_pretrained("folder").generate(ids, max_new_tokens=100, num_beams=3)

A folder written by ``TitansLM.save`` is converted by the first line, with ``model = TitansLM.load(folder)``. To the
classes ``Auto...`` of transformers it is an "Unrecognized model", as they look for a file ``config.json``.
"""

try:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from titans_core.huggingface.cache import TitansCache
    from titans_core.huggingface.config import TitansHFConfig
    from titans_core.huggingface.model import TitansForCausalLM
    from titans_core.huggingface.tokenizer import hf_tokenizer
except ImportError as error:
    raise ImportError(
        f"titans_core.huggingface needs transformers 5: pip install 'titans-suite[hf]' ({error})"
    ) from error

__all__ = ["TitansCache", "TitansForCausalLM", "TitansHFConfig", "hf_tokenizer"]

AutoConfig.register(TitansHFConfig.model_type, TitansHFConfig, exist_ok=True)
AutoModelForCausalLM.register(TitansHFConfig, TitansForCausalLM, exist_ok=True)
# with label smoothing, Trainer shifts the labels of the models listed here; registered ones are not
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[TitansHFConfig.model_type] = TitansForCausalLM.__name__
