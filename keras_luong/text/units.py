"""Units of translation: TMX, XLIFF 1.2 and 2.0, and PO.

A unit is a text in one language, and its translations. Markup within a text is left
out, and white space around it; line ends within become a space.

XML is read by Python's own parser, unit by unit: a TMX file of 200 MB takes 11 MB of
memory. Translate Toolkit holds all of a file, which takes 2.5 GB, and it takes the code
within inline markup for text. It reads PO, whose files are small.
"""

from __future__ import annotations

import functools
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from keras_luong.files import opened, without_line_ends
from keras_luong.languages import standard_code
from keras_luong.lazy import needed

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
#: Elements whose content is the code of another program, and no text.
_MARKUP = frozenset("bpt ept it ph ut".split())
#: States in which XLIFF's target is only a copy of the source, or a suggestion.
_NO_TRANSLATION = frozenset(("initial", "needs-translation", "new"))
_STANDARD = functools.lru_cache(1024)(standard_code)
_Units = Iterator[tuple[dict[str, str], str]]


class Units(NamedTuple):
    """The units of a file of TMX, XLIFF or PO that have both sides.

    Attributes:
        path: The file, plain or gzip.
        source: The source's language as the file names it.
        target: The target's language.
    """

    path: Path
    source: str
    target: str

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""
        return (self.path,)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        return f"{self.source} of {self.path}", f"{self.target} of {self.path}"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs.

        Raises:
            ImportError: If a package is missing that reads the form.
            ValueError: If the file is damaged.
        """
        for texts, _ in units_of(self.path):
            if self.source in texts and self.target in texts:
                yield texts[self.source], texts[self.target]

    def left_out(self) -> Counter[str]:
        """Counts the units that are no pairs, by why."""
        counts = Counter[str]()
        for (names, why), number in count_units(self.path).items():
            if not {self.source, self.target} <= names:
                counts[why or "untranslated"] += number
        return counts


def count_units(path: Path) -> Mapping[tuple[frozenset[str], str], int]:
    """Counts the units of a file: by the languages of their texts, and why they lack.

    The file is read when it is first asked for, and again once it has changed.

    Args:
        path: As of `units_of`.

    Returns:
        (languages, why) → number.

    Raises:
        ImportError, ValueError: As of `units_of`.
    """
    state = path.stat()
    return _count_units(path.resolve(), state.st_size, state.st_mtime_ns)


@functools.lru_cache(64)
def _count_units(
    path: Path, size: int, written: int
) -> Mapping[tuple[frozenset[str], str], int]:
    return Counter((frozenset(texts), why) for texts, why in units_of(path))


def units_of(path: Path) -> _Units:
    """Yields of each unit its finished texts, by language; and why one is not finished.

    Args:
        path: A file whose name ends as those of its form do.

    Raises:
        ImportError: If a package is missing that reads the form.
        ValueError: If the file is damaged; the message names it, and the line.
    """
    ending = re.sub("(?i)[.]gz$", "", path.name).rpartition(".")[2].lower()
    for texts, why in _READERS[ending](path):
        lines = {name: without_line_ends(x).strip() for name, x in texts.items()}
        yield {name: text for name, text in lines.items() if text}, why


def _tmx_units(path: Path) -> _Units:
    for unit, _ in _elements(path, "tu"):
        texts: dict[str, str] = {}
        for variant in unit:
            code = variant.get(_XML_LANG) or variant.get("lang")  # as of TMX 1.1
            segment = _child(variant, "seg")
            if code and segment is not None:
                texts.setdefault(_STANDARD(code), _text(segment))
        yield texts, ""


def _xliff_units(path: Path) -> _Units:
    """Units of XLIFF 1.2, and segments of the units of 2.0."""
    for unit, within in _elements(path, "trans-unit", "segment"):
        told: Mapping[str, str] = {k: v for x in within for k, v in x.attrib.items()}
        source = told.get("source-language") or told.get("srcLang") or "source"
        target = told.get("target-language") or told.get("trgLang") or "target"
        texts, why = dict[str, str](), ""
        if (element := _child(unit, "source")) is not None:
            texts[_STANDARD(source)] = _text(element)
        if (element := _child(unit, "target")) is not None:
            state = element.get("state") or unit.get("state") or ""
            if state in _NO_TRANSLATION:
                why = state
            else:
                texts[_STANDARD(target)] = _text(element)
        yield texts, why


def _elements(
    path: Path, *names: str
) -> Iterator[tuple[ElementTree.Element, list[ElementTree.Element]]]:
    """Yields each element of these names, with those that it is in; then drops it."""
    within: list[ElementTree.Element] = []
    try:
        with opened(path) as stream:
            for event, element in ElementTree.iterparse(stream, ("start", "end")):
                if event == "start":
                    within.append(element)
                    continue
                within.pop()
                if _name(element) in names:
                    yield element, within
                    if within:
                        within[-1].remove(element)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise ValueError(
            f"{path} is damaged: line {line:,}, column {column + 1:,}: "
            f"{expat.ErrorString(error.code)}."
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is damaged gzip: {error}.") from error


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _child(element: ElementTree.Element, name: str) -> ElementTree.Element | None:
    return next((x for x in element if _name(x) == name), None)


def _text(element: ElementTree.Element) -> str:
    """The text in an element, without the code of markup; however deep it is."""
    if not len(element):
        return element.text or ""
    parts, todo = list[str](), list[ElementTree.Element | str]([element])
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            parts.append(part)
            continue
        parts.append(part.text or "")
        for child in reversed(part):
            todo.append(child.tail or "")
            if _name(child) not in _MARKUP:
                todo.append(child)
    return "".join(parts)


def _read_po(path: Path) -> Any:
    """The file as Translate Toolkit has it, all in memory."""
    what = "PO needs translate-toolkit"
    module = needed("translate.storage.pypo", what, "localization")
    content = b""
    try:
        with opened(path) as stream:
            content = stream.read()
        return module.pofile.parsestring(content)
    except UnicodeDecodeError as error:  # of a line
        line = content[: content.find(error.object)].count(b"\n") + 1
        raise ValueError(
            f"Line {line:,} of {path} is not UTF-8. Convert it first: msgconv -t UTF-8 "
            "old.po > new.po"
        ) from error
    except (ValueError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _po_units(path: Path) -> _Units:
    store = _read_po(path)
    # A header tells the language of translations alone.
    source, target = "source", store.parseheader().get("Language") or "target"
    target = _STANDARD(target)
    for unit in store.units:
        if unit.isheader():
            continue
        if unit.isobsolete():
            yield {}, "obsolete"
        elif unit.isfuzzy():
            yield {source: str(unit.source)}, "fuzzy"
        elif unit.hasplural():
            yield {source: str(unit.source)}, "with plural forms"
        else:
            yield {source: str(unit.source), target: str(unit.target)}, ""


_READERS = {
    "po": _po_units,
    "tmx": _tmx_units,
    "xlf": _xliff_units,
    "xliff": _xliff_units,
}
