"""What the lab says in words around its charts: header, verdicts, and why a chart is empty. Pure."""

from __future__ import annotations

from rich.text import Text

from gradtui.charts.scale import format_number
from gradtui.ui.i18n import Words
from gradtui.ui.lab import Lab
from gradtui.ui.lanes import LaneView
from gradtui.ui.widgets.lines import fold, spread
from gradtui.ui.wording import (
    STATE_COLORS,
    STATE_MARKS,
    join,
    traits,
    verdict_in_short,
    verdict_in_words,
)


def header(lab: Lab, words: Words, width: int) -> Text:
    """The focused lane: what it is, on the left; how far it is, on the right."""
    lane = lab.focused
    left = Text(" gradtui  ", "bold #56b4e9")
    if lane is None:
        return left
    left.append(lane.name(words.language), "bold")
    if lane.preset is not None:
        left.append(f"  {traits(lane.preset, words)}", "dim")
    facts = lane.reader.facts if lane.reader else {}
    parts = [str(facts.get("device", "")), words("header.seed", seed=lane.seed)]
    if lane.state == "done":
        parts.append(words("header.done", steps=lane.last_step + 1))
    elif lane.last_step >= 0:
        parts.append(words("header.step", step=lane.last_step, steps=lane.steps or "?"))
    if lane.state == "running" and lane.seconds > 0:
        rate = 1 / lane.seconds
        tokens = f"{rate * facts.get('tokens_per_step', 0):,.0f}"
        parts.append(words("header.speed", rate=format_number(rate), tokens=tokens))
    right = Text(" · ".join(part for part in parts if part) + " ", "dim")
    if lab.cursor is not None:
        right.append(f" {words('header.history', step=lab.cursor)} ", "reverse #e69f00")
    else:
        live = lane.state == "running"
        text = words("header.live") if live else words(f"state.{lane.state}")
        right.append(f"{'» ' if live else ''}{text} ", "#009e73" if live else "dim")
    return spread(left, right, width)


def verdicts(lab: Lab, words: Words, width: int) -> Text:
    """The focused lane's verdict in full, those it is compared with in short; trouble of any in full."""
    text, short = Text(), Text()
    for lane in lab.shown:
        verdict = lane.verdict(lab.cursor)
        state = verdict.state if verdict else None
        name = f"{lane.mark} {lane.name(words.language)}: "
        if lane is not lab.focused and not lane.in_trouble:
            short.append("   " if short.plain else "")
            short.append(name, f"bold {lane.color}")
            short.append(verdict_in_short(verdict, words), STATE_COLORS[state] if state else "dim")
            continue
        text.append("\n" if text.plain else "")
        text.append(f"{STATE_MARKS[state] if state else '·'} ", STATE_COLORS[state] if state else "dim")
        text.append(f"{lane.name(words.language)}: ", f"bold {lane.color}")
        sites = lane.reader.sites if lane.reader else ()
        trouble = emptiness(lab, lane, words) if verdict is None or lane.in_trouble else ""
        sentence = "" if verdict is None else verdict_in_words(verdict, sites, words)
        text.append(join(words, trouble, sentence))
    if short.plain:
        text.append("\n").append_text(short)
    return fold(text, width)


def emptiness(lab: Lab, lane: LaneView | None, words: Words) -> str:
    """Why there is nothing to see, and what to press."""
    if lane is None:
        return words("empty.none")
    if lane.in_trouble:
        key = lane.state if lane.state in ("paused", "diverged", "stopped") else "died"
        return words(f"trouble.{key}", reason=lane.reason)
    if lane.state == "starting" and not lab.slots:
        return words("empty.engine")
    known = ("starting", "waiting", "idle", "running", "paused")
    return words(f"empty.{lane.state}" if lane.state in known else "empty.nothing")
