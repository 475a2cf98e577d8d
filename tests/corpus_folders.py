"""Folders of files by given names, and what is read of them."""

from __future__ import annotations

import gzip

from keras_luong.text.corpus_files import TextFiles


def fill(folder, names, lines=("1", "2")):
    for name in names.split(","):
        path = folder / name.strip()
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def found(folder, *languages):
    """Split → the names of its files."""
    corpus = TextFiles.from_directory(folder, *languages)
    return {
        split: " ".join(str(path.relative_to(folder)) for path in files.paths)
        for split, files in corpus.files.items()
    }
