"""Files that hold sentences and are no text files: what to do with them."""

from __future__ import annotations

from pathlib import Path

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
        >>> from keras_luong.text.other_formats import advice
        >>> advice(Path("corpus.zip"))
        'unpack it, and give the folder or the .tsv file that comes out'
        >>> advice(Path("train.tsv.gz"))
    """
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ADVICE.get(ending[1:])
