"""The outer loop: training by Lightning, and what sklearn-style estimators share."""

from titans_core.train.estimator import TitansEstimator
from titans_core.train.fit import History, TrainingOptions, train_network

__all__ = ["History", "TitansEstimator", "TrainingOptions", "train_network"]
