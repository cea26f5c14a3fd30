"""Saved screens."""

from __future__ import annotations

import html
import re

from rich.cells import cell_len

_TEXT = re.compile(r'(<text [^>]*?textLength=")([\d.]+)("[^>]*>)([^<]*)(</text>)')


def with_cell_widths(svg: str) -> str:
    """The picture with wide characters at their full width: Rich counts characters where it means cells."""

    def correct(match: re.Match[str]) -> str:
        before, length, between, text, after = match.groups()
        plain = html.unescape(text)
        if not plain or cell_len(plain) == len(plain):
            return match.group(0)
        return f"{before}{float(length) * cell_len(plain) / len(plain):g}{between}{text}{after}"

    return _TEXT.sub(correct, svg)
