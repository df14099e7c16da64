"""Time-series forecasting with the Titans neural memory.

Attributes are imported when first used, so that ``import titans_ts`` alone loads neither torch nor Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from titans_ts.ensemble import TitansEnsemble
    from titans_ts.forecaster import TitansForecaster

__all__ = ["TitansEnsemble", "TitansForecaster"]

_HOME = {"TitansEnsemble": "titans_ts.ensemble", "TitansForecaster": "titans_ts.forecaster"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
