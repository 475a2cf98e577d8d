"""`keras-luong backtranslate`, and the training that follows."""

from __future__ import annotations

import pytest
from commands import options, run, run_checked
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.decoding import BeamSearch
from keras_luong.files import write_json, write_lines
from keras_luong.runs import synthetic, train
from keras_luong.runs.run import read_record
from keras_luong.runs.synthetic import BackTranslated, check_reverse
from keras_luong.text import TokenizerPair, load_corpus
from keras_luong.text.tags import tags_of

MONO = ["the red cat", "the cat is the dog", "the red dog", "red", "the cat is red"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A run from en to de, and a corpus that is to be read from de to en."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val"):
        write_lines(f"data/{split}.en", ["the red dog", "the red dog is"])
        write_lines(f"data/{split}.de", ["der Hund", "der Hund ist"])
    write_lines("mono.en", MONO)
    translator = word_translator(BeamSearch(2, max_length=6))
    written_run(tmp_path / "run", translator, {"source": "en", "target": "de"})
    return tmp_path


def backtranslate(*words, data="data", mono="mono.en", out="out"):
    run_checked(
        "backtranslate", "run", "--data", data, "--mono", mono, "--out", out, *words
    )


def made(out="out"):
    sources, targets = (
        open(f"{out}/train.{language}", encoding="utf-8").read().splitlines()
        for language in ("de", "en")
    )
    pairs = zip(sources, targets, strict=True)
    return [pair for pair in pairs if pair[0].startswith("<bt> ")]


def test_k2_a_corpus_for_the_other_direction(place, capsys):
    backtranslate()
    lines = [line for line in MONO if line != "the red dog"]  # which is known
    said = kl.load("run").translate(lines)
    assert made() == [(f"<bt> {t.text}", x) for t, x in zip(said, lines, strict=True)]
    assert (place / "out/validation.de").read_text() == "der Hund\nder Hund ist\n"
    out = capsys.readouterr().out
    assert "4 of 5 lines of mono.en; left out: 1 that are held-out targets" in out
    assert "out: 2 pairs of data, and 4 with <bt>" in out and "for de into en" in out


@pytest.mark.slow
def test_k2_sampled_by_a_seed(place):
    for out, seed in (("a", 3), ("b", 3), ("c", 4)):
        words = ["--seed", seed, "--temperature", 3, "--top_k", 5, "--limit", 3]
        backtranslate("--sampling", "--max_length", 7, *words, out=out)
    assert made("a") == made("b") != made("c") and len(made("a")) == 3


@pytest.mark.slow
def test_k2_a_run_of_a_domain_reads_its_tag(place, monkeypatch):
    record = read_record("run")
    record["settings"]["tag"] = "news"
    write_json("run/run.json", record)
    backtranslate("--tag", "made", "--repeat_real", 2, "--beam_width", 1)
    greedy = kl.load("run").with_search(beam_width=1)
    first = greedy.translate([f"<news> {MONO[0]}"])[0].text
    lines = (place / "out/train.de").read_text().splitlines()
    assert f"<made> {first}" in lines and lines.count("der Hund") == 2


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--source", "en", "--target", "de"],
            "A run is needed that translates de into en, .*Received: run, which "
            "translates en into de",
        ),
        (["--target", "fr"], "no .fr file beside it"),
        (["--out", "data"], "--out must be new. Received: data"),
        (["--mono", "data/train.de"], "--mono must be text in en, .* ends in de"),
        (["--mono", "data/few.de.txt"], "--mono must be text in en, .* ends in de"),
        (["--mono", "data/mono.txt"], "--mono must be text in en, .* read like de"),
        (["--mono", "nowhere"], "There is no file nowhere"),
    ],
)
def test_k2_what_does_not_fit_together_is_refused(words, message, place):
    german = "Ein Hund läuft mit seinem Ball am Strand entlang.\n" * 60
    (place / "data/mono.txt").write_text(german)
    (place / "data/few.de.txt").write_text("Ja.\n")
    with pytest.raises((ValueError, OSError), match=message):
        backtranslate(*words)
    assert not (place / "out").exists()


def test_k2_a_name_that_tells_the_language_is_believed(place):
    """Lines of loanwords, or of another text's product names, may look otherwise."""
    german = "Ein Hund läuft mit seinem Ball am Strand entlang.\n" * 60
    (place / "data/mono.en").write_text(german)
    backtranslate("--mono", "data/mono.en", "--limit", 1)
    assert (place / "out/train.en").exists()


def test_k2_languages_may_be_spelt_otherwise(place):
    check_reverse("run", load_corpus("data", "DE", "EN"))


def test_k2_a_run_that_names_no_languages_is_told_them(place, monkeypatch):
    write_json("run/run.json", {**read_record("run"), "settings": {}})
    with pytest.raises(ValueError, match="give --source and --target"):
        backtranslate()
    asked = []

    def write_backtranslated(corpus, *_, **options):
        asked.append((corpus.source_language, corpus.target_language))
        return BackTranslated(place, 2, 4, 0)

    monkeypatch.setattr(synthetic, "write_backtranslated", write_backtranslated)
    backtranslate("--source", "de", "--target", "en")
    assert asked == [("de", "en")]


@pytest.mark.parametrize(
    "words, message",
    [
        ("--seed 0", "--seed needs --sampling"),
        ("--top_k 5", "--top_k needs --sampling"),
        ("--sampling --beam_width 3", "--beam_width is for a beam search"),
        ("--sampling --no_unknown", "--no_unknown is for a beam search"),
        ("--sampling --temperature 0", "temperature must be"),
        ("--tag BT", "--tag must be of small letters"),
        ("--limit 0", "--limit must be at least 1"),
    ],
)
def test_k2_options_that_cannot_be(words, message, capsys):
    with pytest.raises(SystemExit):
        needed = ["--data", "x", "--mono", "y", "--out", "z"]
        options("backtranslate", "r", *needed, *words.split())
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_k2_a_training_needs_no_more_flags(place, capsys, monkeypatch):
    """The tag is a piece of its tokenizer, and the table says so."""
    backtranslate()
    monkeypatch.setattr(train, "fit_model", lambda *_: None)
    monkeypatch.setattr(train, "evaluate", lambda *_: None)
    words = ["--source", "de", "--target", "en", "--units", 8, "--vocab_size", 40]
    run("train", "out", *words, "--run_dir", "new")
    assert "tags         <bt>\n" in capsys.readouterr().out
    source = TokenizerPair.load("new/tokenizer").source
    assert tags_of(source) == ["bt"]
    assert source.pieces(source.encode(["<bt> der"])[0])[0] == "▁<bt>".encode()
