"""What is wrong with pairs of sentences: found pair by pair, counted over a corpus.

`FAULTS` lists what can be wrong. A `FaultFinder` marks the pairs of a block that have
each fault, and is what a survey counts with and what `clean` drops by. Pairs that
repeat others are found by `keras_luong.text.cleaning`, as that needs the whole corpus.

Shapes: N pairs of a block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from keras_luong.text.hashes import Sample
from keras_luong.text.language_guess import plain_words, stray_language
from keras_luong.text.misalignment import UNSPACED, Alignment, learn_alignment

Lines = Sequence[str]


class Fault(NamedTuple):
    """What can be wrong with a pair.

    Attributes:
        text: What is said of such pairs, behind their number.
        advice: What to do about them.
        share: The share of pairs from which it is worth saying, from 0 to 1.
        is_sampled: Whether a survey looks for it in a sample alone, as that takes long.
    """

    text: str
    advice: str
    share: float
    is_sampled: bool = False


_CLEAN = "keras-luong check --write drops them"
#: Name → fault, in the order in which pairs are dropped: a pair counts by its first.
FAULTS: Mapping[str, Fault] = {
    "empty": Fault("have an empty side", "training leaves them out", 0.01),
    "mojibake": Fault(
        "were decoded wrongly, as Ã¼ for ü",
        "read the original text as UTF-8; keras-luong check --write mends most",
        0.001,
    ),
    "control": Fault(
        "hold control characters, or the sign of lost ones (U+FFFD)",
        "look how the text was read and converted; or drop them",
        0.001,
    ),
    "markup": Fault(
        "hold HTML tags or entities, such as &amp;",
        "extract the text with a parser of HTML; keras-luong check --write drops pairs "
        "with tags and mends entities",
        0.005,
    ),
    "address": Fault("hold an address of the web or of e-mail", _CLEAN, 0.01),
    "copy": Fault("have the same sentence on both sides", _CLEAN, 0.01),
    "length": Fault(
        "have a side that is much too short", _CLEAN, 0.005, is_sampled=True
    ),
    "language": Fault("have a side in another language", _CLEAN, 0.02, is_sampled=True),
    "misaligned": Fault(
        "seem misaligned: their sides do not translate each other",
        "look whether line n of one file translates line n of the other; "
        "keras-luong check --write drops those that surely are",
        0.03,
        is_sampled=True,
    ),
}


#: What can be told of a pair by itself: a wrong length may come of a wrong alignment.
_OTHERS = FAULTS.keys() - {"length", "misaligned"}

REPEAT = "repeat"
#: Of pairs that are there more than once; who reads the whole corpus counts them.
REPEATS = Fault("repeat another one", _CLEAN, 0.1)

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufffd-\uffff]")
#: Two letters or signs beyond ASCII of which one is no small letter; or a telling one.
_MAYBE_MOJIBAKE = re.compile(
    "[^\x00-\x7f][\x80-\xde\u02b0-\u02ff\u2000-\u2bff]"
    "|[\x80-\x9fÂÃ\u02b0-\u02ff\u2000-\u2bff][^\x00-\x7f]|[\x80-\x9fÂÃŒœ]|вЂ"
)
#: HTML's elements; `<news>` in front of a source is a tag of a domain.
_ELEMENTS = (
    "a abbr b blockquote body br center code div em font h[1-6] head hr html i img "
    "input li link ol option p pre q s script select small span strike strong style "
    "sub sup table tbody td th thead title tr tt u ul video"
).replace(" ", "|")
_MARKUP = re.compile(
    rf"<(?:{_ELEMENTS})(?:\s+[\w-]+\s*=[^<>]*|\s*)/?>|</[a-z][\w-]*\s*>|<!--"
    r"|&(?:[a-z]{2,8}|#[0-9]{1,7}|#x[0-9a-f]{1,6});",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\bhttps?://\w|\bwww\.\w|\w@\w[\w.-]*\.[a-z]{2}", re.IGNORECASE)
_UNSPACED = re.compile(f"[{UNSPACED}]")
#: The same text on both sides is a sentence if its small words have so many letters, or
#: if so many letters have no spaces between words.
_FEWEST_LETTERS, _FEWEST_UNSPACED = 6, 8

_FEWEST_NEAR = 10  # pairs: fewer are near each other by chance
_LENGTH_OFFSET = 20  # characters that each side counts more: short ones differ more
_LEAST_RATIO = math.log(1.65)  # of lengths; of 190,000 clean pairs 0.07% are beyond
_SPREADS = 4.0  # and so many times the usual deviation


class FaultFinder(NamedTuple):
    """Finds what is wrong with pairs of a corpus; `learn_faults` makes it.

    Attributes:
        languages: The codes of the languages that sources and targets should be in.
        scale: How many characters a target has for each of its source, usually.
        ratio: The natural logarithm of the largest ratio of lengths that is right.
        alignment: What misaligned pairs look like, and their share of the sample; None
            if that is not known.
    """

    languages: tuple[str, str]
    scale: float
    ratio: float
    alignment: Alignment | None

    def find(
        self, sources: Lines, targets: Lines, names: Iterable[str] = tuple(FAULTS)
    ) -> dict[str, np.ndarray]:
        """Marks the pairs that have faults.

        Args:
            sources: N sentences.
            targets: Their translations.
            names: Which of `FAULTS` to look for; all by default.

        Returns:
            Name → bool [N], in the order of `FAULTS`.

        Example:
            >>> from keras_luong.text.faults import learn_faults
            >>> sources, targets = ["a dog", "a &quot;cat&quot;"], ["ein Hund", ""]
            >>> finder = learn_faults(sources, targets, "en", "de")
            >>> found = finder.find(sources, targets, ["empty", "markup"])
            >>> found["empty"].tolist(), found["markup"].tolist()
            ([False, True], [False, True])
        """
        wanted, found = {*names}, {}
        for name in FAULTS:
            if name in wanted:
                found[name] = np.zeros(len(sources), bool)
                found[name][self._rows(name, sources, targets)] = True
        return found

    def _rows(self, name: str, sources: Lines, targets: Lines) -> list[int]:
        """Which pairs have a fault."""
        sides = sources, targets
        if name in _OF_LINES:
            return [row for lines in sides for row in _OF_LINES[name](lines)]
        if name == "copy":
            pairs = enumerate(zip(*sides, strict=True))
            return [row for row, pair in pairs if _is_copy(*pair)]
        if name == "length":
            is_off = np.abs(_log_ratios(*sides, self.scale)) > self.ratio
            return np.flatnonzero(is_off).tolist()
        if name == "language":
            pairs = enumerate(zip(*sides, strict=True))
            return [row for row, pair in pairs if self._is_other_language(pair)]
        if self.alignment is None:
            return []
        return np.flatnonzero(self.alignment.misaligned(*sides)).tolist()

    def _is_other_language(self, pair: tuple[str, str]) -> bool:
        if _is_copy(*pair):  # which is told, and kept or dropped, as such
            return False
        sides = zip(pair, self.languages, strict=True)
        return any(stray_language(*side) is not None for side in sides)


def learn_faults(
    sources: Lines, targets: Lines, source_language: str, target_language: str
) -> FaultFinder:
    """Learns from a sample what the right pairs of a corpus are like.

    Args:
        sources: Sentences from all over the corpus; some thousands tell how many pairs
            are misaligned, 30,000 which.
        targets: Their translations.
        source_language: The code of the language that sources should be in.
        target_language: The same of the targets.

    Returns:
        The `FaultFinder`.

    Example:
        >>> from keras_luong.text import PhraseCorpus
        >>> from keras_luong.text.faults import learn_faults
        >>> sources, targets, _ = zip(*PhraseCorpus(train=1000).examples("train"))
        >>> finder = learn_faults(sources, targets, "en", "de")
        >>> found = finder.find(["The dog saw the cat in the garden."], ["Der Hund."])
        >>> [name for name, marks in found.items() if marks.any()]
        ['length']
    """
    # 1. Misaligned are pairs that nothing is wrong with by themselves.
    finder = FaultFinder((source_language, target_language), 1.0, np.inf, None)
    right = ~np.any([*finder.find(sources, targets, _OTHERS).values()], axis=0)
    x, y = list(compress(sources, right)), list(compress(targets, right))
    alignment = learn_alignment(x, y)
    # 2. Lengths are learned from what is left.
    if alignment is not None:
        is_right = ~alignment.misaligned(x, y)
        x, y = list(compress(x, is_right)), list(compress(y, is_right))
        share = alignment.share * float(right.mean())
        alignment = alignment._replace(share=share)
    scale, ratio = 1.0, _LEAST_RATIO
    if x:
        scale = float(np.exp(np.median(_log_ratios(x, y, 1.0, offset=1))))
        deviation = float(np.median(np.abs(_log_ratios(x, y, scale)))) / 0.6745
        ratio = max(ratio, _SPREADS * deviation)
    return FaultFinder(finder.languages, scale, ratio, alignment)


class FaultCount(NamedTuple):
    """How many pairs have a fault.

    Attributes:
        pairs: Their number.
        of: Of how many pairs; less than the corpus has if only a sample was judged, and
            0 if that was too small to tell.
        line: The number of the first one, from 1; None if it is not known.
        most: The numbers of the first and the last of most of them, if these are near
            each other; else None.
    """

    pairs: int
    of: int
    line: int | None
    most: tuple[int, int] | None = None

    @property
    def share(self) -> float:
        """The share of pairs that have it, from 0 to 1."""
        return self.pairs / max(1, self.of)


class FaultCounter:
    """Counts what is wrong with a corpus, as it is read.

    Args:
        source_language: The code of the language that sources should be in.
        target_language: The same of the targets.

    Example:
        >>> from keras_luong.text.faults import FaultCounter
        >>> from keras_luong.text.hashes import Sample
        >>> counter = FaultCounter("en", "de")
        >>> pairs = ["a dog", "see &amp;"], ["ein Hund", "siehe &amp;"]
        >>> counter.read(*pairs)
        >>> counter.counts(Sample(np.arange(2), *pairs))["markup"]
        FaultCount(pairs=1, of=2, line=2, most=None)
    """

    def __init__(self, source_language: str, target_language: str) -> None:
        self._languages = source_language, target_language
        self._counts = {name: FaultCount(0, 0, None) for name in FAULTS}
        self._quick = FaultFinder(self._languages, 1.0, 0.0, None)
        self._read = 0

    def read(self, sources: Lines, targets: Lines) -> None:
        """Takes the next pairs of the corpus."""
        places = range(self._read, self._read + len(sources))
        quick = [name for name, fault in FAULTS.items() if not fault.is_sampled]
        for name, marks in self._quick.find(sources, targets, quick).items():
            self._add(name, marks, places)
        self._read += len(sources)

    def counts(self, sample: Sample) -> dict[str, FaultCount]:
        """Returns what was counted of all pairs, and of some.

        Args:
            sample: Some of the pairs, of which lengths, languages and alignments are
                judged: 3,000 are enough.

        Returns:
            Name → its `FaultCount`, in the order of `FAULTS`. The number of misaligned
            pairs is estimated, without a line where it is not known which.
        """
        sides = sample.sources, sample.targets
        finder = learn_faults(*sides, *self._languages)
        found = finder.find(*sides)
        for name in _OTHERS:  # what is wrong by itself is not called misaligned too
            found["misaligned"] &= ~found[name]
        for name, fault in FAULTS.items():
            if fault.is_sampled:
                self._counts[name] = FaultCount(0, 0, None)
                self._add(name, found[name], sample.places)
        misaligned = FaultCount(0, 0, None)
        if finder.alignment is not None:
            estimate = round(finder.alignment.share * len(sample.places))
            misaligned = self._counts["misaligned"]._replace(
                pairs=estimate, most=_near(sample.places, found["misaligned"])
            )
        return {**self._counts, "misaligned": misaligned}

    def _add(
        self, name: str, marks: np.ndarray, places: Sequence[int] | np.ndarray
    ) -> None:
        pairs, of, line, _ = self._counts[name]
        rows = np.flatnonzero(marks)
        first = int(places[rows[0]]) + 1 if len(rows) else None
        counted = FaultCount(pairs + len(rows), of + len(marks), line or first)
        self._counts[name] = counted


def fault_notes(
    counts: Mapping[str, FaultCount],
    split: str = "train",
    unit: str = "line",
    all_of_them: bool = False,
) -> Iterator[str]:
    """Yields a sentence on each fault that is worth knowing, the worst first.

    The worst is furthest above the share from which it is worth saying.

    Args:
        counts: As of `FaultCounter.counts`; "repeat" may be there too.
        split: The split. What to do about a fault is said of "train".
        unit: What the numbers of pairs are of: "line", or "pair" where they are no
            lines of a file.
        all_of_them: Whether each fault that any pair has is worth knowing.

    Example:
        >>> from keras_luong.text.faults import FaultCount, fault_notes
        >>> list(fault_notes({"empty": FaultCount(pairs=3, of=40, line=2)}))
        ['3 of 40 pairs (7.5%) have an empty side, as line 2: training leaves them out']
    """
    faults = {**FAULTS, REPEAT: REPEATS}
    worst = sorted(counts, key=lambda x: -counts[x].share / faults[x].share)
    for name in worst:
        count, fault = counts[name], faults[name]
        if count.pairs and (all_of_them or count.share >= fault.share):
            share = f"{count.share:.0%}" if count.share > 0.1 else ""
            share = share or f"{100 * count.share:.2g}%"
            number = f"{count.pairs:,} of {count.of:,} pairs ({share})"
            number = f"about {number}" if name == "misaligned" else number
            where = f", as {unit} {count.line:,}" if count.line else ""
            if count.most:
                where = f", mostly {unit}s {count.most[0]:,} to {count.most[1]:,}"
            sample = " that were looked at" if fault.is_sampled else ""
            advice = (
                fault.advice if split == "train" else f"the {split} results count them"
            )
            yield f"{number}{sample} {fault.text}{where}: {advice}"


def _near(places: np.ndarray, marks: np.ndarray) -> tuple[int, int] | None:
    """Where four fifths of the marked places are, if on less than a third of all."""
    some = places[marks]
    number = math.ceil(0.8 * len(some))
    if number < _FEWEST_NEAR:
        return None
    spans = some[number - 1 :] - some[: len(some) - number + 1]
    first = int(np.argmin(spans))
    if 3 * spans[first] > places[-1] + 1:
        return None
    return int(some[first]) + 1, int(some[first + number - 1]) + 1


def _empty(lines: Lines) -> list[int]:
    return [row for row, x in enumerate(lines) if not x or x.isspace()]


def _mojibake(lines: Lines) -> list[int]:
    from ftfy.badness import is_bad  # which takes 30 µs

    some = ((i, x) for i, x in enumerate(lines) if not x.isascii())
    return [row for row, x in some if _MAYBE_MOJIBAKE.search(x) and is_bad(x)]


def _control(lines: Lines) -> list[int]:
    # Most lines are printable; of the others many hold no-break spaces or tabs.
    some = ((i, x) for i, x in enumerate(lines) if "\ufffd" in x or not x.isprintable())
    return [row for row, x in some if _CONTROL.search(x)]


def _markup(lines: Lines) -> list[int]:
    some = ((i, x) for i, x in enumerate(lines) if "<" in x or "&" in x)
    return [row for row, x in some if _MARKUP.search(x)]


def _address(lines: Lines) -> list[int]:
    some = (  # most lines have none of these, which is quicker to see
        (i, x)
        for i, x in enumerate(lines)
        if "@" in x or "://" in x or "www." in x or "WWW." in x
    )
    return [row for row, x in some if _ADDRESS.search(x)]


#: Faults of a line: name → the rows of the lines that have it.
_OF_LINES: Mapping[str, Callable[[Lines], list[int]]] = {
    "empty": _empty,
    "mojibake": _mojibake,
    "control": _control,
    "markup": _markup,
    "address": _address,
}


def _is_copy(source: str, target: str) -> bool:
    """Whether two lines are the same sentence: names and numbers are rightly the same.

    A sentence has several small words.
    """
    if len(source) != len(target) or source.lower() != target.lower():
        return False
    words = [word for word in plain_words(source) if len(word) > 1]
    small = [len(x) for x in words if x[0].isalpha() and not x[0].isupper()]
    is_spaced = len(small) > 1 and sum(small) >= _FEWEST_LETTERS
    return is_spaced or len(_UNSPACED.findall(source)) >= _FEWEST_UNSPACED


def _log_ratios(
    sources: Lines, targets: Lines, scale: float, offset: int = _LENGTH_OFFSET
) -> np.ndarray:
    """Logarithms of the ratios of lengths, 0 where usual: float64 [N]."""
    x = np.fromiter(map(len, sources), float) * scale
    y = np.fromiter(map(len, targets), float)
    unit = max(1.0, 1 / scale)  # an offset in characters of the language that has more
    return np.log((y * unit + offset) / (x * unit + offset))
