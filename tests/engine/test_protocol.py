"""Messages between the screen and the supervisor."""

from __future__ import annotations

import pytest
from engine.conftest import make_preset

from gradtui.engine import protocol


@pytest.mark.parametrize(
    "command",
    [
        protocol.Start("a", make_preset("a"), 3, "cpu", "/tmp/x"),
        protocol.Pause("a"),
        protocol.Resume("a"),
        protocol.Step("a"),
        protocol.More("a", 4),
        protocol.SetLr("a", 0.5),
        protocol.Stop("a"),
        protocol.Order(["a", "b"]),
    ],
)
def test_a_command_is_the_same_after_encoding_and_decoding(command: protocol.Command) -> None:
    line = protocol.encode(command)
    assert line.count(b"\n") == 1
    assert protocol.decode_command(line) == command
