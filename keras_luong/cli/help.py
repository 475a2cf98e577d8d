"""How help looks: names in the margin, texts beside them, no boxes and no colours."""

from __future__ import annotations

import textwrap
from typing import Any

from cyclopts.help import HelpPanel, PlainFormatter

from keras_luong.cli.arguments import metavar

MARGIN = 28


class Formatter(PlainFormatter):
    """Writes one panel of a command's help."""

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:
        """Writes the panel, if it has anything."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        for entry in panel.entries:
            lines += _wrapped(_head(entry), _text(entry), console.width)
        text = "\n".join(lines) + "\n"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _head(entry: Any) -> str:
    """What stands in the margin, such as "--epochs INT" or "RUN_DIR"."""
    label = getattr(entry, "positional_label", None)  # cyclopts 4: a name
    names = ", ".join([label] if label else entry.all_options)
    is_option = names.startswith("-") and entry.type is not None
    return f"  {names} {metavar(entry.type) if is_option else ''}".rstrip()


def _text(entry: Any) -> str:
    notes = [str(_plain(entry.description))] if entry.description else []
    if entry.choices and len(entry.choices) > 1:
        notes.append(f"One of {', '.join(entry.choices)}.")
    told = "default" in notes[0] if notes else False
    if entry.default not in (None, "", "None") and not (
        told and entry.default == "none"
    ):
        notes.append(f"[default: {entry.default}]")
    return " ".join(notes)


def _plain(text: Any) -> Any:
    """The text of what cyclopts made of it."""
    plain = getattr(text, "primary_renderable", text)
    return getattr(plain, "plain", plain)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    indent = " " * MARGIN
    first = [head] if len(head) > MARGIN - 2 else []
    start = indent if first else head.ljust(MARGIN)
    body = textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [*first, *(body or [start.rstrip()])]
