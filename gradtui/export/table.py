"""A run as lines of text in long form: one line per step, site and metric. Made a step at a time."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator

import numpy as np

from gradtui.export import LOSS, Choice
from gradtui.runs.reader import RunReader
from gradtui.runs.schema import ABSENT, Site

FIELDS = ("step", "site", "layer", "kind", "stack", "metric", "value", "nonfinite")

Line = Callable[[int, str, str, str], str]


def csv_lines(run: RunReader, choice: Choice) -> Iterator[str]:
    """Pieces of a CSV file with a header; a value that is not finite is empty, and named under "nonfinite"."""
    yield _csv_row(*FIELDS)

    def middle(site: Site | None, metric: str) -> str:
        name, layer, kind, stack = _place(site)
        return _csv_row(name, "" if layer is None else layer, kind, stack, metric)[:-1]

    def line(step: int, middle: str, value: str, trouble: str) -> str:
        return f"{step},{middle},{value},{trouble}\n"

    yield from _pieces(run, choice, middle, line)


def jsonl_lines(run: RunReader, choice: Choice) -> Iterator[str]:
    """Pieces of a JSON-lines file for any strict parser; a value that is not finite is null, with "nonfinite"."""

    def middle(site: Site | None, metric: str) -> str:
        name, layer, kind, stack = _place(site)
        fields = {"site": name or None, "layer": layer, "kind": kind or None, "stack": stack, "metric": metric}
        return json.dumps(fields, ensure_ascii=False)[1:-1]

    def line(step: int, middle: str, value: str, trouble: str) -> str:
        trouble = f'"{trouble}"' if trouble else "null"
        return f'{{"step": {step}, {middle}, "value": {value or "null"}, "nonfinite": {trouble}}}\n'

    yield from _pieces(run, choice, middle, line)


def _pieces(
    run: RunReader, choice: Choice, middle: Callable[[Site | None, str], str], line: Line
) -> Iterator[str]:
    metrics = [name for name in choice.metrics if name != LOSS]
    middles = [middle(site, metric) for metric in metrics for site in run.sites]
    loss = middle(None, LOSS) if LOSS in choice.metrics else None
    # A loss alone still needs the frames; one metric is the least that a block can have.
    for block in run.blocks(metrics or run.metrics[:1], choice.start, choice.stop):
        rows = block.values.reshape(len(block.steps), -1)[:, : len(middles)]
        there, finite = rows != ABSENT, np.isfinite(rows)
        for n, step in enumerate(block.steps.tolist()):
            if loss is not None and block.loss_given[n]:
                value = float(block.loss[n])
                good = math.isfinite(value)
                yield line(step, loss, repr(value) if good else "", "" if good else _trouble(value))
            if there[n].all() and finite[n].all():
                yield "".join(
                    line(step, text, str(number), "") for text, number in zip(middles, rows[n], strict=True)
                )
                continue
            yield "".join(
                line(step, text, str(number) if good else "", "" if good else _trouble(number))
                for text, number, known, good in zip(middles, rows[n], there[n], finite[n], strict=True)
                if known
            )


def _trouble(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _place(site: Site | None) -> tuple[str, int | None, str, str]:
    return ("", None, "", "") if site is None else (site.name, site.layer, site.kind, site.stack)


def _csv_row(*cells: object) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
