import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from keras_luong.text import phrases
from keras_luong.text import phrases as phrase_frames
from keras_luong.text.phrases import Example, PhraseCorpus

SMALL = {"train": 1500, "validation": 100, "test": 100}


@pytest.fixture(scope="module")
def corpus():
    return PhraseCorpus(**SMALL)


class Fixed(random.Random):
    """Gives the numbers and choices that a test lists, one after the other."""

    def __new__(cls, *answers):
        return super().__new__(cls)  # Python 3.10's takes no more than a seed

    def __init__(self, *answers):
        super().__init__(0)
        self.answers = list(answers)

    def next(self, *_, **__):
        return self.answers.pop(0)

    choice = randint = randrange = random = next


def fixed(monkeypatch, frame, **values):
    """Builds a sentence from a frame with the values of its slots."""
    for name, value in values.items():
        monkeypatch.setitem(phrase_frames.SLOTS, name, lambda rng, value=value: value)
    (found,) = (
        texts for texts in phrase_frames.section("frames") if texts[0].startswith(frame)
    )
    return phrases._example(*found, random.Random(0))


def day(name, year, month, number):
    import datetime

    ordinal = datetime.date(year, month, number).toordinal()
    return phrase_frames.SLOTS[name](Fixed(ordinal))


def plain(value):
    return tuple(re.sub(r"~\w+", "", text) for text in (value.source, value.target))


def test_a_sentence_with_date_and_time(monkeypatch):
    example = fixed(
        monkeypatch,
        "{event} is~a on~b {date}",
        event=phrase_frames.Value("the~a meeting~b", "die~a Besprechung~b"),
        date=day("date", 2019, 3, 5),
        clock=phrase_frames._clock_value(15, 45),
    )
    assert example == Example(
        "The meeting is on Tuesday, March 5, 2019 at 3:45 PM.",
        "Die Besprechung ist am Dienstag, dem 5. März 2019, um 15:45 Uhr.",
        (
            *((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (6, 5), (6, 6)),
            *((7, 8), (8, 9), (9, 10), (10, 10), (10, 11)),
        ),
    )


@pytest.mark.parametrize(
    ("person", "source", "target"),
    [
        (
            ("she", "sie"),
            "She paid $12.50 for the coat.",
            "Sie hat 12,50 $ für den Mantel bezahlt.",
        ),
        (
            ("my parents", "meine Eltern"),
            "My parents paid $12.50 for the coat.",
            "Meine Eltern haben 12,50 $ für den Mantel bezahlt.",
        ),
    ],
)
def test_verb_agrees_and_stands_at_the_end(monkeypatch, person, source, target):
    price = "{person} paid~a {price}"
    example = fixed(
        monkeypatch,
        price,
        person=phrase_frames._person(*person),
        price=phrase_frames._joint("$12.50", "12,50\xa0$"),
        goods_acc=phrase_frames.Value("the~a coat~b", "den~a Mantel~b"),
    )
    assert (example.source, example.target) == (source, target)
    paid = source.split().index("paid")
    assert [j for i, j in example.alignment if i == paid] == [
        paid,
        len(target.split()) - 1,
    ]


def test_subordinate_clause(monkeypatch):
    example = fixed(
        monkeypatch,
        "because~a",
        vehicle=phrase_frames.Value("the~a night~b train~b", "der~a Nachtzug~b"),
        minutes=phrase_frames._parallel("20 minutes", "20 Minuten"),
        person=phrase_frames._person("we", "wir"),
        event_acc=phrase_frames.Value("the~a film~b", "den~a Film~b"),
    )
    assert example.source == (
        "Because the night train was 20 minutes late, we missed the film."
    )
    assert example.target == (
        "Weil der Nachtzug 20 Minuten Verspätung hatte, haben wir den Film verpasst."
    )
    pairs = [
        *[("Because", "Weil"), ("the", "der"), ("night", "Nachtzug")],
        *[("train", "Nachtzug"), ("was", "hatte,"), ("20", "20")],
        *[("minutes", "Minuten"), ("late,", "Verspätung"), ("we", "wir")],
        *[("missed", "haben"), ("missed", "verpasst."), ("the", "den")],
        ("film.", "Film"),
    ]
    source, target = example.source.split(), example.target.split()
    assert [(source[i], target[j]) for i, j in example.alignment] == pairs


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("day", "March 5", "5. März"),
        ("day_year", "March 5, 2019", "5. März 2019"),
        ("date", "Tuesday, March 5, 2019", "Dienstag, dem 5. März 2019"),
        ("date_nom", "Tuesday, March 5, 2019", "Dienstag, der 5. März 2019"),
        ("weekday_day", "Tuesday, March 5", "Dienstag, dem 5. März"),
        ("weekday", "Tuesday", "Dienstag"),
        ("month", "March", "März"),
        ("year", "2019", "2019"),
    ],
)
def test_dates(name, source, target):
    assert plain(day(name, 2019, 3, 5)) == (source, target)


