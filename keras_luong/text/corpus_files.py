"""Files of a corpus: two side by side, a table, or one of `pair_formats`.

`docs/corpus.md` says which files are read. A split is "train", "validation", or called
as its files are: "test", "test2016".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from keras_luong.checks import check_file
from keras_luong.files import check_as_many_lines, count_lines, read_lines
from keras_luong.languages import standard_code
from keras_luong.text.pair_formats import (
    CODE,
    FORMS,
    TABLES,
    cells_of_line_1,
    find_side,
    find_sides,
    form_of,
    is_header,
    languages_among,
    names_in,
    open_pairs,
)
from keras_luong.text.rows import Rows, Table, is_csv, is_parquet, table_rows

_UNPACK = "unpack it, and give the folder or the .tsv file that comes out"
_EXPORT = (
    "write its sentences to a .tsv file, or one side a file, as train.en, train.de"
)
#: Ending of a name → what to do with such a file, which holds sentences as no text.
ADVICE = {
    **dict.fromkeys(
        ("xlsx", "xls", "ods"), "save its two columns as CSV in UTF-8, as train.csv"
    ),
    **dict.fromkeys(("zip", "tar", "tgz", "7z", "xz", "bz2", "zst", "rar"), _UNPACK),
    **dict.fromkeys(("arrow", "xml", "sgm"), _EXPORT),
    "json": "write a pair a line, for instance with jq -c '.[]' FILE > train.jsonl",
}


_BOTH = tuple(FORMS)  # endings of files of both sides
_PART = r"-\d+-of-\d+$"  # how Hugging Face numbers the files of a split


class PairFiles(Protocol):
    """The files of a split, in any form."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs, without line ends, from the first one."""


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

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs.

        Raises:
            ValueError: A file can't be read, and the message names it and the line; or
                they differ in their number of lines.
        """
        lines = read_lines(self.source), read_lines(self.target)
        try:
            yield from zip(*lines, strict=True)
        except ValueError:
            counts = map(count_lines, self)
            check_as_many_lines(self.source, next(counts), self.target, next(counts))
            raise


def _is_table(path: Path) -> bool:
    return form_of(path) in (None, *TABLES)


class CorpusFiles(NamedTuple):
    """What a folder or a file holds: the arguments of `TextFiles`.

    Attributes:
        files: The files of each split.
        source: The language to translate from.
        target: The language to translate into.
        name: Name of the corpus.
        notes: What to say of how they were read, by a word for each.
    """

    files: dict[str, PairFiles]
    source: str
    target: str
    name: str
    notes: dict[str, str]


def find_corpus_files(
    data: str | Path, source: str | None, target: str | None
) -> CorpusFiles | None:
    """Finds the files that `--data` names; None if it is no path of any.

    Args:
        data: A folder, a file, or two files with a comma between them.
        source: The language to translate from, if it is known.
        target: The language to translate into, if it is known.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: Files that are no corpus, or have two readings.
    """
    path = Path(data)
    if path.is_dir() and path.suffix != ".parquet":
        return find_in_folder(path, source, target)
    if path.exists():
        return find_file(path, source, target)
    if str(data).count(",") != 1:
        return None
    two = TwoFiles(*(check_file("file", x) for x in str(data).split(",")))
    named = list(filter(None, map(language_of, two)))
    if len(named) == 2:  # the source comes first
        source, target = source or named[0], target or named[1]
    languages = _settle_languages(data, named, source, target)
    return CorpusFiles({"train": two}, *languages, two.source.name, {})


def find_in_folder(
    directory: Path, source: str | None, target: str | None
) -> CorpusFiles:
    """Finds the files of each split in a folder.

    Args:
        directory: The folder.
        source: The suffix of the source files, if it is known.
        target: The suffix of the target files, if it is known.

    Raises:
        FileNotFoundError: There is no such folder, no pair of files, or a side lacks.
        ValueError: Two files may be the same side, or languages must be given.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {directory}.")
    if source and target:
        _settle_languages(directory, (), source, target)  # they must differ
    # Hidden files are a Mac's own, or still being written.
    paths = sorted(x for x in directory.iterdir() if not x.name.startswith("."))
    # 1. The files of each split, by language; those of both by their form's ending.
    splits: dict[str, dict[str, list[Path]]] = {}
    for path in paths:
        stem, language = _stem_and_language(path)
        split = _split_of(stem) if path.is_file() or language == "parquet" else None
        if split:
            splits.setdefault(split, {}).setdefault(language, []).append(path)
    if not splits and is_parquet(directory):
        return find_file(directory, source, target)
    # 2. The languages, which the files of one split tell.
    some = splits.get("train") or next(iter(splits.values()), {})
    named = [x for x in some if x not in (*_BOTH, *ADVICE)]
    if not named and (tables := [x for ending in _BOTH for x in some.get(ending, ())]):
        named = _languages_of(tables[0], source, target)
    elif not named:
        raise FileNotFoundError(_nothing_found(directory, paths, source, target))
    source, target = _settle_languages(directory, named, source, target)
    # 3. Two files side by side, or else one of both.
    endings = standard_code(source), standard_code(target)
    files: dict[str, PairFiles] = {}
    for split in sort_splits(splits):
        sides = [splits[split].get(x, []) for x in endings]
        tables = [x for ending in _BOTH for x in splits[split].get(ending, ())]
        parts = [f"the {x} side of the" for x in endings] + ["the"]
        for part, several in zip(parts, [*sides, tables], strict=True):
            if len(several) > 1 and not all(map(_is_part, several)):
                raise ValueError(
                    f"{several[0]} and {several[1]} are both {part} {split} split; "
                    "keep one of them."
                )
        if all(sides):
            files[split] = TwoFiles(*itertools.chain(*sides))
        elif any(sides):
            missing = source if sides[1] else target
            raise FileNotFoundError(
                f"The {split} split has {(sides[0] or sides[1])[0]} but no .{missing} "
                f"file beside it; the folder has {_shortened(paths)}."
            )
        elif tables:
            files[split] = read_file(tables, source, target)
    if not files:
        raise FileNotFoundError(_nothing_found(directory, paths, source, target))
    # 4. What else looks like text of these languages.
    read = {path for one in files.values() for path in one.paths}
    read |= {above for path in read for above in path.parents}  # folders of Parquet
    notes = _column_notes(files.values(), source, target)
    if unread := [
        x
        for x in paths
        if _stem_and_language(x)[1] in (*endings, *_BOTH) and x not in read
    ]:
        notes["not read"] = _shortened(unread)
    return CorpusFiles(files, source, target, directory.resolve().name, notes)


