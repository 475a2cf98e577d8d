"""Which corpus `--data` is: a folder, two files, a table, or a data set by its name."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from keras_luong.files import read_lines, write_lines
from keras_luong.text.corpora import TextFiles, TfdsCorpus, load_corpus
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.corpus_files import ADVICE, Table, find_table, read_table
from keras_luong.text.phrases import PhraseCorpus

PAGE = Path(__file__).parents[1] / "docs" / "corpus.md"


def fill(folder, names, lines=("1", "2")):
    for name in names.split(","):
        path = folder / name.strip()
        path.parent.mkdir(exist_ok=True)
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def found(folder, *languages):
    """Split → the names of its files."""
    corpus = TextFiles.from_directory(folder, *languages)
    return {
        split: " ".join(path.name for path in files.paths)
        for split, files in corpus.files.items()
    }


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        ("train.en, train.de", ("en", "de")),
        ("train.de, train.en", ("de", "en")),
        ("train.en, train.de.gz", ("en", "de")),
        ("train.en.txt, train.de.txt.gz", ("en", "de")),
        ("Train.EN, train.De", ("en", "de")),
        ("train.en, train.de", ("EN", "De")),
        ("train.pt-BR, train.zh_Hans", ("pt_br", "zh-hans")),
        ("train.xx, train.yy", ("xx", "yy")),
        ("train.tsv.gz", ("en", "de")),
    ],
)
def test_a_training_split(names, languages, tmp_path):
    fill(tmp_path, names, lines=("a\tb",))
    assert found(tmp_path, *languages) == {"train": names.replace(", ", " ")}


def test_splits_have_an_order(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory .*none"):
        TextFiles.from_directory(tmp_path / "none", "en", "de")
    fill(tmp_path, "test_b.en, test_b.de, test.tsv, dev.en, dev.de", ("a\tb",))
    fill(tmp_path, "train.en, train.de, train.fr, training.en")
    corpus = TextFiles.from_directory(str(tmp_path), "en", "de")
    assert corpus.splits == ("train", "validation", "test", "test_b")
    assert corpus.name == tmp_path.name


@pytest.mark.parametrize(
    ("more", "split"),
    [
        *((f"{x}.en, {x}.de", x) for x in ("test2016", "test.news", "newstest13")),
        *((f"{x}.en, {x}.de", "validation") for x in ("val", "valid", "validation")),
        ("dev.en, dev.de", "validation"),
        ("test_2016_flickr.en, test_2016_flickr.de", "test_2016_flickr"),
        ("val.tsv", "validation"),
        ("Test.en, Test.de", "test"),
        ("testament.en, testament.de", None),
        ("train.tsv", None),
        ("._train.en, .1-a.test.de", None),
    ],
)
def test_other_splits_beside_it(more, split, tmp_path):
    fill(tmp_path, f"train.en, train.de, {more}", lines=("a\tb",))
    read = found(tmp_path, "en", "de")
    assert read.pop("train") == "train.en train.de"
    assert read == ({split: more.replace(",", "")} if split else {})


def test_what_is_not_read_is_said(tmp_path):
    fill(tmp_path, "train.en, train.de, europarl.en, europarl.de, readme.txt, a.tsv")
    said = notes(TextFiles.from_directory(tmp_path, "en", "de"))["not read"]
    assert said == "['a.tsv', 'europarl.de', 'europarl.en']"
    with pytest.raises(ValueError, match="no split 'test'.* Not read: .'a.tsv', 'eur"):
        TextFiles.from_directory(tmp_path, "en", "de").pairs("test")
    fill(tmp_path / "test", "test.en, test.de")
    assert not TextFiles.from_directory(tmp_path / "test", "en", "de").notes


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        ("train.fr, train.en", ("fr", None), ("fr", "en")),
        ("train.fr, train.en", (None, "FR"), ("en", "FR")),
        ("test.pt_BR.txt, test.en.txt", ("en", None), ("en", "pt-BR")),
        ("train.en, train.de, val.en, val.de, test.fr", ("en", None), ("en", "de")),
    ],
)
def test_the_other_language_follows(names, given, expected, tmp_path):
    fill(tmp_path, names)
    corpus = TextFiles.from_directory(tmp_path, *given)
    assert (corpus.source_language, corpus.target_language) == expected


TWO, THREE = "train.en, train.de", "train.en, train.de, train.fr"
BOTH_WAYS = (
    "de and en: which .*Give --source de --target en, or --source en --target de"
)


@pytest.mark.parametrize(
    ("names", "languages", "message"),
    [
        (f"{TWO}, read.me", (None, None), BOTH_WAYS),
        (THREE, (None, None), "de, en, fr: give both --source and --target"),
        (THREE, ("en", None), "Received: 'en' and None"),
        (TWO, ("fr", None), "has de, en: give both"),
        (TWO, ("en", "EN"), "same"),
    ],
)
def test_languages_that_have_several_readings(names, languages, message, tmp_path):
    fill(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_directory(tmp_path, *languages)


PARL = r"has no train.en and train.de.*\['europarl.de', 'europarl.en'\]. Name its files"


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("train.en", OSError, r"train.en but no .de file beside it.*\['train.en'\]"),
        ("train.en, train.fr", OSError, r"no .de .*\['train.en', 'train.fr'\]"),
        (f"{TWO}, val.en.txt", OSError, "val.en.txt but no .de"),
        ("train.fr, train.it", OSError, "has no train.en and train.de, no train.tsv"),
        (
            "europarl.en, europarl.de",
            OSError,
            PARL + " so, or give two .*/FILE,.*/FILE",
        ),
        ("en/train.txt, de/train.txt", OSError, r"it has \['de/', 'en/'\]"),
        ("corpus.xlsx", OSError, "xlsx is no text file.*tab-separated text"),
        ("train.jsonl", OSError, "train.jsonl is no text file.*jq -r .* > train.tsv"),
        ("deu-eng.zip", OSError, "zip is no text file of sentences: unpack it"),
        (", ".join(f"{x}.txt" for x in range(12)), OSError, "'7.txt'. and 2 more"),
        (", ".join(f"{x}.txt" for x in range(10)), OSError, "'9.txt'.[.] Name"),
        (f"{TWO}, train.de.gz", ValueError, "gz are both the de side of the train spl"),
        (f"{TWO}, train.DE", ValueError, "are both the de side of the train split"),
        ("dev.en, val.en, val.de", ValueError, "dev.en and .*val.en are both the en s"),
        ("train.tsv, train.tsv.gz", ValueError, "are both the tsv side"),
    ],
)
def test_k1_names_that_cannot_be_read(names, error, message, tmp_path):
    """Each says what was found, and what to do."""
    fill(tmp_path, names, lines=("a\tb",))
    with pytest.raises(error, match=message) as said:
        load_corpus(tmp_path, "en", "de")
    assert "\n" not in str(said.value)
    if names == "corpus.xlsx":
        with pytest.raises(OSError, match="no train.SOURCE .*xlsx is no text file"):
            load_corpus(tmp_path)


@pytest.mark.parametrize("languages", [(), ("en",), ("en", "de")])
def test_two_files_of_any_name(languages, tmp_path, monkeypatch):
    """Their endings tell the languages; the source comes first."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path, "europarl.en", lines=("one", "two") * 20)
    fill(tmp_path, "mine/german.de.gz", lines=("eins", "zwei") * 20)
    corpus = load_corpus("europarl.en,mine/german.de.gz", *languages)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert next(corpus.whole.pairs("train").as_numpy_iterator())["target"] == b"eins"
    fill(tmp_path, "a, b")
    assert load_corpus("a,b", "en", "de").splits == ("train", "validation")
    with pytest.raises(ValueError, match="a,b names no languages: give both"):
        load_corpus("a,b")
    with pytest.raises(FileNotFoundError, match="file of --data.*none"):
        load_corpus("a,none", "en", "de")
    Path("a,c").mkdir()
    with pytest.raises(FileNotFoundError, match="a,c has no train.en"):
        load_corpus("a,c", "en", "de")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.csv", "train.csv is no text file of sentences: save its two columns"),
        ("train.en", "no tab between a source and a target.*two files side by side"),
        ("corpus.zip", "unpack it"),
        ("b.XLSX", "no text file of sentences: .*.tsv"),
        ("d.tmx", "no text file of sentences: .*.tsv"),
        ("c.jsonl.gz", "no text file of sentences: .*.tsv"),
    ],
)
def test_k1_files_that_are_no_corpus(name, message, tmp_path):
    fill(tmp_path, name, ["a,b"])
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / name, "en", "de")
    with pytest.raises(ValueError, match=message):
        find_table(tmp_path / name, "en", "de")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_command_for_json_lines_can_be_pasted(tmp_path):
    pairs = [{"en": 'a\t"b"\n c', "de": "ä"}, {"de": "\\d", "en": "e"}]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (tmp_path / "FILE").write_text(lines)
    command = re.search("jq .*", ADVICE["jsonl"])[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "train.tsv")) == ['a "b" c\tä', "e\t\\d"]


