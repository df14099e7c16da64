"""The outer loop: training by Lightning, and what sklearn-style estimators share."""

from titans_core.train.estimator import TitansEstimator
from titans_core.train.fit import History, TrainingOptions, train_network
from titans_core.train.resume import digest

__all__ = ["History", "TitansEstimator", "TrainingOptions", "digest", "train_network"]
