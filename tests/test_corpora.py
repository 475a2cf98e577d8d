"""Which corpus `--data` is, and the pairs that are streamed of it, or why not."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf
from odd_rows import packed

from keras_luong.files import read_lines, write_lines
from keras_luong.text.corpora import TextFiles, TfdsCorpus, load_corpus
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.corpus_files import ADVICE, read_table
from keras_luong.text.rows import Table


def fill(folder, names, lines=("a\tb",)):
    for name in names.split():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(packed(text) if path.suffix == ".gz" else text)


def found(folder, *languages):
    """Split → the names of its files."""
    files = TextFiles.from_directory(folder, *languages).files.items()
    return {split: " ".join(path.name for path in x.paths) for split, x in files}


TWO, THREE = "train.en train.de", "train.en train.de train.fr"


TRAINING_SPLITS = [
    (TWO, ("en", "de")),
    ("train.de train.en", ("de", "en")),
    ("train.en train.de.gz", ("en", "de")),
    ("train.en.txt train.de.txt.gz", ("en", "de")),
    ("Train.EN train.De", ("en", "de")),
    (TWO, ("EN", "De")),
    ("train.pt-BR train.zh_Hans", ("pt_br", "zh-hans")),
    ("train.tsv.gz", ("en", "de")),
]


@pytest.mark.parametrize("names, languages", TRAINING_SPLITS)
def test_a_training_split(names, languages, tmp_path):
    fill(tmp_path, names)
    assert found(tmp_path, *languages) == {"train": names}


def test_splits_have_an_order(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory .*none"):
        TextFiles.from_directory(tmp_path / "none", "en", "de")
    fill(tmp_path, f"test_b.en test_b.de test.tsv dev.en dev.de {THREE} training.en")
    corpus = TextFiles.from_directory(str(tmp_path), "en", "de")
    assert corpus.splits == ("train", "validation", "test", "test_b")
    assert corpus.name == tmp_path.name


OTHER_SPLITS = [
    *((f"{x}.en {x}.de", x) for x in ("test2016", "test.news", "newstest13")),
    *((f"{x}.en {x}.de", "validation") for x in ("val", "valid", "validation")),
    ("dev.en dev.de", "validation"),
    ("test_2016_flickr.en test_2016_flickr.de", "test_2016_flickr"),
    ("val.tsv", "validation"),
    ("Test.en Test.de", "test"),
    ("testament.en testament.de", None),
    ("train.tsv", None),
    ("._train.en .1-a.test.de", None),
]


@pytest.mark.parametrize("more, split", OTHER_SPLITS)
def test_other_splits_beside_it(more, split, tmp_path):
    fill(tmp_path, f"{TWO} {more}")
    others = {split: more} if split else {}
    assert found(tmp_path, "en", "de") == {"train": TWO, **others}


def test_what_is_not_read_is_said(tmp_path):
    fill(tmp_path, f"{TWO} europarl.en europarl.de readme.txt a.tsv")
    said = notes(TextFiles.from_directory(tmp_path, "en", "de"))["not read"]
    assert said == "['a.tsv', 'europarl.de', 'europarl.en']"
    with pytest.raises(ValueError, match="no split 'test'.* Not read: .'a.tsv', 'eur"):
        TextFiles.from_directory(tmp_path, "en", "de").pairs("test")
    fill(tmp_path / "test", "test.en test.de")
    assert not TextFiles.from_directory(tmp_path / "test", "en", "de").notes


ONE_LANGUAGE = [
    ("train.fr train.en", ("fr", None), ("fr", "en")),
    ("train.fr train.en", (None, "FR"), ("en", "FR")),
    ("test.pt_BR.txt test.en.txt", ("en", None), ("en", "pt-BR")),
    (f"{TWO} val.en val.de test.fr", ("en", None), ("en", "de")),
]


@pytest.mark.parametrize("names, given, expected", ONE_LANGUAGE)
def test_the_other_language_follows(names, given, expected, tmp_path):
    fill(tmp_path, names)
    corpus = TextFiles.from_directory(tmp_path, *given)
    assert (corpus.source_language, corpus.target_language) == expected


BOTH_WAYS = "which .*Give --source de --target en, or --source en --target de"
EN_DE = ("en", "de")
AMBIGUOUS = [
    (f"{TWO} read.me", (None, None), f"de and en: {BOTH_WAYS}"),
    (THREE, (None, None), "de, en, fr: give both --source and --target"),
    (THREE, ("en", None), "Received: 'en' and None"),
    (TWO, ("fr", None), "has de, en: give both"),
    (TWO, ("en", "EN"), "same"),
    (f"{TWO} train.de.gz", EN_DE, "gz are both the de side of the train spl"),
    ("dev.en val.en val.de", EN_DE, "dev.en and .*val.en are both the en s"),
    ("train.tsv train.tsv.gz", EN_DE, "are both the train split"),
    ("train.jsonl train.tsv", EN_DE, "are both the train split"),
]


@pytest.mark.parametrize("names, languages, message", AMBIGUOUS)
def test_k1_names_that_have_several_readings(names, languages, message, tmp_path):
    fill(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path, *languages)


PARL = r"has no train.en and train.de.*\['europarl.de', 'europarl.en'\]. Name its files"
UNREADABLE = [
    ("train.en", r"train.en but no .de file beside it.*\['train.en'\]"),
    ("train.en train.fr", r"no .de .*\['train.en', 'train.fr'\]"),
    (f"{TWO} val.en.txt", "val.en.txt but no .de"),
    ("train.fr train.it", "has no train.en and train.de, no train.tsv"),
    ("europarl.en europarl.de", f"{PARL} so, or give two .*/FILE,.*/FILE"),
    ("en/train.txt de/train.txt", r"it has \['de/', 'en/'\]"),
    ("corpus.xlsx", "xlsx is no text file.*as CSV in UTF-8"),
    ("train.json", "train.json is no text file.*jq -c .* > train.jsonl"),
    ("deu-eng.zip", "zip is no text file of sentences: unpack it"),
    (" ".join(f"{x}.txt" for x in range(12)), "'7.txt'. and 2 more"),
    (" ".join(f"{x}.txt" for x in range(10)), "'9.txt'.[.] Name"),
]


@pytest.mark.parametrize("names, message", UNREADABLE)
def test_k1_names_that_cannot_be_read(names, message, tmp_path):
    """Each says what was found, and what to do."""
    fill(tmp_path, names)
    with pytest.raises(FileNotFoundError, match=message) as said:
        load_corpus(tmp_path, "en", "de")
    assert "\n" not in str(said.value)
    if names == "corpus.xlsx":
        with pytest.raises(OSError, match="no train.SOURCE .*xlsx is no text file"):
            load_corpus(tmp_path)


@pytest.mark.parametrize("languages", [(), ("en",), ("en", "de")])
def test_two_files_of_any_name(languages, tmp_path, monkeypatch):
    """Their endings tell the languages; the source comes first."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path, "europarl.en", ("one", "two") * 20)
    fill(tmp_path, "mine/german.de.gz", ("eins", "zwei") * 20)
    corpus = load_corpus("europarl.en,mine/german.de.gz", *languages)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert next(corpus.whole.pairs("train").as_numpy_iterator())["target"] == b"eins"
    fill(tmp_path, "a b")
    assert load_corpus("a,b", "en", "de").splits == ("train", "validation")
    with pytest.raises(ValueError, match="a,b names no languages: give both"):
        load_corpus("a,b")
    with pytest.raises(FileNotFoundError, match="There is no file none"):
        load_corpus("a,none", "en", "de")
    Path("a,c").mkdir()
    with pytest.raises(FileNotFoundError, match="a,c has no train.en"):
        load_corpus("a,c", "en", "de")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_command_for_json_can_be_pasted(tmp_path):
    pairs = [{"en": 'a\t"b"\n c', "de": "ä"}, {"de": "\\d", "en": "e"}]
    (tmp_path / "FILE").write_text(json.dumps(pairs))
    command = re.search("jq .*", ADVICE["json"])[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    lines = read_lines(tmp_path / "train.jsonl")
    assert [json.loads(line) for line in lines] == pairs


HEADERS = [
    ("Go.\tGeh.", ("en", "de"), (0, 1, False)),
    ("en\tde", ("en", "de"), (0, 1, True)),
    ("en\tde", ("de", "en"), (1, 0, True)),
    ("id\tDE\tattribution\t EN ", ("en", "de"), (3, 1, True)),
    ("no.\t\"fr\"\t'en'", ("en", "fr"), (2, 1, True)),
    ("por_BR\tzh_Hans", ("zh-hans", "pt-BR"), (1, 0, True)),
    ("Target\tSource", ("en", "de"), (1, 0, True)),
    ("source\ttarget\tscore", ("de", "en"), (0, 1, True)),
    ("deu\teng", ("en", "de"), (1, 0, True)),
    ("it\tthe", ("it", "en"), (0, 1, False)),  # one is no language
]


@pytest.mark.parametrize("first, languages, expected", HEADERS)
def test_which_column_is_which(first, languages, expected, tmp_path):
    write_lines(tmp_path / "train.tsv", [first, "a\tb\tc\td"])
    table = read_table(tmp_path / "train.tsv", *languages)
    assert table == (tmp_path / "train.tsv", *expected)


OTHERS = "fr and it, which are not en and de. Give --source fr"


NO_TABLES = [
    # Files of something else.
    ("train.en", "a,b", "no tab between a source and a target.*two files side by"),
    ("corpus.zip", "a,b", "unpack it"),
    ("b.XLSX", "a,b", "no text file of sentences: save its two columns as CSV"),
    # Tables of something else.
    ("a", "fr\tit\na\tb", OTHERS),
    ("a", "a b", "Line 1 of .*a has no tab"),
    ("a", "", "Line 1 of .*a is empty"),
    ("a", "a\tb\tc\n" * 2, "has 3 columns, and names none en and de: it sho"),
    # Spoilt lines.
    ("a", "a\tb\nc\nd\te", "Line 2 of .*a has 1 column and needs 2"),
    ("a", "a\tb\nc\td\te", "Line 2 of .* has 3 columns and the first one has 2"),
    ("a", "a\t\nb\t ", "Column 2 of .*a has 2 lines, all blank"),
    ("a", "en\tde", "Column 1 of .*a is empty"),
]


@pytest.mark.parametrize("name, content, message", NO_TABLES)
def test_k1_a_table_that_cannot_be_read(name, content, message, tmp_path):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_table(tmp_path / name, "en", "de").pairs("train")


def test_columns_are_as_one_chooses_or_as_a_header_says(tmp_path):
    path = tmp_path / "a.tsv"

    def chosen(*lines, target):
        write_lines(path, lines)
        return TextFiles({"train": Table(path, 0, target)}, "en", "de")

    third = chosen("x\ta\tb", "y\tc\td", target=2)
    assert sentences(third, "train") == (["x", "y"], ["b", "d"])
    with pytest.raises(ValueError, match="Line 2 of .*tsv has 2 columns and needs 3"):
        chosen("a\tb\tc", "a\tb", target=2).pairs("train")
    with pytest.raises(ValueError, match="Line 1 of .*a.tsv has 2 columns and needs 3"):
        chosen("a\tb", target=2).pairs("train")
    write_lines(tmp_path / "valid.tsv", ["a\tb"])
    corpus = TextFiles.from_table(tmp_path / "valid.tsv", "en", "de")
    assert sentences(corpus, "validation") == (["a"], ["b"])
    write_lines(path, ["fr\ten", "a\tb"])
    corpus = TextFiles.from_table(path, "en")
    assert sentences(corpus, "train") == (["b"], ["a"])
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    with pytest.raises(ValueError, match="has fr and en: which one.*--source fr --tar"):
        load_corpus(path)
    write_lines(path, [f"Englisch\t{'Deutsch' * 9}", "a\tb"])
    begins = f"; line 1 is a pair: Englisch | {('Deutsch' * 9)[:40]} ..."
    assert notes(TextFiles.from_table(path, "en", "de"))["columns"].endswith(begins)
    with pytest.raises(ValueError, match="names no languages: give both --source and"):
        load_corpus(path)


def test_the_text_of_a_table_is_that_of_two_files(tmp_path):
    """Packed in whatever way, it is the same corpus to a run."""
    write_lines(tmp_path / "two" / "test.en", ["a", "", '"b"', "c\u2028d"])
    write_lines(tmp_path / "two" / "test.de", ["A", "", "B\\t", "C"])
    lines = ["\ufeffde\ten\tnote", "A\ta\tx", "", 'B\\t\t"b"', "C\tc\u2028d\t"]
    text = "".join(f"{line}\r\n" for line in lines)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "test.tsv.gz").write_bytes(packed(text.encode()))
    two, one = (load_corpus(tmp_path / x, "en", "de") for x in ("two", "one"))
    assert sentences(one, "test") == sentences(two, "test")
    assert sentences(one, "test", 1) == (["a"], ["A"])
    assert fingerprint(one, "test") == fingerprint(two, "test")
    said = "test.tsv.gz: column 2 is en, column 1 is de, as the header says"
    assert notes(one)["columns"] == said and "columns" not in notes(two)


