"""Corpora of text files.

What names of files tell: which split, which language, how plainly.

Names are read in the plainest way that there is: what takes a liberty, such as another
spelling of a language, is read only where nothing plainer is there for the same split.

Files that hold sentences and are no text files: what to do with them.

Which column of a table is the source, and which the target.

Files that may be a split: two text files side by side, or a table.

Where the pairs of a split lie: in two files side by side, or in one table.

Which files of a folder are which side of which split.

What to say of a folder that lacks files: what is there instead, and what to do.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from keras_luong.checks import check_file, check_path
from keras_luong.files import check_as_many_lines, read_lines, read_raw_lines
from keras_luong.text.languages import (
    both_ways,
    fold,
    is_language,
    looks_like_code,
    means,
    settled,
)

if TYPE_CHECKING:  # a command line looks for files without TensorFlow
    import tensorflow as tf

    from keras_luong.text.corpus import Fingerprint

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
        >>> from keras_luong.text.corpus_files import language_of
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
    found = _matching_names(files, _AT_THE_END, _is_code)
    found = found or [x for path in tables for x in languages_of(path)]
    for place in _ELSEWHERE:
        found = found or _matching_names(files, place, _is_listed_code)
    return list(dict.fromkeys(found))


def _matching_names(
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


_SHEET = "save its two columns as tab-separated text in UTF-8, whose name ends in .tsv"
_UNPACK = "unpack it, and give the folder or the .tsv file that comes out"
_EXPORT = (
    "write its sentences to a .tsv file, or one side a file, as train.en, train.de"
)

#: Ending of a name → what to do with such a file.
ADVICE = {
    **dict.fromkeys(("csv", "xlsx", "xls", "ods"), _SHEET),
    **dict.fromkeys(("zip", "tar", "tgz", "7z", "xz", "bz2", "zst", "rar"), _UNPACK),
    **dict.fromkeys(("parquet", "arrow", "tmx", "xml", "sgm", "xliff"), _EXPORT),
    **dict.fromkeys(
        ("jsonl", "json", "ndjson"),
        "write its sentences to a .tsv file, for instance with "
        'jq -r \'[.en, .de] | map(gsub("\\\\s+"; " ")) | join("\\t")\' FILE > '
        "train.tsv",
    ),
}


def advice(path: Path) -> str | None:
    """Returns what to do with a file to train on it; None if it may be text.

    Args:
        path: The file.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.text.corpus_files import advice
        >>> advice(Path("corpus.zip"))
        'unpack it, and give the folder or the .tsv file that comes out'
        >>> advice(Path("train.tsv.gz"))
    """
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ADVICE.get(ending[1:])


_ROLES = ("source", "src"), ("target", "tgt", "trg")
_LINES = 300  # to tell what is in a column
_SHOWN = 40  # characters of a sentence


class ReadAs(NamedTuple):
    """A table, and how its columns were told apart.

    Attributes:
        table: The table.
        told: A sentence about the columns, without the file's name.
        by: What told them apart, as in "the header says"; "" for their order.
    """

    table: Table
    told: str
    by: str = ""


def languages_of(path: Path) -> list[str]:
    """Returns the languages that a table names: in its header, or in its name.

    Args:
        path: The file.
    """
    columns = _columns(path)
    header = _header(columns)
    # The name of a column of numbers is no language: id is not Indonesian.
    found = [header[x] for x in _with_words(columns) if is_language(header[x])]
    return found if len(found) > 1 else _of_name(path)


def has_columns(path: Path) -> bool:
    """Whether a tab parts the first line of a file.

    Args:
        path: The file.
    """
    return len(_first_line(path)) > 1


def first_pair(table: Table) -> str:
    """Returns how a table begins, to see that it has no header and no quotation marks.

    Args:
        table: A table without a header.
    """
    cells = _first_line(table.path)
    pair = [cells[x] for x in (table.source, table.target) if x < len(cells)]
    shown = (x if len(x) <= _SHOWN else f"{x[:_SHOWN]} ..." for x in pair)
    return f"line 1 of {table.path.name} is a pair: {' | '.join(shown)}"


def read_as(path: Path, source: str, target: str, like: Table | None = None) -> ReadAs:
    """Returns a table whose columns are known.

    They are by its header, by the languages that their text is in, or by its name. Of
    little text they are as in another table of the corpus, or the first that have
    words.

    Args:
        path: A file of tab-separated columns.
        source: The language to translate from.
        target: The language to translate into.
        like: A table of the same corpus that tells which column is which. This one is
            read likewise if nothing in it tells, and it has as many columns.

    Raises:
        ValueError: It has one column, or a header that names other languages.
    """
    first = _first_line(path)
    if first == [""]:
        raise ValueError(
            f"Line 1 of {path} is empty: it should be two sentences, or the names of "
            "the columns."
        )
    if len(first) < 2:
        raise ValueError(
            f"Line 1 of {path} has no tab between a source and a target. If it is one "
            f"of two files side by side, give their folder, {path.parent}."
        )
    columns = _columns(path)
    header = _header(columns)
    places = _by_language(header, source, target) or _by_role(header)
    if places:
        table = Table(path, *places, has_header=True)
        return _told(table, source, target, "the header says")
    named = _by_language(_of_name(path), source, target)
    if not named:
        _check_named(path, languages_of(path), source, target)
    places = _by_text(columns, source, target)
    if places:
        return _told(Table(path, *places), source, target, "the text says")
    words = _with_words(columns)
    in_order = (words[0], words[1]) if len(words) > 1 else (0, 1)
    if named:
        places = in_order[named[0]], in_order[named[1]]
        return _told(Table(path, *places), source, target, "the name says")
    if like is not None and len(_columns(like.path)) == len(columns):
        table = like._replace(path=path, has_header=False)
        return _told(table, source, target, f"in {like.path.name}")
    return _told(Table(path, *in_order), source, target)


def _told(table: Table, source: str, target: str, by: str = "") -> ReadAs:
    columns = f"column {table.source + 1} is {source}, column {table.target + 1} is "
    if by:
        return ReadAs(table, f"{columns}{target}, as {by}", by)
    return ReadAs(
        table,
        f"{columns}{target}, as there is no header; a first line that names the "
        "columns would say otherwise",
    )


def _columns(path: Path) -> list[tuple[str, ...]]:
    """The cells of the first lines, by column."""
    lines = itertools.islice(filter(None, read_lines(path)), _LINES)
    rows = (line.split("\t") for line in lines)
    return list(itertools.zip_longest(*rows, fillvalue=""))


def _header(columns: Sequence[Sequence[str]]) -> list[str]:
    """The first line's cells; "" for what most lines have there, which is no name."""
    return [
        "" if 2 * below.count(first) > len(below) else first.strip(" \"'")
        for first, *below in columns
    ]


