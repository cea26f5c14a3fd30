"""What `gradtui run` prints when it is done."""

from __future__ import annotations

from gradtui.analysis.series import RunSeries
from gradtui.analysis.summary import LOSS_TAIL, summarise
from gradtui.charts.scale import format_number
from gradtui.i18n import Words, system_language
from gradtui.runs.reader import RunReader
from gradtui.ui.text.verdict import verdict_in_words


def report(run: RunReader, language: str | None = None) -> str:
    """A finished run in four lines: verdict, flow, loss, and where it is recorded."""
    words = Words(language or system_language())
    summary = summarise(run)
    view = RunSeries(run).at(None)
    lines = [] if view is None else [verdict_in_words(view.verdict, run.sites, words)]

    def number(value: float | None) -> str:
        return "NaN" if value is None else format_number(value)

    flow, loss = summary["flow_ratio"], summary["loss"]
    lines.append(
        words("report.flow", first=number(flow["first"]), least=number(flow["min"]), last=number(flow["last"]))
    )
    lines.append(words("report.loss", first=number(loss["first"]), last=number(loss["last"]), tail=LOSS_TAIL))
    lines.append(words("report.run", path=run.path))
    return "\n".join(lines)
