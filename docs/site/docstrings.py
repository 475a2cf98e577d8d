"""Shows docstrings as they are meant: sections of the library's own, and examples.

Griffe knows "Examples:" as a section, and not "Example:", of which it would take `>>>`
for a quotation. It does not know "Call arguments:" and "Weights:" either.
"""

from __future__ import annotations

import re
import textwrap

import griffe

EXAMPLE = re.compile(r"^( *)Example:$", re.M)
CALL = re.compile(r"^( *)Call arguments:\n((?:\1 +.*\n|\n)+)", re.M)
ARGUMENT = re.compile(r"^([\w*]+): ", re.M)


class Docstrings(griffe.Extension):
    """Rewrites each docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Griffe calls it for each module, class and function."""
        if obj.docstring:
            text = EXAMPLE.sub(r"\1Examples:", obj.docstring.value + "\n")
            obj.docstring.value = CALL.sub(as_list, text).rstrip()


def as_list(found: re.Match[str]) -> str:
    """Arguments of a call as a list in Markdown; text without names as it is."""
    text = textwrap.dedent(found[2])
    listed = ARGUMENT.sub(r"- **`\1`** – ", text)
    heading = f"{found[1]}**Call arguments:**\n\n"
    return heading + textwrap.indent(listed, found[1])
