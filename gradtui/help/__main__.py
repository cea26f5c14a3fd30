"""`python -m gradtui.help`: write the tables of the handbook and of the README anew, from the registries."""

from __future__ import annotations

from gradtui.help.tables import documents


def main() -> None:
    """Write each file whose tables have changed, and name it."""
    for document in documents():
        filled = document.filled()
        if filled != document.text():
            document.path.write_text(filled, encoding="utf-8")
            print(f"wrote {document.path}")


if __name__ == "__main__":
    main()
