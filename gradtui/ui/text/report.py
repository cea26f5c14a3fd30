"""What `gradtui run` prints when it is done."""

from __future__ import annotations

from gradtui.analysis.summary import LOSS_TAIL, summarise
from gradtui.analysis.verdict import judge
from gradtui.charts.scale import format_number
from gradtui.i18n import Words, system_language
from gradtui.runs.reader import RunReader
from gradtui.ui.session.lane import flow_of, ratio_of
from gradtui.ui.text.verdict import verdict_in_words


def report(run: RunReader, language: str | None = None) -> str:
    """A finished run in four lines: verdict, flow, loss, and where it is recorded."""
    words = Words(language or system_language())
    summary = summarise(run)
    last, first = run.frame(run.last_step), run.frame(run.first_step)
    lines = []
    if last is not None and first is not None:
        verdict = judge(flow_of(run, last), run.last_step, run.events(), ratio_of(run, first))
        lines.append(verdict_in_words(verdict, run.sites, words))

    def number(value: float | None) -> str:
        return "NaN" if value is None else format_number(value)

    flow, loss = summary["flow_ratio"], summary["loss"]
    lines.append(
        words("report.flow", first=number(flow["first"]), least=number(flow["min"]), last=number(flow["last"]))
    )
    lines.append(words("report.loss", first=number(loss["first"]), last=number(loss["last"]), tail=LOSS_TAIL))
    lines.append(words("report.run", path=run.path))
    return "\n".join(lines)
