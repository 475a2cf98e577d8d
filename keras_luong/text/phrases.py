"""The embedded corpus: English to German, generated, with gold word alignments.

Dates, times, prices, numbers and measures (from Babel's locale data and num2words) fill
the slots of nearly fifty sentence frames, whose word order differs as it does between
the two languages. A model learns the corpus in minutes, so it suits demonstrations,
tests and comparisons of attentions.

The frames and the words are in `phrases.ini`, which also explains their notation. The
tags in a frame tell which words translate each other, so they also give the alignment
of a sentence.
"""

from __future__ import annotations

import configparser
import datetime
import functools
import importlib.resources
import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.training import EMBEDDED
from keras_luong.text.corpus import check_split

LOCALES = ("en_US", "de_DE")
_SLOT = re.compile(r"\{(\w+)\}(.*)")


class Example(NamedTuple):
    """A pair of sentences with its gold alignment.

    Attributes:
        source: The English sentence.
        target: Its German translation.
        alignment: Pairs (index of a source word, index of a target word), counted from
            0; words are separated by white space. Every target word occurs.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


class PhraseCorpus:
    """The embedded corpus "phrases", English to German.

    No sentence occurs twice, in one split or in two. The test and validation sentences
    stay the same whatever the number of training sentences.

    Args:
        source_language: "en".
        target_language: "de".
        train: Number of training pairs.
        validation: Number of validation pairs.
        test: Number of test pairs.
        seed: Seed of the sentences; the same seed always gives the same corpus.

    Raises:
        ImportError: If Babel or num2words is not installed.
        TypeError: If a number is no integer.
        ValueError: If the languages are not these, or a number is below 1.

    Example:
        >>> from keras_luong.text import PhraseCorpus
        >>> corpus = PhraseCorpus(train=10, validation=1, test=1)
        >>> example = corpus.examples("test")[0]
        >>> example.source
        'The tourists bought the clock for sixty-seven euros.'
        >>> example.target
        'Die Touristen haben die Uhr für siebenundsechzig Euro gekauft.'
        >>> example.alignment
        ((0, 0), (1, 1), (2, 2), (2, 8), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7))
    """

    name = EMBEDDED

    def __init__(
        self,
        source_language: str = "en",
        target_language: str = "de",
        train: int = 20_000,
        validation: int = 500,
        test: int = 500,
        seed: int = 0,
    ):
        if (source_language, target_language) != ("en", "de"):
            raise ValueError(
                "The embedded corpus translates 'en' into 'de'. Received: "
                f"{source_language!r} into {target_language!r}."
            )
        sizes = {"test": test, "validation": validation, "train": train}
        for split, size in sizes.items():
            check_size(split, size)
        try:
            import babel  # noqa: F401
            import num2words  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "The embedded corpus needs Babel and num2words: "
                "pip install keras_luong[demo]"
            ) from error
        self.source_language = source_language
        self.target_language = target_language
        self.splits = ("train", "validation", "test")
        self._examples = _generate(sizes, seed)

    def examples(self, split: str) -> list[Example]:
        """Returns the pairs of a split with their alignments.

        Args:
            split: "train", "validation" or "test".

        Returns:
            The examples, in the same order as in `pairs`.

        Raises:
            ValueError: If there is no such split.
        """
        return list(self._examples[check_split(self, split)])

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: "train", "validation" or "test".

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`.

        Raises:
            ValueError: If there is no such split.
        """
        source, target, _ = map(list, zip(*self.examples(split), strict=True))
        return tf.data.Dataset.from_tensor_slices({"source": source, "target": target})


def _generate(sizes: Mapping[str, int], seed: int) -> dict[str, list[Example]]:
    rng = random.Random(seed)
    seen: set[str] = set()
    examples: dict[str, list[Example]] = {split: [] for split in sizes}
    for split, size in sizes.items():
        repeats = 0
        while len(examples[split]) < size:
            example = _example(*rng.choice(section("frames")), rng)
            repeats = repeats + 1 if example.source in seen else 0
            if repeats > 10_000:
                raise ValueError(
                    f"{split}={size} is too large: the frames make no more than "
                    f"{len(seen)} distinct sentences."
                )
            if not repeats:
                seen.add(example.source)
                examples[split].append(example)
    return examples


def _example(source: str, target: str, rng: random.Random) -> Example:
    names = [match[1] for match in map(_SLOT.match, source.split()) if match]
    values = {name: SLOTS[name](rng) for name in names}
    plural = "person" in values and values["person"].plural
    english = _words(source, {name: v.source for name, v in values.items()}, plural)
    german = _words(target, {name: v.target for name, v in values.items()}, plural)
    alignment = tuple(
        (i, j)
        for i, (_, tags) in enumerate(english)
        for j, (_, others) in enumerate(german)
        if tags & others
    )
    return Example(_sentence(english), _sentence(german), alignment)


