"""What a `.tflite` file holds beside its graph: an archive at its end.

```
keras_luong.json     what a runtime must know, and where the model comes from
source.spm           the tokenizers (.txt if they are of words)
target.spm
```

Of the metadata this is read, the keys with a default from newer files alone:

```
format               1
max_source_length    the tokens that are read of a text, without the end token
source_length        the tokens that every source is filled up to, or null
quantize             null, "float16" or "int8"
tokenizers           {"source": {"kind": "word", "file": "source.txt"}, "target": ...}
special_ids          default: {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
bytes_per_token      default: 64; the bytes that are read of a text for each token
n_best               default: all; how many of the graph's hypotheses an answer has
graph_crc32          default: not checked; of all that stands before the archive
```

Other keys are for people. Runtimes of before know the defaults alone: files with other
values must have another format, but for `n_best`, without which an answer is longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from keras_luong_edge.tokenizers import TOKENIZERS, SpecialIds, Tokenizer

METADATA = "keras_luong.json"
FORMAT = 1
BYTES_PER_TOKEN = 64  # SentencePiece makes none longer: 16 characters of 4 bytes
# What no file needs, and what exports refuse to write: numbers and sizes beyond are
# damage, or malice, that would take all memory.
MOST_BYTES_PER_TOKEN = 1 << 10
MOST_TOKENS = 1 << 16  # of a source
MOST_METADATA = 1 << 20  # bytes
MOST_VOCABULARY = 16 << 20  # bytes of a tokenizer: a million words


class Contents(NamedTuple):
    """An archive that was read.

    Attributes:
        metadata: All that the file says of itself.
        source: The source's tokenizer.
        target: The target's tokenizer.
        special: The ids that are no words.
        max_source_length: int, the tokens that are read, without the end token.
        source_length: int, what every source is filled up to, or None.
        bytes_per_token: int, the bytes that are read of a text for each token.
        n_best: int, how many of the graph's hypotheses an answer has, or None for all.
    """

    metadata: dict[str, Any]
    source: Tokenizer
    target: Tokenizer
    special: SpecialIds
    max_source_length: int
    source_length: int | None
    bytes_per_token: int
    n_best: int | None = None


def read_archive(path: str | os.PathLike[str]) -> Contents:
    """Reads what a file holds beside its graph.

    Args:
        path: What `keras_luong.export_tflite` wrote.

    Returns:
        `Contents`.

    Raises:
        OSError: If there is no such file, or it cannot be read.
        ValueError: If it is damaged, or has another format.
        ModuleNotFoundError: If a tokenizer needs sentencepiece, which is not installed.

    Example:
        >>> from keras_luong_edge.archive import read_archive
        >>> contents = read_archive("mine.tflite")
        >>> contents.max_source_length, contents.source.encode("the red dog")
        (10, [4, 5, 6])
    """
    with open(path, "rb") as file:
        with _naming(path):
            archive = zipfile.ZipFile(file)
            metadata = json.loads(_unpacked(archive, METADATA, MOST_METADATA))
            its_format = metadata["format"]
        if its_format != FORMAT:
            raise ValueError(
                f"{os.fspath(path)!r} has format {its_format!r}, written by "
                f"{metadata.get('library')}; this keras-luong-edge reads {FORMAT}."
            )
        with _naming(path):
            if "graph_crc32" in metadata:
                begin = min(x.header_offset for x in archive.infolist())
                if _crc32(file, begin) != metadata["graph_crc32"]:
                    raise ValueError("its graph is not what was written")
            return _contents(archive, metadata)


@contextlib.contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says of which file it is that something is wrong."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # there are many ways of being damaged
        reason = error.args[0] if isinstance(error, KeyError) else error
        raise ValueError(
            f"{os.fspath(path)!r} is damaged, or no file of "
            f"keras_luong.export_tflite for a translator: {reason}"
        ) from error


def _contents(archive: zipfile.ZipFile, metadata: dict[str, Any]) -> Contents:
    needed = {"max_source_length", "source_length", "quantize", "tokenizers"}
    if missing := needed - metadata.keys():
        raise ValueError(f"it does not say {', '.join(sorted(missing))}")
    most = _whole(metadata, "max_source_length", 1, MOST_TOKENS)
    length = None
    if metadata["source_length"] is not None:
        length = _whole(metadata, "source_length", most + 1, MOST_TOKENS + 1)
    special = _special_ids(metadata)
    about = {"bytes_per_token": BYTES_PER_TOKEN, **metadata}
    return Contents(
        metadata=metadata,
        source=_tokenizer(archive, metadata["tokenizers"]["source"], special),
        target=_tokenizer(archive, metadata["tokenizers"]["target"], special),
        special=special,
        max_source_length=most,
        source_length=length,
        bytes_per_token=_whole(about, "bytes_per_token", 1, MOST_BYTES_PER_TOKEN),
        n_best=_whole(metadata, "n_best", 1) if "n_best" in metadata else None,
    )


def _whole(
    about: dict[str, Any], name: str, smallest: int, largest: int | None = None
) -> int:
    """A number that the metadata give."""
    value = about.get(name)
    if type(value) is not int or value < smallest or value > (largest or value):
        raise ValueError(f"its {name} is {value!r}")
    return value


def _crc32(file: BinaryIO, size: int) -> int:
    """The CRC-32 of a file's first bytes."""
    file.seek(0)
    total = 0
    while block := file.read(min(size, 1 << 18)):
        total, size = zlib.crc32(block, total), size - len(block)
    return total


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A file of the archive, of which no more is unpacked than it may have."""
    method = archive.getinfo(name).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed by method {method}")
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} unpacks to more than {most} bytes")
    return content


def _special_ids(metadata: dict[str, Any]) -> SpecialIds:
    about = metadata.get("special_ids", SpecialIds()._asdict())
    return SpecialIds(*(_whole(about, name, 0) for name in SpecialIds._fields))


def _tokenizer(
    archive: zipfile.ZipFile, about: dict[str, Any], special: SpecialIds
) -> Tokenizer:
    if about["kind"] not in TOKENIZERS:
        raise ValueError(f"it has a tokenizer of the kind {about['kind']!r}")
    vocabulary = _unpacked(archive, about["file"], MOST_VOCABULARY)
    return TOKENIZERS[about["kind"]](vocabulary, special)
