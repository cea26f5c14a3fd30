"""Hears what a script calls `backward()` on: its loss, as it is, without a word from the script."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

MOST_WAITING = 4096


class Losses:
    """The losses since each model's last step: `watch` a model, and `take` its loss at its optimizer's step.

    With one model every loss is its own. With several, a loss belongs to those whose gradients its backward pass
    has changed, and is forgotten where these are set to zero before the step, as a GAN's discriminator does with
    what the generator's loss has left there.
    """

    def __init__(self, on_trouble: Callable[[], None]) -> None:
        self._on_trouble = on_trouble
        self._models: list[_Heard] = []
        self._early: list[_Loss] = []
        self._lasts: dict[int, _Loss] = {}  # by thread
        self._scaled: dict[int, tuple[weakref.ref[Tensor], _Loss]] = {}
        self._on = self._over = False

    def listen(self) -> None:
        """Begin, once. Both functions are back from their work before the backward pass runs."""
        if self._on:
            return
        self._on = True
        make, scale, update = torch.autograd._make_grads, GradScaler.scale, GradScaler.update
        caller = torch.autograd.backward.__code__

        def _make_grads(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
            # torch.autograd.grad comes here, too; what that is given is no loss.
            if not (self._over or torch.compiler.is_compiling()) and sys._getframe(1).f_code is caller:
                self._hear(outputs, grads)
            try:
                return make(outputs, grads, *args, **kwargs)
            except BaseException as error:
                _leave_no_frame(error)
                raise

        def scaled(self_: GradScaler, outputs: Any) -> Any:
            try:
                result = scale(self_, outputs)
            except BaseException as error:
                _leave_no_frame(error)
                raise
            if isinstance(outputs, Tensor) and isinstance(result, Tensor) and not self._over:
                self._scaled[id(result)] = weakref.ref(result), _Loss(outputs)
            return result

        def updated(self_: GradScaler, *args: Any, **kwargs: Any) -> None:
            self._skip()
            try:
                update(self_, *args, **kwargs)
            except BaseException as error:
                _leave_no_frame(error)
                raise

        torch.autograd._make_grads = _make_grads
        GradScaler.update = wraps(update)(updated)  # type: ignore[assignment, method-assign]
        GradScaler.scale = wraps(scale)(scaled)  # type: ignore[assignment, method-assign]

    def watch(self, key: int, parameters: Sequence[Tensor]) -> None:
        """From now on tell the losses of a model with these parameters; what was heard before may be its own."""
        trained = [p for p in parameters if p.requires_grad]
        heard = _Heard(key, [trained[0], trained[-1]] if trained else [])
        heard.losses, self._early = self._early, []
        last = self._lasts.get(threading.get_ident())
        if last is not None and last not in heard.losses and not heard.is_empty():
            heard.losses.append(last)
            for other in self._here():
                if last in other.losses and not other.changed():
                    other.losses.remove(last)
        heard.look()
        self._models.append(heard)

    def stop(self) -> None:
        """Hear nothing more, and hold nothing."""
        self._over = True
        self._models, self._early = [], []
        self._lasts.clear()
        self._scaled.clear()

    def forget(self, key: int, *, hand_on: bool = False) -> None:
        """Tell no more of this model; `hand_on` leaves what was heard to the next one."""
        for heard in self._models:
            if heard.key == key and hand_on:
                self._early = heard.losses
        self._models = [heard for heard in self._models if heard.key != key]

    def take(self, key: int, *, first: bool = False) -> Tensor | None:
        """The loss of the step that comes now: a mean, or the sum if each was divided by their number.

        `first` asks for the first one alone: an optimizer with a closure begins with the loss of where it is.
        """
        self._resolve()
        for heard in self._models:
            if heard.key == key:
                heard.thread = threading.get_ident()
                losses, heard.losses = heard.losses, []
                return _together(losses[:1] if first else losses)
        return None

    def _hear(self, outputs: Sequence[Any], grads: Sequence[Any]) -> None:
        try:
            self._resolve()
            loss = self._loss(outputs, grads)
            if len(self._models) < 2:
                if loss is not None:
                    mine = self._models[0].losses if self._models else self._early
                    mine.append(loss)
                    del mine[:-MOST_WAITING]
                for heard in self._here():
                    heard.look()
                self._remember(loss)
                return
            for heard in self._here():
                if heard.is_empty() or heard.changed():  # set to None or zero since the last backward pass
                    heard.losses.clear()
                heard.look()
            self._remember(loss)
        except Exception:
            self._on_trouble()

    def _skip(self) -> None:
        """A GradScaler has let step who may step: what still waits belongs to a step that it left out."""
        self._resolve()
        for heard in self._models:
            heard.losses.clear()
        self._early.clear()

    def _loss(self, outputs: Sequence[Any], grads: Sequence[Any]) -> _Loss | None:
        parts = []
        for output, grad in zip(outputs, grads, strict=False):
            if grad is None and type(output) is Tensor and output.numel() == 1:
                known = self._scaled.pop(id(output), None)
                parts.append(known[1] if known is not None and known[0]() is output else _Loss(output))
        self._scaled.clear()
        for part in parts[1:]:  # a backward pass of several losses is one of their sum
            parts[0].value = parts[0].value + part.value
            parts[0].divisor = 1.0
        return parts[0] if parts else None

    def _resolve(self) -> None:
        """The backward pass that was heard last is over: whose gradients has it changed?"""
        last = self._lasts.pop(threading.get_ident(), None)
        if len(self._models) > 1:
            for heard in self._here():
                if last is not None and last not in heard.losses and heard.changed():
                    heard.losses.append(last)
                    del heard.losses[:-MOST_WAITING]
                heard.look()

    def _remember(self, loss: _Loss | None) -> None:
        if loss is not None:
            self._lasts[threading.get_ident()] = loss

    def _here(self) -> list[_Heard]:
        """The models trained in this thread: to look at gradients while another one changes them is fatal."""
        me = threading.get_ident()
        return [heard for heard in self._models if heard.thread == me]


class _Loss:
    __slots__ = ("divisor", "value")

    def __init__(self, loss: Tensor) -> None:
        self.value, self.divisor = loss.detach(), _divisor(loss)


class _Heard:
    """One model's losses, and how the gradients of two of its parameters looked when they were last looked at."""

    def __init__(self, key: int, sample: Sequence[Tensor]) -> None:
        self.key, self.thread = key, threading.get_ident()
        self.losses: list[_Loss] = []
        self._sample = sample
        self._seen: list[object] = []

    def look(self) -> None:
        self._seen = self._state()

    def changed(self) -> bool:
        return any(new is not None and new != old for new, old in zip(self._state(), self._seen, strict=True))

    def is_empty(self) -> bool:
        return all(p.grad is None for p in self._sample)

    def _state(self) -> list[object]:
        return [None if (grad := p.grad) is None else (id(grad), grad._version) for p in self._sample]


def _together(losses: Sequence[_Loss]) -> Tensor | None:
    if len(losses) < 2:
        return losses[0].value if losses else None
    total = losses[0].value
    for loss in losses[1:]:
        total = total + loss.value
    # Gradients add up; who wants the mean over several backward passes divides each loss by their number.
    if all(abs(loss.divisor - len(losses)) < 1e-6 * len(losses) for loss in losses):
        return total
    return total / len(losses)


def _divisor(loss: Tensor) -> float:
    """k, if the loss was made by dividing by the number k (or multiplying with 1/k) as the last thing; else 1."""
    node: Any = loss.grad_fn
    name = "" if node is None else node.name()
    with contextlib.suppress(Exception):
        other = node._saved_other if name in ("DivBackward0", "MulBackward0") else None
        if isinstance(other, Tensor) and other.numel() == 1 and other.device.type == "cpu":
            number = float(other)
            return number if name == "DivBackward0" else 1 / number
    return 1.0


def _leave_no_frame(error: BaseException) -> None:
    """Take the frame that has caught `error` out of its traceback, before a bare `raise` there."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
