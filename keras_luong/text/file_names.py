"""What names of files tell: which split, which language, how plainly.

Names are read in the plainest way that there is: what takes a liberty, such as another
spelling of a language, is read only where nothing plainer is there for the same split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from keras_luong.text.languages import fold, is_language, looks_like_code, means
from keras_luong.text.table_columns import languages_of

_VALIDATION = ("val", "valid", "validation", "dev")
_TEST = r"(?:dev)?test(?:s|set|ing)?(?:[^a-z].*)?"  # a testament is no test
_SPLIT = re.compile(rf"train|{'|'.join(_VALIDATION)}|{_TEST}")
#: Other names, and those of a part of a name. WMT has newstest2014 and newsdev2016.
_LIKE_SPLIT = re.compile(rf"{_SPLIT.pattern}|training|(news)?dev\d+|news{_TEST}")
_TABLE = re.compile(r"(?i)(.+)\.(tsv|tab)(\.gz)?")
_BY_FOLDER = 10  # liberties of a side: folders of languages come after all else

_CODE = r"(?P<language>[A-Za-z]{2,3}([_-]([A-Z]{2}|[A-Z][a-z]{3}))?)"
#: Where the language is in `train.en`; and in `train_en`, `en` and `en/train`.
_AT_THE_END = r"(?P<stem>[^/]+)\.(?P<language>[^/.]+)"
_ELSEWHERE = (
    rf"(?P<stem>[^/]+?)[_-]{_CODE}",
    rf"(?P<stem>){_CODE}",
    rf"{_CODE}/(?P<stem>.+)",
)


class Stem(NamedTuple):
    """What comes before the language in a file's name.

    Attributes:
        text: The part of the name.
        liberties: How many it takes to read the name so.
    """

    text: str
    liberties: int


class Split(NamedTuple):
    """The split that a name is of.

    Attributes:
        name: What the split is called, or None if the name is of none.
        liberties: How many it takes to read the name so.
    """

    name: str | None
    liberties: int


def language_of(path: Path) -> str:
    """Returns the language that a file's name says it is in, if any; "" if none.

    Args:
        path: The file.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.text.file_names import language_of
        >>> names = "test.zh.txt", "a/dev_pt-BR.gz", "de.txt", "out.txt"
        >>> [language_of(Path(name)) for name in names]
        ['zh', 'pt-BR', 'de', 'out']
    """
    short = re.sub(r"(?i)(\.txt)?(\.gz)?$", "", path.name)
    forms = (_AT_THE_END, *_ELSEWHERE[:2])
    found = next(filter(None, (re.fullmatch(form, short) for form in forms)), None)
    return found["language"] if found else ""


class File(NamedTuple):
    """A file of a corpus.

    Attributes:
        path: Where it is.
        folder: The split that its folder is called by, if any.
        language: The language that its folder is called by, if any.
    """

    path: Path
    folder: str | None = None
    language: str | None = None

    @property
    def is_table(self) -> bool:
        """Whether its name says that it holds tab-separated columns of two sides."""
        return not self.language and bool(_TABLE.fullmatch(self.path.name))

    @property
    def place(self) -> Path:
        """The folder of its other side; `*` stands for the folders of languages."""
        folder = self.path.parent
        return folder.with_name("*") if self.language else folder

    def stem(self, language: str) -> Stem | None:
        """What comes before a language in its name; None if it has not this ending.

        A file may be called by its language alone, `fr.txt`: nothing comes before it.
        """
        plain = re.sub(r"\.gz$", "", self.path.name)
        short = re.sub(r"(?i)\.txt$", "", plain)
        if self.language:
            is_text = short != plain and means(self.language, language)
            return Stem(short, _BY_FOLDER) if is_text else None
        for liberties, text in enumerate((plain, short)):
            stem, end = text[: -len(language) - 1], text[-len(language) - 1 :]
            if stem and end == f".{language}":
                return Stem(stem, liberties)
            if stem and fold(end) == fold(f".{language}"):
                return Stem(stem, liberties + 1)
        if stem and end[0] in "_-" and fold(end[1:]) == fold(language):
            return Stem(stem, 3)
        return Stem("", 3) if means(short, language) else None

    def split(self, stem: str | None = None) -> Split:
        """The split that it is of, if its name is of one.

        Args:
            stem: What to read; by default what comes before the ending of a table.
        """
        stem = stem or _TABLE.sub(r"\1", self.path.name)
        if not self.folder:
            return _split(stem)
        of_several = _is_test(self.folder) and stem != self.folder
        return Split(f"{self.folder}.{stem}" if of_several else self.folder, 3)


def files_of(directory: Path) -> Iterator[File]:
    """Yields the files of a folder, and of folders that a split or language names."""
    for path in visible(directory):
        if not path.is_dir():
            yield File(path)
        elif split := _split(path.name).name:
            yield from (File(x, split) for x in visible(path) if not x.is_dir())
        elif is_language(path.name):
            inside = (x for x in visible(path) if not x.is_dir())
            yield from (File(x, language=path.name) for x in inside)


def visible(directory: Path) -> list[Path]:
    """What is not hidden, as `._train.en` of a Mac and files that are being written.

    Args:
        directory: A folder.
    """
    return sorted(x for x in directory.iterdir() if not x.name.startswith("."))


def languages_in(files: Iterable[File]) -> list[str]:
    """Returns the languages that names, or else the tables' headers, tell of.

    Args:
        files: All files of a corpus.
    """
    files = list(files)
    tables = (file.path for file in files if file.is_table)
    found = _side_by_side(files, _AT_THE_END, _is_code)
    found = found or [x for path in tables for x in languages_of(path)]
    for place in _ELSEWHERE:
        found = found or _side_by_side(files, place, _is_listed_code)
    return list(dict.fromkeys(found))


def _side_by_side(
    files: Iterable[File], place: str, is_code: Callable[[re.Match[str]], bool]
) -> list[str]:
    """The languages in a place of names that are otherwise alike."""
    by_stem: dict[tuple[Path, str], list[str]] = {}
    for file in files:
        folder = f"{file.language}/" if file.language else ""
        name = re.sub(r"(?i)(\.txt)?(\.gz)?$", "", folder + file.path.name)
        parts = re.fullmatch(place, name)
        if parts and is_code(parts):
            key = file.place, parts["stem"]
            by_stem.setdefault(key, []).append(parts["language"])
    return [x for many in by_stem.values() if len({*many}) > 1 for x in many]


def ordered(splits: Iterable[str]) -> tuple[str, ...]:
    """Returns the names with train first, then validation, then the others."""
    rank = {"train": 0, "validation": 1}
    return tuple(sorted(splits, key=lambda split: (rank.get(split, 2), split)))


def _is_code(parts: re.Match[str]) -> bool:
    return looks_like_code(parts["language"])


def _is_listed_code(parts: re.Match[str]) -> bool:
    """Whether it is the code of a known language, and not the second one of `en-de`."""
    before = re.split("[._-]", parts["stem"])[-1]
    return is_language(parts["language"]) and not is_language(before)


def _split(name: str) -> Split:
    for liberties, text in enumerate((name, name.lower())):
        if _SPLIT.fullmatch(text):
            return Split(_called(text), liberties)
    parts = re.split("[._-]", name.lower())
    parts = [x for x in parts if _LIKE_SPLIT.fullmatch(x)]
    if len(parts) != 1:
        return Split(None, 0)
    return Split(name if _is_test(parts[0]) else _called(parts[0]), 2)


def _is_test(name: str) -> bool:
    return bool(re.fullmatch(f"(news)?{_TEST}", name))


def _called(name: str) -> str:
    if name.startswith("train"):
        return "train"
    return name if _is_test(name) else "validation"
