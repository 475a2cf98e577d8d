"""`keras-luong check`: what it says of a corpus, and what it leaves of it."""

import json
import shutil

import pytest
from commands import run

from keras_luong.cli.main import main
from keras_luong.files import write_lines
from keras_luong.text import PhraseCorpus, load_corpus, sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """600 phrases, some of which have a fault; three are in the test split too."""
    folder = tmp_path_factory.mktemp("corpus")
    phrases = PhraseCorpus(train=600, validation=20, test=20)
    train, test = (map(list, sentences(phrases, x)) for x in ("train", "test"))
    sources, targets = train
    targets[:20] = sources[:20]  # copies
    for row in range(20, 30):
        targets[row] = f"<p>{targets[row]}</p>"
    targets[30:35] = [f"{x}&nbsp;!" for x in targets[30:35]]
    targets[35] = " "
    sources, targets = sources + sources[-40:], targets + targets[-40:]  # repeats
    texts = zip(test, (sources, targets), strict=True)
    held = [side + more[100:103] for side, more in texts]
    for split, sides in {"train": (sources, targets), "test": held}.items():
        for language, lines in zip(("en", "de"), sides, strict=True):
            write_lines(folder / f"{split}.{language}", lines)
    return folder


COUNTS = {"copy": 20, "markup": 15, "empty": 1, "repeat": 40}


def test_the_report(folder, capsys):
    run("check", folder, "--source", "en", "--target", "de")
    train, test = capsys.readouterr().out.split("\ntest: ")
    assert train.startswith(f"{folder.name}, en → de\n\ntrain: 640 pairs\n")
    for text in (
        "20 of 640 pairs (3.1%) have the same sentence on both sides, as line 1: ",
        "15 of 640 pairs (2.3%) hold HTML tags or entities, such as &amp;, as line 21:",
        "1 of 640 pairs (0.16%) have an empty side, as line 36: ",
        "40 of 640 pairs (6.2%) repeat another one: ",
    ):
        assert f"  - {text}" in train
    same = train.index("same sentence")
    assert same < train.index("an empty side")  # the worst first
    assert test.startswith("23 pairs\n  - 3 of its pairs are in the training text too.")


def test_the_report_as_json(folder, capsys):
    run("check", folder, "--source", "en", "--target", "de", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["languages"] == ["en", "de"]
    assert [*found["splits"]] == ["train", "test"]
    faults = found["splits"]["train"]["faults"]
    assert COUNTS == {name: faults[name]["pairs"] for name in COUNTS}
    assert faults["markup"] == {"pairs": 15, "of": 640, "line": 21, "most": None}
    assert found["splits"]["test"]["overlap"]["pairs"] == 3


@pytest.mark.parametrize("keep", [[], ["copy"], ["repeat", "markup"]])
def test_what_is_left(keep, folder, tmp_path, capsys):
    words = [x for name in keep for x in ("--keep", name)]
    languages = ["--source", "en", "--target", "de"]
    run("check", folder, *languages, "--write", tmp_path / "clean", *words)
    out = capsys.readouterr().out
    corpus = load_corpus(tmp_path / "clean", "en", "de")
    assert corpus.splits == ("train", "validation", "test")  # one is held out
    before = load_corpus(folder, "en", "de")
    assert sentences(corpus, "test") == sentences(before, "test")
    sources, targets = sentences(corpus.whole, "train")
    dropped = {"copy": 20, "markup": 10, "empty": 1, "repeat": 40}
    lost = sum(number for name, number in dropped.items() if name not in keep)
    assert f"clean: {len(sources):,} of 640 training pairs" in out
    assert 640 - lost - 3 <= len(sources) <= 640 - lost  # few good ones are lost
    assert any("<p>" in x for x in targets) == ("markup" in keep)
    assert any("&nbsp;" in x for x in targets) == ("markup" in keep)
    assert any(x.endswith(". !") for x in targets) != ("markup" in keep)  # mended
    for name, number in dropped.items():
        assert (f"  - {number} left out: {name}" in out) == (name not in keep)


def test_tags_are_no_part_of_the_text(folder, tmp_path, capsys):
    """Even if they are called as HTML's elements are; nor are repeats told by them."""
    (tmp_path / "tagged").mkdir()
    for side in ("en", "de"):
        lines = (folder / f"train.{side}").read_text().splitlines()
        lines = [f"<code> {x}" for x in lines] if side == "en" else lines
        write_lines(tmp_path / "tagged" / f"train.{side}", lines)
    words = ["--source", "en", "--target", "de", "--json", "--write"]
    run("check", tmp_path / "tagged", *words, tmp_path / "clean")
    found = json.loads(capsys.readouterr().out)
    assert found["splits"]["train"]["faults"]["copy"]["pairs"] == 20
    written = {name: found["written"][name] for name in COUNTS}
    assert written == {**COUNTS, "markup": 10}
    sources, _ = sentences(load_corpus(tmp_path / "clean", "en", "de").whole, "train")
    assert len(sources) == found["written"]["left"] > 500
    assert all(x.startswith("<code> ") for x in sources)


def test_a_corpus_without_a_training_split(folder, tmp_path, capsys):
    for side in ("en", "de"):
        shutil.copy(folder / f"test.{side}", tmp_path)
    words = [tmp_path, "--source", "en", "--target", "de"]
    run("check", *words)
    assert "test: 23 pairs" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no split 'train'"):
        run("check", *words, "--write", tmp_path / "clean")


def test_mistakes(folder, tmp_path, capsys):
    (tmp_path / "there").mkdir()
    languages = ["--source", "en", "--target", "de"]
    for words, said in (
        ([tmp_path / "nowhere", *languages], "nowhere"),
        ([folder, *languages, "--write", tmp_path / "there"], "must be new"),
        ([folder, *languages, "--keep", "typos"], "typos"),
        ([folder, *languages, "--keep", "copy"], "keep is for --write"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["check", *map(str, words)])
        assert ended.value.code == 2 and said in capsys.readouterr().err