def find_file(path: Path, source: str | None, target: str | None) -> CorpusFiles:
    """Reads what a single file is.

    Args:
        path: A table, a file that `form_of` has a form for, or a folder of Parquet.
        source: The language to translate from, if it is known.
        target: The language to translate into, if it is known.

    Raises:
        FileNotFoundError: It is not there.
        ImportError: A package is missing that reads the form.
        ValueError: It is no such file, or a language must be given.
    """
    if not is_parquet(path):
        check_file("file", path)
    if advice := _advice([path]):
        raise ValueError(advice)
    named = _languages_of(path, source, target)
    source, target = _settle_languages(path, named, source, target)
    files = read_file([path], source, target)
    split = _split_of(_stem_and_language(path)[0]) or "train"
    notes = _column_notes([files], source, target)
    return CorpusFiles({split: files}, source, target, path.name, notes)


def read_file(paths: Sequence[Path], source: str, target: str) -> PairFiles:
    """Returns what streams the pairs of a file of both sides, or of parts of Parquet.

    Args:
        paths: The file, of any form; or several, numbered parts of one.
        source: The language to translate from.
        target: The language to translate into.

    Raises:
        ImportError: A package is missing that reads the form.
        ValueError: It is damaged, or does not have both sides.
    """
    if _is_table(paths[0]):
        return read_table(paths[0], source, target)
    first = open_pairs(paths[0], source, target)
    if not isinstance(first, Rows) or len(paths) == 1:
        return first
    return first._replace(paths=tuple(paths))


def read_table(path: Path, source: str, target: str) -> Table:
    """Returns a table, with its columns as the header says, or else in their order.

    Args:
        path: A file of columns.
        source: The language to translate from.
        target: The language to translate into.

    Raises:
        ValueError: It has a header that names other languages, or no header and other
            than two columns.
    """
    names = cells_of_line_1(path)
    if sides := find_sides(source, target, names, path):
        i, j = map(names.index, sides)
        if is_header(path, [i, j]):
            return Table(path, i, j, has_header=True)
    if len(names) == 2:
        if len(named := languages_among(names)) == 2:
            raise ValueError(
                f"{path} names its columns {' and '.join(named)}, which are not "
                f"{source} and {target}. {_both_ways(*named)}; or correct its first "
                "line."
            )
        return Table(path)
    parts = "comma" if is_csv(path) else "tab"
    if names == [""]:
        problem = "is empty"
    elif len(names) == 1:
        problem = "has no tab between a source and a target"
        problem = problem.replace("tab", parts)
    else:
        problem = f"has {len(names)} columns, and names none {source} and {target}"
    raise ValueError(
        f"Line 1 of {path} {problem}: it should be two sentences with a {parts} "
        f"between, or the names of the columns, such as {source} and {target}. If it "
        "is one of two files side by side, give both: SOURCE_FILE,TARGET_FILE."
    )


def _languages_of(path: Path, source: str | None, target: str | None) -> list[str]:
    """The languages that a file of both sides names, or those that are given for them.

    With "en" given, a file of en-US and de has "en" and "de".
    """
    if _is_table(path):
        return languages_among(cells_of_line_1(path))
    named = [x for x in names_in(path) if re.fullmatch(CODE, x, re.I)]
    if source is None or target is None:
        for given in filter(None, (source, target)):
            found = find_side(given, named, path, "source" if source else "target")
            named = [given if x == found else x for x in named]
    return named


