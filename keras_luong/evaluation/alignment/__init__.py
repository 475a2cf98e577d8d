"""Word alignments: from attention, merged to words, scored, read and written."""

from keras_luong.evaluation.alignment.files import (
    Alignment,
    Alignments,
    format_pharaoh,
    parse_pharaoh,
    read_pharaoh,
    read_wa,
)
from keras_luong.evaluation.alignment.links import (
    AlignmentScore,
    Link,
    aer,
    hard_alignment,
)
from keras_luong.evaluation.alignment.words import (
    Word,
    merge_links,
    merge_weights,
    replace_unknowns,
    word_indices,
    words_of,
)

__all__ = [
    "Alignment",
    "AlignmentScore",
    "Alignments",
    "Link",
    "Word",
    "aer",
    "format_pharaoh",
    "hard_alignment",
    "merge_links",
    "merge_weights",
    "parse_pharaoh",
    "read_pharaoh",
    "read_wa",
    "replace_unknowns",
    "word_indices",
    "words_of",
]
