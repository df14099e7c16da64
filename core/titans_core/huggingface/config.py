"""The configuration of a Titans model in ``transformers``."""

from dataclasses import asdict, fields
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from titans_core.models import TitansConfig


class TitansHFConfig(PreTrainedConfig):
    """The settings of :class:`~titans_core.TitansConfig`, under the same names, and those of ``transformers``.

    Args:
        bos_token_id: token that begins a text. None: no such token.
        eos_token_id: token that ends a text; ``generate`` stops there.
        pad_token_id: padding token.
        use_cache: default of ``forward``'s ``use_cache``: whether a forward pass in evaluation mode and without labels
            returns a :class:`TitansCache`.
        options: settings of ``TitansConfig``, and any other settings of a ``transformers`` configuration.

    Raises:
        ValueError, TypeError: as for ``TitansConfig``, or if a setting has two values under two names.
    """

    model_type = "titans"
    attribute_map = {  # noqa: RUF012
        "hidden_size": "dim",
        "intermediate_size": "hidden",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "tie_word_embeddings": "tie_embeddings",
    }

    def __init__(
        self,
        *,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        pad_token_id: int | None = None,
        use_cache: bool = True,
        **options: Any,
    ) -> None:
        for theirs, ours in self.attribute_map.items():
            if theirs in options:
                value = options.pop(theirs)
                if options.setdefault(ours, value) != value:
                    raise ValueError(f"{theirs}={value} and {ours}={options[ours]} name the same setting: give one.")
        settings = TitansConfig(**{f.name: options.pop(f.name) for f in fields(TitansConfig) if f.name in options})
        for name, value in asdict(settings).items():
            setattr(self, name, value)
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self.use_cache = use_cache
        super().__init__(**options)

    def titans(self) -> TitansConfig:
        """Return the network's settings as a ``TitansConfig``."""
        return TitansConfig(**{f.name: getattr(self, f.name) for f in fields(TitansConfig)})
