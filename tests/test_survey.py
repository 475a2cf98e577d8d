"""What is known of a corpus: its size, languages and tags, and what it is judged by.

That is pairs held out of a corpus without, and what two splits share.
"""

import bz2
import gzip
import random

import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but

from keras_luong.files import write_lines
from keras_luong.languages import language_code, standard_code
from keras_luong.runs import opening
from keras_luong.runs.opening import check_corpus
from keras_luong.text import PhraseCorpus, load_corpus
from keras_luong.text.corpus import fingerprint, notes, read_blocks, sentences
from keras_luong.text.hashes import HashReader, Sample, TextHashes
from keras_luong.text.held_out import HeldOut, part, with_validation
from keras_luong.text.language_guess import (
    are_alike,
    guess_language,
    language_doubts,
    reads_like,
    stray_language,
)
from keras_luong.text.survey import Overlap, survey
from keras_luong.text.tags import frequent_tags, remove_tags, tag_of
from keras_luong.text.words import is_unspaced


@pytest.fixture
def measure(tmp_path):
    """Facts of a corpus of these lines on both sides, or of two lists of them."""

    def measure(source, target=None, **options):
        for language, texts in {"xx": source, "yy": target or source}.items():
            for split in ("train", "val"):
                write_lines(tmp_path / f"{split}.{language}", texts)
        found = survey(load_corpus(tmp_path, "xx", "yy"), **options)
        return found.splits["train"].facts

    return measure


#: Three short pairs, and one of which a side is long.
SIDES = ["ab", "é", "c", "d " * 300], ["x", "y", "漢字", "z"]


def test_counts_bytes_and_characters(measure):
    facts = measure(*SIDES, coverage=1.0)
    assert facts.pairs == 4
    assert facts.content == len(bz2.compress("x\ny\n漢字\nz\n".encode()))
    # of the longer side; 599 if the reader strips lines
    assert facts.long_line in (599, 600)
    assert facts.characters == len(set("abécd xyz漢字"))
    # rare ones need not be covered: "d" and space are left
    assert measure(*SIDES, coverage=0.9).characters == 2
    some = measure(*SIDES, limit=3)
    assert (some.pairs, some.long_line) == (3, 6)


def test_what_repeats_itself_is_little_content(measure):
    rng = random.Random(0)
    lines = [" ".join(rng.choices("abcdefghij", k=20)) for _ in range(500)]
    few, some = measure(lines[:25]), measure(lines[:25] * 20)
    assert some == few and some.pairs == 25
    assert some.content < measure(lines).content / 5


def test_a_document_in_one_line_is_not_measured_whole(measure):
    """It is not trained on, and no reason for a larger model."""
    rng = random.Random(0)
    words = [str(rng.random()) for _ in range(20_000)]
    documents = [" ".join(words[:length]) for length in (1000, 20_000)]
    one, other = (measure([*words[:100], x]).content for x in documents)
    assert one == other


@pytest.fixture(scope="module")
def sides():
    """The English and the German sentences of the embedded corpus."""
    pairs = PhraseCorpus(train=200, validation=20, test=20).examples("train")
    return {
        "en": [pair.source.encode() for pair in pairs],
        "de": [pair.target.encode() for pair in pairs],
    }


LANGUAGES = [
    ("en", "en", "en"),
    ("en", "de", "en"),
    ("de", "nl", "de"),
    ("de", "fra", "de"),
    ("de", "deu", "deu"),
    ("en", "xx", None),  # a language that is not known
]


@pytest.mark.parametrize("lines, declared, look", LANGUAGES)
def test_tells_languages(sides, lines, declared, look):
    """The more text, the less a letter counts."""
    assert guess_language(sides[lines], declared) == look
    assert guess_language(sides[lines] * 100, declared) == look
    assert guess_language([b"a dog"] * 9, declared) is None  # too little


