"""A small convolutional network, like the baseline of GenomicBenchmarks (Grešová et al. 2023): three convolutions of
width 8 with batch normalisation and pooling, then a hidden layer. Sequences are cut or padded to one length."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from titans_core.train import TrainingOptions, train_network
from titans_dna import encode_batch

WIDTHS, KERNEL, HIDDEN = (16, 8, 4), 8, 512


class CNN(nn.Sequential):
    def __init__(self, length: int, classes: int) -> None:
        layers: list[nn.Module] = []
        before = 4
        for width in WIDTHS:
            layers += [
                nn.Conv1d(before, width, KERNEL, padding="same"),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.MaxPool1d(2),
            ]
            before, length = width, length // 2
        super().__init__(
            *layers, nn.Flatten(), nn.Linear(before * length, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)
        )


def one_hot(sequences: list[str]) -> Tensor:
    """One-hot bases ``[N, 4, T]``; zero at N and after the end of a shorter sequence."""
    ids = torch.from_numpy(encode_batch(sequences).ids).long()
    return F.one_hot(ids.clamp(max=4), 5)[..., :4].mT.float()


def predict_by_cnn(
    train: tuple[list[str], np.ndarray], dev: tuple[list[str], np.ndarray], test: list[str], seed: int
) -> tuple[np.ndarray, dict[str, int]]:
    """Predicted classes of ``test``, by the weights of the epoch that is best on ``dev``, and facts on the training."""
    classes, labels = np.unique(train[1], return_inverse=True)
    x, x_dev, x_test = (one_hot(sequences) for sequences in (train[0], dev[0], test))
    length = x.shape[-1]
    parts = [
        (x, torch.from_numpy(labels)),
        (F.pad(x_dev, (0, length))[..., :length], torch.from_numpy(np.searchsorted(classes, dev[1]))),
    ]
    torch.manual_seed(seed)
    network = CNN(length, len(classes))
    order = torch.Generator().manual_seed(seed)
    loaders = [
        DataLoader(TensorDataset(*part), 64, shuffle=part is parts[0], generator=order if part is parts[0] else None)
        for part in parts
    ]
    options = TrainingOptions(
        learning_rate=2e-3, weight_decay=0.01, max_epochs=20, patience=5, seed=seed, progress=False
    )
    history = train_network(network, _error, *loaders, options)
    with torch.inference_mode():
        found = torch.cat([network(part) for part in F.pad(x_test, (0, length))[..., :length].split(512)]).argmax(1)
    parameters = sum(p.numel() for p in network.parameters())
    return classes[found.numpy()], {"parameters": parameters, "epochs": len(history.epochs)}


def _error(network: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    x, labels = batch
    return F.cross_entropy(network(x), labels), len(x)
