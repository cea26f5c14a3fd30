"""Numbers of a run as sentences and short texts, in either language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtui.analysis.flow import Flow
from gradtui.analysis.verdict import Verdict
from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.presets import Preset
from gradtui.presets.parts import FEEDFORWARDS, NORMS
from gradtui.runs.schema import Site

# None of these is among the marks that tell curves apart.
STATE_MARKS = {
    "healthy": "✓",
    "uneven": "≠",
    "fading": "↘",
    "vanished": "↓",
    "exploding": "↑",
    "nonfinite": "✕",
    "silent": "·",
}
STATE_COLORS = {
    "healthy": "#009e73",
    "uneven": "#e69f00",
    "fading": "#e69f00",
    "vanished": "#d55e00",
    "exploding": "#d55e00",
    "nonfinite": "#ff6ad5",
    "silent": "#b0b0b0",
}

STATES = frozenset(
    ("idle", "starting", "running", "waiting", "paused", "done", "diverged", "died", "failed", "stopped")
)


def site_in_words(site: Site, words: Words) -> str:
    """A site as people say it; a foreign module by its name."""
    known = {"embedding", "mixer", "feedforward", "norm", "head"}
    return words(f"site.{site.kind}", layer=site.layer) if site.kind in known else site.name


def beginning(first: Site | None, sites: Sequence[Site], words: Words) -> str:
    """What the flow ratio is about: layer 0 as a rule, else the first site that any gradient reaches."""
    if first is None:
        return words("site.layer0")
    stacks = {site.stack for site in sites if site.stream is not None}
    # x_0 is what enters layer 0, whatever module it leaves; of several stacks each has one.
    return words("site.layer0") if first.stream == 0 and len(stacks) <= 1 else site_in_words(first, words)


def verdict_in_words(
    verdict: Verdict | None, sites: Sequence[Site], words: Words, first: Site | None = None
) -> str:
    """The verdict as one or two sentences; `first` is the site that its flow ratio is about."""
    if verdict is None:
        return words("verdict.waiting")
    ratio = format_number(verdict.ratio)
    if verdict.state == "nonfinite":
        if verdict.site is None:
            return words("verdict.nonfinite_loss", since=verdict.since)
        site = site_in_words(sites[verdict.site], words)
        if verdict.backward is not None:
            backward = site_in_words(sites[verdict.backward], words)
            return words("verdict.nonfinite_both", since=verdict.since, forward=site, backward=backward)
        direction = words(f"direction.{verdict.direction or 'forward'}")
        return words("verdict.nonfinite", since=verdict.since, site=site, direction=direction)
    if verdict.state == "silent" and len([site for site in sites if site.layer is not None]) < 2:
        return words("verdict.single")
    where = beginning(first, sites, words)
    if verdict.state == "vanished":
        key = "now" if verdict.since is None else "since" if verdict.since == verdict.first else "again"
        since, step = verdict.since, verdict.first
        sentence = words(f"verdict.vanished_{key}", where=where, ratio=ratio, since=since, first=step)
        why = words("verdict.first_steps") if verdict.by_first_steps else _steepest(verdict, sites, words)
        return join(words, sentence, why)
    suffix = "_since" if verdict.state == "exploding" and verdict.since is not None else ""
    sentence = words(
        f"verdict.{verdict.state}{suffix}",
        since=verdict.since,
        where=where,
        ratio=ratio,
        spread=format_number(verdict.spread),
        layer0=_layer0(verdict, where, words),
    )
    back = verdict.recovered is not None
    recovered = words("verdict.recovered", recovered=verdict.recovered) if back else ""
    return join(words, sentence, _steepest(verdict, sites, words), recovered)


def _steepest(verdict: Verdict, sites: Sequence[Site], words: Words) -> str:
    """The one place that most of it happens at, if there is one."""
    if verdict.site is None or verdict.state not in ("exploding", "uneven", "fading", "vanished"):
        return ""
    return words("verdict.steepest", site=site_in_words(sites[verdict.site], words))


def _layer0(verdict: Verdict, where: str, words: Words) -> str:
    """What layer 0 gets, without saying the same number twice."""
    if np.isclose(verdict.ratio, verdict.spread, rtol=0.02):
        return words("verdict.layer0_most", where=_inside(where, words))
    if np.isclose(verdict.ratio * verdict.spread, 1, rtol=0.02):
        return words("verdict.layer0_least", where=_inside(where, words))
    return words("verdict.layer0", where=_inside(where, words), ratio=format_number(verdict.ratio))


def _inside(where: str, words: Words) -> str:
    """A site's name within a sentence; only our own words begin with a small letter there."""
    return where[0].lower() + where[1:] if where == words("site.layer0") else where


def verdict_in_short(verdict: Verdict | None, words: Words) -> str:
    """The verdict in a few characters, for a lane that is only compared with."""
    if verdict is None:
        return "…"
    mark = STATE_MARKS[verdict.state]
    if verdict.state == "nonfinite":
        return f"{mark} {words('verdict.short_since', since=verdict.since)}"
    if verdict.since is not None:
        return f"{mark} {format_number(verdict.ratio)} {words('verdict.short_since', since=verdict.since)}"
    return f"{mark} {format_number(verdict.ratio)}×"


def join(words: Words, *sentences: str) -> str:
    """Sentences in a row, with what the language has between them."""
    return words("language.sentence_gap").join(s for s in sentences if s)


def state_in_words(state: str, words: Words) -> str:
    """A lane's state; one that a file has made up stays as it is."""
    return words(f"state.{state}") if state in STATES else state


def flow_mark(flow: Flow | None) -> tuple[str, str, str]:
    """A glyph for the state, its colour, and the flow ratio in short."""
    if flow is None:
        return "", "", ""
    ratio = "" if np.isnan(flow.ratio) else format_number(flow.ratio)
    return STATE_MARKS[flow.state], STATE_COLORS[flow.state], ratio


def traits_of(preset: Preset, words: Words) -> str:
    """What makes a preset what it is, in a few words."""
    model, training = preset.model, preset.training
    warmup = words("header.warmup", steps=training.warmup) if training.warmup else words("header.no_warmup")
    parts = [
        NORMS[model.norm].title,
        FEEDFORWARDS[model.feedforward].title,
        words("header.layers", count=model.layers),
        f"d={model.width}",
        warmup,
    ]
    return " · ".join(parts)
