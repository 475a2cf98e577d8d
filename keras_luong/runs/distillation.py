"""Distillation: a corpus that also has what a teacher makes of its sources.

Sequence-level knowledge distillation (Kim & Rush 2016, arXiv:1606.07947, section 3.2)
teaches a student the best translations of a teacher's beam search. They are more
regular than people's, and easier to learn; beside the references, which stay in the
corpus, they are a second way to say each sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_luong.progress import Progress
from keras_luong.runs.translated_corpus import (
    Again,
    check_new,
    texts_of,
    with_translations,
    write_corpus,
)
from keras_luong.text.corpus import Corpus, count
from keras_luong.text.tags import tagged_line
from keras_luong.translation.translator import Translator


def write_distilled(
    corpus: Corpus,
    teacher: Translator,
    directory: str | Path,
    progress: bool = False,
    tag: str | None = None,
) -> Path:
    """Writes a corpus whose training split has every source twice.

    Once with its reference, and then with the teacher's translation of it. The other
    splits are written as they are, but line ends within a sentence become spaces. It
    takes bounded memory, and the directory appears when it is complete; what a killed
    process had begun is removed and begun anew.

    Args:
        corpus: What to learn from; its training split is translated.
        teacher: What translates it: best an `Ensemble` of models trained on it.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...
        progress: Whether to show progress on standard error.
        tag: Name of a tag that the teacher is to read in front of the sources, which
            are written without it.

    Returns:
        The directory.

    Raises:
        FileExistsError: If there is something of that name.
        ValueError: If the corpus has no split to train on, or its files are damaged.

    Example:
        >>> from keras_luong.runs.distillation import write_distilled
        >>> from keras_luong.text import load_corpus
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> write_distilled(corpus, kl.load("runs/mine"), "distilled")
        PosixPath('distilled')
        >>> from keras_luong.files import count_lines
        >>> count_lines("distilled/train.de")  # two translations of three sentences
        6
    """
    directory = check_new(directory)
    train = corpus.pairs("train")
    bar = Progress(count(train), "text") if progress else None
    pairs = Again(lambda: texts_of(train))
    write_corpus(corpus, twice(pairs, teacher, bar, tag), directory)
    return directory


def twice(
    pairs: Iterable[tuple[str, str]],
    teacher: Translator,
    bar: Progress | None = None,
    tag: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields each pair, and then its source with the teacher's translation.

    Args:
        pairs: Sources and references, in any number.
        teacher: What translates the sources.
        bar: Counts the pairs.
        tag: Name of a tag that the teacher reads in front of the sources.

    Yields:
        Sources and targets, two for each pair.
    """

    def read(pair: tuple[str, str]) -> str:
        return pair[0] if tag is None else tagged_line(pair[0].encode(), tag).decode()

    for pair, translation in with_translations(pairs, read, teacher, bar):
        yield pair
        yield pair[0], translation
