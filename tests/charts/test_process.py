"""What has to be tried in a process of its own: plotext 6 aborts the whole process on input it does not like."""

from __future__ import annotations

import subprocess
import sys

FUZZ = """
import numpy as np
from rich.cells import cell_len
from gradtui.charts.render import render_chart
from gradtui.charts.spec import Chart, Series

rng = np.random.default_rng(20)
AWKWARD = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, -1e300, 1e300, 1e-300, 1e-320, 1.7e308, 1e-9, 1.0]
SIZES = [(1, 1), (3, 2), (8, 4), (15, 5), (16, 5), (17, 6), (24, 7), (55, 14), (200, 60), (16, 60), (200, 5)]

def values(count):
    kind = rng.integers(6)
    if kind == 0:
        y = rng.choice(AWKWARD, count)
    elif kind == 1:
        y = 10.0 ** rng.uniform(-9, 1, count)
    elif kind == 2:
        y = np.full(count, rng.choice(AWKWARD))
    elif kind == 3:
        y = rng.normal(0, 10.0 ** rng.uniform(-300, 300), count)
    elif kind == 4:
        y = np.exp(np.cumsum(rng.normal(1, 30, count)).clip(-5000, 5000))
    else:
        y = rng.normal(3, 0.1, count)
    if count and rng.random() < 0.5:
        y[rng.integers(count, size=rng.integers(1, 4))] = rng.choice(AWKWARD)
    return y

def pair():
    return None if rng.random() < 0.6 else tuple(float(v) for v in rng.choice(AWKWARD + [2.0, 50.0], 2))

drawn = 0
with np.errstate(all="ignore"):
    for index in range(700):
        series = []
        for number in range(rng.integers(0, 4)):
            count = int(rng.choice([0, 1, 2, 3, 13, 101, 400]))
            x = np.arange(count, dtype=float)
            if rng.random() < 0.1:
                x = rng.choice(AWKWARD, count)
            low = values(count) if rng.random() < 0.2 else None
            high = values(count) if rng.random() < 0.2 else None
            mark = str(rng.choice(["", "●", "▲", "层"]))
            label, dim = f"s[{number}]层", bool(rng.integers(2))
            series.append(Series(label, x, values(count), "#a0b0c0", mark, dim, low, high))
        cursor = float(rng.choice(AWKWARD)) if rng.random() < 0.3 else None
        log, markers = bool(rng.integers(2)), bool(rng.integers(2))
        chart = Chart(tuple(series), log, pair(), pair(), None, "step", cursor, "nothing yet", markers, "no room")
        width, height = int(rng.integers(1, 120)), int(rng.integers(1, 50))
        if index % 2:
            width, height = SIZES[index // 2 % len(SIZES)]
        lines = render_chart(chart, width, height)
        assert len(lines) == height, (index, width, height)
        for line in lines:
            assert cell_len("".join(span.text for span in line)) == width, (index, width, height)
        drawn += any("└" in span.text for line in lines for span in line)
print(drawn)
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)


def test_no_numbers_abort_the_process_and_every_chart_has_its_size() -> None:
    result = python(FUZZ)
    assert result.returncode == 0, result.stderr[-3000:]
    assert int(result.stdout) > 300


def test_plotext_is_loaded_by_the_first_chart_only_and_nothing_prints() -> None:
    code = """
import sys
import numpy as np
import gradtui.charts.gate, gradtui.charts.heatmap, gradtui.charts.spec, gradtui.charts.render
assert "plotext" not in sys.modules and "textual" not in sys.modules and "torch" not in sys.modules
gradtui.charts.heatmap.render_heatmap(gradtui.charts.spec.HeatMap(np.ones((3, 3))), 40, 10)
assert "plotext" not in sys.modules
gradtui.charts.render.preload()
assert "plotext" in sys.modules and "torch" not in sys.modules
"""
    result = python(code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
