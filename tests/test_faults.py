"""What is wrong with pairs: found, counted, dropped and mended.

Silence on clean text matters as much as speech on noisy text.
"""

import functools
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from keras_luong.text import PhraseCorpus, faults, misalignment
from keras_luong.text.cleaning import REASONS, clean, mend
from keras_luong.text.hashes import Sample
from keras_luong.text.words import is_unspaced

SHARED = Path(__file__).parents[1] / "../shared/data"
#: Knows no lengths and no alignment.
FINDER = faults.FaultFinder(("en", "de"), scale=1.0, ratio=np.log(1.65), alignment=None)

#: Fault → lines that have it, and lines that are right.
LINES = {
    "empty": (["", " ", "\t\u00a0\u3000"], [".", "0", "a"]),
    "mojibake": (
        "fÃ¼r alle|itâ€™s|Ð¿Ñ€Ð¸Ð²ÐµÑ‚|cafÃ©|el niÃ±o|Â«ouiÂ»|Ø§Ù„ÙƒÙ„Ø¨".split("|"),
        "für Ärzte|it’s “so”|привет, Ёж|café|«ça coûte 5 €», dit-elle|Łódź|这是“好”的"
        "|كلب على الشاطئ|Ελλάδα|9 ½ °C|São João|œuvre".split("|"),
    ),
    "control": (
        ["a\x00b", "\x1b[0m", "a\x7f", "\x93a\x94", "lost \ufffd", "a\ufeffb", "a\rb"],
        "a\tb|a\u00a0b|a\u3000b|می\u200cروم|é|soft\u00adhyphen|👍🏽".split("|"),
    ),
    "markup": (
        "<b>a</b>|a<br>b|a <br /> b|<A HREF='/x'>y|a</p>|<!-- a|a &amp; b|&nbsp;|&#39;s"
        '|&#x27;|<div class="x">|&quot;狗&quot;'.split("|"),
        "<news> a|a < b and c > d|AT&T; R&D|a & b;|x <y> z|1<2|<3|Q&A".split("|"),
    ),
    "address": (
        "https://a.de|see www.a.com|kim@a.org|狗 http://x.cn/1|KIM@A.ORG".split("|"),
        "a.b|@kim|5.30 Uhr|z.B. so|a@b|http error|www|1@2.3|e. g.".split("|"),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_faults_of_a_line(name):
    """On either side."""
    wrong, right = LINES[name]
    lines = wrong + right
    expected = [True] * len(wrong) + [False] * len(right)
    other = ["a dog"] * len(lines)
    for sides in ((lines, other), (other, lines)):
        marks = FINDER.find(*sides, [name])[name]
        found = dict(zip(lines, marks.tolist(), strict=True))
        assert found == dict(zip(lines, expected, strict=True))


SENTENCES = "A man is running along the beach.|Ein Mann läuft am Strand."
SENTENCES += "|这是一只在海滩上的狗。|كلب يركض على الشاطئ"
NAMES = "New York City Marathon|James and Maria|OK|taxi|东京|5 kg, 10 km/h, 12:30, 3 cm"
NAMES += "|Rue de la Paix|https://example.com/this/is/it see.example.com"
COPIES = [*((x, True) for x in SENTENCES.split("|"))]
COPIES += [(x, False) for x in NAMES.split("|")]


@pytest.mark.parametrize("text, is_fault", COPIES)
def test_copies_are_sentences(text, is_fault):
    """Names, numbers, addresses and single words are rightly the same."""
    sources, targets = [text, text, text], [text, text.upper(), text + " x y"]
    marks = FINDER.find(sources, targets, ["copy"])["copy"]
    assert marks.tolist() == [is_fault, is_fault, False]


LENGTHS = [
    (1.0, 40, 79, False),  # 99 / 60 = 1.65
    (1.0, 40, 80, True),
    (1.0, 80, 40, True),
    (1.0, 2, 16, False),  # short ones differ more
    (1.0, 0, 0, False),
    (2.0, 40, 80, False),  # twice as long is usual
    (2.0, 40, 145, False),  # 165 / 100
    (2.0, 40, 146, True),
    (0.25, 160, 40, False),  # as of English and Chinese: counted in English letters
    (0.25, 160, 20, True),
]


@pytest.mark.parametrize("scale, source, target, is_fault", LENGTHS)
def test_lengths(scale, source, target, is_fault):
    finder = FINDER._replace(scale=scale)
    marks = finder.find(["x" * source], ["x" * target], ["length"])["length"]
    assert marks.tolist() == [is_fault]


def test_languages_of_single_lines():
    english, german = "A man is running along the beach.", "Ein Mann läuft am Strand."
    others = "A dog is playing with a ball.", "Ein Hund spielt mit einem Ball."
    sources = [english, english, german, "Hi", english]
    targets = [german, *others, "A", english]  # the last one is a copy
    marks = FINDER.find(sources, targets, ["language"])["language"]
    assert marks.tolist() == [False, True, True, False, False]


def test_only_what_is_asked_for_and_nothing_of_nothing():
    assert [*FINDER.find(["a"], ["b"], ["copy", "empty"])] == ["empty", "copy"]
    found = FINDER.find([], [])
    assert [*found] == [*faults.FAULTS] and all(x.shape == (0,) for x in found.values())
    assert faults.learn_faults([], [], "en", "de").alignment is None


@functools.cache
def phrases():
    """English and German sentences that are right."""
    sources, targets, _ = zip(*PhraseCorpus(train=2000).examples("train"), strict=True)
    return sources, targets


def misalign(targets, share, seed=0):
    """Some of the targets change places: the new ones, and which."""
    rows = random.Random(seed).sample(range(len(targets)), round(share * len(targets)))
    targets = [*targets]
    moved = [targets[row] for row in rows[1:] + rows[:1]]
    for row, text in zip(rows, moved, strict=True):
        targets[row] = text
    return targets, np.isin(np.arange(len(targets)), rows)


def in_hanzi(lines):
    """A language without spaces: two characters for each word."""
    words = sorted({word for line in lines for word in line.split()})
    rng = random.Random(0)
    hanzi = range(0x4E00, 0x5200)
    names = {word: "".join(map(chr, rng.choices(hanzi, k=2))) for word in words}
    return ["".join(names[word] for word in line.split()) for line in lines]


@pytest.mark.parametrize("share", [0, 0.05, 0.15, 0.4, 1])
@pytest.mark.parametrize("language", [list, in_hanzi])
def test_the_share_of_misaligned_pairs(language, share):
    sources, targets = phrases()
    targets, is_wrong = misalign(language(targets), share)
    alignment = misalignment.learn_alignment(sources, targets)
    assert abs(alignment.share - share) < 0.025
    if 0 < share < 0.2:
        found = alignment.misaligned(sources, targets)
        assert found[is_wrong].mean() > 0.8 and found[~is_wrong].mean() < 0.01
    if share == 0:
        assert alignment.misaligned(sources, targets).mean() < 0.005


def test_nothing_is_said_of_too_few_pairs():
    """Nor of pairs that only repeat each other, and of short ones."""
    sources, targets = phrases()
    assert misalignment.learn_alignment(sources[:499], targets[:499]) is None
    assert misalignment.learn_alignment(sources[:400] * 9, targets[:400] * 9) is None
    short = [" ".join(line.split()[:3]) for line in sources]
    assert misalignment.learn_alignment(short, targets) is None
    alignment = misalignment.learn_alignment(sources, targets)
    scores = alignment.scores(["the dog saw", sources[0]], [targets[0]] * 2)
    assert np.isnan(scores).tolist() == [True, False]
    assert not alignment.misaligned(["the dog saw"], [targets[0]]).any()


def test_one_round_of_model_1(monkeypatch):
    """By hand: of two pairs, "a b" = "x y" and "a" = "x"."""
    monkeypatch.setattr(misalignment, "_ROUNDS", 1)
    table = misalignment.learn_table(["a b", "a"], ["x y", "x"])
    # Expected: a-x 1 / 2.2 + 1 / 1.1, others 1 / 2.2; a is 2/3 of the words, b 1/3.
    assert {*table.source} == {"a", "b"} and {*table.target} == {"x", "y"}
    places = [(table.source[x], table.target[y]) for x, y in ("ax", "ay", "bx", "by")]
    gains = [float(table.gains[place]) for place in places]
    assert gains == pytest.approx([1.125, 0.75, 0.75, 1.5], rel=1e-3)


def test_scores_by_hand():
    """A tenth of the pairs scores like what is mixed up, and the others more."""
    mixed = np.linspace(-100, 100, 1001)
    share, least = misalignment.compare_scores(
        np.sort([*mixed[::10], *range(300, 1200)]), mixed
    )
    assert share == pytest.approx(0.1, abs=0.005) and least > 80
    share, least = misalignment.compare_scores(np.arange(300.0, 1300), mixed)
    assert (share, least) == (0, -np.inf)


def test_halves_depend_on_the_text_alone():
    lines = [str(number) for number in range(1000)]
    halves = misalignment.halves_of(lines, lines)
    assert 400 < halves.sum() < 600
    assert (
        misalignment.halves_of(lines[::-1], lines[::-1]).tolist()
        == halves[::-1].tolist()
    )


def test_letters_without_spaces_are_words():
    """As `is_unspaced` tells, but for some rare ones."""
    letters = [x for x in map(chr, range(0x10000)) if unicodedata.category(x) == "Lo"]
    found = {x for x in letters if faults._UNSPACED.match(x)}
    assert len(found ^ {*filter(is_unspaced, letters)}) < 30 < len(found)
    words = misalignment._words(["Größenwahn, 42 狗跑ab", "a\nb"])
    assert words == ["größe", "42", "狗", "跑", "\n", "a", "b"]


def real(folder, number=3000):
    """Pairs of a corpus that is there on some machines only, from all over it."""
    files = [SHARED / folder / f"train.{code}" for code in ("en", "de")]
    if not all(file.exists() for file in files):
        pytest.skip(f"no {folder} in {SHARED}")
    sides = [file.read_text(encoding="utf-8").split("\n")[:-1] for file in files]
    step = len(sides[0]) // number
    return [side[::step][:number] for side in sides]


def counts_of(blocks, languages=("en", "de")):
    """What is wrong, as it is counted block by block; all pairs are judged."""
    counter, sides = faults.FaultCounter(*languages), ([], [])
    for block in blocks:
        counter.read(*block)
        for side, some in zip(sides, block, strict=True):
            side += some
    return counter.counts(Sample(np.arange(len(sides[0])), *sides))


@pytest.mark.parametrize("folder", ["multi30k", "anki_deu_eng"])
def test_real_text(folder):
    """Nothing is said of it as it is; of a tenth that is misaligned, so much."""
    sources, targets = real(folder)
    counts = counts_of([(sources, targets)])
    assert list(faults.fault_notes(counts)) == []
    targets, _ = misalign(targets, 0.1)
    assert abs(misalignment.learn_alignment(sources, targets).share - 0.1) < 0.025


#: Fault → what it makes of a pair.
NOISE = {
    "empty": lambda source, target: (source, " "),
    "mojibake": lambda source, target: (source, target + " fÃ¼r \ufffd"),
    "control": lambda source, target: (source + "\ufffd", target),
    "markup": lambda source, target: (f"<b>{source}</b>", target),
    "address": lambda source, target: (source, f"{target} www.example.com"),
    "copy": lambda source, target: (source, source),
    "length": lambda source, target: (source, target[: len(target) // 4]),
    "language": lambda source, target: (source, f"A dog is running to {source}"),
}


@functools.cache
def noisy():
    """Of each noise 40 pairs of 1,500, one after another, and 200 misaligned ones."""
    sources, targets = (list(side[:1500]) for side in phrases())
    kinds = [*NOISE] * 40 + ["misaligned"] * 200
    targets[320:520] = targets[321:520] + targets[320:321]
    for row, kind in enumerate(kinds[:320]):
        sources[row], targets[row] = NOISE[kind](sources[row], targets[row])
    return sources, targets, np.array([*kinds, *["good"] * (1500 - len(kinds))])


def blocks_of(sources, targets, size=700):
    parts = [slice(begin, begin + size) for begin in range(0, len(sources), size)]
    return [(sources[part], targets[part]) for part in parts]


def test_counts_of_noisy_text():
    sources, targets, _ = noisy()
    counts = counts_of(blocks_of(sources, targets))
    for place, name in enumerate(NOISE, 1):
        pairs, of, line, _ = counts[name]
        if name not in ("control", "language", "length"):  # which others have too
            assert pairs == 40
        assert 40 <= pairs < 100 and of == 1500 and line <= place
    assert counts["empty"] == faults.FaultCount(40, 1500, 1)
    assert abs(counts["misaligned"].pairs - 200) < 40
    assert counts["misaligned"].line > 320
    first, last = counts["misaligned"].most  # of the 200 that are shifted
    assert 310 < first < 380 and 460 < last < 530
    notes = list(faults.fault_notes(counts))  # the worst first
    assert len(notes) == len(faults.FAULTS)
    said = "40 of 1,500 pairs (2.7%) have an empty side, as line 1: training"
    assert said in "\n".join(notes)
    shares = [counts[x].share / faults.FAULTS[x].share for x in faults.FAULTS]
    worst, text = faults.FAULTS[[*faults.FAULTS][np.argmax(shares)]], notes[0]
    assert worst.text in text and worst.advice in text
    about = [x for x in notes if re.match(r"about \d+ of 1,500 pairs", x)]
    assert len(about) == 1 and "seem misaligned" in about[0]
    assert f", mostly lines {first} to {last}: look" in about[0]
    few = {"empty": faults.FaultCount(1, 10_000, 3)}
    assert (
        not [*faults.fault_notes(few)]
        and len([*faults.fault_notes(few, all_of_them=True)]) == 1
    )


def test_clean_text_is_left_as_it_is():
    sources, targets = (side[:800] for side in phrases())
    counts = counts_of(blocks_of(sources, targets))
    assert list(faults.fault_notes(counts)) == []
    finder = faults.learn_faults(sources, targets, "en", "de")
    blocks = clean(blocks_of(sources, targets), finder)
    assert len([x for block in blocks for x in block.sources]) > 795


def test_clean_drops_what_is_wrong():
    sources, targets, kinds = noisy()
    finder = faults.learn_faults(sources, targets, "en", "de")
    blocks = list(clean(blocks_of(sources, targets), finder))
    begins = range(0, 1500, 700)
    rows = np.concatenate([x.rows + n for x, n in zip(blocks, begins, strict=True)])
    for name in NOISE:
        assert (kinds[rows] == name).sum() == 0, name
    assert (kinds[rows] == "misaligned").sum() < 40
    assert (kinds[rows] == "good").sum() > 0.99 * (kinds == "good").sum()
    dropped = {name: sum(x.dropped[name] for x in blocks) for name in REASONS}
    assert sum(dropped.values()) == 1500 - len(rows)
    # Of a pair with two faults the first one counts.
    assert dropped["mojibake"] + dropped["control"] == 80 and dropped["empty"] == 40


def test_clean_keeps_what_it_is_told_to():
    sources = ["a dog", "a dog", "a cat &amp;", "", "see www.a.de", "b"]
    targets = ["ein Hund", "ein Hund", "eine Katze &amp;", "x", "siehe www.a.de", "b"]
    for keep, left in (
        ((), [0, 2, 5]),
        (("repeat",), [0, 1, 2, 5]),
        (("empty", "address"), [0, 2, 3, 4, 5]),
    ):
        [block] = clean([(sources, targets)], FINDER, keep)
        assert block.rows.tolist() == left
        assert block.sources[left.index(2)] == "a cat &" and block.mended == 1
    [block] = clean([(sources, targets)], FINDER, ["markup"])
    assert block.sources[1] == "a cat &amp;" and block.mended == 0
    with pytest.raises(ValueError, match="keep must be of .*Received: .'markups'"):
        next(clean([(sources, targets)], FINDER, ["markups"]))


def test_repeats_are_found_across_blocks_and_after_mending():
    blocks = [(["a &amp; b", "c"], ["x", "y"]), (["a & b", "c"], ["x", "z"])]
    first, second = clean(blocks, FINDER)
    assert first.sources == ["a & b", "c"] and second.targets == ["z"]
    assert (first.dropped["repeat"], second.dropped["repeat"]) == (0, 1)


MENDED = [
    ("fÃ¼r", "für"),
    ("Itâ€™s Â«ouiÂ»", "It’s «oui»"),
    ("a&nbsp;b &lt; c&#10;d", "a b < c d"),
    ("Hu\x07nd\x0c Katze \x01 Maus", "Hund Katze Maus"),
    ("\x93So\x94", "“So”"),
    ("für 5 €", "für 5 €"),
    ("lost \ufffd", "lost \ufffd"),
    ("<b>a</b>", "<b>a</b>"),
]


@pytest.mark.parametrize("line, mended", MENDED)
def test_mending(line, mended):
    assert mend(line) == mended
