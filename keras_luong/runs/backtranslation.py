"""Back-translation: a corpus that also has text of its target language alone.

A run of the other direction translates the text back, and the pairs of what it says
and the text join the corpus (Sennrich, Haddow & Birch 2016, arXiv:1511.06709). The
targets are what people wrote, however poor the sources are. A tag in front of these
sources tells the model not to trust them as much (Caswell, Chelba & Grangier 2019,
arXiv:1906.06442).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from keras_luong.checks import check_size
from keras_luong.config.going_on import BACK_TRANSLATED, check_tag_name
from keras_luong.progress import Progress
from keras_luong.runs.monolingual import read_monolingual
from keras_luong.runs.record import read_record
from keras_luong.runs.translated_corpus import (
    Again,
    check_new,
    texts_of,
    with_translations,
    write_corpus,
)
from keras_luong.text.corpus import Corpus, count
from keras_luong.text.languages import fold
from keras_luong.text.tags import token
from keras_luong.translation.translator import Translator


class BackTranslated(NamedTuple):
    """What was written.

    Attributes:
        directory: Where.
        real: Number of training pairs of the corpus, as often as they are repeated.
        synthetic: Number of training pairs of which the source was made.
        untranslated: Number of lines that the translator had nothing to say to.
    """

    directory: Path
    real: int
    synthetic: int
    untranslated: int


def write_backtranslated(
    corpus: Corpus,
    reverse: Translator,
    monolingual: str | Path,
    directory: str | Path,
    tag: str = BACK_TRANSLATED,
    limit: int | None = None,
    repeat_real: int = 1,
    monolingual_tag: str | None = None,
    progress: bool = False,
) -> BackTranslated:
    """Writes a corpus that also has text of its target language, and made sources.

    The training pairs are the corpus's, and evenly between them the lines of a file as
    targets, each with a source that a translator makes of it. A training makes a piece
    of its vocabulary of the tag, which is in the text. The other splits are written as
    they are, but line ends within a sentence become spaces. It takes bounded memory,
    and the directory appears when it is complete; what a killed process had begun is
    removed and begun anew.

    Args:
        corpus: What to learn from.
        reverse: A translator from the corpus's target language into its source
            language. With a `RandomSampling` as its search the sources are drawn at
            random (Edunov et al. 2018, arXiv:1808.09381); those of a `BeamSearch` are
            more correct, and more alike.
        monolingual: A file of text in the target language, a sentence a line, plain or
            gzip. Which lines are left out: see `read_monolingual`.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...
        tag: Name of the tag in front of the sources that are made.
        limit: Most lines to translate, the first ones; all by default.
        repeat_real: How often each training pair of the corpus is written, so that the
            others do not outweigh them.
        monolingual_tag: Name of a tag that the translator was trained with, for the
            lines that it reads.
        progress: Whether to print what is left out, and to show progress on standard
            error.

    Returns:
        What was written.

    Raises:
        FileExistsError: If there is something of the directory's name.
        FileNotFoundError: If there is no such file of text.
        TypeError: If a number is no integer.
        ValueError: If it is below 1, the tag cannot be one, the corpus has no split to
            train on, files are damaged, or no line is left to translate.

    Example:
        >>> from keras_luong.files import write_lines
        >>> from keras_luong.runs.backtranslation import write_backtranslated
        >>> from keras_luong.text import load_corpus
        >>> corpus = load_corpus("my/corpus", "de", "en")
        >>> write_lines("more.en", ["the red dog is the cat", "", "the cat is red"])
        >>> written = write_backtranslated(
        ...     corpus, kl.load("runs/mine"), "more.en", "larger"
        ... )
        >>> written.real, written.synthetic + written.untranslated
        (3, 2)
    """
    directory = check_new(directory)
    check_size("limit", limit, optional=True)
    check_size("repeat_real", repeat_real)
    check_tag_name("tag", tag)
    train = corpus.pairs("train")
    chosen = read_monolingual(monolingual, corpus, reverse, limit)
    if progress:
        print(chosen, flush=True)
    number, real = int(chosen.kept.sum()), count(train) * repeat_real
    bar = Progress(number, "text") if progress else None
    begin = "" if monolingual_tag is None else f"{token(monolingual_tag)} "
    lines = Again(chosen.lines)
    said = with_translations(lines, lambda line: begin + line, reverse, bar)
    made = _Made(said, tag)
    repeated = (texts_of(train) for _ in range(repeat_real))
    pairs = evenly((itertools.chain.from_iterable(repeated), real), (made, number))
    write_corpus(corpus, pairs, directory)
    return BackTranslated(
        directory, real, number - made.untranslated, made.untranslated
    )


class _Made:
    """Pairs whose sources are made; it counts the lines that have none."""

    def __init__(self, said: Iterable[tuple[str, str]], tag: str):
        self.said, self.tag, self.untranslated = said, tag, 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for line, translation in self.said:
            if translation.strip():
                yield f"{token(self.tag)} {translation}", line
            else:
                self.untranslated += 1


def evenly(*parts: tuple[Iterable[tuple[str, str]], int]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of several parts, each spread over the whole.

    A training shuffles pairs that are near each other only, if there are many.

    Args:
        *parts: Pairs and their number, or the most that there may be.

    Example:
        >>> from keras_luong.runs.backtranslation import evenly
        >>> list(evenly((["a", "b"], 2), ([1, 2, 3, 4], 4)))
        [1, 'a', 2, 3, 'b', 4]
    """

    def placed(pairs, number):
        return (((i + 0.5) / number, pair) for i, pair in enumerate(pairs))

    merged = heapq.merge(*(placed(*part) for part in parts), key=itemgetter(0))
    return map(itemgetter(1), merged)


def check_reverse(run_dir: str | Path, corpus: Corpus) -> None:
    """Refuses a run of the wrong direction.

    Args:
        run_dir: A run, to translate targets of the corpus into sources.
        corpus: The corpus.

    Raises:
        ValueError: If the run is of other languages, or of the corpus's own direction.
    """
    settings = read_record(run_dir)["settings"]
    languages = [settings.get(side) for side in ("source", "target")]
    needed = [corpus.target_language, corpus.source_language]
    known = [fold(str(x or y)) for x, y in zip(languages, needed, strict=True)]
    if known != [fold(x) for x in needed]:
        raise ValueError(
            f"A run is needed that translates {needed[0]} into {needed[1]}, as "
            f"{corpus.name} is for {needed[1]} into {needed[0]}. Received: {run_dir}, "
            f"which translates {languages[0]} into {languages[1]}"
        )
