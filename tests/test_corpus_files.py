"""Names of files that are read, and what is said of others."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from keras_luong.text.corpora import TextFiles, load_corpus
from keras_luong.text.corpus import notes, sentences


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
        ("train.en, train.de.gz", ("en", "de")),
        ("train.en.txt, train.de.txt.gz", ("en", "de")),
        ("Train.en, Train.de", ("en", "de")),
        ("train.EN, train.DE", ("en", "de")),
        ("train.en, train.de", ("EN", "De")),
        ("train.pt-BR, train.zh_Hans", ("pt_br", "zh-hans")),
        ("train.xx, train.yy", ("xx", "yy")),
        ("train.tsv.gz", ("en", "de")),
    ],
)
def test_a_training_split(names, languages, tmp_path):
    fill(tmp_path, names, lines=("a\tb",))
    assert found(tmp_path, *languages) == {"train": names.replace(", ", " ")}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("dev.en, dev.de", {"validation": "dev.en dev.de"}),
        ("val.tsv", {"validation": "val.tsv"}),
        ("Test.en, Test.de", {"test": "Test.en Test.de"}),
        ("test2016.en, test2016.de", {"test2016": "test2016.en test2016.de"}),
        ("test.news.en, test.news.de", {"test.news": "test.news.en test.news.de"}),
        (
            "test_2016_flickr.en, test_2016_flickr.de",
            {"test_2016_flickr": "test_2016_flickr.en test_2016_flickr.de"},
        ),
        ("newstest13.en, newstest13.de", {"newstest13": "newstest13.en newstest13.de"}),
        ("testament.en, testament.de", {}),
        ("train.tsv", {}),
        ("._train.en, .1-a.test.de", {}),
    ],
)
def test_other_splits_beside_it(more, expected, tmp_path):
    fill(tmp_path, f"train.en, train.de, {more}", lines=("a\tb",))
    read = found(tmp_path, "en", "de")
    assert read.pop("train") == "train.en train.de"
    assert read == expected


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
        ("train.fr, train.en", {"source_language": "fr"}, ("fr", "en")),
        ("train.fr, train.en", {"target_language": "FR"}, ("en", "FR")),
        ("test.pt_BR.txt, test.en.txt", {"source_language": "en"}, ("en", "pt-BR")),
        (
            "train.en, train.de, val.en, val.de, test.fr",
            {"source_language": "en"},
            ("en", "de"),
        ),
    ],
)
def test_the_other_language_follows(names, given, expected, tmp_path):
    fill(tmp_path, names)
    corpus = TextFiles.from_directory(tmp_path, **given)
    assert (corpus.source_language, corpus.target_language) == expected


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (
            "train.en, train.de, read.me",
            {},
            "has de and en: which one is to be translated. Give --source de --target "
            "en, or --source en --target de",
        ),
        (
            "train.en, train.de, train.fr",
            {},
            "has de, en, fr: give both --source and --target",
        ),
        (
            "train.en, train.de, train.fr",
            {"source_language": "en"},
            "Received: 'en' and None",
        ),
        ("train.en, train.de", {"source_language": "fr"}, "has de, en: give both"),
        (
            "train.en, train.de",
            {"source_language": "en", "target_language": "EN"},
            "same",
        ),
    ],
)
def test_languages_that_have_several_readings(names, given, message, tmp_path):
    fill(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_directory(tmp_path, **given)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("train.en", OSError, r"train.en but no .de file beside it; .*\['train.en'\]"),
        ("train.en, train.fr", OSError, r"no .de .*\['train.en', 'train.fr'\]"),
        ("train.en, train.de, val.en.txt", OSError, "val.en.txt but no .de"),
        ("train.fr, train.it", OSError, "has no train.en and train.de, no train.tsv"),
        ("train.en, train.de, train.de.gz", ValueError, "gz are both the de side of"),
        ("train.en, train.de, train.DE", ValueError, "are both the de side of the tr"),
        (
            "val.en, val.de, dev.en, dev.de",
            ValueError,
            "dev.en and .*val.en are both the en side of the validation split; keep",
        ),
        ("train.tsv, train.tsv.gz", ValueError, "are both the tsv side"),
        (
            "europarl.en, europarl.de",
            OSError,
            r"has no train.en and train.de.*\['europarl.de', 'europarl.en'\]. Name its "
            "files so, or give two files, .*/FILE,.*/FILE",
        ),
        ("en/train.txt, de/train.txt", OSError, r"it has \['de/', 'en/'\]"),
        ("corpus.xlsx", OSError, "xlsx is no text file.*tab-separated text"),
        ("train.jsonl", OSError, "train.jsonl is no text file.*jq -r .* > train.tsv"),
        ("deu-eng.zip", OSError, "zip is no text file of sentences: unpack it"),
        (", ".join(f"{x}.txt" for x in range(12)), OSError, "'7.txt'. and 2 more"),
    ],
)
def test_k1_names_that_cannot_be_read(names, error, message, tmp_path):
    """Each says what was found, and what to do."""
    fill(tmp_path, names, lines=("a\tb",))
    with pytest.raises(error, match=message) as said:
        load_corpus(tmp_path, "en", "de")
    assert "\n" not in str(said.value)


def test_k1_what_is_no_corpus_and_names_no_languages(tmp_path):
    fill(tmp_path, "corpus.csv, readme.md")
    with pytest.raises(OSError, match="no train.SOURCE and .*csv is no text file"):
        load_corpus(tmp_path)


def test_lines_of_a_folder_are_read(tmp_path):
    """CR LF, names with spaces, another case, gzip: the text is the same."""
    folder = tmp_path / "my corpus"
    folder.mkdir()
    fill(folder, "Train.EN.txt", lines=("one\r", "two\r"))
    fill(folder, "train.de.gz", lines=("eins", "zwei"))
    corpus = TextFiles.from_directory(folder, "en", "de")
    assert sentences(corpus, "train") == (["one", "two"], ["eins", "zwei"])


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
    ],
)
def test_k1_files_that_are_no_corpus(name, message, tmp_path):
    fill(tmp_path, name, ["a,b"])
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / name, "en", "de")