def test_the_pages_command_for_csv_can_be_pasted(tmp_path):
    (tmp_path / "corpus.csv").write_text('fr,en\n"a ""b""\nc",d\n')
    command = re.search(r"^python3 -c '.*?train.tsv$", PAGE.read_text(), re.M | re.S)[0]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "train.tsv")) == ["fr\ten", 'a "b" c\td']


@pytest.mark.parametrize(
    ("first", "languages", "expected"),
    [
        ("Go.\tGeh.", ("en", "de"), (0, 1, False)),
        ("Go.\tGeh.", ("de", "en"), (0, 1, False)),
        ("en\tde", ("en", "de"), (0, 1, True)),
        ("en\tde", ("de", "en"), (1, 0, True)),
        ("id\tDE\tattribution\t EN ", ("en", "de"), (3, 1, True)),
        ("no.\t\"fr\"\t'en'", ("en", "fr"), (2, 1, True)),
        ("por_BR\tzh_Hans", ("zh-hans", "pt-BR"), (1, 0, True)),
        ("Target\tSource", ("en", "de"), (1, 0, True)),
        ("source\ttarget\tscore", ("de", "en"), (0, 1, True)),
        ("deu\teng", ("en", "de"), (1, 0, True)),
        ("it\tthe", ("it", "en"), (0, 1, False)),  # one is no language
    ],
)
def test_which_column_is_which(first, languages, expected, tmp_path):
    write_lines(tmp_path / "train.tsv", [first, "a\tb\tc\td"])
    table = read_table(tmp_path / "train.tsv", *languages)
    assert table == (tmp_path / "train.tsv", *expected)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["fr\tit", "a\tb"], "fr and it, which are not en and de. Give --source fr --"),
        (["a b"], "Line 1 of .*a.tsv has no tab"),
        ([], "Line 1 of .*a.tsv is empty"),
        (["", "a\tb"], "Line 1 of .*a.tsv is empty: it should be two sent"),
        (["Go.\tGeh.\tCC-BY"] * 2, "has 3 columns, and names none en and de: it sho"),
        (["1.2\tGo.\tGeh.\ten\tde"] * 2, "has 5 columns, and names none en and de"),
    ],
)
def test_k1_a_table_of_something_else(lines, message, tmp_path):
    write_lines(tmp_path / "a.tsv", lines)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_table(tmp_path / "a.tsv", "en", "de")


