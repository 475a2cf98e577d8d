"""The embedded corpus: its slots and frames by examples, and its splits."""

import datetime
import random
import re
import sys
from types import SimpleNamespace

import pytest

from keras_luong.text import phrases
from keras_luong.text.phrases import Example, PhraseCorpus, Value

SMALL = {"train": 1500, "validation": 100, "test": 100}


@pytest.fixture(scope="module")
def corpus():
    return PhraseCorpus(**SMALL)


def fixed(*answers):
    """Gives the numbers and choices that a test lists, one after the other."""
    left = iter(answers)
    draw = lambda *_: next(left)  # noqa: E731
    return SimpleNamespace(choice=draw, randint=draw, randrange=draw, random=draw)


DAY = datetime.date(2019, 3, 5).toordinal()
CENTS = "nine dollars and fifty cents", "neun Dollar und fünfzig Cent"
CURRENCIES, TIMES = phrases.section("currency"), phrases.section("time")


FRAMES_BY_HAND = [
    ("she/sie", "She paid", "Sie hat", "00 11 17 22 23 34 45 56"),
    ("we/wir", "We paid", "Wir haben", "00 11 17 22 23 34 45 56"),
]


@pytest.mark.parametrize("person, source, target, pairs", FRAMES_BY_HAND)
def test_a_frame_by_hand(monkeypatch, person, source, target, pairs):
    """The verb agrees, and stands at the end too."""
    values = {"price": phrases._joint("$12.50", "12,50\xa0$")}
    values |= {"person": phrases._person(*person.split("/"))}
    values |= {"goods_acc": Value("the~a coat~b", "den~a Mantel~b")}
    for name, value in values.items():
        monkeypatch.setitem(phrases.SLOTS, name, lambda rng, value=value: value)
    frames = (x for x in phrases.section("frames") if x[0].startswith("{person} paid"))
    links = tuple((int(i), int(j)) for i, j in pairs.split())
    target += " 12,50 $ für den Mantel bezahlt."
    expected = Example(f"{source} $12.50 for the coat.", target, links)
    assert phrases._example(*next(frames), random.Random(0)) == expected


FILLED = [
    ("date", (DAY,), "Tuesday, March 5, 2019", "Dienstag, dem 5. März 2019"),
    ("date_nom", (DAY,), "Tuesday, March 5, 2019", "Dienstag, der 5. März 2019"),
    ("a clock", (15, 45), "3:45 PM", "15:45 Uhr"),
    ("a clock", (9, 5), "9:05 AM", "09:05 Uhr"),
    ("goods_acc", (phrases._accusative("x", "der X"),), "the x", "den X"),
    ("time", (1, TIMES[0]), "one o'clock", "ein Uhr"),
    ("time", (12, TIMES[6]), "half past twelve", "halb eins"),
    ("number", (0.9, 312), "three hundred twelve", "dreihundertzwölf"),
    ("number", (0.9, 201), "two hundred two", "zweihundertzwei"),  # not inflected
    ("amount", (0.1, 9, CURRENCIES[0], 0.9, 50), *CENTS),
    ("amount", (0.1, 30, CURRENCIES[2], 0.1), "thirty pounds", "dreißig Pfund"),
    ("price", (0.1, 12, 50, "USD"), "$12.50", "12,50 $"),
    ("percentage", (125,), "12.5%", "12,5 %"),
    ("temperature", (-5,), "-5 degrees Celsius", "-5 Grad Celsius"),
    ("distance", (12.5,), "12.5 kilometers", "12,5 Kilometer"),
    ("ordinal", (31,), "thirty-first", "einunddreißigsten"),
]


@pytest.mark.parametrize("name, answers, source, target", FILLED)
def test_slots(name, answers, source, target):
    make = phrases.SLOTS.get(name)
    value = make(fixed(*answers)) if make else phrases._clock_value(*answers)
    texts = tuple(re.sub(r"~\w+", "", x) for x in (value.source, value.target))
    assert texts == (source, target)


FRAMES = phrases.section("frames")


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame[0][:40])
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
    sources = [x.source for split in SMALL for x in corpus.examples(split)]
    assert corpus.splits == ("train", "validation", "test")
    assert len(sources) == sum(SMALL.values()) == len(set(sources))
    for split, size in SMALL.items():
        assert len(corpus.examples(split)) == size
    pairs = zip(corpus.pairs("test"), corpus.examples("test"), strict=True)
    for pair, example in pairs:
        texts = pair["source"].numpy().decode(), pair["target"].numpy().decode()
        assert texts == example[:2]
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


WRONG = [
    ({"source_language": "de", "target_language": "en"}, "'de' into 'en'"),
    ({"target_language": "fr"}, "'en' into 'fr'"),
    ({"train": 0}, "train must be at least 1. Received: 0"),
    ({"train": 20, "validation": 1}, "train=20 is too large: .* than 12 distinct"),
]


@pytest.mark.parametrize("arguments, message", WRONG)
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
