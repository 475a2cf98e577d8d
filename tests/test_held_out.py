"""Pairs to validate by, held out of a corpus without; and what two splits share."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from keras_luong.files import write_json, write_lines
from keras_luong.runs.opening import check_corpus, describe_corpus
from keras_luong.text.corpora import TextFiles, load_corpus
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.held_out import HeldOut, part, with_validation
from keras_luong.text.survey import Overlap, TextHashes, overlaps, text_hashes

#: Which of the 40 pairs of `lines`; a run that goes on relies on it.
HELD_OUT = [0, 5, 17, 19, 22, 25, 32, 33]


def lines(size, offset=0):
    return [f"{n} dogs\t{n} Hunde" for n in range(offset, offset + size)]


def table(folder, rows, name="train.tsv"):
    write_lines(folder / name, rows)
    return load_corpus(folder / name, "en", "de")


def read(corpus, split):
    return ["\t".join(pair) for pair in zip(*sentences(corpus, split), strict=True)]


@pytest.mark.parametrize(
    ("size", "held"),
    [(2, 1), (9, 1), (10, 2), (20, 4), (50, 10), (219, 10), (220, 11), (50_000, 1000)],
)
def test_how_many(size, held):
    """Not more than a thousand; long ones and those of many pairs come last."""
    hashes = np.arange(1, size + 1, dtype=np.uint64)
    parted = part(TextHashes(hashes, hashes, np.full(size, 9)))
    assert (parted.validation.sum(), parted.train.sum()) == (held, size - held)
    length = np.full(size, 1500)
    length[: size - held] += 1  # these are documents
    parted = part(TextHashes(hashes, hashes, length))
    assert np.flatnonzero(parted.validation).tolist() == [*range(size - held, size)]


def test_which(tmp_path):
    """The same wherever the text lies: packed, of other line ends, or side by side."""
    corpus = table(tmp_path, lines(40))
    assert corpus.splits == ("train", "validation")
    train, held = read(corpus, "train"), read(corpus, "validation")
    assert [int(line.split()[0]) for line in held] == HELD_OUT
    assert train == [line for line in lines(40) if line not in held]
    assert notes(corpus)["held out"] == "8 of 40 pairs, chosen at random"
    assert "no test" in notes(corpus)
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


def test_what_repeats_a_held_out_sentence_is_not_trained_on(tmp_path):
    """Neither its source, with another translation, nor its target."""
    more = [x for n in range(400) for x in (f"{n} dogs\tx {n}", f"y {n}\t{n} Hunde")]
    corpus = table(tmp_path, lines(400) + more + lines(400))
    train, held = read(corpus, "train"), read(corpus, "validation")
    for side in (0, 1):
        texts = [{line.split("\t")[side] for line in split} for split in (train, held)]
        assert not set.intersection(*texts)
    assert len(set(held)) == len(held) == 60
    left_out = 1600 - len(train) - 60
    assert notes(corpus)["held out"] == (
        f"60 of 1,600 pairs, chosen at random; {left_out} more left out of train as "
        "they repeat them"
    )
    assert left_out > 60 and overlaps(corpus)["validation"] == Overlap(60, 0, 0)


def test_what_repeats_pairs_does_not_hold_out_more(tmp_path):
    """Nor are they refused as too few: a corpus may be listed many times over."""
    corpus = table(tmp_path, lines(300) * 20 + ["\t"] * 300)
    assert len(read(corpus, "validation")) == 15
    assert len(read(corpus, "train")) == 285 * 20 + 300
    # All of these would be lost to training; nor is what is blank held out.
    common = [f"Yes.\tJa {n}." for n in range(300)] + ["\t", "a\t", "\tb"] * 50
    corpus = table(tmp_path, lines(300) + common)
    held = read(corpus, "validation")
    assert len(held) == 30 and not set(held) & set(common)
    assert set(common) <= set(read(corpus, "train"))


@pytest.mark.parametrize("space", ["{} ", " {}", "\u00a0{}\t", "{}\u3000"])
def test_white_space_makes_no_other_sentence(space, tmp_path):
    """It is split into the same tokens, which a model would have seen."""
    for language, word in (("en", "dogs"), ("de", "Hunde")):
        texts = [f"{n} {word}" for n in range(100)]
        again = [space.format(x).replace(" ", "  ") for x in texts]
        write_lines(tmp_path / f"train.{language}", texts + again)
    corpus = load_corpus(tmp_path, "en", "de")
    assert len(read(corpus, "validation")) == 10
    assert len(read(corpus, "train")) == 180
    assert overlaps(corpus)["validation"] == Overlap(10, 0, 0)
    assert "10 more left out" in notes(corpus)["held out"]


def test_documents_among_sentences_are_trained_on(tmp_path):
    """BLEU would be of them alone."""
    documents = [f"{n} {'dogs ' * 400}\t{n} Hunde" for n in range(50)]
    corpus = table(tmp_path, documents + lines(50, offset=50))
    assert {len(line) < 30 for line in read(corpus, "validation")} == {True}
    corpus = table(tmp_path, documents, "documents.tsv")  # of nothing else some are
    assert len(read(corpus, "validation")) == 10


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
    hashes = text_hashes(tf.data.Dataset.from_tensor_slices(sides))
    assert hashes.source[0] == hashes.source[2] == hashes.target[1] > 0
    assert hashes.full.tolist() == [True, True, True, False]
    assert hashes.pairs[0] == hashes.pairs[2] != hashes.pairs[1]
    assert hashes.length.tolist() == [1, 1, 2, 3]
    nothing = text_hashes(tf.data.Dataset.from_tensor_slices(sides).take(0))
    assert len(nothing.source) == 0


def test_k1_a_test_split_that_is_trained_on(tmp_path):
    """The pairs and the sources that training knows; blank ones are none."""
    write_lines(tmp_path / "train.tsv", [*lines(30), "\t"])
    write_lines(tmp_path / "val.tsv", lines(10, offset=30))
    write_lines(tmp_path / "test.tsv", [*lines(8, offset=25), "7 dogs\tx", "\t"])
    corpus = load_corpus(tmp_path, "en", "de")
    known = {"validation": Overlap(10, 0, 0), "test": Overlap(10, 5, 6, 3)}
    assert overlaps(corpus) == known
    assert overlaps(corpus, limit=28)["test"] == Overlap(10, 3, 4, 3)
    # Of training text with tags too; and with what was learned before.
    write_lines(tmp_path / "train.tsv", [f"<news> {line}" for line in lines(30)])
    corpus = load_corpus(tmp_path, "en", "de")
    assert overlaps(corpus) == known
    more = tmp_path / "more.tsv"
    write_lines(more, [*lines(4, offset=28), "32 dogs\tx"])
    learned = [TextFiles.from_table(more, "en", "de").pairs("train")]
    found = {"validation": Overlap(10, 2, 3), "test": Overlap(10, 7, 9, 3)}
    assert overlaps(corpus, learned=learned) == found


def test_a_run_knows_whether_pairs_were_held_out(tmp_path):
    """The text is the same; what is trained on is not."""
    write_lines(tmp_path / "train.tsv", lines(40))
    held = load_corpus(tmp_path, "en", "de")
    write_lines(tmp_path / "val.tsv", read(held, "validation"))
    given = load_corpus(tmp_path, "en", "de")
    for before, now, said in (
        (held, given, "had 32 .* has 40: validation text no longer held out of it"),
        (given, held, "had 40 .* has 32: validation text now held out of it"),
    ):
        record = {"format": 1, "model": {}, "search": {}, "max_source_length": 9}
        record |= {"paths": {}, "came_from": None, "settings": {"data": "mine"}}
        write_json(
            tmp_path / "run.json", {**record, "corpus": describe_corpus(before, None)}
        )
        check_corpus(tmp_path, "mine", describe_corpus(before, None), before)
        with pytest.raises(ValueError, match=f"its train split {said}. Give another"):
            check_corpus(tmp_path, "mine", describe_corpus(now, None), now)
