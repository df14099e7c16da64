"""The neural memory as a PyTorch module, and the layers it is built from."""

from titans_core.nn.memory import NeuralMemory
from titans_core.nn.state import NeuralMemoryState
from titans_core.nn.surprise import momentary_surprise

__all__ = ["NeuralMemory", "NeuralMemoryState", "momentary_surprise"]