def _with_words(columns: Sequence[Sequence[str]]) -> list[int]:
    """The places of the columns that are text, and not numbers."""
    return [
        place
        for place, cells in enumerate(columns)
        if 2 * sum(any(map(str.isalpha, cell)) for cell in cells) > len(cells)
    ]


def _by_text(
    columns: Sequence[Sequence[str]], source: str, target: str
) -> tuple[int, int] | None:
    """The first places of the two languages, if no column may be of both."""
    from keras_luong.text.survey import reads_like

    texts = [(i, [x.encode() for x in columns[i]]) for i in _with_words(columns)]
    found = [
        [place for place, cells in texts if reads_like(cells, language)]
        for language in (source, target)
    ]
    sure = all(found) and set(found[0]).isdisjoint(found[1])
    return (found[0][0], found[1][0]) if sure else None


def _first_line(path: Path) -> list[str]:
    return next(iter(read_lines(path)), "").split("\t")


def _of_name(path: Path) -> list[str]:
    """The languages that a file's name says of its columns: `corpus.en-de.tsv`."""
    stem = re.sub(r"(?i)(\.\w+)(\.gz)?$", "", path.name)
    codes = fold(stem.split(".")[-1]).split("-")
    # `pt-br-en` is of `pt-br` and `en`: all ways to part it, of which one must fit.
    ways = [("-".join(codes[:i]), "-".join(codes[i:])) for i in range(1, len(codes))]
    fitting = [way for way in ways if all(map(is_language, way))]
    return list(fitting[0]) if len(fitting) == 1 else []