#: Words of many languages, and sentences of a neighbour of what they should be.
WORDS = {
    "names": ("en", "Maria Garcia\nJames Ivanov\nWei Chen\nJan Kowalski\nLuigi Rossi"),
    "addresses": ("en", "https://www.example.com/kim/7\nhttps://www.example.com/silva"),
    "e-mails": ("en", "jansen@firma.de\nnovak@firma.de\nokafor@firma.de"),
    "menus": ("en", "OK Cancel Save File Edit View Help Open Close Print"),
    "kanji": ("ja", "東京都渋谷区神南一丁目"),
    "units": ("de", "5 kg 10 km 7 m/s 20 °C"),
    "Italian": ("es", "Il ragazzo gioca con la palla sulla spiaggia oggi."),
    "Finnish": ("et", "Poika leikkii pallolla rannalla tänään."),
    "Turkish": ("az", "Çocuk bugün sahilde topla oynuyor."),
}


@pytest.mark.parametrize("name", WORDS)
def test_w5_only_sentences_are_surely_in_another_language(name):
    declared, text = WORDS[name]
    is_other = declared in ("es", "et", "az")
    lines = text.encode().splitlines() * (40 if is_other else 400)
    doubts = language_doubts({"source": lines}, {"source": declared})
    found = [x.startswith(f"the source should be {declared}, and") for x in doubts]
    assert found == [True] * is_other
    assert not (is_other and reads_like(lines, declared))


@pytest.mark.parametrize(
    ("line", "declared", "look"),
    [
        ("A dog is running along the beach.", "de", "en"),
        ("A DOG IS RUNNING ALONG THE BEACH.", "de", "en"),
        ("Ein Mann mit Hut geht über die Straße.", "en", "de"),
        ("一只狗在海滩上跑来跑去，嘴里叼着一个红色的球。", "en", "zh"),
        ("كلب يركض على الشاطئ مع كرة في فمه", "de", "ar"),
        ("Ein Hund läuft am Strand entlang.", "de-AT", None),
        ("Momak trči po plaži sa svojim psom.", "sr", None),  # hr is written alike
        ("A dog is here.", "de", None),  # too little
        ("James Ivanov and Maria Garcia, New York City", "de", None),
        ("silva@example.com https://www.example.com/dogs/in/the/garden", "de", None),
        ("5 kg, 10 km, 7 m/s, 20 °C, 15 kg, 88 km, 12 ml, 9 cm", "de", None),
        ("A dog is running along the beach.", "xx", None),
    ],
)
def test_a_single_line_in_another_language(line, declared, look):
    assert stray_language(line, declared) == look


def test_codes_of_languages():
    """One way to write each; and that of a language alone."""
    codes = "EN pt_BR por-br zho_Hans ger yue xx fil Go.".split() + [""]
    spelled = ["en", "pt-BR", "pt-BR", "zh-Hans", "de", "yue", "xx", "tl", "go.", ""]
    assert list(map(standard_code, codes)) == spelled
    codes = ["de-AT", "zh_Hant", "yue", "cmn", "jpn_Jpan", "Tok.en", "nb", "tl"]
    alone = ["de", "zh", "zh", "zh", "ja", "tok.en", "nb", "tl"]
    assert list(map(language_code, codes)) == alone
    for one, other in (("zh", "zh_Hans"), ("no", "nb")):
        assert are_alike(one, other) and are_alike(other, one)
    assert not are_alike("fr", "en") and not are_alike("en", "fr")


def test_scripts_without_spaces_between_words():
    unspaced, others = "中々あアｱไລខမབ", "aßжαא한अ。、！1 \u2028\x00\ue000"
    assert "".join(filter(is_unspaced, unspaced + others)) == unspaced


def pairs(*sources):
    sides = {"source": list(sources), "target": ["x"] * len(sources)}
    return tf.data.Dataset.from_tensor_slices(sides)