def _words(
    template: str, values: Mapping[str, str], plural: bool = False, scope: str = ""
) -> list[tuple[str, frozenset[str]]]:
    """Returns the words of a template with its slots filled, each with its tags."""
    words: list[tuple[str, frozenset[str]]] = []
    for token in template.split():
        if match := _SLOT.fullmatch(token):
            words += _words(values[match[1]], {}, scope=match[1])
            last, tags = words.pop()
            words.append((last + match[2], tags))
        else:
            text, _, letters = token.partition("~")
            forms = text.split("/")
            tags = frozenset(scope + letter for letter in letters)
            words.append((forms[-1] if plural else forms[0], tags))
    return words


def _sentence(words: list[tuple[str, frozenset[str]]]) -> str:
    text = " ".join(word for word, _ in words)
    end = "" if text.endswith("?") else "."
    return text[0].upper() + text[1:] + end


class Value(NamedTuple):
    """The value of a slot: tagged words in both languages."""

    source: str
    target: str
    plural: bool = False


# Slots: functions of a random generator, each returning a `Value`.

Slot = Callable[[random.Random], Value]


def _parallel(english: str, german: str) -> Value:
    """Aligns word i with word i."""
    return Value(_tagged(english, "abcd"), _tagged(german, "abcd"))


def _joint(english: str, german: str) -> Value:
    """Aligns every word with every word."""
    a = itertools.repeat("a")
    return Value(_tagged(english, a), _tagged(german, a))


def _tagged(text: str, tags: Iterable[str]) -> str:
    # Babel puts no-break spaces into numbers; a word here ends at any space.
    return " ".join(
        f"{word}~{tag}" for word, tag in zip(text.split(), tags, strict=False)
    )


def _person(english: str, german: str) -> Value:
    plural = english in ("we", "they") or english.endswith("s")
    return _parallel(english, german)._replace(plural=plural)


def _noun(english: str, german: str) -> Value:
    """Returns a noun with its article."""
    article, noun = german.split()
    return Value(f"the~a {_tagged(english, 'bb')}", f"{article}~a {noun}~b")


def _accusative(english: str, german: str) -> Value:
    """Returns a noun as an object: in German only the article "der" changes."""
    return _noun(english, german.replace("der ", "den "))


def _food(english: str, german: str) -> Value:
    return _joint(f"of {english}", german)


def _one_of(name: str, value: Callable[[str, str], Value] = _parallel) -> Slot:
    @functools.cache
    def values() -> list[Value]:
        return [value(english, german) for english, german in section(name)]

    return lambda rng: rng.choice(values())


