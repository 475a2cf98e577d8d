"""Shows docstrings as they are meant: sections of the library's own, and examples.

Griffe knows "Examples:" as a section, and not "Example:", of which it would take `>>>`
for a quotation. It does not know "Call arguments:" either, and of "Returns:" it takes
what stands before a colon for a type, which the signature has already.
"""

from __future__ import annotations

import re
import textwrap

import griffe

EXAMPLE = re.compile(r"^( *)Example:$", re.M)
TEXT = re.compile(r"^( *)(Call arguments|Returns|Yields):\n((?:\1 +.*\n|\n)+)", re.M)
ARGUMENT = re.compile(r"^([\w*]+): ", re.M)


class Docstrings(griffe.Extension):
    """Rewrites each docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Griffe calls it for each module, class and function."""
        if obj.docstring:
            text = EXAMPLE.sub(r"\1Examples:", obj.docstring.value + "\n")
            obj.docstring.value = TEXT.sub(as_text, text).rstrip()


def as_text(found: re.Match[str]) -> str:
    """A section as Markdown: a heading, and a list where it has names."""
    indent, title, text = found.groups()
    text = textwrap.dedent(text)
    if title == "Call arguments":
        text = ARGUMENT.sub(r"- **`\1`** – ", text)
    return f"{indent}**{title}:**\n\n{textwrap.indent(text, indent)}"
