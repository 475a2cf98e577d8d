"""The embedded corpus: its slots and frames by examples, and its splits."""

import datetime
import random
import re
import sys

import pytest

from keras_luong.text import phrases
from keras_luong.text.phrases import Example, PhraseCorpus, Value

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


DAY = datetime.date(2019, 3, 5).toordinal()
COAT = {
    "price": phrases._joint("$12.50", "12,50\xa0$"),
    "goods_acc": Value("the~a coat~b", "den~a Mantel~b"),
}
CURRENCIES, TIMES = phrases.section("currency"), phrases.section("time")


@pytest.mark.parametrize(
    ("frame", "values", "source", "target", "pairs"),
    [
        (
            "{event} is~a on~b {date}",
            {
                "event": Value("the~a meeting~b", "die~a Besprechung~b"),
                "date": phrases.SLOTS["date"](Fixed(DAY)),
                "clock": phrases._clock_value(15, 45),
            },
            "The meeting is on Tuesday, March 5, 2019 at 3:45 PM.",
            "Die Besprechung ist am Dienstag, dem 5. März 2019, um 15:45 Uhr.",
            "0-0 1-1 2-2 3-3 4-4 5-7 6-5 6-6 7-8 8-9 9-10 10-10 10-11",
        ),
        # The verb agrees, and stands at the end too.
        (
            "{person} paid~a {price}",
            {"person": phrases._person("she", "sie"), **COAT},
            "She paid $12.50 for the coat.",
            "Sie hat 12,50 $ für den Mantel bezahlt.",
            "0-0 1-1 1-7 2-2 2-3 3-4 4-5 5-6",
        ),
        (
            "{person} paid~a {price}",
            {"person": phrases._person("my parents", "meine Eltern"), **COAT},
            "My parents paid $12.50 for the coat.",
            "Meine Eltern haben 12,50 $ für den Mantel bezahlt.",
            "0-0 1-1 2-2 2-8 3-3 3-4 4-5 5-6 6-7",
        ),
        # A subordinate clause.
        (
            "because~a",
            {
                "vehicle": Value("the~a night~b train~b", "der~a Nachtzug~b"),
                "minutes": phrases._parallel("20 minutes", "20 Minuten"),
                "person": phrases._person("we", "wir"),
                "event_acc": Value("the~a film~b", "den~a Film~b"),
            },
            "Because the night train was 20 minutes late, we missed the film.",
            "Weil der Nachtzug 20 Minuten Verspätung hatte, haben wir den Film "
            "verpasst.",
            "0-0 1-1 2-2 3-2 4-6 5-3 6-4 7-5 8-8 9-7 9-11 10-9 11-10",
        ),
    ],
)
def test_frames_by_hand(monkeypatch, frame, values, source, target, pairs):
    for name, value in values.items():
        monkeypatch.setitem(phrases.SLOTS, name, lambda rng, value=value: value)
    (texts,) = (x for x in phrases.section("frames") if x[0].startswith(frame))
    links = tuple(tuple(map(int, pair.split("-"))) for pair in pairs.split())
    expected = Example(source, target, links)
    assert phrases._example(*texts, random.Random(0)) == expected


