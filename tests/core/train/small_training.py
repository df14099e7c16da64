"""A small network with dropout, its data and its loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OPTIONS = {"learning_rate": 1e-2, "max_epochs": 4, "patience": 10, "progress": False, "device": "cpu", "seed": 3}


def data(n=64, seed=0, batch_size=16):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch_size)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))


def squared_error(net, batch):
    x, y = batch
    error = (net(x) - y).square()
    return error.mean(), error.numel()


def val_loss(net):
    """Mean error on ``data(seed=5)``."""
    (batch,) = data(seed=5, batch_size=64)
    with torch.no_grad():
        return squared_error(net, batch)[0].item()
