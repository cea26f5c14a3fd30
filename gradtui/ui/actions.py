"""Everything a key can do, in one dict: bindings, footer, help and command palette are made from it.

What an action does in words is `action.<name>` of the language files (`describe`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtui.i18n import Words, next_language

Where = Literal["any", "lab", "script"]


@dataclass(frozen=True, slots=True)
class Action:
    """`keys` are Textual's names, `shown` how the first is written on screen.

    `where`: "lab" needs an engine, "script" a script that runs beside the screen. `footer` ranks what the footer
    has room for: 1 always, 2 and 3 while there is room, 0 never. `does` names what carries it out: a method of the
    app ("app.…"), a method of the lab's screen that is given the action's name, or "" for the screen's own method
    of that name.
    """

    keys: tuple[str, ...]
    shown: str = ""
    where: Where = "any"
    footer: int = 0
    does: str = ""

    def call(self, name: str) -> str:
        """Textual's action string for the action called `name`."""
        if not self.does:
            return name
        return self.does if self.does.startswith("app.") else f"{self.does}('{name}')"

    @property
    def key(self) -> str:
        """The first key as it is written on screen."""
        return self.shown or self.keys[0]


def _control(*keys: str, where: Where = "any", footer: int = 0, shown: str = "") -> Action:
    """Something done to what is open: the entry of that name in `session/controls.py`."""
    return Action(keys, shown, where, footer, does="control")


def _view(*keys: str, footer: int = 0) -> Action:
    """Another way to look at it: the entry of that name in `session/view_actions.py`."""
    return Action(keys, footer=footer, does="view")


ACTIONS: dict[str, Action] = {
    "preset": Action(tuple("123456789"), "1-9", footer=1),
    "list": Action(("escape",), "esc"),
    "filter": Action(("slash",), "/", footer=3),
    "pin": _control("p", footer=2),
    "square": _control("g"),
    "metric": _view("m", footer=2),
    "log": _view("y", footer=3),
    "log_steps": _view("x"),
    "pause": _control("space", where="lab", footer=2),
    "single_step": _control("n", where="lab", footer=3),
    "restart": _control("r", where="lab", footer=2),
    "reseed": _control("R", where="lab"),
    "more": _control("plus", where="lab", shown="+"),
    "lr_down": _control("less_than_sign", where="lab", shown="<"),
    "lr_up": _control("greater_than_sign", where="lab", shown=">"),
    "back": _control("left_square_bracket", footer=3, shown="["),
    "forth": _control("right_square_bracket", shown="]"),
    "back_far": _control("left_curly_bracket", shown="{"),
    "forth_far": _control("right_curly_bracket", shown="}"),
    "live": _control("0", footer=3),
    "next_pane": _view("tab", footer=2),
    "previous_pane": _view("shift+tab"),
    "claims": Action(("c",)),
    "sites": Action(("w",), footer=3),
    "open": Action(("o",), footer=3),
    "type": Action(("i",), where="script", footer=2, does="script"),
    "interrupt": Action(("I",), where="script", does="script"),
    "zoom": _view("z"),
    "quiz": Action(("t",), footer=1),
    "language": Action(("L",), footer=2, does="app.language"),
    "save": Action(("s",), does="app.save"),
    "help": Action(("question_mark",), "?", footer=1, does="app.help"),
    "palette": Action(("ctrl+p",), does="app.command_palette"),
    "quit": Action(("q", "ctrl+c", "ctrl+q"), footer=1, does="app.quit"),
}


def applicable(engine: bool, script: bool = False) -> dict[str, Action]:
    """The actions that do something with, or without, an engine or a script."""
    there = {"any", *(["lab"] if engine else []), *(["script"] if script else [])}
    return {name: action for name, action in ACTIONS.items() if action.where in there}


def describe(name: str, words: Words) -> str:
    """What the action called `name` does; switching the language is named in the language that it switches to."""
    return Words(next_language(words.language))("language.name") if name == "language" else words(f"action.{name}")