@functools.cache
def section(name: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs (English, German) of a section, such as "frames"."""
    return tuple((english, german.strip()) for english, german in _file().items(name))


@functools.cache
def _file() -> configparser.ConfigParser:
    file = configparser.ConfigParser(delimiters="=", interpolation=None)
    # Capitals stay. (It is how configparser's own documentation does it.)
    file.optionxform = str  # type: ignore[assignment,method-assign]
    resource = importlib.resources.files(__package__) / "phrases.ini"
    file.read_string(resource.read_text("utf-8"))
    return file


def _date(english: str, german: str) -> Slot:
    """Makes a slot of dates, from CLDR field letters, each with a tag."""

    @functools.cache
    def value(ordinal: int) -> Value:
        day = datetime.date.fromordinal(ordinal)
        return Value(_fields(day, english, "en_US"), _fields(day, german, "de_DE"))

    first, last = datetime.date(1990, 1, 1), datetime.date(2029, 12, 31)
    return lambda rng: value(rng.randint(first.toordinal(), last.toordinal()))


def _fields(day: datetime.date, template: str, locale: str) -> str:
    from babel.dates import format_date

    fields = (field.split("~") for field in template.split())
    return " ".join(f"{format_date(day, f, locale=locale)}~{tag}" for f, tag in fields)


def _clock(hours: range) -> Slot:
    return lambda rng: _clock_value(rng.choice(hours), 5 * rng.randrange(12))


@functools.cache
def _clock_value(hour: int, minute: int) -> Value:
    from babel.dates import format_time

    time = datetime.time(hour, minute)
    digits, half = format_time(time, "h:mm a", locale="en_US").split()
    german = format_time(time, "short", locale="de_DE")
    return Value(f"{digits}~a {half}~ab", f"{german}~a Uhr~b")


def _spoken_time(rng: random.Random) -> Value:
    hour = rng.randint(1, 12)
    english, german = rng.choice(section("time"))
    return Value(
        english.format(**_hours(hour, "en")), german.format(**_hours(hour, "de"))
    )


def _hours(hour: int, language: str) -> dict[str, str]:
    this, following = _spelled(hour, language), _spelled(hour % 12 + 1, language)
    return {"this": this, "next": following, "full": this.replace("eins", "ein")}


@functools.cache
def _spelled(number: int, language: str, to: str = "cardinal") -> str:
    from num2words import num2words

    return num2words(number, lang=language, to=to).replace(" and ", " ")


def _number(rng: random.Random, most: int = 999) -> Value:
    """Draws a number in words, from 2 on, without ...01, which German inflects."""
    number = rng.randint(2, 99) if rng.random() < 0.7 else rng.randint(2, most)
    number += number % 100 == 1
    return _joint(_spelled(number, "en"), _spelled(number, "de"))


def _amount(rng: random.Random) -> Value:
    """Draws an amount of money in words."""
    number = _number(rng)
    (english, cents), (german, hundredths) = map(
        str.split, rng.choice(section("currency"))
    )
    source, target = f"{number.source} {english}~b", f"{number.target} {german}~b"
    if rng.random() < 0.5:
        return Value(source, target)
    n = rng.randrange(5, 100, 5)
    return Value(
        f"{source} and~c {_spelled(n, 'en')}~d {cents}~e",
        f"{target} und~c {_spelled(n, 'de')}~d {hundredths}~e",
    )


def _price(rng: random.Random) -> Value:
    """Draws an amount of money in digits: "$12.50", "12,50 $"."""
    from babel.numbers import format_currency

    whole = rng.randint(2, 99) if rng.random() < 0.5 else rng.randint(2, 999)
    value = whole + rng.choice([0, 25, 50, 75, 95, 99]) / 100
    currency = rng.choice(["USD", "EUR", "GBP"])
    return _joint(*(format_currency(value, currency, locale=tag) for tag in LOCALES))


def _measure(unit: str, numbers: list[float]) -> Slot:
    """Makes a slot of numbers with a unit: "12.5 kilometers", "12,5 Kilometer"."""

    @functools.cache
    def value(number: float) -> Value:
        from babel.units import format_unit

        texts = (format_unit(number, unit, "long", locale=tag) for tag in LOCALES)
        return _parallel(*texts)

    return lambda rng: value(rng.choice(numbers))


def _percentage(rng: random.Random) -> Value:
    from babel.numbers import format_percent

    share = rng.randrange(5, 1000, 5) / 1000
    texts = (
        format_percent(share, locale=tag, decimal_quantization=False) for tag in LOCALES
    )
    return _joint(*texts)


def _inhabitants(rng: random.Random) -> Value:
    from babel.numbers import format_decimal

    number = rng.randrange(2000, 100_000, 500)
    return _joint(*(format_decimal(number, locale=tag) for tag in LOCALES))


def _ordinal(ending: str) -> Slot:
    """Makes a slot of ordinals in words, with the German ending."""

    def slot(rng: random.Random) -> Value:
        number = rng.randint(1, 31)
        german = _spelled(number, "de", "ordinal").removesuffix("e") + ending
        return _joint(_spelled(number, "en", "ordinal"), german)

    return slot


SLOTS: dict[str, Slot] = {
    "person": _one_of("person", _person),
    "event": _one_of("event", _noun),
    "event_acc": _one_of("event", _accusative),
    "vehicle": _one_of("vehicle", _noun),
    "vehicle_acc": _one_of("vehicle", _accusative),
    "goods": _one_of("goods", _noun),
    "goods_acc": _one_of("goods", _accusative),
    "things": _one_of("things"),
    "food": _one_of("food", _food),
    "city": _one_of("city"),
    "weekday": _date("EEEE~a", "EEEE~a"),
    "month": _date("MMMM~a", "MMMM~a"),
    "year": _date("y~a", "y~a"),
    "day": _date("MMMM~a d~b", "d.~b MMMM~a"),
    "day_year": _date("MMMM~a d,~b y~c", "d.~b MMMM~a y~c"),
    "date": _date("EEEE,~a MMMM~b d,~c y~d", "EEEE,~a 'dem'~c d.~c MMMM~b y~d"),
    "date_nom": _date("EEEE,~a MMMM~b d,~c y~d", "EEEE,~a 'der'~c d.~c MMMM~b y~d"),
    "weekday_day": _date("EEEE,~a MMMM~b d~c", "EEEE,~a 'dem'~c d.~c MMMM~b"),
    "clock": _clock(range(6, 23)),
    "morning": _clock(range(6, 12)),
    "evening": _clock(range(15, 23)),
    "time": _spoken_time,
    "number": _number,
    "few": lambda rng: _number(rng, most=99),
    "amount": _amount,
    "price": _price,
    "percentage": _percentage,
    "inhabitants": _inhabitants,
    "ordinal": _ordinal("en"),
    "ordinal_e": _ordinal("e"),
    "temperature": _measure("temperature-celsius", list(range(-15, 31))),
    "distance": _measure("length-kilometer", [n / 2 for n in range(3, 100)]),
    "weight": _measure("mass-kilogram", [n / 2 for n in range(3, 60)]),
    "grams": _measure("mass-gram", list(range(50, 1000, 25))),
    "liters": _measure("volume-liter", [n / 2 for n in range(3, 30)]),
    "minutes": _measure("duration-minute", list(range(2, 60))),
}