def _by_language(
    cells: Sequence[str], source: str, target: str
) -> tuple[int, int] | None:
    """The places of two languages among the cells, if each is there once."""
    found = [
        [place for place, cell in enumerate(cells) if means(cell, language)]
        for language in (source, target)
    ]
    return (found[0][0], found[1][0]) if [*map(len, found)] == [1, 1] else None


def _by_role(cells: Sequence[str]) -> tuple[int, int] | None:
    """The places of "source" and "target" among the cells."""
    names = [cell.lower() for cell in cells]
    found = [[i for i, name in enumerate(names) if name in role] for role in _ROLES]
    return (found[0][0], found[1][0]) if [*map(len, found)] == [1, 1] else None


def _check_named(path: Path, named: Sequence[str], source: str, target: str) -> None:
    """Refuses a table that names languages which are not both asked for."""
    if len(named) > 1:
        ways = f"{both_ways(*named)}; or correct" if len(named) == 2 else "Correct"
        raise ValueError(
            f"{path} names its columns {' and '.join(named)}, which are not {source} "
            f"and {target}. {ways} its first line, or its name."
        )


OF_A_TABLE = 10  #: Liberties: text files side by side come before tables.


class Pairs(NamedTuple):
    """Files that may be a split.

    Attributes:
        split: The split that they are by their name, or None if they are of none.
        liberties: How many it takes to read them so.
        files: Two files, or the path of a table.
    """

    split: str | None
    liberties: int
    files: TwoFiles | Path

    def names(self, directory: Path) -> str:
        """What to call them, seen from a folder."""
        paths = [self.files] if isinstance(self.files, Path) else self.files
        return " and ".join(str(path.relative_to(directory)) for path in paths)


class _NamedSide(NamedTuple):
    """A file that may be a side of a split.

    Attributes:
        liberties: How many it takes to read its name so.
        file: The file.
        language: Its language.
    """

    liberties: int
    file: File
    language: str


class Half(NamedTuple):
    """A file that has the name of a split, and no other side.

    Attributes:
        split: The split.
        side: The file.
        stem: The two sides' name, without their languages.
    """

    split: str
    side: _NamedSide
    stem: str

    def is_missed(self, chosen: Container[str]) -> bool:
        """Whether it must have another side, given the splits that are complete."""
        shapes = self.split in ("train", "validation") and self.split not in chosen
        return shapes or not self.side.liberties


def text_files(
    files: Iterable[File], languages: tuple[str, str]
) -> tuple[list[Pairs], list[Half]]:
    """Returns the text files that lie side by side, and those that should.

    Args:
        files: The files of a folder.
        languages: The language to translate from, and the one to translate into.

    Raises:
        ValueError: There are two plain files for one side.
    """
    pairs, halves = [], []
    for (_, stem), sides in _by_stem(files, languages).items():
        found = [_checked_sides(sides[x], stem) for x in languages if x in sides]
        first = min(found[0])
        # What is called by its language alone is of the split that its folder is.
        split, liberties = first.file.split(stem or first.file.folder)
        if len(found) == 2:
            for taken, both in _side_by_side(*found):
                pairs.append(Pairs(split, liberties + taken, both))
        elif split and not liberties:
            halves.append(Half(split, first, stem))
    return pairs, halves


def _by_stem(
    files: Iterable[File], languages: tuple[str, str]
) -> dict[tuple[Path, str], dict[str, list[_NamedSide]]]:
    """The files of each language, by what else tells sides of a split apart."""
    by_stem: dict[tuple[Path, str], dict[str, list[_NamedSide]]] = {}
    for file in files:
        for language in languages:
            if stem := file.stem(language):
                sides = by_stem.setdefault((file.place, stem.text), {})
                side = _NamedSide(stem.liberties, file, language)
                sides.setdefault(language, []).append(side)
    return by_stem


