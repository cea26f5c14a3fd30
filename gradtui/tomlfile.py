"""TOML files into typed structs; what is wrong with one is said in a sentence: where, and what is allowed."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from gradtui.i18n import ENGLISH, LANGUAGES, Localized, PerLanguage, TwiceGivenError, gather

S = TypeVar("S", bound=msgspec.Struct)
Step = str | int
SHORT = 60


class TomlError(ValueError):
    """A file or table that does not fit; the message is a sentence without the file's name."""


def read_table(path: Path) -> dict[str, Any]:
    """The table in a TOML file; raises TomlError."""
    try:
        if path.exists() and not path.is_file():  # a pipe of that name would be waited for
            raise TomlError("is not a regular file")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TomlError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TomlError(f"is not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"is not valid TOML: {error}") from error
    except (RecursionError, ValueError) as error:  # nested too deep; a number of too many digits
        if isinstance(error, TomlError):
            raise
        raise TomlError(f"is not TOML that can be read: {type(error).__name__}") from error


def dotted(steps: list[Step], _table: Mapping[str, Any]) -> str:
    """A path into a table as people write it: model.layers, pins[1]."""
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return key.lstrip(".")


def convert(
    table: Mapping[str, Any],
    struct: type[S],
    *,
    what: str,
    where: Callable[[list[Step], Mapping[str, Any]], str] = dotted,
    described: Mapping[Any, str] | None = None,
) -> S:
    """`table` as a `struct`; raises TomlError.

    The struct's own `id` comes from the file's name and is no key. Texts in several languages may be written in
    either of the ways that `gradtui.i18n.localized` names. `what` is what the file is ("a preset"), `where` names
    a path into it, `described` says what is allowed for types that cannot say so themselves.
    """
    if "id" in table:
        raise TomlError(f"id = {table['id']!r} is not allowed; the id of {what} is its file name")
    try:
        table = gather(table, struct)
        return msgspec.convert(table, struct, strict=True)
    except TwiceGivenError as error:
        raise TomlError(str(error)) from None
    except msgspec.ValidationError as error:
        raise TomlError(_explain(str(error), table, struct, what, where, described or {})) from None


def choices(value: str, allowed: Iterable[str]) -> str:
    """What is allowed, and which of it may have been meant."""
    names = list(allowed)
    close = difflib.get_close_matches(value, names, n=1)
    return ", ".join(names) + (f" (did you mean {close[0]}?)" if close else "")


def line_problem(key: str, text: Localized, *, required: bool = False) -> str | None:
    """Why the text at `key` cannot stand on one line of the screen, as a sentence, or None.

    `required`: in the languages that it is given in, and in at least one, it must not be blank.
    """
    allowed = "allowed is one line of visible characters"
    if required and not text.given():
        return f"{key} = '' is not allowed; {allowed}"
    for language, line in text.given().items():
        if not line.isprintable() or (required and not line.strip()):
            return f"{key if language == ENGLISH else f'{key}.{language}'} = {line!r} is not allowed; {allowed}"
    return None


def _explain(
    message: str,
    table: Mapping[str, Any],
    root: type[msgspec.Struct],
    what: str,
    where: Callable[[list[Step], Mapping[str, Any]], str],
    described: Mapping[Any, str],
) -> str:
    """msgspec's message as a sentence that names key, value and what is allowed."""
    text, _, path = message.partition(" - at `$")
    steps: list[Step] = [name or int(index) for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path.rstrip("`"))]
    struct, leaf, value = _locate(steps, table, root)
    unknown = re.search(r"unknown field `(.*?)`", text)
    if unknown:
        names = [i.name for i in msgspec.structs.fields(struct) if (struct, i.name) != (root, "id")]
        key = where([*steps, unknown.group(1)], table)
        return f"{key} is not a key of {what}; allowed: {choices(unknown.group(1), names)}"
    missing = re.search(r"missing required field `(.*?)`", text)
    if missing:
        return f"{where([*steps, missing.group(1)], table)} is missing"
    return (
        f"{where(steps, table) or what} = {_short(value)} is not allowed; allowed is {_describe(leaf, described)}"
    )


def _short(value: object) -> str:
    """`value` as text, cut after SHORT characters."""
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _locate(
    steps: list[Step], table: Mapping[str, Any], root: type[msgspec.Struct]
) -> tuple[type[msgspec.Struct], Any, Any]:
    """The struct that a path stands in, the type of its last step, and the value found there."""
    struct: type[msgspec.Struct] = root
    leaf: Any = root
    value: Any = table
    for step in steps:
        if isinstance(step, int):
            types = get_args(leaf)
            leaf = types[0] if types[1:] == (Ellipsis,) else types[step] if step < len(types) else leaf
        else:
            leaf = next(info.type for info in msgspec.structs.fields(struct) if info.name == step)
        value = value[step]
        options = [option for option in get_args(leaf) if _is_struct(option)]
        if type(None) in get_args(leaf) and options:
            leaf = options[0]
        if _is_struct(leaf):
            struct = leaf
    return struct, leaf, value


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _describe(type_: Any, described: Mapping[Any, str]) -> str:
    if type_ in described:
        return described[type_]
    if _is_struct(type_):
        if issubclass(type_, PerLanguage):
            one = _describe(msgspec.structs.fields(type_)[0].type, described)
            return f"{one}, or a table with some of the keys {', '.join(LANGUAGES)}"
        return "a table"
    metadata = getattr(type_, "__metadata__", ())
    if metadata:
        return str(metadata[0].description)
    known = {str: "text in quotes", bool: "true or false", tuple[str, ...]: "a list of texts in quotes"}
    return known.get(type_, "another type")
