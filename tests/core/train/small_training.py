"""A small network with dropout, its data and its loss; a small language model; and two processes."""

import os
import socket

import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

OPTIONS = {"learning_rate": 1e-2, "max_epochs": 4, "patience": 10, "progress": False, "device": "cpu", "seed": 3}

# settings of a language model
CONFIG = dict(
    architecture="mag",
    vocab_size=258,
    dim=16,
    num_layers=1,
    num_heads=2,
    hidden=24,
    window=8,
    segment=8,
    num_persistent=2,
    chunk_size=4,
)


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


def in_two_processes(function, *arguments):
    """Call a function in two processes with the environment of ``torchrun``.

    They are forked from this one, because importing Lightning takes far longer than what they are to do.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    multiprocessing.start_processes(_as_rank, (port, function, arguments), nprocs=2, start_method="fork")


def _as_rank(rank, port, function, arguments):
    os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="of a test")
    without_cuda(function, *arguments)


def without_cuda(function, *arguments):
    """For a forked process, in which CUDA cannot be used."""
    torch.cuda.is_available = lambda: False
    function(*arguments)