def test_k2_tags_are_what_sources_begin_with():
    """Nothing within a text, without a space behind it, or that no tag can be called.

    `<s>` is a special token, and bytes that are no UTF-8 are of no tag.
    """
    others = ["a <b> c", "<c>d", "<D> e", "< f> g", "<s> h", " <i> j", "<k>", "</l> m"]
    assert not any(map(tag_of, [*others, ""]))
    assert [*map(tag_of, ["<bt> a\nb", "<a_1> \u2028"])] == ["bt", "a_1"]


def test_k2_what_is_rarer_than_one_of_a_thousand_is_no_tag():
    """But that of back-translated text is one however rare."""
    assert frequent_tags({"two": 2, "one": 1}, 2000) == ["two"]
    assert frequent_tags({"two": 2, "one": 1}, 1000) == ["one", "two"]
    assert frequent_tags({"one": 1, "bt": 1}, 2000) == ["bt"]


def test_k2_tags_are_removed_in_front_alone():
    def left(sources, *tags):
        changed = remove_tags(pairs(*sources), *tags)
        return [pair["source"].decode() for pair in changed.as_numpy_iterator()]

    some = ["<bt> a <bt> b", "<i> c", "<bt> <bt> d"]
    assert left(some, ["bt", "x"]) == ["a <bt> b", "<i> c", "<bt> d"]
    # All of them, where none is named.
    assert left(["<bt> a", "<i> <b> c", "<D> d"]) == ["a", "<b> c", "<D> d"]


#: Which of the 40 pairs of `lines`; a run that goes on relies on it.
HELD_OUT = [0, 5, 17, 19, 22, 25, 32, 33]


def lines(size, offset=0):
    return [f"{n} dogs\t{n} Hunde" for n in range(offset, offset + size)]


def table(folder, rows, name="train.tsv"):
    write_lines(folder / name, rows)
    return load_corpus(folder / name, "en", "de")


def read(corpus, split):
    pairs = [*zip(*sentences(corpus, split), strict=True)]
    blocks = [zip(*block, strict=True) for block in read_blocks(corpus, split)]
    assert [pair for block in blocks for pair in block] == pairs
    return ["\t".join(pair) for pair in pairs]


@pytest.fixture
def hold_out(tmp_path):
    """A corpus of such lines, and the lines to train on and to validate by."""

    def hold_out(rows):
        corpus = table(tmp_path, rows)
        return corpus, read(corpus, "train"), read(corpus, "validation")

    return hold_out


def sample(size):
    """All of so many pairs."""
    return Sample(np.arange(size), *[list(map(str, range(size)))] * 2)


@pytest.mark.parametrize(
    ("size", "held"),
    [(2, 1), (9, 1), (10, 2), (20, 4), (50, 10), (219, 10), (220, 11), (50_000, 1000)],
)
def test_how_many(size, held):
    """Not more than a thousand; long ones and those of many pairs come last."""
    hashes = np.arange(1, size + 1, dtype=np.uint64)
    parted = part(TextHashes(hashes, hashes, np.full(size, 9)), sample(size))
    assert (len(parted.validation.places), parted.train.sum()) == (held, size - held)
    length = np.full(size, 1500)
    length[: size - held] += 1  # these are documents
    parted = part(TextHashes(hashes, hashes, length), sample(size))
    assert parted.validation.places.tolist() == [*range(size - held, size)]


def test_a_sentence_of_more_than_ten_pairs_is_trained_on():
    """Of up to ten it may be held out, as any."""
    sources = np.array([1] * 11 + [2] * 10 + [*range(3, 20)], np.uint64)
    targets = np.arange(1, 39, dtype=np.uint64)
    for sides in ((sources, targets), (targets, sources)):
        parted = part(TextHashes(*sides, np.full(38, 9)), sample(38))
        assert set(sources[parted.validation.places]) > {2} and parted.train[:11].all()
        assert not parted.train[11:21].any()  # what repeats them is left out