@pytest.mark.parametrize(
    ("hour", "minute", "source", "target"),
    [
        (15, 45, "3:45 PM", "15:45 Uhr"),
        (9, 5, "9:05 AM", "09:05 Uhr"),
        (12, 0, "12:00 PM", "12:00 Uhr"),
    ],
)
def test_clock(hour, minute, source, target):
    assert plain(phrase_frames._clock_value(hour, minute)) == (source, target)


@pytest.mark.parametrize(
    ("hour", "kind", "source", "target"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 0, "seven o'clock", "sieben Uhr"),
        (1, 2, "ten past one", "zehn nach eins"),
        (7, 3, "a quarter past seven", "Viertel nach sieben"),
        (7, 5, "twenty-five past seven", "fünf vor halb acht"),
        (7, 6, "half past seven", "halb acht"),
        (12, 6, "half past twelve", "halb eins"),
        (7, 7, "twenty-five to eight", "fünf nach halb acht"),
        (11, 8, "twenty to twelve", "zwanzig vor zwölf"),
        (12, 9, "a quarter to one", "Viertel vor eins"),
        (7, 11, "five to eight", "fünf vor acht"),
    ],
)
def test_spoken_times(hour, kind, source, target):
    value = phrase_frames._spoken_time(Fixed(hour, phrase_frames.section("time")[kind]))
    assert plain(value) == (source, target)


@pytest.mark.parametrize(
    ("number", "source", "target"),
    [
        (312, "three hundred twelve", "dreihundertzwölf"),
        (21, "twenty-one", "einundzwanzig"),
        (100, "one hundred", "einhundert"),
        (987, "nine hundred eighty-seven", "neunhundertsiebenundachtzig"),
        (201, "two hundred two", "zweihundertzwei"),  # 201 would be inflected
    ],
)
def test_numbers(number, source, target):
    assert plain(phrase_frames._number(Fixed(0.9, number))) == (source, target)


def test_amounts_in_words():
    dollars = Fixed(0.9, 312, phrase_frames.section("currency")[0], 0.9, 50)
    assert plain(phrase_frames._amount(dollars)) == (
        "three hundred twelve dollars and fifty cents",
        "dreihundertzwölf Dollar und fünfzig Cent",
    )
    pounds = Fixed(0.1, 30, phrase_frames.section("currency")[2], 0.1)
    assert plain(phrase_frames._amount(pounds)) == ("thirty pounds", "dreißig Pfund")


@pytest.mark.parametrize(
    ("name", "answers", "source", "target"),
    [
        ("price", (0.1, 12, 50, "USD"), "$12.50", "12,50 $"),
        ("price", (0.9, 312, 0, "EUR"), "€312.00", "312,00 €"),
        ("percentage", (125,), "12.5%", "12,5 %"),
        ("percentage", (30,), "3%", "3 %"),
        ("inhabitants", (45500,), "45,500", "45.500"),
        ("temperature", (-5,), "-5 degrees Celsius", "-5 Grad Celsius"),
        ("temperature", (1,), "1 degree Celsius", "1 Grad Celsius"),
        ("distance", (12.5,), "12.5 kilometers", "12,5 Kilometer"),
        ("weight", (3.0,), "3 kilograms", "3 Kilogramm"),
        ("grams", (250,), "250 grams", "250 Gramm"),
        ("liters", (1.5,), "1.5 liters", "1,5 Liter"),
        ("minutes", (20,), "20 minutes", "20 Minuten"),
        ("ordinal", (3,), "third", "dritten"),
        ("ordinal", (31,), "thirty-first", "einunddreißigsten"),
        ("ordinal_e", (7,), "seventh", "siebte"),
    ],
)
def test_measures(name, answers, source, target):
    assert plain(phrase_frames.SLOTS[name](Fixed(*answers))) == (source, target)


def test_nouns_take_the_accusative():
    def articles(name):
        values = (phrase_frames.SLOTS[name](random.Random(i)) for i in range(200))
        return {plain(value)[1].split()[0] for value in values}

    assert articles("goods") == {"der", "die", "das"}
    assert articles("goods_acc") == {"den", "die", "das"}


