"""What one must know of a corpus before a training: found by reading it once.

`survey` reads every split once, in memory that hardly grows with it: 24 bytes a pair
for hashes, and a sample of 30,000 pairs. What is asked of the text later is asked of
the `Survey`: how much text there is, its digest, which pairs to hold out, which
sentences are both learned from and judged by, its tags and its faults.

Shapes: N pairs.
"""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.config.auto import CorpusFacts
from keras_luong.text.corpus import (
    Corpus,
    Fingerprint,
    PairDigest,
    blocks_of,
    fingerprint,
    read_blocks,
)
from keras_luong.text.faults import REPEAT, FaultCount, FaultCounter
from keras_luong.text.hashes import HashReader, Sample, TextHashes
from keras_luong.text.held_out import HeldOut
from keras_luong.text.tags import remove_tag, tag_of

_PAIRS_FOR_CHARACTERS = 100_000  # a language's characters are all seen by then
_MOST_BYTES = 4096  # longer lines count as this long: they are not trained on
_MOST_COMPRESSED = 16 << 20  # bytes of text; of more, the rest is as dense
#: What a training looks at: of so many pairs lengths, languages and alignments.
JUDGED = {"train": 3000, "validation": 1000}
_MOST_TAGS = 10_000  # different ones: more are no tags


class Overlap(NamedTuple):
    """How many of a split's pairs are in others too; blank sentences don't count.

    Attributes:
        size: The number of the split's pairs.
        pairs: Those of which the very pair is trained on.
        sources: Those of which the source is, whatever its translation.
        validated: Those of which the very pair is in the validation split, of another
            split.
    """

    size: int
    pairs: int
    sources: int
    validated: int = 0


class SplitSurvey(NamedTuple):
    """What was seen of a split.

    Attributes:
        fingerprint: The size and a digest of its text.
        hashes: Of its sentences.
        sample: Some of its pairs, of different hashes.
        tags: What its sources begin with, as `<news>` → their number.
        facts: How much text it is; of the training split alone, else None.
        faults: What is wrong with its pairs, if that was asked for.
    """

    fingerprint: Fingerprint
    hashes: TextHashes
    sample: Sample
    tags: Mapping[str, int]
    facts: CorpusFacts | None
    faults: Mapping[str, FaultCount]


class Survey(NamedTuple):
    """What reading a corpus once has found.

    Attributes:
        splits: Split → its `SplitSurvey`.
        whole: The fingerprint of the text from which validation pairs are held out, if
            they are.
    """

    splits: Mapping[str, SplitSurvey]
    whole: Fingerprint | None

    @property
    def texts(self) -> dict[str, dict[str, Any]]:
        """What a run's record has to say of its text: split → size and digest."""
        names = ("train", "validation")
        texts = {x: self.splits[x].fingerprint._asdict() for x in names}
        if self.whole:
            texts["train"]["whole"] = self.whole._asdict()
        return texts

    def overlaps(self, learned: Iterable[tf.data.Dataset] = ()) -> dict[str, Overlap]:
        """Counts what of each other split is trained on, word by word, tags aside.

        Args:
            learned: More pairs that count as trained on, as those of a run that
                training starts from. They are read.

        Returns:
            Split → its `Overlap`; none if there is no training split.
        """
        if "train" not in self.splits:
            return {}
        read = (HashReader(kept=1).read_all(blocks_of(pairs)) for pairs in learned)
        train = [self.splits["train"].hashes, *(x.hashes for x in read)]
        pairs = np.concatenate([text.pairs for text in train])
        sources = np.concatenate([text.source for text in train])
        others = {name: x.hashes for name, x in self.splits.items() if name != "train"}
        overlap = {}
        for split, other in others.items():
            full = other.pairs[other.full]
            judged = full[:0]
            if split != "validation" and "validation" in others:
                judged = others["validation"].pairs
            overlap[split] = Overlap(
                len(other.source),
                int(np.isin(full, pairs).sum()),
                int(np.isin(other.source[other.source > 0], sources).sum()),
                int(np.isin(full, judged).sum()),
            )
        return overlap


def survey(
    corpus: Corpus,
    limit: int | None = None,
    coverage: float = 0.9999,
    judged: Mapping[str, int] = JUDGED,
) -> Survey:
    """Reads a corpus, each split once.

    Validation pairs that are held out are chosen by the way.

    Args:
        corpus: A corpus with a training and a validation split.
        limit: Number of pairs to train on, the first ones; None for all.
        coverage: Share of the text that `CorpusFacts.characters` must cover.
        judged: Splits to look for faults in → of how many pairs lengths, languages and
            alignments are judged, which takes about 1 ms each.

    Returns:
        The `Survey`.

    Raises:
        ValueError, OSError: As the corpus itself raises them.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.survey import survey
        >>> found = survey(load_corpus("my/corpus", "en", "de"))
        >>> found.splits["train"].facts.pairs, found.overlaps()["test"]
        (3, Overlap(size=1, pairs=0, sources=0, validated=0))
    """
    splits = {}
    for split in corpus.splits:
        if split == "train":
            options: dict[str, Any] = {"limit": limit, "coverage": coverage}
        else:
            options = {}
        looked_at = judged.get(split, 0)
        splits[split] = _read_split(corpus, split, judged=looked_at, **options)
    whole = fingerprint(corpus.whole, "train") if isinstance(corpus, HeldOut) else None
    return Survey(splits, whole)