def test_which(hold_out, tmp_path):
    corpus, train, held = hold_out(lines(40))
    assert corpus.splits == ("train", "validation")
    assert [int(line.split()[0]) for line in held] == HELD_OUT
    assert train == [line for line in lines(40) if line not in held]
    assert notes(corpus)["held out"] == "8 of 40 pairs, chosen at random"
    assert "no test" in notes(corpus)
    for _ in "12":  # what is there is replaced
        corpus.save(tmp_path / "held")
    corpus.load(tmp_path / "held")
    assert [read(corpus, split) for split in corpus.splits] == [train, held]


@pytest.mark.slow
def test_the_same_wherever_the_text_lies(hold_out, tmp_path):
    """Packed, of other line ends, or side by side."""
    corpus, *_ = hold_out(lines(40))
    packed = "".join(f"{line}\r\n" for line in lines(40)).encode()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.tsv.gz").write_bytes(gzip.compress(packed))
    sides = zip(*(line.split("\t") for line in lines(40)), strict=True)
    for language, side in zip(("en", "de"), sides, strict=True):
        write_lines(tmp_path / "two" / f"train.{language}", side)
    for other in ("other", "two"):
        again = load_corpus(tmp_path / other, "en", "de")
        for split in ("train", "validation"):
            assert fingerprint(again, split) == fingerprint(corpus, split)


def test_what_repeats_a_held_out_sentence_is_not_trained_on(hold_out):
    """Neither its source, with another translation, nor its target."""
    more = [x for n in range(100) for x in (f"{n} dogs\tx {n}", f"y {n}\t{n} Hunde")]
    corpus, train, held = hold_out(lines(100) + more + lines(100))
    for side in (0, 1):
        texts = [{line.split("\t")[side] for line in split} for split in (train, held)]
        assert not set.intersection(*texts)
    assert len(set(held)) == len(held) == 15
    left_out = 400 - len(train) - 15
    assert notes(corpus)["held out"] == (
        f"15 of 400 pairs, chosen at random; {left_out} more left out of train as "
        "they repeat them"
    )
    assert left_out > 15 and survey(corpus).overlaps()["validation"] == Overlap(
        15, 0, 0
    )


def test_what_repeats_pairs_does_not_hold_out_more(hold_out):
    """Nor are they refused as too few: a corpus may be listed many times over."""
    _, train, held = hold_out(lines(100) * 10 + ["\t"] * 100)
    assert (len(held), len(train)) == (10, 90 * 10 + 100)
    # All of these would be lost to training; nor is what is blank held out.
    common = [f"Yes.\tJa {n}." for n in range(150)] + ["\t", "a\t", "\tb"] * 20
    _, train, held = hold_out(lines(150) + common)
    assert len(held) == 15 and not set(held) & set(common) and set(common) <= set(train)


@pytest.mark.parametrize(
    "space", slow_but(["{} ", " {}", "\u00a0{}\t", "{}\u3000"], "\u00a0{}\t")
)
def test_white_space_makes_no_other_sentence(space, tmp_path):
    """It is split into the same tokens, which a model would have seen."""
    for language, word in (("en", "dogs"), ("de", "Hunde")):
        texts = [f"{n} {word}" for n in range(100)]
        again = [space.format(x).replace(" ", "  ") for x in texts]
        write_lines(tmp_path / f"train.{language}", texts + again)
    corpus = load_corpus(tmp_path, "en", "de")
    assert [len(read(corpus, x)) for x in corpus.splits] == [180, 10]
    assert survey(corpus).overlaps()["validation"] == Overlap(10, 0, 0)
    assert "10 more left out" in notes(corpus)["held out"]


def test_documents_among_sentences_are_trained_on(hold_out):
    """BLEU would be of them alone."""
    documents = [f"{n} {'dogs ' * 400}\t{n} Hunde" for n in range(50)]
    _, _, held = hold_out(documents + lines(50, offset=50))
    assert {len(line) < 30 for line in held} == {True}
    _, _, held = hold_out(documents)  # of nothing else some are held out
    assert len(held) == 10


