"""What is said of a folder without a corpus: what is there, and what to do."""

import pytest
from corpus_folders import fill

from keras_luong.text.corpus_files import TextFiles, shortened
from keras_luong.text.find_corpus import load_corpus


def test_many_names_are_shortened():
    assert shortened("ba") == "['a', 'b']"
    assert shortened(map(str, range(12)), most=2) == "['0', '1'] and 10 more"


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ("train.en, train.fr", OSError, "Give --source en --target fr, or --source fr"),
        ("train.en, train.deu, train.it", OSError, "beside it is .*train.deu"),
        ("a.en, a.deu, a.it", OSError, "Did you mean deu by de?"),
        ("train.en", OSError, "train.en but no .de file beside it.$"),
        ("europarl.en", OSError, r"it has \['europarl.en'\]"),
        (
            "train_en.txt, train_fr.txt",
            OSError,
            "is .'train_fr.txt'.. Give --source en",
        ),
        ("europarl-en, europarl-fr", OSError, "Give --source en --target fr, or"),
        ("train.en, train/de.txt", OSError, "train.en but no .de file beside it.$"),
        ("en/train.txt, de/all.txt", OSError, "en/train.txt but no .de file beside"),
        ("train.en, train.de, train.de.gz", ValueError, "gz are both the de side"),
        ("train.en, train.DE, train.De", ValueError, "train.DE, and .*are both the tr"),
        ("train.en, train.de, val.en.txt", OSError, "val.en.txt but no .de"),
        ("a.en, a.de, b.en, b.de", ValueError, "several.*none is called train.*a.de'"),
        ("a.tsv, b.tsv", ValueError, "several pairs.*'a.tsv', 'b.tsv'"),
        (
            "train.tsv, train.tab",
            ValueError,
            "train.tab, and train.tsv, of .* are both",
        ),
        ("a.train.en, a.train.de, b.train.en, b.train.de", ValueError, "are both"),
        ("corpus.xlsx", OSError, "xlsx is no text file.*tab-separated text"),
        ("train.jsonl", OSError, "train.jsonl is no text file.*jq -r .* > train.tsv"),
        ("deu-eng.zip", OSError, "zip is no text file of sentences: unpack it"),
        ("deu.txt, read.me", OSError, "deu.txt is a table: give the file itself, /"),
        ("corpus/train.en, corpus/train.de", OSError, "Call the files train.en and tr"),
        (
            "de/a.txt, de/b.txt, en/a.txt, en/b.txt",
            ValueError,
            "several.*'en/a.txt and",
        ),
    ],
)
def test_k1_names_that_cannot_be_read(names, error, message, tmp_path):
    """Each says what was found, and what to do."""
    fill(tmp_path, names, lines=("a\tb",))
    with pytest.raises(error, match=message) as said:
        load_corpus(tmp_path, "en", "de")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("ending", "said"), [("txt", "table"), ("csv", "no text file")]
)
def test_k1_the_largest_file_is_the_corpus(ending, said, tmp_path):
    """Anki's archive has a text about the files beside them."""
    fill(tmp_path, f"_about.{ending}, notes.{ending}", lines=("About\tx",))
    fill(tmp_path, f"deu.{ending}", lines=("Go.\tGeh.",) * 9)
    with pytest.raises(OSError, match=f"deu.{ending} is (a )?{said}"):
        TextFiles.from_directory(tmp_path, "de", "en")


def test_folders_that_are_not_looked_into_are_named(tmp_path):
    for language in ("en", "de"):
        (tmp_path / language).mkdir()
    (tmp_path / "readme").touch()
    with pytest.raises(FileNotFoundError, match=r"it has \['de/', 'en/', 'readme'\]"):
        TextFiles.from_directory(tmp_path, "en", "de")
