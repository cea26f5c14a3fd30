"""Models and losses compiled in several ways, one after the other; torch must have nothing to say about it."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(net, loss_of):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        loss = loss_of(torch.randn(8, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())


whole = mlp()
compiled = torch.compile(whole, backend="eager")
train(whole, lambda x: compiled(x).pow(2).mean())

in_place = mlp()
in_place.compile(backend="eager")
train(in_place, lambda x: in_place(x).pow(2).mean())

inside = mlp()
train(inside, torch.compile(lambda x: inside(x).pow(2).mean(), backend="eager", fullgraph=True))
