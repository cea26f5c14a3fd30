"""The line at the top, and what a run is in a few words. Pure."""

from __future__ import annotations

from rich.text import Text

from gradtui.analysis.shapes import texts_of
from gradtui.charts.scale import format_number
from gradtui.i18n import Words
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.script import ending
from gradtui.ui.session.session import Session
from gradtui.ui.text.folding import spread
from gradtui.ui.text.verdict import state_in_words, traits_of

UNSEEN = "#e69f00"
SOME = 4  # so many names of many are shown


def header(session: Session, words: Words, width: int) -> Text:
    """The focused lane: what it is, on the left; how far it is, on the right."""
    lane = session.focused
    left = Text(" gradtui  ", "bold #56b4e9")
    if lane is None:
        if session.script is None:
            return left
        left.append(session.script.title, "bold")
        return spread(left, Text(f"{ending(session.script, words)} ", "dim"), width)
    left.append(lane.name(words.language), "bold")
    named = left.cell_len
    facts = lane.facts
    if lane.preset is not None:
        left.append(f"  {traits_of(lane.preset, words)}", "dim")
    elif facts.get("script"):
        left.append(f"  {facts['script']}", "dim")
    parts = [str(facts.get("device", ""))]
    if lane.preset is not None or "seed" in facts:
        parts.append(words("header.seed", seed=lane.seed))
    if lane.state == "done":
        parts.append(words("header.done", steps=lane.last_step + 1))
    elif lane.last_step >= 0 and lane.steps:
        parts.append(words("header.step", step=lane.last_step, steps=lane.steps))
    elif lane.last_step >= 0:
        parts.append(words("header.at", step=lane.last_step))
    if lane.state == "running" and lane.recent.seconds > 0:
        rate, tokens = 1 / lane.recent.seconds, facts.get("tokens_per_step")
        if isinstance(tokens, int):
            speed = words("header.speed", rate=format_number(rate), tokens=f"{rate * tokens:,.0f}")
        else:
            speed = words("header.rate", rate=format_number(rate))
        parts.append(speed)
    if session.script is not None and lane.run in session.own and session.script.exit_code is not None:
        parts.append(ending(session.script, words))
    parts = [part for part in parts if part]
    right = _state(session, lane, parts, words)
    while len(parts) > 1 and named + 2 + right.cell_len > width:  # the name before how fast it is, and where
        del parts[-1 if len(parts) > 3 else 0]
        right = _state(session, lane, parts, words)
    return spread(left, right, width)


def _state(session: Session, lane: Lane, parts: list[str], words: Words) -> Text:
    right = Text(" · ".join(parts) + " ", "dim")
    if session.cursor is not None:
        right.append(f" {words('header.history', step=session.cursor)} ", "reverse #e69f00")
    else:
        live = lane.state == "running"
        text = words("header.live") if live else state_in_words(lane.state, words)
        right.append(f"{'» ' if live else ''}{text} ", "#009e73" if live else "dim")
    return right


def about(lane: Lane, words: Words) -> Text:
    """What a run of somebody's own script is: its command, device, parameters, and what it leaves out."""
    facts, text = lane.facts, Text()
    lines = [
        str(facts.get("script") or ""),
        str(facts.get("device_name") or facts.get("device") or ""),
    ]
    parameters = facts.get("parameters")
    if isinstance(parameters, int):
        lines.append(words("header.parameters", count=f"{parameters:,}"))
    if lane.series is not None and lane.series.every > 1:
        lines.append(words("header.every", every=lane.series.every))
    for key, fact in (("frozen", "frozen"), ("left_out", "skipped")):
        names = texts_of(facts.get(fact))
        if names:
            lines.append(words(f"header.{key}", names=some(names)))
    text.append("\n".join(line for line in lines if line), "dim")
    for sentence in lane.series.unseen if lane.series else ():
        text.append("\n" if text.plain else "")
        text.append(words("verdict.blind", sentence=sentence), UNSEEN)
    return text


def some(names: list[str]) -> str:
    """The first few of many names, and how many more there are."""
    return ", ".join(names[:SOME]) + (f" … (+{len(names) - SOME})" if len(names) > SOME else "")
