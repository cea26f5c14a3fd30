"""A script of somebody's own beside its charts: its output, its end, and leaving it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input
from ui.conftest import SIZES, screen_text, until
from ui.foreign import FakeScript, encoder_decoder, frame, record, stack

from gradtui.errors import Failure
from gradtui.runs.writer import RunWriter
from gradtui.ui import launch
from gradtui.ui.actions import applicable
from gradtui.ui.app import GradtuiApp, Opened
from gradtui.ui.panels.output_panel import OutputPane
from gradtui.ui.screens.lab import LabScreen
from gradtui.ui.session.layout import arrange
from gradtui.ui.session.script import shell_code
from gradtui.ui.session.session import Session
from gradtui.ui.session.view_state import OUTPUT, PANES, ViewState

METRICS = ("grad_norm", "stream_grad", "act_rms")


class Stage:
    """The app on a fake script."""

    def __init__(self, directory: Path, language: str = "en") -> None:
        self.script = FakeScript(directory)
        self.session = Session.of_script(self.script, self.script.run.parent)
        self.app = GradtuiApp(lambda _app: Opened(self.session), language=language, data=directory)
        self.sites = stack("layers", 4)
        self.writers: list[RunWriter] = []

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def screen(self) -> LabScreen:
        return next(s for s in self.app.screen_stack if isinstance(s, LabScreen))

    def begins(self, name: str = "live") -> RunWriter:
        """The first optimizer step of a model."""
        path = self.script.run.with_name(f"{name}.gradtui")
        facts = {"source": "script", "name": name, "script": "train.py --lr 1e-3", "device": "cpu"}
        writer = RunWriter(path, self.sites, facts, metrics=METRICS)
        writer.append(frame(self.sites, METRICS, 0))
        writer.flush()
        self.writers.append(writer)
        return writer


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    for writer in one.writers:
        writer.close()


@pytest.mark.parametrize("size", SIZES)
async def test_before_the_first_step_it_says_that_it_waits_and_shows_the_output(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.script.prints("reading [the] data\r\nmodel built\n")
        await until(pilot, lambda: "model built" in stage.text)
        assert "reading [the] data" in stage.text
        folded = " ".join(stage.text.replace("│", " ").split())
        assert "waits for its first optimizer step" in folded
        assert stage.screen.query_one(OutputPane).size.height > size[1] // 3


@pytest.mark.parametrize("size", SIZES)
async def test_the_charts_come_with_the_first_step_and_the_output_stays_at_hand(
    stage: Stage, size: tuple[int, int]
) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.script.prints("epoch 1\r")
        await until(pilot, lambda: "epoch 1" in stage.text)
        stage.begins()
        await until(pilot, lambda: "step 0" in stage.text and "waits" not in stage.text)
        assert "train.py --lr 1e-3" in stage.text
        assert "seed" not in stage.text
        assert "tokens" not in stage.text
        if size == (80, 24):
            assert "epoch 1" not in stage.text
            await pilot.press("shift+tab")
        await until(pilot, lambda: "epoch 1" in stage.text)


async def test_each_further_model_is_a_further_curve(stage: Stage) -> None:
    async with stage.app.run_test(size=(140, 44)) as pilot:
        stage.begins()
        await until(pilot, lambda: "● live" in stage.text)
        stage.begins("live-2")
        await until(pilot, lambda: "▲ live-2" in stage.text)
        assert stage.session.focused is not None
        assert stage.session.focused.title == "live"


async def test_a_progress_bar_redraws_its_line(stage: Stage) -> None:
    async with stage.app.run_test(size=(140, 44)) as pilot:
        for share in (10, 50, 90):
            stage.script.prints(f"\r\x1b[32m{share}%\x1b[0m|###|")
            await until(pilot, lambda share=share: f"{share}%|###|" in stage.text)
        assert "10%" not in stage.text


async def test_the_output_scrolls_back_while_it_goes_on_and_end_follows_again(stage: Stage) -> None:
    async with stage.app.run_test(size=(140, 44)) as pilot:
        stage.begins()
        stage.script.prints("".join(f"line {number}\n" for number in range(300)))
        await until(pilot, lambda: "line 299" in stage.text)
        await pilot.press("shift+tab")
        await until(pilot, lambda: isinstance(stage.screen.focused, OutputPane))
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: "line 299" not in stage.text and "line 28" in stage.text)
        stage.script.prints("line 300\n")
        await pilot.pause(0.4)
        assert "line 300" not in stage.text
        await pilot.press("home")
        await until(pilot, lambda: "line 0 " in stage.text)
        await pilot.press("end")
        await until(pilot, lambda: "line 300" in stage.text)
        await pilot.press("tab")
        await until(pilot, lambda: not isinstance(stage.screen.focused, OutputPane))


async def test_i_types_a_line_to_the_script_and_escape_takes_it_back(stage: Stage) -> None:
    async with stage.app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: "waits" in stage.text)
        await pilot.press("i", *"yes q[1]", "enter")
        assert stage.script.said == ["yes q[1]\n"]
        await pilot.press("i", *"no", "escape")
        assert stage.script.said == ["yes q[1]\n"]
        assert not stage.screen.query_one("#stdin", Input).display
        await pilot.press("I")
        assert stage.script.calls == ["interrupt"]
        stage.script.exit_code = 0
        await pilot.press("i")
        await until(pilot, lambda: "nobody reads what is typed" in stage.text)


@pytest.mark.parametrize(
    ("code", "sentence", "exit_code"),
    [
        (0, "train.py is over: exit code 0", 0),
        (3, "train.py is over: exit code 3", 3),
        (-9, "train.py is over: killed by signal 9 (SIGKILL)", 137),
    ],
)
async def test_when_the_script_ends_the_screen_stays_and_says_how(
    stage: Stage, code: int, sentence: str, exit_code: int
) -> None:
    async with stage.app.run_test(size=(140, 44)) as pilot:
        writer = stage.begins()
        await until(pilot, lambda: "step 0" in stage.text)
        writer.close("failed" if code else "done", "ValueError: no [more] data" if code else "")
        stage.script.exit_code = code
        await until(pilot, lambda: sentence in stage.text)
        await until(pilot, lambda: (" failed " if code else " done ") in stage.text)
        await until(pilot, lambda: ("ValueError: no [more] data" in stage.text) == bool(code))
        assert stage.app.is_running
        await pilot.press("q")
    assert stage.app.return_value == exit_code == shell_code(code)


async def test_a_probe_that_gave_up_says_why_while_the_script_goes_on(stage: Stage) -> None:
    async with stage.app.run_test(size=(140, 44)) as pilot:
        facts = {"source": "script", "name": "live", "device": "cpu"}
        writer = RunWriter(stage.script.run, stage.sites, facts, metrics=METRICS)
        writer.close("failed", "the disk is [full]")
        await until(pilot, lambda: "Failed: the disk is [full]." in stage.text)
        await pilot.press("w")
        await until(pilot, lambda: "No run to list the sites of." in stage.text)


async def test_a_script_that_ends_without_any_step_says_so_with_its_last_output(stage: Stage) -> None:
    async with stage.app.run_test(size=(100, 30)) as pilot:
        stage.script.prints("Traceback (most recent call last):\nImportError: no module [torch]\n")
        stage.script.exit_code = 1
        await until(pilot, lambda: "no optimizer step of torch was seen" in stage.text)
        await until(pilot, lambda: "ImportError: no module [torch]" in stage.text)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_quitting_asks_what_becomes_of_a_script_that_runs(tmp_path: Path, key: str, language: str) -> None:
    stage = Stage(tmp_path, language)
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "train.py" in stage.text)
        await pilot.press(key)
        question = "still running" if language == "en" else "仍在运行"
        await until(pilot, lambda: question in stage.text)
        for choice in ("leave.stop", "leave.leave", "leave.cancel"):
            assert stage.app.words(choice) in stage.text
        await pilot.press("escape")
        await until(pilot, lambda: stage.app.words("leave.question") not in stage.text)
        assert stage.app.is_running
        assert stage.script.calls == []


async def test_stop_ends_the_script_and_then_the_screen(stage: Stage) -> None:
    async with stage.app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "train.py" in stage.text)
        await pilot.press("q", "s")
        await until(pilot, lambda: stage.script.calls == ["terminate"])
        await until(pilot, lambda: "Stopping train.py" in stage.text)
        assert stage.app.is_running
        stage.script.exit_code = -15
        await until(pilot, lambda: not stage.app.is_running)
    assert stage.app.return_value == 143


@pytest.mark.parametrize("keys", [("q", "l"), ("ctrl+c", "ctrl+c"), ("q", "tab", "shift+tab", "left", "enter")])
async def test_leaving_it_running_touches_nothing(stage: Stage, keys: tuple[str, ...]) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "train.py" in stage.text)
        await pilot.press(*keys)
        await until(pilot, lambda: not stage.app.is_running)
    assert stage.script.calls == []
    assert stage.app.return_value == 0


async def test_an_earlier_run_laid_over_stays_beside_the_script(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    earlier = record(tmp_path / "runs" / "earlier.gradtui", stack("layers", 4), METRICS)
    stage.session.overlay(earlier)
    async with stage.app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "earlier" in stage.text)
        stage.begins()
        await until(pilot, lambda: "step 0" in stage.text)
        assert [lane.title for lane in stage.session.shown] == ["live", "earlier"]
        assert stage.session.focused is not None
        assert not stage.session.remove(stage.session.focused.id)  # the script's own run stays
        assert stage.session.remove(stage.session.shown[1].id)


def launched(script: FakeScript, monkeypatch: pytest.MonkeyPatch, end: int | None, code: int = 0) -> int:
    """`launch_script` with a screen that does nothing."""

    def run(_app: GradtuiApp) -> int:
        script.exit_code = end
        return code

    monkeypatch.setattr(launch, "_terminal_is_usable", lambda _language: True)
    monkeypatch.setattr(launch, "_run", run)
    return launch.launch_script(script, language="en")  # type: ignore[arg-type]


@pytest.mark.parametrize(("end", "code"), [(0, 0), (3, 3), (-9, 137)])
def test_the_exit_code_is_that_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, code: int
) -> None:
    assert launched(FakeScript(tmp_path), monkeypatch, end) == code


@pytest.mark.parametrize("signal_code", [0, 129, 143])
def test_a_script_left_running_is_named_once_the_terminal_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signal_code: int
) -> None:
    script = FakeScript(tmp_path)
    assert launched(script, monkeypatch, None, signal_code) == signal_code
    assert script.calls == ["start", "detach"]
    assert capsys.readouterr().out == f"still running: pid 4242; gradtui watch {script.run}\n"


def test_a_script_that_cannot_be_started_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = pytest.importorskip("gradtui.script.process")
    script = FakeScript(tmp_path)

    def start() -> None:
        raise process.ScriptError("train.py cannot be started: no memory")

    monkeypatch.setattr(script, "start", start)
    with pytest.raises(Failure, match="no memory"):
        launched(script, monkeypatch, None)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("output", ["docked", "big"])
def test_tab_reaches_the_output_wherever_it_is(size: tuple[int, int], output: str) -> None:
    for active in (*PANES, OUTPUT):
        layout = arrange(*size, ViewState(active=active), output)  # type: ignore[arg-type]
        assert layout.verdict
        assert layout.output != 0 if active == OUTPUT or output == "big" else active in layout.panes
        zoomed = arrange(*size, ViewState(active=active, zoomed=True), output)  # type: ignore[arg-type]
        assert (zoomed.output is None) == (active == OUTPUT)
        assert zoomed.panes == (() if active == OUTPUT else (active,))


def test_keys_for_a_script_are_offered_only_beside_one() -> None:
    assert {"type", "interrupt"} <= applicable(engine=False, script=True).keys()
    assert not {"type", "interrupt", "restart"} & applicable(engine=False).keys()


async def test_two_stacks_and_what_cannot_be_seen_are_named(tmp_path: Path) -> None:
    path = record(tmp_path / "pair.gradtui", encoder_decoder(), blind=["attention in [flash] kernels"])
    app = GradtuiApp(lambda _app: Opened(Session.of_files([path])), language="en", data=tmp_path)
    async with app.run_test(size=(140, 44)) as pilot:
        await until(pilot, lambda: "╎" in screen_text(app))
        text = screen_text(app)
        assert "encoder" in text
        assert "decoder" in text
        assert "Not seen: attention in [flash] kernels" in text
