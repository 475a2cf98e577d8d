"""Names of files that people really have, each read or refused with what to do."""

import pytest
from corpus_folders import fill, found

from keras_luong.files import write_lines
from keras_luong.text.corpus import notes, sentences
from keras_luong.text.corpus_files import TextFiles
from keras_luong.text.find_corpus import load_corpus


@pytest.mark.parametrize(
    ("names", "languages", "expected"),
    [
        ("train.en, train.de", ("en", "de"), {"train": "train.en train.de"}),
        ("europarl.en, europarl.de.gz", ("en", "de"), "europarl.en europarl.de.gz"),
        ("corpus.fr-en.fr, corpus.fr-en.en", ("fr", "en"), None),
        ("train.en.txt, train.de.txt.gz", ("en", "de"), "train.en.txt train.de.txt.gz"),
        ("Train.en, Train.de", ("en", "de"), "Train.en Train.de"),
        ("train.EN, train.DE", ("en", "de"), "train.EN train.DE"),
        ("train.en, train.de", ("EN", "De"), "train.en train.de"),
        ("train.pt-BR, train.zh_Hans", ("pt_br", "zh-hans"), None),
        ("my train.en, my train.de", ("en", "de"), "my train.en my train.de"),
        ("Europarl v7.en, Europarl v7.de", ("en", "de"), None),
        ("train/a.en, train/a.de", ("en", "de"), {"train": "train/a.en train/a.de"}),
        ("train.tok.en, train.tok.de", ("tok.en", "tok.de"), None),
        ("train.tsv.gz", ("en", "de"), {"train": "train.tsv.gz"}),
        ("my pairs.TSV", ("en", "de"), {"train": "my pairs.TSV"}),
        ("en.txt, de.txt", ("en", "de"), None),
        ("French.txt, English.txt, readme.md", ("fr", "en"), "French.txt English.txt"),
        ("train/en.txt, train/de.txt", ("en", "de"), None),
        ("train_en.txt, train_de.txt", ("en", "de"), None),
        ("train-pt-BR.gz, train-en.gz", ("pt_BR", "en"), None),
        ("en/train.txt, de/train.txt.gz", ("en", "de"), None),
        (
            "German/my.txt, eng/my.txt, eng/a.md",
            ("de", "en"),
            "German/my.txt eng/my.txt",
        ),
        ("training.en, training.de", ("en", "de"), None),
        ("testament.en, testament.de", ("en", "de"), None),
        ("testament.tsv", ("en", "de"), {"train": "testament.tsv"}),
    ],
)
def test_a_training_split_by_many_names(names, languages, expected, tmp_path):
    fill(tmp_path, names, lines=("a\tb",))
    if not isinstance(expected, dict):
        expected = {"train": expected or names.replace(", ", " ")}
    assert found(tmp_path, *languages) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("dev.en, dev.de", {"validation": "dev.en dev.de"}),
        ("news.dev.en, news.dev.de", {"validation": "news.dev.en news.dev.de"}),
        ("val/x.en, val/y.txt, val/x.de", {"validation": "val/x.en val/x.de"}),
        ("val.tsv", {"validation": "val.tsv"}),
        ("en/val.txt, de/val.txt", {"validation": "en/val.txt de/val.txt"}),
        ("en/test.txt, de/test.txt", {"test": "en/test.txt de/test.txt"}),
        ("Test.en, Test.de", {"test": "Test.en Test.de"}),
        ("tests.en, tests.de", {"tests": "tests.en tests.de"}),
        ("devtest.en, devtest.de", {"devtest": "devtest.en devtest.de"}),
        (
            "newstest2014.en, newstest2014.de, newsdev2016.en, newsdev2016.de",
            {
                "validation": "newsdev2016.en newsdev2016.de",
                "newstest2014": "newstest2014.en newstest2014.de",
            },
        ),
        ("dev2010.en, dev2010.de", {"validation": "dev2010.en dev2010.de"}),
        ("test/en.txt, test/de.txt", {"test": "test/en.txt test/de.txt"}),
        ("test/a.en, test/a.de", {"test.a": "test/a.en test/a.de"}),
        (
            "a.test.en, a.test.de, b_test.en, b_test.de",
            {"a.test": "a.test.en a.test.de", "b_test": "b_test.en b_test.de"},
        ),
    ],
)
def test_other_splits_beside_it(more, expected, tmp_path):
    fill(tmp_path, f"train.en, train.de, {more}", lines=("a\tb",))
    assert found(tmp_path, "en", "de") == {"train": "train.en train.de", **expected}


