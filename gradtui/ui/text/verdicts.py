"""The verdicts under the charts: the focused lane in full, the others in short. Pure."""

from __future__ import annotations

from rich.text import Text

from gradtui.i18n import Words
from gradtui.ui.session.lane import Lane
from gradtui.ui.session.script import ending
from gradtui.ui.session.session import Session
from gradtui.ui.text.empty import emptiness
from gradtui.ui.text.folding import fold
from gradtui.ui.text.verdict import STATE_COLORS, STATE_MARKS, join, verdict_in_short, verdict_in_words

UNSEEN = "#e69f00"


def verdicts(session: Session, words: Words, width: int) -> Text:
    """The focused lane's verdict in full, those it is compared with in short; trouble of any in full."""
    text, short = Text(), Text()
    if session.script is not None and session.script.exit_code is not None:
        clean = session.script.exit_code == 0
        text.append(f"{'·' if clean else '✕'} ", "dim" if clean else STATE_COLORS["vanished"])
        text.append(words("script.over", name=session.script.title, ending=ending(session.script, words)))
    if not session.shown:
        text.append("\n" if text.plain else "")
        text.append(emptiness(session, None, words), "dim")
    for lane in session.shown:
        view = lane.view(session.cursor)
        verdict = view.verdict if view else None
        state = verdict.state if verdict else None
        name = f"{lane.mark} {lane.name(words.language)}: "
        if lane is not session.focused and not lane.in_trouble:
            short.append("   " if short.plain else "")
            short.append(name, f"bold {lane.color}")
            short.append(verdict_in_short(verdict, words), STATE_COLORS[state] if state else "dim")
            continue
        text.append("\n" if text.plain else "")
        text.append(f"{STATE_MARKS[state] if state else '·'} ", STATE_COLORS[state] if state else "dim")
        text.append(f"{lane.name(words.language)}: ", f"bold {lane.color}")
        trouble = emptiness(session, lane, words) if verdict is None or lane.in_trouble else ""
        first = view.ratio_site if view else None
        sentence = "" if verdict is None else verdict_in_words(verdict, lane.sites, words, first)
        text.append(join(words, trouble, sentence, _skipped(lane, session.cursor, words)))
        unseen = lane.series.unseen if lane.series else []
        if lane is session.focused and unseen:
            rest = words("verdict.more_blind", count=len(unseen) - 1) if len(unseen) > 1 else ""
            text.append("\n! ", UNSEEN)
            text.append(join(words, words("verdict.blind", sentence=unseen[0]), rest), UNSEEN)
    if short.plain:
        text.append("\n").append_text(short)
    return fold(text, width)


def _skipped(lane: Lane, cursor: int | None, words: Words) -> str:
    """How many optimizer steps a GradScaler has left out so far."""
    steps = [step for step in lane.recent.skipped if cursor is None or step <= cursor]
    return words("verdict.skipped", count=len(steps), last=steps[-1]) if steps else ""
