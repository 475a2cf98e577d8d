import gzip

import numpy as np
import pytest
import tensorflow as tf
from commands import run
from small_training import train_words, write_corpus

from keras_luong.files import write_lines
from keras_luong.runs.run import read_record
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


def hashes_of_other_pairs(size):
    hashes = np.arange(1, size + 1, dtype=np.uint64)
    return TextHashes(hashes, hashes, np.full(size, 9))


@pytest.mark.parametrize(
    ("size", "held"), [(2, 1), (20, 4), (50, 10), (199, 10), (400, 20), (3000, 150)]
)
def test_how_many(size, held):
    parted = part(hashes_of_other_pairs(size))
    assert (parted.validation.sum(), parted.train.sum()) == (held, size - held)


def test_not_more_than_a_thousand():
    assert part(hashes_of_other_pairs(50_000)).validation.sum() == 1000


def test_which(tmp_path):
    corpus = table(tmp_path, lines(40))
    assert corpus.splits == ("train", "validation")
    train, held = read(corpus, "train"), read(corpus, "validation")
    assert [int(line.split()[0]) for line in held] == HELD_OUT
    assert train == [line for line in lines(40) if line not in held]
    assert notes(corpus)["held out"] == "8 of 40 pairs, chosen at random"
    assert "no test" in notes(corpus)


@pytest.mark.slow
def test_the_same_wherever_the_text_lies(tmp_path):
    """Moved, packed, of other line ends, or side by side."""
    corpus = table(tmp_path, lines(40))
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


@pytest.mark.slow
def test_what_repeats_a_held_out_sentence_is_not_trained_on(tmp_path):
    """Neither its source, with another translation, nor its target."""
    n = HELD_OUT[0]
    more = [f"{n} dogs\tx", f"y\t{n} Hunde", f"{n} dogs\t{n} Hunde", "x\ty"]
    corpus = table(tmp_path, lines(400) + more)
    train, held = read(corpus, "train"), read(corpus, "validation")
    for side in (0, 1):
        texts = [{line.split("\t")[side] for line in split} for split in (train, held)]
        assert not set.intersection(*texts)
    assert len(set(held)) == len(held) == 20
    left_out = 404 - len(train) - 20
    expected = f"20 of 404 pairs, chosen at random; {left_out} more left out of train"
    assert notes(corpus)["held out"].startswith(expected) == bool(left_out)
    assert overlaps(corpus)["validation"] == Overlap(20, 0, 0)


def test_sentences_of_many_pairs_are_trained_on(tmp_path):
    """All of these pairs would be lost to training; nor is what is blank held out."""
    common = [f"Yes.\tJa {n}." for n in range(300)] + ["\t", "a\t", "\tb"] * 50
    corpus = table(tmp_path, lines(300) + common)
    held = read(corpus, "validation")
    assert len(held) == 30 and not set(held) & set(common)
    assert set(common) <= set(read(corpus, "train"))


def test_what_repeats_pairs_does_not_hold_out_more(tmp_path):
    """Nor are they refused as too few: a corpus may be listed many times over."""
    corpus = table(tmp_path, lines(300) * 20 + ["\t"] * 300)
    assert len(read(corpus, "validation")) == 15
    assert len(read(corpus, "train")) == 285 * 20 + 300


@pytest.mark.parametrize("space", ["{} ", " {}", "\u00a0{}\t", "{}\u3000"])
def test_white_space_makes_no_other_sentence(space, tmp_path):
    """It is split into the same tokens, which a model would have seen."""
    write_lines(tmp_path / "train.en", (f"{n} dogs" for n in range(100)))
    write_lines(tmp_path / "train.de", (f"{n} Hunde" for n in range(100)))
    for language in ("en", "de"):
        path = tmp_path / f"train.{language}"
        again = [
            space.format(x).replace("s", "s  ") for x in path.read_text().split("\n")
        ]
        path.write_text(path.read_text() + "\n".join(again[:100]) + "\n")
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
    (tmp_path / "val.tsv").unlink()
    corpus = load_corpus(tmp_path, "en", "de")
    assert corpus.splits == ("train", "validation", "test")
    assert read(corpus, "test") == lines(40)
    assert set(read(corpus, "validation")) < set(lines(40))
    with pytest.raises(ValueError, match="no split 'dev'"):
        corpus.pairs("dev")
    (tmp_path / "train.tsv").unlink()
    assert load_corpus(tmp_path, "en", "de").splits == ("test",)


@pytest.mark.slow
def test_a_corpus_of_ones_own():
    """Any corpus can be parted, in its order."""

    class Mine:
        name, source_language, target_language = "mine", "en", "de"
        splits = ("train",)

        def pairs(self, split):
            texts = [str(n) for n in range(5000)]
            return tf.data.Dataset.from_tensor_slices(
                {"source": texts, "target": texts}
            )

    corpus = with_validation(Mine())
    train, held = (sentences(corpus, x)[0] for x in ("train", "validation"))
    assert (len(train), len(held)) == (4750, 250)
    assert [*map(int, train)] == sorted(set(range(5000)) - set(map(int, held)))
    assert with_validation(corpus) is corpus


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
    assert overlaps(corpus, learned=learned) == {
        "validation": Overlap(10, 2, 3),
        "test": Overlap(10, 7, 9, 3),
    }


def test_validation_text_that_is_the_test_text_too(tmp_path):
    write_lines(tmp_path / "train.tsv", lines(30))
    for split in ("val", "test"):
        write_lines(tmp_path / f"{split}.tsv", lines(10, offset=30))
    found = overlaps(load_corpus(tmp_path, "en", "de"))
    assert found == {"validation": Overlap(10, 0, 0), "test": Overlap(10, 0, 0, 10)}


@pytest.mark.slow
def test_every_command_knows_the_held_out_pairs(tmp_path, capsys):
    """From training over going on, with the text moved and packed, to a shortlist."""
    (tmp_path / "data").mkdir()
    write_corpus(tmp_path / "data", train=100)
    run("train", *train_words(tmp_path / "data", tmp_path / "run", epochs=1))
    said = capsys.readouterr().out
    assert "train 90, validation 10 pairs\n" in said
    assert "\nheld out     10 of 100 pairs, chosen at random\n" in said
    assert "\nno test      results are of the validation pairs" in said
    known = read_record(tmp_path / "run")["corpus"]
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (tmp_path / "data").iterdir():
        packed = gzip.compress(path.read_bytes())
        (moved / f"{path.name}.gz").write_bytes(packed)
        path.unlink()
    run("train", *train_words(moved, tmp_path / "run", epochs=2))
    assert read_record(tmp_path / "run")["corpus"] == known
    capsys.readouterr()
    run("evaluate", tmp_path / "run")
    said = capsys.readouterr().out
    assert said.startswith("validation: 10 sentences")
    run("tune", tmp_path / "run")
    assert "(10 sentences" in capsys.readouterr().out
    run("shortlist", tmp_path / "run")
    run("distill", tmp_path / "run", "--out", tmp_path / "distilled")
    distilled = load_corpus(tmp_path / "distilled", "xx", "yy")
    assert fingerprint(distilled, "train").pairs == 180
    assert fingerprint(distilled, "validation").digest == known["validation"]["digest"]
    (moved / "val.xx").write_text("a b\n")
    (moved / "val.yy").write_text("A B\n")
    with pytest.raises(ValueError, match="train split had 90.*longer held out of it"):
        run("train", *train_words(moved, tmp_path / "run", epochs=2))
