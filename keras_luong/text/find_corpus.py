"""Corpora by name: the embedded one, text files, or tensorflow-datasets.

A corpus has splits ("train", "validation", "test", ...) and streams the pairs of
sentences of each in a fixed order.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from keras_luong.config.named_paths import EMBEDDED
from keras_luong.text.corpus import Corpus
from keras_luong.text.file_names import File
from keras_luong.text.held_out import with_validation
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.text_files import TextFiles
from keras_luong.text.tfds_corpus import TfdsCorpus, UnknownDataset


def load_corpus(
    data: str | Path | Mapping[str, tuple[str | Path, str | Path]],
    source_language: str | None = None,
    target_language: str | None = None,
    data_dir: str | Path | None = None,
) -> Corpus:
    """Loads a corpus by its name or files.

    One that can be trained on and has no validation split gets one that is held out of
    its training split: see `keras_luong.text.held_out`.

    Args:
        data: "phrases" (the embedded corpus, English to German); a directory of text
            files (see `TextFiles.from_directory`); one file of tab-separated columns; a
            dict of a source and a target file for each split; or a name in
            tensorflow-datasets.
        source_language: The language to translate from, such as "en". One of the two
            may be left out where files have no others.
        target_language: The language to translate into.
        data_dir: Where tensorflow-datasets keeps its data.

    Returns:
        The corpus.

    Raises:
        ValueError: If `data` is none of these, or lacks one of the languages.
        FileNotFoundError: If a file is missing.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> load_corpus("my/corpus", "en", "de").splits
        ('train', 'validation', 'test')
    """
    corpus = _named(data, source_language, target_language, data_dir)
    return with_validation(corpus)


def _named(
    data: str | Path | Mapping[str, tuple[str | Path, str | Path]],
    source: str | None,
    target: str | None,
    data_dir: str | Path | None,
) -> Corpus:
    if not isinstance(data, Mapping):
        if str(data) == EMBEDDED:
            return PhraseCorpus(source or "en", target or "de")
        if Path(data).is_dir():
            return TextFiles.from_directory(data, source, target)
        if Path(data).is_file():
            return TextFiles.from_table(data, source, target)
    if source is None or target is None:
        here = "" if isinstance(data, Mapping) else f", and no file{_like(Path(data))}"
        raise ValueError(
            f"{str(data)!r} is no folder{here}; any other corpus needs both languages. "
            f"Received: {source!r} and {target!r}."
        )
    if isinstance(data, Mapping):
        return TextFiles(data, source, target)
    try:
        return TfdsCorpus(str(data), source, target, data_dir)
    except UnknownDataset as error:
        raise ValueError(
            f"Found no corpus {str(data)!r}. Tried: the embedded corpus (it is called "
            f"'phrases'); a directory or a file (there is none{_like(Path(data))}); "
            f"tensorflow-datasets ({error})"
        ) from error


def _like(missing: Path) -> str:
    """A question whether something beside what is missing was meant, if any."""
    beside = missing.parent
    names = [x.name for x in beside.glob("*") if x.is_dir() or File(x).is_table]
    close = difflib.get_close_matches(missing.name, names, 1)
    return f"; did you mean {str(beside / close[0])!r}?" if close else ""


load = load_corpus  # its name in `keras_luong.text.corpora`
