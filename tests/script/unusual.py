"""Ways to train that differ from one model with one optimizer; each prints its losses as they have to be."""

import gc
import weakref

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

torch.set_num_threads(1)
torch.manual_seed(0)
released = []


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def loss_of(net):
    return net(torch.randn(8, 4)).pow(2).mean()


def tell(run, loss):
    print("LOSS", run, float(loss))


def one_step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def accumulation_of_parts():
    parts = mlp()
    optimizer = SGD(parts.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for _ in range(2):
        losses = [loss_of(parts) / 4 for _ in range(4)]
        for loss in losses:
            loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        tell("parts", sum(map(float, losses)))
    released.append(weakref.ref(parts))


def accumulation_of_wholes():
    whole = mlp()
    optimizer = SGD(whole.parameters(), 0.1)
    losses = [loss_of(whole) for _ in range(3)]
    for loss in losses:
        loss.backward()
    optimizer.step()
    tell("whole", sum(map(float, losses)) / 3)
    released.append(weakref.ref(whole))


def mixed_precision():
    scaled = mlp()
    optimizer = SGD(scaled.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        loss = loss_of(scaled) * (torch.inf if step == 1 else 1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step != 1:
            tell("scaled", loss)


def two_models():
    generator, critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4)), mlp()
    of_generator, of_critic = Adam(generator.parameters(), 1e-3), Adam(critic.parameters(), 1e-3)
    for _ in range(3):
        fake = generator(torch.randn(8, 2))
        loss = critic(torch.randn(8, 4)).mean() - critic(fake.detach()).mean()
        one_step(of_critic, loss)
        tell("critic", loss)
        loss = critic(fake).mean()
        one_step(of_generator, loss)
        tell("generator", loss)


def parts_without_a_whole():
    encoder, decoder, scale = nn.Linear(4, 3), nn.Linear(3, 4), nn.Parameter(torch.ones(()))
    optimizer = AdamW([*encoder.parameters(), *decoder.parameters(), scale], 1e-3)
    for _ in range(2):
        x = torch.randn(8, 4)
        loss = (decoder(encoder(x).tanh()) * scale - x).pow(2).mean()
        one_step(optimizer, loss)
        tell("Together", loss)


def a_method_instead_of_a_call():
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(3, 4)

        def loss(self, x):
            return (self.decoder(self.encoder(x)) - x).pow(2).mean()

    autoencoder = Autoencoder()
    optimizer = SGD(autoencoder.parameters(), 0.1)
    for _ in range(2):
        loss = autoencoder.loss(torch.randn(8, 4))
        one_step(optimizer, loss)
        tell("autoencoder", loss)


def tensors_of_no_module():
    weight = torch.randn(4, 1, requires_grad=True)
    one_step(SGD([weight], 0.1), (torch.randn(8, 4) @ weight).pow(2).mean())


def several_optimizers():
    split = mlp()
    forgotten = SGD(split.parameters(), 1.0)
    first, second = SGD(split[0].parameters(), 0.1), Adam(split[2].parameters(), 0.1)
    for _ in range(3):
        loss = loss_of(split)
        split.zero_grad()
        loss.backward()
        first.step()
        second.step()
        tell("split", loss)
    del forgotten


def an_optimizer_that_never_steps():
    partly = mlp()
    first, second = SGD(partly[0].parameters(), 0.1), Adam(partly[2].parameters(), 0.1)
    for _ in range(12):
        loss = loss_of(partly)
        one_step(first, loss)
        tell("partly", loss)
    del second


def one_optimizer_after_another():
    tuned = mlp()
    first = SGD(tuned.parameters(), 0.1)
    for _ in range(3):
        loss = loss_of(tuned)
        one_step(first, loss)
        tell("tuned", loss)
    second = Adam(tuned.parameters(), 1e-3)
    for _ in range(3):
        loss = loss_of(tuned)
        one_step(second, loss)
        tell("tuned", loss)


def closures():
    curved = mlp()
    optimizer = torch.optim.LBFGS(curved.parameters(), max_iter=4)
    x = torch.randn(8, 4)

    def closure():
        optimizer.zero_grad()
        loss = (curved(x) - 1).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        tell("curved", optimizer.step(closure))


closures()
accumulation_of_parts()
accumulation_of_wholes()
mixed_precision()
two_models()
parts_without_a_whole()
a_method_instead_of_a_call()
tensors_of_no_module()
several_optimizers()
an_optimizer_that_never_steps()
one_optimizer_after_another()
gc.collect()
print("RELEASED", *[reference() is None for reference in released])