def _checked_sides(sides: Sequence[_NamedSide], stem: str) -> Sequence[_NamedSide]:
    """The sides, of which not both `train.de` and `train.de.gz` can be meant."""
    plain = [side for side in sides if not side.liberties]
    if len(plain) > 1:
        raise ValueError(
            f"{plain[0].file.path} and {plain[1].file.path} are both the "
            f"{plain[0].language} side of the {stem} split; keep one of them, or name "
            "the files yourself."
        )
    return sides


def _side_by_side(
    sources: Sequence[_NamedSide], targets: Sequence[_NamedSide]
) -> Iterator[tuple[int, TwoFiles]]:
    """Yields the plainest files, and others that are written alike; with liberties."""
    plainest = min(sources).liberties, min(targets).liberties
    for source, target in itertools.product(sources, targets):
        taken = source.liberties, target.liberties
        if taken == plainest or len({*taken}) == 1:
            yield sum(taken), TwoFiles(source.file.path, target.file.path)


def tables_of(files: Iterable[File]) -> Iterator[Pairs]:
    """Yields the files of which each holds both sides.

    Args:
        files: The files of a folder.
    """
    for file in files:
        if file.is_table:
            split, liberties = file.split()
            yield Pairs(split, liberties + OF_A_TABLE, file.path)