def test_what_is_not_read_is_said(tmp_path):
    fill(tmp_path, "train.en, train.de, europarl.en, europarl.de, words.en, a.tsv")
    said = notes(TextFiles.from_directory(tmp_path, "en", "de"))["not read"]
    assert said == "['a.tsv', 'europarl.en and europarl.de']"
    with pytest.raises(ValueError, match="no split 'test'.* Not read: .'a.tsv', 'eur"):
        TextFiles.from_directory(tmp_path, "en", "de").pairs("test")
    fill(tmp_path / "test", "test.en, test.de")
    assert not TextFiles.from_directory(tmp_path / "test", "en", "de").notes


@pytest.mark.parametrize(
    ("names", "given", "expected"),
    [
        ("train.fr, train.en", {"source_language": "fr"}, ("fr", "en")),
        ("train.fr, train.en", {"target_language": "FR"}, ("en", "FR")),
        ("a.pt-BR.txt, a.en.txt", {"source_language": "en"}, ("en", "pt-BR")),
        ("train_en.txt, train_de.txt", {"source_language": "en"}, ("en", "de")),
        ("train-pt_BR, train-en.gz", {"source_language": "en"}, ("en", "pt_BR")),
        ("en.txt, de.txt, faq.txt", {"target_language": "en"}, ("de", "en")),
        (
            "T.de-en.de, T.de-en.en, T.de-en.ids",
            {"source_language": "de"},
            ("de", "en"),
        ),
        ("de/train.txt, en/train.txt", {"target_language": "en"}, ("de", "en")),
        ("a.en, a.de, b_fr.txt, b_it.txt", {"source_language": "de"}, ("de", "en")),
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
        ("a.en, a.de, a.fr", {}, "has de, en, fr: give both --source and --target"),
        ("a.en, a.de, a.fr", {"source_language": "en"}, "Received: --source en"),
        ("a.en, a.de", {"source_language": "fr"}, "has de, en: give both"),
        ("readme.txt, readme.md", {}, "names no languages: give both"),
        ("corpus.csv", {}, "no text files. corpus.csv is no text file.*in .tsv"),
        ("en-de.txt, en-fr.txt, a_new.txt, a_old.txt", {}, "names no languages"),
        ("en_train.txt, de_train.txt", {}, "names no languages"),
    ],
)
def test_languages_that_have_several_readings(names, given, message, tmp_path):
    fill(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_directory(tmp_path, **given)


def test_lines_of_a_folder_are_read(tmp_path):
    """CR LF, names with spaces, another case, gzip: the text is the same."""
    folder = tmp_path / "my corpus"
    fill(folder, "Europarl v7.EN.txt", lines=("one\r", "two\r"))
    fill(folder, "Europarl v7.de.gz", lines=("eins", "zwei"))
    corpus = TextFiles.from_directory(folder, "en", "de")
    assert sentences(corpus, "train") == (["one", "two"], ["eins", "zwei"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.csv", "train.csv is no text file of sentences: save its two columns"),
        ("train.en", "no tab between a source and a target.*give their folder, .*"),
        ("corpus.zip", "unpack it"),
    ],
)
def test_k1_files_that_are_no_corpus(name, message, tmp_path):
    write_lines(tmp_path / name, ["a,b"])
    with pytest.raises(ValueError, match=message):
        load_corpus(tmp_path / name, "en", "de")


def test_k1_a_mistyped_file(tmp_path):
    fill(tmp_path, "deu-eng.tsv")
    with pytest.raises(ValueError, match=r"did you mean '.*deu-eng.tsv'\?"):
        load_corpus(tmp_path / "deu_eng.tsv", "en", "de")
