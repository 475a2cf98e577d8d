"""Distillation: a corpus that also has what a teacher makes of its sources.

Sequence-level knowledge distillation (Kim & Rush 2016, arXiv:1606.07947, section 3.2)
teaches a student the best translations of a teacher's beam search. They are more
regular than people's, and easier to learn; beside the references, which stay in the
corpus, they are a second way to say each sentence.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf

from keras_luong.files import remove, saved_directory_beside
from keras_luong.progress import Progress
from keras_luong.text.corpus import Corpus, count
from keras_luong.translation.translator import Translator

_AT_ONCE = 64  # sentences that are translated in a batch


def write_distilled(
    corpus: Corpus,
    teacher: Translator,
    directory: str | Path,
    progress: bool = False,
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
    directory = Path(directory)
    if directory.exists() or directory.is_symlink():
        raise FileExistsError(f"{directory} exists; give the name of a new directory")
    train = corpus.pairs("train")
    # Damaged files of the other splits are found out before anything is translated.
    others = {split: corpus.pairs(split) for split in corpus.splits if split != "train"}
    bar = Progress(count(train), "text") if progress else None
    for leftover in directory.parent.glob(f".[0-9]*.{glob.escape(directory.name)}"):
        remove(leftover)
    with saved_directory_beside(directory) as beside:
        _write(corpus, "train", twice(_texts(train), teacher, bar), beside)
        for split, pairs in others.items():
            _write(corpus, split, _texts(pairs), beside)
    return directory


def twice(
    pairs: Iterable[tuple[str, str]],
    teacher: Translator,
    bar: Progress | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields each pair, and then its source with the teacher's translation.

    Args:
        pairs: Sources and references, in any number.
        teacher: What translates the sources.
        bar: Counts the pairs.

    Yields:
        Sources and targets, two for each pair.
    """
    pairs, ahead = itertools.tee(pairs)
    translations = teacher.stream((source for source, _ in ahead), _AT_ONCE)
    for (source, reference), translation in zip(pairs, translations, strict=True):
        yield source, reference
        yield source, translation.text
        if bar is not None:
            bar.add(1)


def _texts(pairs: tf.data.Dataset) -> Iterator[tuple[str, str]]:
    for pair in pairs.as_numpy_iterator():
        yield pair["source"].decode(), pair["target"].decode()


def _write(
    corpus: Corpus, split: str, pairs: Iterable[tuple[str, str]], directory: Path
) -> None:
    source, target = (
        directory / f"{split}.{language}"
        for language in (corpus.source_language, corpus.target_language)
    )
    with (
        source.open("w", encoding="utf-8", newline="\n") as sources,
        target.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for one, other in pairs:
            print(_one_line(one), file=sources)
            print(_one_line(other), file=targets)


def _one_line(text: str) -> str:
    return re.sub(r"[\r\n]+", " ", text)