@pytest.mark.parametrize("rows", [["a\tb"], ["a\tb"] * 50, ["a\tb", "a\tc", "a\td"]])
def test_too_few_pairs(rows, tmp_path):
    corpus = table(tmp_path, rows)
    message = f"train.tsv has no validation split, and too few.*of {len(rows)}, only"
    with pytest.raises(ValueError, match=message):
        corpus.pairs("validation")


def test_a_split_to_validate_by_is_left_as_it_is(tmp_path):
    for name in ("train", "val", "test"):
        write_lines(tmp_path / f"{name}.tsv", lines(40))
    corpus = load_corpus(tmp_path, "en", "de")
    assert not isinstance(corpus, HeldOut) and "no test" not in notes(corpus)
    assert with_validation(corpus) is corpus
    (tmp_path / "val.tsv").unlink()
    corpus = load_corpus(tmp_path, "en", "de")
    assert corpus.splits == ("train", "validation", "test")
    assert read(corpus, "test") == lines(40) and with_validation(corpus) is corpus
    assert set(read(corpus, "validation")) < set(lines(40))
    with pytest.raises(ValueError, match="no split 'dev'"):
        corpus.pairs("dev")
    (tmp_path / "train.tsv").unlink()
    assert load_corpus(tmp_path, "en", "de").splits == ("test",)


def test_hashes_tell_texts_apart():
    sides = {"source": ["a", "b", " a", " \u00a0"], "target": ["b", "a", "b", "b"]}
    hashes = HashReader().read_all([sides.values()]).hashes
    assert hashes.source[0] == hashes.source[2] == hashes.target[1] > 0
    assert hashes.full.tolist() == [True, True, True, False]
    assert hashes.pairs[0] == hashes.pairs[2] != hashes.pairs[1]
    assert hashes.length.tolist() == [1, 1, 2, 2]
    assert len(HashReader().read_all([([], [])]).hashes.source) == 0


def test_k1_a_test_split_that_is_trained_on(tmp_path):
    """The pairs and the sources that training knows; blank ones are none."""
    write_lines(tmp_path / "val.tsv", lines(10, offset=30))
    write_lines(tmp_path / "test.tsv", [*lines(8, offset=25), "7 dogs\tx", "\t"])
    known = {"validation": Overlap(10, 0, 0), "test": Overlap(10, 5, 6, 3)}
    write_lines(tmp_path / "train.tsv", [*lines(30), "\t"])
    corpus = load_corpus(tmp_path, "en", "de")
    assert survey(corpus).overlaps() == known
    assert survey(corpus, limit=28).overlaps()["test"] == Overlap(10, 3, 4, 3)
    # Of training text with tags too; and with what was learned before.
    write_lines(tmp_path / "train.tsv", [f"<news> {line}" for line in lines(30)])
    corpus = load_corpus(tmp_path, "en", "de")
    assert survey(corpus).overlaps() == known
    more = table(tmp_path, [*lines(4, offset=28), "32 dogs\tx"], "more.tsv").whole
    found = {"validation": Overlap(10, 2, 3), "test": Overlap(10, 7, 9, 3)}
    assert survey(corpus).overlaps([more.pairs("train")]) == found


def test_a_run_knows_whether_pairs_were_held_out(tmp_path, monkeypatch):
    """The text is the same; what is trained on is not."""
    held = table(tmp_path, lines(40))
    write_lines(tmp_path / "val.tsv", read(held, "validation"))
    given = load_corpus(tmp_path, "en", "de")
    for before, now, said in (
        (held, given, "had 32 .* has 40: validation text no longer held out of it"),
        (given, held, "had 40 .* has 32: validation text now held out of it"),
    ):
        texts, others = survey(before).texts, survey(now).texts
        record = {"settings": {"data": "mine"}, "corpus": texts}
        monkeypatch.setattr(opening, "read_record", lambda _, record=record: record)
        check_corpus(tmp_path, "mine", texts, before)
        with pytest.raises(ValueError, match=f"its train split {said}. Give another"):
            check_corpus(tmp_path, "mine", others, now)