class TwoFiles(NamedTuple):
    """A file of sentences, and a file of their translations, line by line.

    Attributes:
        source: The file of sentences.
        target: The file of translations.
    """

    source: Path
    target: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""
        return tuple(self)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        return str(self.source), str(self.target)

    def checked(self) -> Iterator[tuple[str | None, str | None]]:
        """Yields the pairs; None where one of the files has no more lines.

        Raises:
            ValueError: A file can't be read; the message names it and the line.
        """
        return itertools.zip_longest(read_lines(self.source), read_lines(self.target))

    def raw(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the pairs of files that are known to be right."""
        lines = read_raw_lines(self.source), read_raw_lines(self.target)
        return zip(*lines, strict=True)


class Table(NamedTuple):
    r"""A file of tab-separated columns, of which one is the source and one the target.

    A tab parts two columns and a line end two pairs, always: quotation marks and
    backslashes are letters as others are. An empty line is a pair of empty sentences.

    Attributes:
        path: The file, plain or gzip.
        source: Place of the source's column, from 0.
        target: Place of the target's column.
        has_header: Whether the first line only names the columns.
    """

    path: Path
    source: int = 0
    target: int = 1
    has_header: bool = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""
        return (self.path,)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        return (
            f"Column {self.source + 1} of {self.path}",
            f"Column {self.target + 1} of {self.path}",
        )

    def checked(self) -> Iterator[tuple[str | None, str | None]]:
        """Yields the pairs.

        Raises:
            ValueError: The file can't be read, or a line has too few columns, or more
                than the first one; the message names the file and the line.
        """
        most = 0
        for number, line in enumerate(read_lines(self.path), 1):
            columns = line.count("\t") + 1
            most = most or columns
            if line and not max(self.source, self.target) < columns <= most:
                raise ValueError(self._bad_line(number, columns, most))
            if number > self.has_header:
                cells = line.split("\t") if line else [""] * most
                yield cells[self.source], cells[self.target]

    def _bad_line(self, number: int, columns: int, most: int) -> str:
        if columns > most:
            return (
                f"Line {number} of {self.path} has {columns} columns and the first one "
                f"has {most}: there is a tab too many in it."
            )
        needed = max(self.source, self.target) + 1
        return (
            f"Line {number} of {self.path} has {columns} column{'s' * (columns > 1)} "
            f"and needs {needed}, with a tab between two of them."
        )

    def raw(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the pairs of a file that is known to be right."""
        lines = read_raw_lines(self.path)
        for line in itertools.islice(lines, int(self.has_header), None):
            cells = line.split(b"\t")
            yield (cells[self.source], cells[self.target]) if line else (b"", b"")


PairFiles: TypeAlias = TwoFiles | Table


class Found(NamedTuple):
    """What a folder or a file holds.

    Attributes:
        files: The files of each split.
        languages: The language to translate from, and the one to translate into.
        notes: What to say of how they were read, by a word for each.
    """

    files: dict[str, PairFiles]
    languages: tuple[str, str]
    notes: dict[str, str]


def find_files(directory: Path, source: str | None, target: str | None) -> Found:
    """Finds the files of a folder.

    Args:
        directory: The folder.
        source: The suffix of the source files, if it is known.
        target: The suffix of the target files, if it is known.

    Raises:
        FileNotFoundError: There is no such folder, no pair of files, or a side lacks.
        ValueError: Names have two readings; it says which.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {directory}.")
    files = list(files_of(directory))
    named = [] if source and target else languages_in(files)
    if not (named or source and target) and (instead := other_format(files)):
        raise ValueError(f"{directory} has no text files. {instead}")
    languages = settled(directory, named, source, target)
    texts, halves = text_files(files, languages)
    tables = list(tables_of(files))
    plain = {pairs.split for pairs in texts if pairs.liberties < OF_A_TABLE}
    complete = {"train", "validation"} <= plain
    chosen = _chosen(texts if complete else texts + tables, directory)
    for half in halves:
        if half.is_missed(chosen):
            raise FileNotFoundError(side_missing(half, languages, files))
    if not chosen:
        raise FileNotFoundError(nothing_found(directory, files, languages))
    unread = [
        pairs.names(directory)
        for pairs in texts + tables
        if pairs not in chosen.values()
    ]
    found = _list_files(chosen, languages, directory)
    if unread:
        found.notes["not read"] = shortened(unread)
    return found


def find_table(path: Path, source: str | None, target: str | None) -> Found:
    """Reads what a single file is.

    Args:
        path: A file of tab-separated columns.
        source: The language to translate from, if it is known.
        target: The language to translate into, if it is known.

    Raises:
        ValueError: It is no such file, or its columns have two readings.
    """
    if instead := advice(path):
        raise ValueError(f"{path} is no text file of sentences: {instead}.")
    languages = settled(path, languages_of(path), source, target)
    split = File(path).split().name or "train"
    return _list_files({split: Pairs(split, 0, path)}, languages, path.parent)


def _list_files(
    chosen: dict[str, Pairs], languages: tuple[str, str], directory: Path
) -> Found:
    """Looks into the tables among the files, for which column is which."""
    files: dict[str, PairFiles] = {}
    tables: dict[str, ReadAs] = {}
    for split in ordered(chosen):
        found = chosen[split].files
        if isinstance(found, TwoFiles):
            files[split] = found
        else:
            tables[split] = read_as(found, *languages)
    columns: dict[str, list[str]] = {}
    like = next((read.table for read in tables.values() if read.by), None)
    for split, read in tables.items():
        if like and not read.by:
            read = read_as(read.table.path, *languages, like)
        files[split] = read.table
        columns.setdefault(read.told, []).append(chosen[split].names(directory))
    said = [f"{', '.join(names)}: {told}" for told, names in columns.items()]
    bare = [x for x in files.values() if isinstance(x, Table) and not x.has_header]
    said += map(first_pair, bare[:1])
    return Found(files, languages, {"columns": "; ".join(said)} if said else {})


def _chosen(pairs: Iterable[Pairs], directory: Path) -> dict[str, Pairs]:
    """The files of each split.

    Raises:
        ValueError: Two may be the same split.
    """
    splits: dict[str, list[Pairs]] = {}
    others = []
    for found in sorted(pairs, key=lambda x: x.liberties):
        if found.split is None:
            others.append(found)
        else:
            splits.setdefault(found.split, []).append(found)
    others = [x for x in others if x.liberties == others[0].liberties]
    if "train" not in splits and len(others) == 1:
        splits["train"] = others
    elif not splits and others:
        names = shortened(x.names(directory) for x in others)
        raise ValueError(
            f"{directory} has several pairs of files, and none is called train: "
            f"{names}. Give one of them that name."
        )
    return {split: _one_of(split, many, directory) for split, many in splits.items()}


def _one_of(split: str, many: Sequence[Pairs], directory: Path) -> Pairs:
    first, *others = many
    if others and others[0].liberties == first.liberties:
        raise ValueError(
            f"{first.names(directory)}, and {others[0].names(directory)}, of "
            f"{directory} are both the {split} split; keep one of them, or name the "
            "files yourself."
        )
    return first


def side_missing(half: Half, languages: tuple[str, str], files: Sequence[File]) -> str:
    """Returns what is there in place of a split's other side, and what to do.

    Args:
        half: The side that is there.
        languages: The language to translate from, and the one to translate into.
        files: The files of the folder.
    """
    path = half.side.file.path
    (missing,) = {*languages} - {half.side.language}
    others = [
        x.path.name
        for x in files
        if x.place == half.side.file.place and x.path != path
        if re.match(rf"{re.escape(half.stem)}[._-]", x.path.name)
    ]
    there = f"; beside it is {shortened(others)}" if others else ""
    return (
        f"The {half.split} split has {path} but no .{missing} file beside it{there}. "
        f"{_others(languages_in(files), languages)}"
    ).rstrip()


def nothing_found(
    directory: Path, files: Sequence[File], languages: tuple[str, str]
) -> str:
    """Returns what a folder has that has no pair of files, and what to do.

    Args:
        directory: The folder.
        files: Its files.
        languages: The language to translate from, and the one to translate into.
    """
    source, target = languages
    names = [str(file.path.relative_to(directory)) for file in files]
    folders = [f"{path.name}/" for path in visible(directory) if path.is_dir()]
    message = (
        f"{directory} has no train, val, valid, validation, dev or test* file, and no "
        f"other pair, that ends in .{source} and .{target} (or that and .gz), nor a "
        f".tsv file; it has {shortened({*names, *folders})}."
    )
    more = (
        _others(languages_in(files), languages)
        or other_format(files)
        or _a_table(files)
        or f"Call the files train.{source} and train.{target}, for instance."
    )
    return f"{message} {more}"


def other_format(files: Iterable[File]) -> str:
    """Returns what to do with the largest file that is no text file; or "".

    Args:
        files: The files of a folder.
    """
    for path in _largest_first(files):
        if instead := advice(path):
            return f"{path.name} is no text file of sentences: {instead}."
    return ""


def _others(named: list[str], languages: Iterable[str]) -> str:
    """What may have been meant by languages that are not there."""
    missing = [x for x in languages if fold(x) not in map(fold, named)]
    if missing and len(named) == 2:
        return f"{both_ways(*named)}."
    for language in missing:
        if close := difflib.get_close_matches(language, named, 1):
            return f"Did you mean {close[0]} by {language}?"
    return ""


def _a_table(files: Iterable[File]) -> str:
    """What to do with the largest text file whose lines have tabs, if any."""
    for path in _largest_first(files):
        if re.fullmatch(r"(?i).+\.txt(\.gz)?", path.name) and has_columns(path):
            return f"{path.name} is a table: give the file itself, {path}."
    return ""


def _largest_first(files: Iterable[File]) -> list[Path]:
    paths = (file.path for file in files if file.path.exists())
    return sorted(paths, key=lambda path: path.stat().st_size, reverse=True)


def shortened(names: Iterable[str], most: int = 10) -> str:
    """Returns names for a message, and how many more there are.

    Args:
        names: The names.
        most: How many are said.

    Example:
        >>> from keras_luong.text.corpus_files import shortened
        >>> shortened(["b", "c", "a"], most=2)
        "['a', 'b'] and 1 more"
    """
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"


_LINES_AT_ONCE = 1024


class TextFiles:
    """A corpus of text files, one pair of sentences a line, plain or gzip, streamed.

    Line n of a split's source file translates to line n of its target file; or both are
    in a line of one file, with a tab between them. Lines are what
    `keras_luong.files.read_lines` reads. When a split is first used, its files are read
    once, so that a damaged file is found before the training begins. From then on its
    text must stay the same.

    Args:
        files: For each split, its source file and its target file; or a `Table` of
            `keras_luong.text.corpus_files`, which says where they are in one file.
        source_language: Name of the source language, as in "en".
        target_language: Name of the target language.
        name: Name of the corpus.
        notes: What to say of how the files were read, by a word for each.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If there are no files.

    Example:
        >>> from keras_luong.text import TextFiles
        >>> files = {"train": ("my/corpus/train.en", "my/corpus/train.de")}
        >>> corpus = TextFiles(files, source_language="en", target_language="de")
        >>> for pair in corpus.pairs("train").take(1).as_numpy_iterator():
        ...     print(pair["source"], pair["target"])
        b'the dog' b'der Hund'
    """

    def __init__(
        self,
        files: Mapping[str, tuple[str | Path, str | Path] | Table],
        source_language: str,
        target_language: str,
        name: str = "text files",
        notes: Mapping[str, str] | None = None,
    ):
        if not files:
            raise ValueError("files must hold at least one split. Received: none.")
        self.files = {split: _checked(split, files[split]) for split in ordered(files)}
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        self.notes = dict(notes or {})
        self._read: dict[str, _Read] = {}  # splits that were read, and are right

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Finds the files of a directory, such as `train.en` and `train.de`.

        Args:
            directory: The directory, with files named `<split>.<language>`, or
                `<split>.tsv`, of two columns; all may be `.gz`. Splits: "train"; "val",
                "valid", "validation" or "dev", all called "validation"; and any name
                that begins with "test". docs/corpus.md tells what else is read.
            source_language: The source files' suffix, without the dot. One of the two
                languages may be left out if the files have no others.
            target_language: The target files' suffix.

        Returns:
            The corpus.

        Raises:
            FileNotFoundError: If there is no such file, or a split lacks one side.
            ValueError: If there are two files for the same side of a split, or a
                language must be given.
        """
        found = find_files(Path(directory), source_language, target_language)
        name = Path(directory).resolve().name
        return cls(found.files, *found.languages, name=name, notes=found.notes)

    @classmethod
    def from_table(
        cls,
        path: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Reads one file of tab-separated columns, with or without a header.

        Args:
            path: The file, plain or gzip. A header names the columns by languages, or
                as "source" and "target". Without one the text tells, or the file's
                name, as in `corpus.en-de.tsv`; or else the source comes first.
            source_language: The language to translate from. One of the two may be left
                out if the file names both.
            target_language: The language to translate into.

        Returns:
            The corpus: a training split, unless the file has the name of another one.

        Raises:
            ValueError: If it is no such file, or a language must be given.
        """
        path = check_file("file", path)
        found = find_table(path, source_language, target_language)
        return cls(found.files, *found.languages, name=path.name, notes=found.notes)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: train, validation, then the others."""
        return tuple(self.files)

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: One of `splits`.

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`, in the order
            of the files.

        Raises:
            ValueError: If there is no such split, if its files differ in their number
                of lines, or if one is empty, lacks a column or is not UTF-8; the
                message names the file and the line.
            OSError: If the text is another one than when it was read first. A dataset
                that is read again raises it too, as an error of TensorFlow's.
        """
        import tensorflow as tf

        self._read_once(split)
        side = tf.TensorSpec([None], tf.string)

        def lists_of_pairs() -> Iterator[dict[str, tuple[bytes, ...]]]:
            self._read_once(split)  # it may have changed since
            try:
                yield from _lists_of_pairs(self.files[split])
            except (ValueError, IndexError):  # or it has just now
                self._read_once(split)
                raise

        some = tf.data.Dataset.from_generator(
            lists_of_pairs,
            output_signature={"source": side, "target": side},
        )
        return some.flat_map(tf.data.Dataset.from_tensor_slices)

    def fingerprint(self, split: str) -> Fingerprint:
        """Returns what tells a split's text from any other, however it is packed.

        Args:
            split: One of `splits`.

        Raises:
            ValueError, OSError: As `pairs` does.
        """
        from keras_luong.text.corpus import Fingerprint, joint_digest

        read = self._read_once(split)
        return Fingerprint(read.pairs, joint_digest(read.digests))

    def _read_once(self, split: str) -> _Read:
        """What is known of a split: it is read when it is first asked for.

        And once its files are others by their size or time, as copies are.
        """
        from keras_luong.text.corpus import check_split

        files = self.files[check_split(self, split)]
        before, states = self._read.get(split), _states(files)
        if before is None or before.states != states:
            now = _read(files)
            if before is not None and now.digests != before.digests:
                names = " and ".join(map(str, files.paths))
                raise OSError(
                    f"{names}, the {split} split, changed since it was read first: it "
                    f"had {before.pairs:,} pairs, and has {now.pairs:,}"
                    f"{', of which some differ' * (now.pairs == before.pairs)}."
                )
            self._read[split] = now
        return self._read[split]


class _Read(NamedTuple):
    """What must be known of a split whose files were read.

    Attributes:
        pairs: The number of its pairs.
        digests: A digest of the lines of each side.
        states: Of each file its size, and when it was written, before it was read.
    """

    pairs: int
    digests: tuple[bytes, bytes]
    states: tuple[tuple[int, int], ...]


def _states(files: PairFiles) -> tuple[tuple[int, int], ...]:
    found = [check_file("file", path).stat() for path in files.paths]
    return tuple((x.st_size, x.st_mtime_ns) for x in found)


def _checked(split: str, files: Any) -> PairFiles:
    """The files of a split, which are there."""
    if not isinstance(files, Table):
        if isinstance(files, (str, Path)) or len(files) != 2:
            raise ValueError(
                f"The {split} split must have two files, source and target. "
                f"Received: {files!r}"
            )
        name = f"A file of the {split} split"
        files = TwoFiles(*(check_path(name, path) for path in files))
    for path in files.paths:
        check_file("file", path)
    return files


def _lists_of_pairs(files: PairFiles) -> Iterator[dict[str, tuple[bytes, ...]]]:
    """Yields some pairs at once, by the reader that counted them.

    `tf.data.TextLineDataset` reads some files otherwise: it drops carriage returns, and
    stops at an empty gzip member.
    """
    pairs = files.raw()
    while some := list(itertools.islice(pairs, _LINES_AT_ONCE)):
        source, target = zip(*some, strict=True)
        yield {"source": source, "target": target}


class _Side:
    """What is counted of the lines of one side."""

    def __init__(self, name: str):
        from keras_luong.text.corpus import new_digest

        self.name = name
        self.lines = self.blank = 0
        self.digest = new_digest()

    def add(self, line: str | None) -> None:
        """Counts a line; None is none."""
        if line is not None:
            self.lines += 1
            self.blank += not line.strip()
            self.digest.update(line.encode() + b"\n")

    def check(self) -> None:
        """Raises ValueError if there is no sentence."""
        if self.blank == self.lines:
            what = f"has {self.lines:,} lines, all blank" if self.lines else "is empty"
            raise ValueError(f"{self.name} {what}: line 1 should be a sentence.")


def _read(files: PairFiles) -> _Read:
    """Reads all of a split, and checks it."""
    states = _states(files)
    source, target = (_Side(name) for name in files.sides)
    for one, other in files.checked():
        source.add(one)
        target.add(other)
    source.check()
    target.check()
    check_as_many_lines(source.name, source.lines, target.name, target.lines)
    digests = source.digest.digest(), target.digest.digest()
    return _Read(source.lines, digests, states)