def _read_split(
    corpus: Corpus,
    split: str,
    limit: int | None = None,
    coverage: float | None = None,
    judged: int = 0,
) -> SplitSurvey:
    """Reads a split; with a coverage, measures it as text to train on."""
    held_out = corpus if isinstance(corpus, HeldOut) and split == "train" else None
    hashes, digest, tags = HashReader(), PairDigest(limit), Counter[str]()
    faults = FaultCounter(corpus.source_language, corpus.target_language)
    measured, rest = _FactsReader(), limit
    # 1. Block by block. Only the first pairs count; but of all text others are held
    # out, and all files are checked to their end.
    for block in read_blocks(held_out.whole if held_out else corpus, split):
        first = [side[:rest] for side in block]
        numbers = hashes.read(*(block if held_out else first)).of(slice(rest))
        rest = rest and rest - len(first[0])
        encoded = [[x.encode(errors="replace") for x in side] for side in first]
        digest.update(*encoded)
        if len(tags) < _MOST_TAGS:
            tags.update(tag for x in first[0] if x[:1] == "<" and (tag := tag_of(x)))
        if coverage:
            measured.read(encoded[0], encoded[1], numbers)
        if judged:
            faults.read([*map(remove_tag, first[0])], first[1])
    # 2. What is left of it if some is held out.
    found, sample = hashes.hashes, hashes.sample
    if held_out:
        held_out.part(found, sample)
        left = np.flatnonzero(held_out.parted.train)[:limit]
        is_left = np.isin(sample.places, left)
        found, sample = found.of(left), sample.of(np.flatnonzero(is_left))
    # 3. What is wrong with that.
    different, counts = found.different, dict[str, FaultCount]()
    if judged:
        some = sample.thinned(judged)
        counts = faults.counts(some._replace(sources=[*map(remove_tag, some.sources)]))
        again = int(found.full.sum()) - different
        counts[REPEAT] = FaultCount(again, len(found.full), None)
    known = corpus.fingerprint(split, limit) if hasattr(corpus, "fingerprint") else None
    known = known or digest.fingerprint
    facts = measured.facts(different, coverage) if coverage else None
    return SplitSurvey(known, found, sample, tags, facts, counts)


class _FactsReader:
    """Adds up `CorpusFacts`. A pair that is there again adds nothing to the content."""

    def __init__(self) -> None:
        self._lengths = np.zeros(_MOST_BYTES + 1, np.int64)  # how many pairs have each
        self._characters = Counter[str]()
        self._compressor = bz2.BZ2Compressor()
        self._beside = ThreadPoolExecutor(1)  # it compresses while others read
        self._compressed = list[Future[bytes]]()
        self._bytes = 0  # of the targets that are compressed
        self._seen: set[int] = set()  # numbers of their pairs

    def read(
        self, sources: Sequence[bytes], targets: Sequence[bytes], hashes: TextHashes
    ) -> None:
        """Takes the next pairs."""
        longest = np.maximum([*map(len, sources)], [*map(len, targets)])
        longest = np.minimum(longest, _MOST_BYTES).astype(np.int64)
        if self._lengths.sum() < _PAIRS_FOR_CHARACTERS:
            for side in (sources, targets):
                self._characters.update(b"".join(side).decode(errors="replace"))
        self._lengths += np.bincount(longest, minlength=_MOST_BYTES + 1)
        if self._bytes < _MOST_COMPRESSED:
            numbers = zip(hashes.pairs.tolist(), hashes.full, targets, strict=True)
            new = {x: text for x, full, text in numbers if full and x not in self._seen}
            self._seen.update(new)
            text = b"".join(text[:_MOST_BYTES] + b"\n" for text in new.values())
            self._bytes += len(text)
            self._compressed.append(
                self._beside.submit(self._compressor.compress, text)
            )

    def facts(self, pairs: int, coverage: float) -> CorpusFacts:
        """Returns the facts of a text with so many different pairs."""
        self._compressed.append(self._beside.submit(self._compressor.flush))
        compressed = sum(len(part.result()) for part in self._compressed)
        counts = np.array(sorted(self._characters.values(), reverse=True), np.int64)
        # The fewest characters, the most frequent, that cover so much of the text.
        covering = int(np.searchsorted(np.cumsum(counts), coverage * counts.sum())) + 1
        total = np.cumsum(self._lengths)
        return CorpusFacts(
            pairs=pairs,
            content=compressed * pairs // max(len(self._seen), 1),
            long_line=int(np.searchsorted(total, 0.995 * total[-1])),
            characters=covering if counts.size else 0,
        )
