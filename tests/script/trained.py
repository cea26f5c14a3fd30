"""A small residual model and its training loop, as a stranger would write them; tests read it, and run it."""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(4, 8)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        return torch.full((4,), index / 80)


def start():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def loss_of(net):
    return (net(torch.randn(16, 4)) ** 2).mean()


if __name__ == "__main__":
    net, optimizer = start()
    with torch.no_grad():
        net(torch.zeros(1, 4))
    for step in range(5):
        loss = loss_of(net)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex(), flush=True)
    print(torch.get_rng_state().sum().item(), [p.sum().item().hex() for p in net.parameters()])
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "raise":
        raise ValueError("the loss is too high\nand more")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)
    if how == "leave":
        import os

        os._exit(0)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "workers":
        for context in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(Rows(), 16, num_workers=1, multiprocessing_context=context)
            for rows in loader:
                loss = net(rows).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print("rows", len(loader))
