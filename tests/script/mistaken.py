"""Mistakes that are easily made, each with the traceback that its author sees."""

import traceback

import torch
from torch import nn

torch.set_num_threads(1)


def show(mistake):
    try:
        mistake()
    except Exception:
        print(traceback.format_exc())
        print("=====")


def no_parameters():
    torch.optim.Adam([])


def wrong_shape():
    net(torch.randn(3, 5))


def no_scalar():
    net(torch.randn(3, 4)).backward()


def backward_twice():
    loss = net(torch.randn(3, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    loss.backward()


def wrong_loss_for_the_scaler():
    torch.amp.GradScaler("cpu").scale("loss")


def closure_that_fails():
    def closure():
        raise ValueError("in the closure")

    optimizer.step(closure)


show(no_parameters)
net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for mistake in (wrong_shape, no_scalar, backward_twice, wrong_loss_for_the_scaler, closure_that_fails):
    show(mistake)