@pytest.fixture
def two_files(tmp_path):
    """Makes a corpus of a source file and a target file."""

    def make(source, target):
        paths = tmp_path / "a.en", tmp_path / "a.de"
        for path, text in zip(paths, (source, target), strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return TextFiles({"train": paths}, "en", "de", name="mine")

    return make


def test_files_are_streamed_in_order_again_and_again(two_files):
    """All lines, which are more than are read at once; also: `test_odd_text.py`."""
    lines = ["one", "", *map(str, range(2100))]
    targets = [line.upper() for line in lines]
    text = "\n".join(targets).encode()
    corpus = two_files("".join(f"{line}\r\n" for line in lines), packed(text))
    for _ in range(2):
        assert sentences(corpus, "train") == (lines, targets)
    assert corpus.fingerprint("train").pairs == len(lines)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    with pytest.raises(ValueError, match=r"mine has no split 'dev'; it has \['train'"):
        corpus.pairs("dev")


SPOILT = [
    ("1\n2\n3\n", "1\n2\n", r"a\.en has 3 lines and .*a\.de has 2: line 3 of .*en"),
    ("1\n2", "1\n2\n3\n4", r"a\.de has 4 lines and .*a\.en has 2: line 3 of .*de"),
    ("", "1\n", r"a\.de has 1 lines and .*a\.en has 0: line 1 of .*de has no tra"),
    ("", "", r"a\.en is empty"),
    ("1\n2\n3", "\n \n\t\n", r"a\.de has 3 lines, all blank"),
    (b"1\n2\n\xff\n", "1\n2\n3\n", r"a\.en is not UTF-8: line 3 has the byte 0xff"),
]


@pytest.mark.parametrize("source, target, message", SPOILT)
def test_spoilt_files_are_refused(two_files, source, target, message):
    with pytest.raises(ValueError, match=message):
        two_files(source, target).pairs("train")


NO_PATHS = [
    ({"train": ("a",)}, ValueError, r"train split must have two files.*\('a',\)"),
    ({"train": "ab"}, ValueError, "train split must have two files.*'ab'"),
    ({"train": (1, 2)}, TypeError, "file of the train split must be a path.*1"),
    ({"train": (__file__, "a.de")}, FileNotFoundError, r"a\.de"),
    ({}, ValueError, "at least one split"),
]


@pytest.mark.parametrize("files, error, message", NO_PATHS)
def test_a_split_is_two_paths(files, error, message):
    with pytest.raises(error, match=message):
        TextFiles(files, "en", "de")


def test_text_that_changes_is_told(two_files, tmp_path):
    """Whoever reads it again would read something else than what was counted."""
    corpus, target = two_files("one\ntwo\n", "eins\nzwei\n"), tmp_path / "a.de"
    pairs = corpus.pairs("train")
    assert len(list(pairs)) == 2
    target.write_text("eins\nzwei\n")  # a copy of the same text
    os.utime(target, (1, 1))
    assert len(list(pairs)) == len(list(corpus.pairs("train"))) == 2
    target.write_text("zwei\neins\n")
    told = "a.en and .*a.de, the train split, changed.* 2 pairs, and has 2, of which"
    for _ in range(2):
        with pytest.raises(OSError, match=told):
            corpus.pairs("train")
    with pytest.raises(tf.errors.OpError, match=told):
        list(pairs)
    target.write_text("eins\n")
    with pytest.raises(ValueError, match="a.en has 2 lines and .*a.de has 1"):
        corpus.pairs("train")
    target.write_text("eins\nzwei\n")
    assert len(list(pairs)) == 2


WMT = "wmt14_translate/de-en"


@pytest.fixture
def mocked_tfds():
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=5):
        yield tfds