@pytest.mark.parametrize(
    "frame", phrase_frames.section("frames"), ids=lambda frame: frame[0][:40]
)
def test_frames_have_the_same_slots_and_align_every_target_word(frame):
    slots = [sorted(re.findall(r"\{(\w+)\}", text)) for text in frame]
    assert slots[0] == slots[1]
    for seed in range(5):
        example = phrases._example(*frame, random.Random(seed))
        source, target = example.source.split(), example.target.split()
        assert {j for _, j in example.alignment} == set(range(len(target)))
        assert {i for i, _ in example.alignment} == set(range(len(source)))
        assert list(example.alignment) == sorted(set(example.alignment))
        for text in (example.source, example.target):
            assert not re.search(r"[~{}/_\xa0\u202f]|\s\s|\s$", text)
            assert re.search(r"[^.?][.?]$", text)
            assert not text[0].islower()


def test_splits_have_their_sizes_and_share_nothing(corpus):
    sources = [
        example.source for split in corpus.splits for example in corpus.examples(split)
    ]
    assert corpus.splits == ("train", "validation", "test")
    assert len(sources) == sum(SMALL.values()) == len(set(sources))
    for split, size in SMALL.items():
        assert len(corpus.examples(split)) == size


def test_pairs_are_the_examples(corpus):
    pairs = [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs("test").as_numpy_iterator()
    ]
    assert pairs == [(source, target) for source, target, _ in corpus.examples("test")]


def test_generation_is_deterministic(corpus):
    same = PhraseCorpus(**SMALL)
    other = PhraseCorpus(**SMALL, seed=1)
    for split in corpus.splits:
        assert same.examples(split) == corpus.examples(split)
        assert other.examples(split) != corpus.examples(split)


def test_first_test_sentence_is_the_same_everywhere():
    """Guards against generation that depends on the process or the platform."""
    (example,) = PhraseCorpus(train=1, validation=1, test=1).examples("test")
    assert example.source == "The tourists bought the clock for sixty-seven euros."


def test_number_of_training_pairs_leaves_the_test_alone(corpus):
    fewer = PhraseCorpus(train=10, validation=100, test=100)
    for split in ("validation", "test"):
        assert fewer.examples(split) == corpus.examples(split)


def test_test_words_occur_in_training(corpus):
    """Only numbers and names of amounts are new: the rest can be learnt."""

    def words(split):
        texts = (example.target for example in corpus.examples(split))
        return {word.strip(".,?").lower() for text in texts for word in text.split()}

    new = {word for word in words("test") - words("train") if word.isalpha()}
    assert len(new) < 0.1 * len(words("test"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source_language": "de", "target_language": "en"}, "'de' into 'en'"),
        ({"target_language": "fr"}, "'en' into 'fr'"),
        ({"train": 0}, "train must be at least 1. Received: 0"),
        ({"test": -5}, "test must be at least 1. Received: -5"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PhraseCorpus(**arguments)


def test_more_sentences_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr(
        phrases, "section", lambda name: [("it~a is~b {month}", "es~a ist~b {month}")]
    )
    with pytest.raises(ValueError, match="train=20 is too large: .* than 12 distinct"):
        PhraseCorpus(train=20, validation=1, test=1)


def test_unknown_split_is_refused(corpus):
    with pytest.raises(ValueError, match="phrases has no split 'dev'"):
        corpus.examples("dev")


@pytest.mark.parametrize("package", ["babel", "num2words"])
def test_missing_package_says_how_to_install_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install keras_luong\[demo\]"):
        PhraseCorpus(train=1)


ZIPPED = """
import keras_luong
from keras_luong.text import phrases as phrase_frames
from keras_luong.text.phrases import PhraseCorpus
assert ".zip" in keras_luong.__file__
print(phrase_frames._file.cache_info().currsize)
print(PhraseCorpus(train=1, validation=1, test=1).examples("train")[0].source)
"""


@pytest.mark.slow
def test_the_file_is_read_on_first_use_and_from_a_zip(tmp_path):
    root = Path(phrases.__file__).parents[2]
    archive = shutil.make_archive(tmp_path / "all", "zip", root, "keras_luong")
    done = subprocess.run(
        [sys.executable, "-c", ZIPPED],
        env={**os.environ, "PYTHONPATH": archive},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (train,) = PhraseCorpus(train=1, validation=1, test=1).examples("train")
    assert done.stdout.splitlines() == ["0", train.source]
