"""Writes reference/command_line.md: what the commands' help says, as tables.

`make reference` does it, and a test tells when it is due.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console

from keras_luong.cli.command_line import COMMANDS, _all_commands, _command
from keras_luong.cli.errors import PROG

PAGE = Path(__file__).parents[1] / "reference" / "command_line.md"
OPTION = re.compile(r"(`[^`]*`)|--\w+(=\w+)?")
BEGINNING = """# Command line

<!-- Written by `make reference` of the commands' help: change that instead. -->"""


def written() -> str:
    """The page."""
    apps = {name: _command(name, ["--help=all"]) for name in COMMANDS}
    rows = [(f"[{x}](#{x})", app.help.split("\n\n")[0]) for x, app in apps.items()]
    parts = [BEGINNING, wrapped(_all_commands().help), table("Commands", rows)]
    for name, app in apps.items():
        # 1. Ask for help, but take its panels instead of printing them.
        panels: list[HelpPanel] = []
        app.help_formatter = lambda console, options, panel, to=panels: to.append(panel)
        app.help_print([], console=Console(file=io.StringIO()))
        # 2. Write what is typed, what it is for, and the options.
        entries = [entry for panel in panels for entry in panel.entries]
        words = [PROG, name, *filter(None, map(place, entries)), "[OPTIONS]"]
        parts += [f"## {name}", f"```text\n{' '.join(words)}\n```"]
        parts += map(wrapped, app.help.split("\n\n"))
        for panel in filter(lambda panel: panel.entries, panels):
            rows = [(typed(entry), meaning(entry)) for entry in panel.entries]
            parts.append(table(str(panel.title), rows))
    return "\n\n".join(parts) + "\n"


def wrapped(text: str) -> str:
    """A paragraph in lines of 88 columns."""
    return textwrap.fill(marked(text), 88, break_on_hyphens=False)


def marked(text: str) -> str:
    """A text whose options are code; what is code stays so."""
    return OPTION.sub(lambda found: found[1] or f"`{found[0]}`", text)


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of two columns."""
    lines = [(title, ""), ("---", "---"), *rows]
    return "\n".join(f"| {one} | {other} |" for one, other in lines)


def place(entry: HelpEntry) -> str | None:
    """A word that is given by its place, as the line of usage has it."""
    label = entry.positional_label
    return label if label is None or entry.required else f"[{label}]"


def typed(entry: HelpEntry) -> str:
    """The names of an option, with the kind of its value."""
    names = (x.replace("|", " or ") for x in entry.display_labels_with_metavar)
    return " ".join(f"`{x}`" for x in names)


def meaning(entry: HelpEntry) -> str:
    """What an option is for, its choices and its default."""
    text = marked(entry.description.primary_renderable.plain.replace("|", r"\|"))
    if entry.choices:
        text += f" Choices: {', '.join(f'`{x}`' for x in entry.choices)}."
    if entry.required:
        text += " **Required.**"
    if entry.default is not None:
        is_value = entry.metavar and " " not in entry.default
        text += f" Default: {f'`{entry.default}`' if is_value else entry.default}."
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
