"""What the lab says in words around its charts: header, verdicts, and why a chart is empty. Pure."""

from __future__ import annotations

from rich.text import Text

from gradtui.charts.scale import format_number
from gradtui.i18n import LANGUAGES, Words, catalogue
from gradtui.metrics import TRUNK_SHARE
from gradtui.ui.panels.text_line import fold, spread
from gradtui.ui.session.lane import LaneView, sentences
from gradtui.ui.session.script import ending
from gradtui.ui.session.session import Lab
from gradtui.ui.text.verdict import (
    STATE_COLORS,
    STATE_MARKS,
    join,
    state_in_words,
    traits,
    verdict_in_short,
    verdict_in_words,
)

BLIND = "#e69f00"
SOME = 4  # so many names of many are told


def matches(lane: LaneView, text: str) -> bool:
    """Whether a lane's id, or the name of it or of its group in any language, holds `text`."""
    groups = [catalogue(language)[f"group.{lane.group}"] for language in LANGUAGES] if lane.group else []
    wanted = text.casefold()
    names = (lane.id, lane.title, lane.title_zh, lane.group, *groups)
    return any(wanted in name.casefold() for name in names)


def header(lab: Lab, words: Words, width: int) -> Text:
    """The focused lane: what it is, on the left; how far it is, on the right."""
    lane = lab.focused
    left = Text(" gradtui  ", "bold #56b4e9")
    if lane is None:
        if lab.script is None:
            return left
        left.append(lab.script.title, "bold")
        return spread(left, Text(f"{ending(lab.script, words)} ", "dim"), width)
    left.append(lane.name(words.language), "bold")
    named = left.cell_len
    facts = lane.facts
    if lane.preset is not None:
        left.append(f"  {traits(lane.preset, words)}", "dim")
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
    if lane.state == "running" and lane.seconds > 0:
        rate, tokens = 1 / lane.seconds, facts.get("tokens_per_step")
        if isinstance(tokens, int):
            speed = words("header.speed", rate=format_number(rate), tokens=f"{rate * tokens:,.0f}")
        else:
            speed = words("header.rate", rate=format_number(rate))
        parts.append(speed)
    if lab.script is not None and lane.run in lab.own and lab.script.exit_code is not None:
        parts.append(ending(lab.script, words))
    parts = [part for part in parts if part]
    right = _state(lab, lane, parts, words)
    while len(parts) > 1 and named + 2 + right.cell_len > width:  # the name before how fast it is, and where
        del parts[-1 if len(parts) > 3 else 0]
        right = _state(lab, lane, parts, words)
    return spread(left, right, width)


def _state(lab: Lab, lane: LaneView, parts: list[str], words: Words) -> Text:
    right = Text(" · ".join(parts) + " ", "dim")
    if lab.cursor is not None:
        right.append(f" {words('header.history', step=lab.cursor)} ", "reverse #e69f00")
    else:
        live = lane.state == "running"
        text = words("header.live") if live else state_in_words(lane.state, words)
        right.append(f"{'» ' if live else ''}{text} ", "#009e73" if live else "dim")
    return right


def about(lane: LaneView, words: Words) -> Text:
    """What a run of somebody's own script is: its command, device, parameters, and what it leaves out."""
    facts, text = lane.facts, Text()
    lines = [
        str(facts.get("script") or ""),
        str(facts.get("device_name") or facts.get("device") or ""),
    ]
    parameters = facts.get("parameters")
    if isinstance(parameters, int):
        lines.append(words("header.parameters", count=f"{parameters:,}"))
    if lane.every > 1:
        lines.append(words("header.every", every=lane.every))
    for key, fact in (("frozen", "frozen"), ("left_out", "skipped")):
        names = sentences(facts.get(fact))
        if names:
            lines.append(words(f"header.{key}", names=some(names)))
    text.append("\n".join(line for line in lines if line), "dim")
    for sentence in lane.blind:
        text.append("\n" if text.plain else "")
        text.append(words("verdict.blind", sentence=sentence), BLIND)
    return text


def some(names: list[str]) -> str:
    """The first few of many names, and how many more there are."""
    return ", ".join(names[:SOME]) + (f" … (+{len(names) - SOME})" if len(names) > SOME else "")


def verdicts(lab: Lab, words: Words, width: int) -> Text:
    """The focused lane's verdict in full, those it is compared with in short; trouble of any in full."""
    text, short = Text(), Text()
    if lab.script is not None and lab.script.exit_code is not None:
        clean = lab.script.exit_code == 0
        text.append(f"{'·' if clean else '✕'} ", "dim" if clean else STATE_COLORS["vanished"])
        text.append(words("script.over", name=lab.script.title, ending=ending(lab.script, words)))
    if not lab.shown:
        text.append("\n" if text.plain else "")
        text.append(emptiness(lab, None, words), "dim")
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
        trouble = emptiness(lab, lane, words) if verdict is None or lane.in_trouble else ""
        first = lane.ratio_site(lab.cursor)
        sentence = "" if verdict is None else verdict_in_words(verdict, lane.sites, words, first)
        text.append(join(words, trouble, sentence, _skipped(lane, lab.cursor, words)))
        if lane is lab.focused and lane.blind:
            more = words("verdict.more_blind", count=len(lane.blind) - 1) if len(lane.blind) > 1 else ""
            text.append("\n! ", BLIND)
            text.append(join(words, words("verdict.blind", sentence=lane.blind[0]), more), BLIND)
    if short.plain:
        text.append("\n").append_text(short)
    return fold(text, width)


def _skipped(lane: LaneView, cursor: int | None, words: Words) -> str:
    """How many optimizer steps a GradScaler has left out so far."""
    steps = [step for step in lane.skipped if cursor is None or step <= cursor]
    return words("verdict.skipped", count=len(steps), last=steps[-1]) if steps else ""


def emptiness(lab: Lab, lane: LaneView | None, words: Words) -> str:
    """Why there is nothing to see, and what to press."""
    waits = lane is None or (lane.run in lab.own and lane.last_step < 0 and not lane.in_trouble)
    if lab.script is not None and waits:
        name = lab.script.title
        if lab.script.exit_code is None:
            return words("empty.script", name=name)
        return words("empty.script_ended", name=name, ending=ending(lab.script, words))
    if lane is None:
        return words("empty.none") if lab.engine is not None else words("empty.runs", path=lab.runs)
    if lane.recorded and (lane.in_trouble or lane.state == "died"):
        if lane.state == "died" and not lane.reason:
            return words("trouble.gone")
        key = "stopped" if lane.state == "stopped" else "failed"
        return words(f"trouble.{key}", reason=lane.reason or state_in_words(lane.state, words))
    if lane.in_trouble:
        key = lane.state if lane.state in ("paused", "diverged", "stopped") else "died"
        return words(f"trouble.{key}", reason=lane.reason)
    if lane.state == "starting" and not lab.slots:
        return words("empty.engine")
    known = ("starting", "waiting", "idle", "running", "paused")
    return words(f"empty.{lane.state}" if lane.state in known else "empty.nothing")


def missing(lane: LaneView | None, metric: str, words: Words) -> str:
    """That a run with data has not measured this metric, or has nothing to measure; nothing where it has."""
    if lane is None or lane.last_step < 0:
        return ""
    if lane.has(metric):
        return words("empty.trunk") if metric == TRUNK_SHARE and lane.curve(metric, None) is None else ""
    return words("empty.metric", metric=words(f"metric.{metric}"))