def _column_notes(
    files: Iterable[PairFiles], source: str, target: str
) -> dict[str, str]:
    """What to say of how tables were read."""
    said = []
    for table in files:
        if isinstance(table, Table):
            by = "the header says"
            if not table.has_header:
                _, pair = next(table_rows(table.path))
                shown = (x if len(x) <= 40 else f"{x[:40]} ..." for x in pair)
                by = f"there is no header; line 1 is a pair: {' | '.join(shown)}"
            said.append(
                f"{table.path.name}: column {table.source + 1} is {source}, column "
                f"{table.target + 1} is {target}, as {by}"
            )
    return {"columns": "; ".join(said)} if said else {}


def unit_of(corpus: Any, split: str) -> str:
    """Returns what the numbers of a split's pairs are of: "line", or "pair".

    Args:
        corpus: Any corpus; only two files side by side have a pair in each line.
        split: Name of a split.
    """
    files = getattr(getattr(corpus, "whole", corpus), "files", {})
    return "line" if isinstance(files.get(split), TwoFiles) else "pair"


def sort_splits(splits: Iterable[str]) -> tuple[str, ...]:
    """Returns names of splits: train, validation, then the others."""
    rank = {"train": 0, "validation": 1}
    return tuple(sorted(splits, key=lambda split: (rank.get(split, 2), split)))


def language_of(path: Path) -> str:
    """Returns the language that a file's name ends in; "" if it has no ending.

    Args:
        path: The file.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.text.corpus_files import language_of
        >>> [language_of(Path(name)) for name in ("test.zh.txt", "dev.pt-BR.gz", "out")]
        ['zh', 'pt-BR', '']
    """
    short = re.sub(r"(?i)(\.txt)?(\.gz)?$", "", path.name)
    return Path(short).suffix[1:]


def _stem_and_language(path: Path) -> tuple[str, str]:
    """The parts of a name: `train.pt_BR.txt.gz` is "train" and "pt-BR"."""
    short = re.sub(r"(?i)(\.txt)?(\.gz)?$", "", path.name)
    stem, ending = Path(short).stem, Path(short).suffix[1:].lower()
    if ending in _BOTH:
        return re.sub(_PART, "", stem) if _is_part(path) else stem, ending
    return stem, standard_code(ending)


def _is_part(path: Path) -> bool:
    """Whether it is one of several files of Parquet that are one."""
    return path.suffix == ".parquet" and bool(re.search(_PART, path.stem))


def _split_of(stem: str) -> str | None:
    """The split that is called so, if it is one."""
    stem = stem.lower()
    if stem in ("val", "valid", "validation", "dev"):
        return "validation"
    is_split = re.fullmatch("train|(news)?test([^a-z].*)?", stem)  # no testament
    return stem if is_split else None


def _settle_languages(
    place: object, named: Iterable[str], source: str | None, target: str | None
) -> tuple[str, str]:
    """Chooses both languages: as given, or the one that is left in the files.

    Raises:
        ValueError: The two are the same, or one is missing and could be another.
    """
    named = list(dict.fromkeys(named))
    if source is None or target is None:
        given = [x for x in (source, target) if x is not None]
        codes = {standard_code(x) for x in given}
        rest = [x for x in named if standard_code(x) not in codes]
        in_python = "(in Python: source_language and target_language)"
        if len(named) == 2 and not given:
            raise ValueError(
                f"{place} has {named[0]} and {named[1]}: which one is to be "
                f"translated? {_both_ways(*named)} {in_python}."
            )
        if len(named) != 2 or len(rest) != 1:
            has = f"has {', '.join(named)}" if named else "names no languages"
            raise ValueError(
                f"{place} {has}: give both --source and --target {in_python}. "
                f"Received: {source!r} and {target!r}."
            )
        source, target = source or rest[0], target or rest[0]
    if standard_code(source) == standard_code(target):
        raise ValueError(f"The two languages are the same: {source!r}.")
    return source, target


def _both_ways(one: str, other: str) -> str:
    """The two commands that two languages can mean."""
    return f"Give --source {one} --target {other}, or --source {other} --target {one}"


def _nothing_found(
    directory: Path, paths: Sequence[Path], source: str | None, target: str | None
) -> str:
    """What a folder has that has no pair of files, and what to do."""
    source, target = source or "SOURCE", target or "TARGET"
    todo = _advice(paths) or (
        f"Name its files so, or give two files, {directory}/FILE,{directory}/FILE (the "
        "source first), or one with tabs."
    )
    return (
        f"{directory} has no train.{source} and train.{target}, no train.tsv, and no "
        f"such files called val, valid, validation, dev or test; it has "
        f"{_shortened(paths)}. {todo}"
    )


def _advice(paths: Iterable[Path]) -> str:
    """What to do with a file that is no text, if there is one."""
    for path in paths:
        if advice := ADVICE.get(_stem_and_language(path)[1]):
            return f"{path} is no text file of sentences: {advice}."
    return ""


def _shortened(paths: Sequence[Path], most: int = 10) -> str:
    """Names for a message, and how many more there are."""
    names = sorted(f"{path.name}{'/' * path.is_dir()}" for path in paths)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"
