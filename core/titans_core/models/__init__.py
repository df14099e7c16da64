"""The Titans architectures LMM, MAC, MAG and MAL as language models (sections 4 and 5.1)."""

from titans_core.models.config import TitansConfig, gated_deltanet, presets
from titans_core.models.language_model import TitansLM
from titans_core.models.state import LMState

__all__ = ["LMState", "TitansConfig", "TitansLM", "gated_deltanet", "presets"]
