"""Everything a key can do, in one dict: bindings, footer, help and command palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["any", "lab", "script"]


@dataclass(frozen=True, slots=True)
class Action:
    """`keys` are Textual's names, `shown` how the first is written on screen.

    `where`: "lab" needs an engine, "script" a script of somebody's own that runs beside the screen.

    `footer` ranks what the footer has room for: 1 always, 2 and 3 while there is room, 0 never. `does` is
    Textual's action string where several actions share one handler.
    """

    keys: tuple[str, ...]
    en: str
    zh: str
    shown: str = ""
    where: Where = "any"
    footer: int = 0
    does: str = ""

    def call(self, name: str) -> str:
        """Textual's action string for the action called `name`."""
        return self.does or name

    @property
    def key(self) -> str:
        """The key as people write it."""
        return self.shown or self.keys[0]

    def describe(self, language: str) -> str:
        """What the key does, in `language`."""
        return self.zh if language == "zh" else self.en


ACTIONS: dict[str, Action] = {
    "preset": Action(tuple("123456789"), "preset", "预设", "1-9", footer=1),
    "list": Action(("escape",), "close, or to the list", "关闭，或到列表", "esc"),
    "filter": Action(("slash",), "filter", "筛选", "/", footer=3),
    "pin": Action(("p",), "pin", "固定", footer=2),
    "square": Action(("g",), "2×2: LN/RMS × Post/Pre", "2×2：LN/RMS × Post/Pre"),
    "metric": Action(("m",), "metric", "指标", footer=2),
    "log": Action(("y",), "log", "对数", footer=3),
    "log_steps": Action(("x",), "log or linear steps", "步数对数/线性"),
    "pause": Action(("space",), "pause", "暂停", where="lab", footer=2),
    "single_step": Action(("n",), "one step", "走一步", where="lab", footer=3),
    "restart": Action(("r",), "restart", "重来", where="lab", footer=2),
    "reseed": Action(("R",), "restart with the next seed", "换种子重来", where="lab"),
    "more": Action(("plus",), "100 more steps", "再训练 100 步", "+", where="lab"),
    "lr_down": Action(("less_than_sign",), "learning rate ÷ 2", "学习率减半", "<", "lab", does="scale_lr(0.5)"),
    "lr_up": Action(("greater_than_sign",), "learning rate × 2", "学习率加倍", ">", "lab", does="scale_lr(2.0)"),
    "back": Action(("left_square_bracket",), "back", "后退", "[", footer=3, does="travel(-1)"),
    "forth": Action(("right_square_bracket",), "forth in history", "历史前进", "]", does="travel(1)"),
    "back_far": Action(("left_curly_bracket",), "ten steps back", "后退十步", "{", does="travel(-10)"),
    "forth_far": Action(("right_curly_bracket",), "ten steps forth", "前进十步", "}", does="travel(10)"),
    "live": Action(("0",), "live", "实时", footer=3),
    "next_pane": Action(("tab",), "pane", "窗格", footer=2, does="turn_pane(1)"),
    "previous_pane": Action(("shift+tab",), "previous pane", "上一窗格", does="turn_pane(-1)"),
    "claims": Action(("c",), "claims about this preset", "关于此预设的论断"),
    "sites": Action(("w",), "sites", "测点", footer=3),
    "open": Action(("o",), "open runs", "打开运行", footer=3),
    "type": Action(("i",), "type to the script", "向脚本输入", where="script", footer=2),
    "interrupt": Action(("I",), "send ctrl+c to the script", "向脚本发送 ctrl+c", where="script"),
    "zoom": Action(("z",), "one pane only, or all", "放大窗格"),
    "quiz": Action(("t",), "test yourself", "自测", footer=1),
    "language": Action(("L",), "中文", "English", footer=2),
    "save": Action(("s",), "save the screen as SVG", "保存屏幕为 SVG"),
    "help": Action(("question_mark",), "keys", "按键", "?", footer=1),
    "palette": Action(("ctrl+p",), "command palette", "命令面板"),
    "quit": Action(("q", "ctrl+c", "ctrl+q"), "quit", "退出", footer=1),
}


def applicable(engine: bool, script: bool = False) -> dict[str, Action]:
    """The actions that do something with, or without, an engine or a script."""
    there = {"any", *(["lab"] if engine else []), *(["script"] if script else [])}
    return {name: action for name, action in ACTIONS.items() if action.where in there}