@pytest.mark.parametrize(
    ("name", "answers", "source", "target"),
    [
        ("day_year", (DAY,), "March 5, 2019", "5. März 2019"),
        ("date", (DAY,), "Tuesday, March 5, 2019", "Dienstag, dem 5. März 2019"),
        ("date_nom", (DAY,), "Tuesday, March 5, 2019", "Dienstag, der 5. März 2019"),
        ("weekday_day", (DAY,), "Tuesday, March 5", "Dienstag, dem 5. März"),
        ("month", (DAY,), "March", "März"),
        ("a clock", (15, 45), "3:45 PM", "15:45 Uhr"),
        ("a clock", (9, 5), "9:05 AM", "09:05 Uhr"),
        ("a clock", (12, 0), "12:00 PM", "12:00 Uhr"),
        ("goods", (phrases._noun("cat", "der Kater"),), "the cat", "der Kater"),
        ("goods_acc", (phrases._accusative("x", "der X"),), "the x", "den X"),
        ("time", (1, TIMES[0]), "one o'clock", "ein Uhr"),
        ("time", (1, TIMES[2]), "ten past one", "zehn nach eins"),
        ("time", (7, TIMES[5]), "twenty-five past seven", "fünf vor halb acht"),
        ("time", (7, TIMES[6]), "half past seven", "halb acht"),
        ("time", (12, TIMES[6]), "half past twelve", "halb eins"),
        ("time", (12, TIMES[9]), "a quarter to one", "Viertel vor eins"),
        ("time", (7, TIMES[11]), "five to eight", "fünf vor acht"),
        ("number", (0.9, 312), "three hundred twelve", "dreihundertzwölf"),
        ("number", (0.9, 100), "one hundred", "einhundert"),
        ("number", (0.9, 201), "two hundred two", "zweihundertzwei"),  # not inflected
        (
            "amount",
            (0.9, 312, CURRENCIES[0], 0.9, 50),
            "three hundred twelve dollars and fifty cents",
            "dreihundertzwölf Dollar und fünfzig Cent",
        ),
        ("amount", (0.1, 30, CURRENCIES[2], 0.1), "thirty pounds", "dreißig Pfund"),
        ("price", (0.1, 12, 50, "USD"), "$12.50", "12,50 $"),
        ("price", (0.9, 312, 0, "EUR"), "€312.00", "312,00 €"),
        ("percentage", (125,), "12.5%", "12,5 %"),
        ("percentage", (30,), "3%", "3 %"),
        ("inhabitants", (45500,), "45,500", "45.500"),
        ("temperature", (-5,), "-5 degrees Celsius", "-5 Grad Celsius"),
        ("temperature", (1,), "1 degree Celsius", "1 Grad Celsius"),
        ("distance", (12.5,), "12.5 kilometers", "12,5 Kilometer"),
        ("ordinal", (3,), "third", "dritten"),
        ("ordinal", (31,), "thirty-first", "einunddreißigsten"),
        ("ordinal_e", (7,), "seventh", "siebte"),
    ],
)
def test_slots(name, answers, source, target):
    make = phrases.SLOTS.get(name) or (lambda rng: phrases._clock_value(*rng.answers))
    value = make(Fixed(*answers))
    texts = tuple(re.sub(r"~\w+", "", x) for x in (value.source, value.target))
    assert texts == (source, target)


@pytest.mark.parametrize(
    "frame", phrases.section("frames"), ids=lambda frame: frame[0][:40]
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
    sources = [x.source for split in corpus.splits for x in corpus.examples(split)]
    assert corpus.splits == ("train", "validation", "test")
    assert len(sources) == sum(SMALL.values()) == len(set(sources))
    for split, size in SMALL.items():
        assert len(corpus.examples(split)) == size
    pairs = [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs("test").as_numpy_iterator()
    ]
    assert pairs == [(source, target) for source, target, _ in corpus.examples("test")]
    with pytest.raises(ValueError, match="phrases has no split 'dev'"):
        corpus.examples("dev")


def test_a_seed_makes_the_corpus_and_the_training_size_leaves_the_test_alone(corpus):
    """In any process, and on any platform."""
    same = PhraseCorpus(**{**SMALL, "train": 10})
    other = PhraseCorpus(**SMALL, seed=1)
    for split in ("validation", "test"):
        assert same.examples(split) == corpus.examples(split)
        assert other.examples(split) != corpus.examples(split)
    assert same.examples("train") == corpus.examples("train")[:10]
    first = corpus.examples("test")[0].source
    assert first == "The tourists bought the clock for sixty-seven euros."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source_language": "de", "target_language": "en"}, "'de' into 'en'"),
        ({"target_language": "fr"}, "'en' into 'fr'"),
        ({"train": 0}, "train must be at least 1. Received: 0"),
        ({"train": 20, "validation": 1}, "train=20 is too large: .* than 12 distinct"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, monkeypatch):
    frames = [("it~a is~b {month}", "es~a ist~b {month}")]
    monkeypatch.setattr(phrases, "section", lambda name: frames)
    with pytest.raises(ValueError, match=message):
        PhraseCorpus(**arguments, test=1)


@pytest.mark.parametrize("package", ["babel", "num2words"])
def test_missing_package_says_how_to_install_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install keras_luong\[demo\]"):
        PhraseCorpus(train=1)