def test_tfds_corpus(mocked_tfds):
    corpus, other = load_corpus(WMT, "en", "de"), TfdsCorpus(WMT, "de", "en")
    assert isinstance(corpus, TfdsCorpus)
    assert set(corpus.splits) >= {"train", "validation", "test"}
    made = list(mocked_tfds.load(WMT, split="train").as_numpy_iterator())
    sides = [[pair[x].decode() for pair in made] for x in ("en", "de")]
    assert len(made) == 5 and sentences(corpus, "train") == tuple(sides)
    assert sentences(other, "train") == tuple(sides[::-1])
    both = [corpus, other, TfdsCorpus(WMT, "en", "de")]
    marks = {fingerprint(x, y) for x in both for y in ("train", "validation")}
    assert len(marks) == 4 and {x.pairs for x in marks} == {5}
    with pytest.raises(ValueError, match="no split 'valid'.*'validation'"):
        corpus.pairs("valid")


def test_bad_tfds_arguments_are_refused(mocked_tfds):
    for name, source, target, message in (
        (WMT, "en", "fr", r"in 'fr'; it has \['de', 'en'\]"),
        (WMT, "en", "en", "same: 'en'"),
        ("imdb_reviews", "en", "de", r"in 'en'; it has \['label', 'text'\]"),
        ("wmt14_translate/xx-en", "en", "xx", r"it has \[.*'de-en'"),
        ("no_such_thing", "en", "de", "no data set 'no_such_thing'"),
    ):
        with pytest.raises(ValueError, match=message):
            TfdsCorpus(name, source, target)


def test_c1_what_is_no_corpus(tmp_path, monkeypatch):
    """A name is guessed where one is alike; it is a sentence all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    for data in ("no_such_thing", "no/such/folder", "a\\*[b", "corpse"):
        tried = "Found no corpus.*'phrases'.*directory.*datasets"
        with pytest.raises(ValueError, match=tried) as said:
            load_corpus(data, "en", "de")
        assert repr(data) in str(said.value) and "\n" not in str(said.value)
        is_guessed = "(did you mean 'corpus'?)" in str(said.value)
        assert is_guessed == (data == "corpse") == ("did you" in str(said.value))
    guess = "'corpse' is no folder or file .did you mean 'corpus'.., and needs both"
    with pytest.raises(ValueError, match=guess):
        load_corpus("corpse")
    for data in (WMT, {"test": ("a", "b")}):
        with pytest.raises(ValueError, match="needs both languages. .* 'en' and None"):
            load_corpus(data, "en")
    write_lines("a.en", ["a b"])
    named = load_corpus({"test": ("a.en", "a.en")}, "en", "de")
    assert sentences(named, "test") == (["a b"], ["a b"])
