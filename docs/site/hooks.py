"""What the site does beside MkDocs: equations, links to source files.

Equations are written as GitHub reads them, in blocks of `math` and as $`x`$, and become
MathML, which browsers draw without a script.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import latex2mathml.converter

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
MATH_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.M | re.S)
INLINE_MATH = re.compile(r"\$`([^`]+)`\$")
FUNCTION = re.compile(r"<mi>[a-z]{2,}</mi>(?=<mi>|<msub>)")  # the exp of exp u
#: With the link before it, for those who read the page in a checkout.
INCLUDE = re.compile(r"(?:\[[^\]]*\]\([^)]*\)\s+)?<!-- include: (\S+) -->")


def on_page_markdown(markdown, page, config, files):
    """Changes the text of a page before it becomes HTML."""
    markdown = INCLUDE.sub(lambda found: included(found[1]), markdown)
    markdown = MATH_BLOCK.sub(lambda found: mathml(found[1], "block"), markdown)
    markdown = INLINE_MATH.sub(lambda found: mathml(found[1], "inline"), markdown)
    here = posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda found: outside(found, here, config.repo_url), markdown)


def included(name: str) -> str:
    """A file of the repository's root, whose links into docs/ become the site's."""
    return (ROOT / name).read_text("utf-8").replace("](docs/", "](")


def mathml(latex: str, display: str) -> str:
    """An equation as MathML, on one line, which Markdown leaves alone."""
    made = latex2mathml.converter.convert(" ".join(latex.split()), display=display)
    return FUNCTION.sub(r'\g<0><mspace width="0.167em" />', made)


def outside(found: re.Match[str], here: str, repo_url: str | None) -> str:
    """A link; if it leaves docs/, one to the repository, or its text alone.

    Raises:
        FileNotFoundError: There is no such file.
    """
    text, link = found[1], found[2]
    path = posixpath.normpath(posixpath.join("docs", here, link.partition("#")[0]))
    if "://" in link or link.startswith("#") or path.startswith("docs/"):
        return found[0]
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"a link of {here or 'docs'} leads nowhere: {link}")
    name = f"`{text}`" if "/" in text or text.endswith(".py") else text
    return f"[{text}]({repo_url.rstrip('/')}/blob/main/{path})" if repo_url else name
