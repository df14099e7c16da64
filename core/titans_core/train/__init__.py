"""The outer loop: training with Lightning, and the base class of the sklearn-style estimators."""

from titans_core.train.estimator import TitansEstimator
from titans_core.train.fingerprint import digest, digest_of, text_of
from titans_core.train.fit import train_network
from titans_core.train.options import History, Loss, TrainingOptions
from titans_core.train.randomness import borrowed_randomness

__all__ = [
    "History",
    "Loss",
    "TitansEstimator",
    "TrainingOptions",
    "borrowed_randomness",
    "digest",
    "digest_of",
    "text_of",
    "train_network",
]