@pytest.mark.parametrize(
    ("lines", "fields", "message"),
    [
        (["a\tb", "c", "d\te"], {}, "Line 2 of .*a.tsv has 1 column and needs 2"),
        (
            ["a\tb\tc", "a\tb"],
            {"target": 2},
            "Line 2 of .*tsv has 2 columns and",
        ),
        (["a\tb", "c\td\te"], {}, "Line 2 of .* has 3 columns and the first one has 2"),
        (["a\tb"], {"target": 2}, "Line 1 of .*a.tsv has 2 columns and needs 3"),
        (["a\t", "b\t "], {}, "Column 2 of .*a.tsv has 2 lines, all blank"),
        (["en\tde"], {"has_header": True}, "Column 1 of .*a.tsv is empty"),
        ([], {}, "Column 1 of .*a.tsv is empty"),
        ([b"a\tb", b"c\t\xff"], {}, "a.tsv is not UTF-8: line 2 has the byte 0xff"),
        (["a\tb".encode("utf-16")], {}, "is UTF-16.*iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_k1_lines_that_cannot_be_read(lines, fields, message, tmp_path):
    raw = (x if isinstance(x, bytes) else x.encode() for x in lines)
    (tmp_path / "a.tsv").write_bytes(b"".join(line + b"\n" for line in raw))
    corpus = TextFiles({"train": Table(tmp_path / "a.tsv", **fields)}, "en", "de")
    with pytest.raises(ValueError, match=message):
        corpus.pairs("train")


def test_columns_are_as_one_chooses_or_as_a_header_says(tmp_path):
    write_lines(tmp_path / "c.tsv", ["x\ta\tb", "y\tc\td"])
    files = {"train": Table(tmp_path / "c.tsv", source=2, target=1)}
    chosen = TextFiles(files, "en", "de")
    assert sentences(chosen, "train") == (["b", "d"], ["a", "c"])
    write_lines(tmp_path / "a.tsv", ["fr\ten", "a\tb"])
    corpus = TextFiles.from_table(tmp_path / "a.tsv", "en")
    assert sentences(corpus, "train") == (["b"], ["a"])
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    with pytest.raises(ValueError, match="has fr and en: which one.*--source fr --tar"):
        load_corpus(tmp_path / "a.tsv")
    write_lines(tmp_path / "b.tsv", [f"Englisch\t{'Deutsch' * 9}", "a\tb"])
    begins = f"; line 1 is a pair: Englisch | {('Deutsch' * 9)[:40]} ..."
    corpus = TextFiles.from_table(tmp_path / "b.tsv", "en", "de")
    assert notes(corpus)["columns"].endswith(begins)
    with pytest.raises(ValueError, match="names no languages: give both --source and"):
        load_corpus(tmp_path / "b.tsv")


def test_the_text_of_a_table_is_that_of_two_files(tmp_path):
    """Packed in whatever way, it is the same corpus to a run."""
    write_lines(tmp_path / "two" / "test.en", ["a", "", '"b"', "c\u2028d"])
    write_lines(tmp_path / "two" / "test.de", ["A", "", "B\\t", "C"])
    lines = ["\ufeffde\ten\tnote", "A\ta\tx", "", 'B\\t\t"b"', "C\tc\u2028d\t"]
    text = "".join(f"{line}\r\n" for line in lines)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "test.tsv.gz").write_bytes(gzip.compress(text.encode()))
    two, one = (load_corpus(tmp_path / x, "en", "de") for x in ("two", "one"))
    assert sentences(one, "test") == sentences(two, "test")
    assert fingerprint(one, "test") == fingerprint(two, "test")
    said = "test.tsv.gz: column 2 is en, column 1 is de, as the header says"
    assert notes(one)["columns"] == said and "columns" not in notes(two)


def test_splits_of_tables(tmp_path):
    for split in ("train", "valid", "test"):
        write_lines(tmp_path / f"{split}.tsv", [f"{split}\tb"])
    corpus = TextFiles.from_directory(tmp_path, "en", "de")
    assert corpus.splits == ("train", "validation", "test")
    assert notes(corpus)["columns"].count("column 1 is en") == 3
    one = TextFiles.from_table(tmp_path / "valid.tsv", "en", "de")
    assert sentences(one, "validation") == (["valid"], ["b"])


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


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        (WMT, ("en", "fr"), r"in 'fr'; it has \['de', 'en'\]"),
        (WMT, ("en", "en"), "same: 'en'"),
        ("imdb_reviews", ("en", "de"), r"in 'en'; it has \['label', 'text'\]"),
        ("wmt14_translate/xx-en", ("en", "xx"), r"it has \[.*'de-en'"),
        ("no_such_thing", ("en", "de"), "no data set 'no_such_thing'"),
    ],
)
def test_bad_tfds_arguments_are_refused(mocked_tfds, name, languages, message):
    with pytest.raises(ValueError, match=message):
        TfdsCorpus(name, *languages)


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


@pytest.mark.slow
def test_load_phrases():
    assert isinstance(load_corpus("phrases", "en", "de"), PhraseCorpus)
    assert load_corpus("phrases").target_language == "de"


def test_other_corpora_need_both_languages(tmp_path):
    (tmp_path / "corpus").mkdir()
    for data in (tmp_path / "corpse", WMT, {"test": ("a", "b")}):
        with pytest.raises(ValueError, match="needs both languages. .* 'en' and None"):
            load_corpus(data, "en")


def test_sentences_of_a_split(tmp_path):
    files = tmp_path / "val.en", tmp_path / "val.de"
    for path, lines in zip(files, (["a b", "ü"], ["A B", "Ü"]), strict=True):
        write_lines(path, lines)
    named = load_corpus({"validation": files}, "en", "de")
    for corpus in (load_corpus(str(tmp_path), "en", "de"), named):
        assert sentences(corpus, "validation") == (["a b", "ü"], ["A B", "Ü"])
        assert sentences(corpus, "validation", 1) == (["a b"], ["A B"])
        with pytest.raises(ValueError, match="no split 'test'"):
            sentences(corpus, "test")
