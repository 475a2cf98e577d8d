"""The commands that write corpora, and the script that makes one and uses it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import options, run, run_checked
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.decoding import BeamSearch
from keras_luong.files import write_json, write_lines
from keras_luong.runs import load_save, synthetic
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.run import read_record
from keras_luong.runs.synthetic import BackTranslated, check_reverse
from keras_luong.text import load_corpus

ROOT = Path(__file__).parents[1]
MONO = ["the red cat", "the cat is the dog", "the red dog", "red", "the cat is red"]
GERMAN = "Ein Hund läuft mit seinem Ball am Strand entlang.\n" * 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two runs from en to de that say different things, and their corpus."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val"):
        write_lines(f"data/{split}.en", ["the red dog", "the red dog is"])
        write_lines(f"data/{split}.de", ["der Hund", "der Hund ist"])
    write_lines("mono.en", MONO)
    settings, rng = {"data": "data", "source": "en", "target": "de"}, None
    for name in ("run", "other"):
        translator = word_translator(BeamSearch(2, max_length=6))
        for weight in translator.model.trainable_weights if rng else ():
            weight.assign(rng.normal(size=weight.shape))
        written_run(name, translator, settings)
        rng = np.random.default_rng(0)
    return tmp_path


def test_runs_translate_their_corpus_together(place, capsys, monkeypatch):
    asked = []

    def loaded(run_dirs, dtype):
        asked.append(([Path(x).name for x in run_dirs], dtype))
        return load_ensemble(run_dirs, dtype)

    monkeypatch.setattr(load_save, "load_ensemble", loaded)
    run("distill", "run", "other", "--out", "d")
    assert asked == [(["run", "other"], "float32")]
    said = load_ensemble(["run", "other"]).translate(["the red dog", "the red dog is"])
    lines = Path("d/train.de").read_text().splitlines()
    assert lines == ["der Hund", said[0].text, "der Hund ist", said[1].text]
    assert Path("d/validation.de").read_text() == "der Hund\nder Hund ist\n"
    assert "2 model(s) translate data\n" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="--out must be new.*: d$"):
        run_checked("distill", "run", "--out", "d")


def backtranslate(*words, data="data", mono="mono.en", out="out"):
    run_checked(
        "backtranslate", "run", "--data", data, "--mono", mono, "--out", out, *words
    )


def made(out="out"):
    sources, targets = (
        Path(f"{out}/train.{language}").read_text("utf-8").splitlines()
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
    """What is drawn is not what is found."""
    for out, seed in (("a", 3), ("b", 3), ("c", 4)):
        words = ["--seed", seed, "--temperature", 3, "--top_k", 5, "--limit", 3]
        backtranslate("--sampling", "--max_length", 7, *words, out=out)
    backtranslate("--max_length", 7, "--limit", 3, out="found")
    assert made("a") == made("b") != made("c") and len(made("a")) == 3
    assert made("found") not in (made("a"), made("c"))


@pytest.mark.slow
def test_k2_a_run_of_a_domain_reads_its_tag(place):
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
    (place / "data/mono.txt").write_text(GERMAN)
    (place / "data/few.de.txt").write_text("Ja.\n")
    with pytest.raises((ValueError, OSError), match=message):
        backtranslate(*words)
    assert not (place / "out").exists()


def test_k2_a_name_that_tells_the_language_is_believed(place):
    """Lines of loanwords, or of another text's product names, may look otherwise."""
    (place / "data/mono.en").write_text(GERMAN)
    backtranslate("--mono", "data/mono.en", "--limit", 1)
    assert (place / "out/train.en").exists()


def test_k2_a_run_that_names_no_languages_is_told_them(place, monkeypatch):
    check_reverse("run", load_corpus("data", "DE", "EN"))  # or spells them otherwise
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


def test_k2_options_that_cannot_be(capsys):
    for words, message in {
        "--seed 0": "--seed needs --sampling",
        "--top_k 5": "--top_k needs --sampling",
        "--temperature 2": "--temperature needs --sampling",
        "--sampling --beam_width 3": "--beam_width is for a beam search",
        "--sampling --no_unknown": "--no_unknown is for a beam search",
        "--sampling --temperature 0": "temperature must be",
        "--tag BT": "--tag must be of small letters",
        "--limit 0": "--limit must be at least 1",
    }.items():
        with pytest.raises(SystemExit):
            needed = ["--data", "x", "--mono", "y", "--out", "z"]
            options("backtranslate", "r", *needed, *words.split())
        assert message in capsys.readouterr().err


@pytest.fixture
def command(tmp_path):
    """A command by its lines of shell."""

    def written(*lines):
        path = tmp_path / "keras-luong"
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return path

    return written


ECHO = 'echo "$*"'


def train_distilled(command, *arguments, **options):
    """Runs the shell script that does it all."""
    return subprocess.run(
        ["bash", ROOT / "examples" / "train_distilled.sh", *arguments],
        env=os.environ | {"KERAS_LUONG": str(command)},
        capture_output=True,
        text=True,
        **options,
    )


TEACHER = "train --preset multi30k-small --data x --seed 7 --run_dir"
STUDENT = "train --preset multi30k --constant_epochs 8 --epochs 12 --data x --seed 7"


def test_the_whole_recipe(command, tmp_path):
    """Of an option that is given twice, the last one counts."""
    words = ["--data", "x", "--seed", "7"]
    corpus = "distill {0}/teacher1 {0}/teacher2 {0}/teacher3 --out {0}/corpus"
    expected = [
        *(f"{TEACHER} my out/teacher{seed} --seed {seed}" for seed in (1, 2, 3)),
        corpus.format("my out"),
        f"{STUDENT} --run_dir my out/student --data my out/corpus",
    ]
    echo = command(ECHO)
    done = train_distilled(echo, "my out/", *words, cwd=tmp_path)
    assert done.stdout.splitlines() == expected
    (tmp_path / "my out" / "corpus").mkdir(parents=True)  # which then stays
    done = train_distilled(echo, "my out", *words, cwd=tmp_path)
    assert done.stdout.splitlines() == expected[:3] + expected[4:]
    done = train_distilled(echo, "out", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ")
    done = train_distilled(command(ECHO, "exit 3"), "out", *words)
    assert done.returncode == 3 and len(done.stdout.splitlines()) == 1
    done = train_distilled("no-such-command", "out", "--data", "x")
    assert done.returncode == 2 and "There is no no-such-command" in done.stderr


def test_the_whole_recipe_says_how_it_is_used(command):
    for words, message in {
        "": "OUT must come first. Received: nothing",
        "--data x": "OUT must come first. Received: --data",
        "out": "There must be --data",
        "out --data=x --run_dir y": "Not for these trainings: --run_dir",
        "out --data=x --preset=y": "Not for these trainings: --preset=y",
        "out --data x --limit_examples=9": "trainings: --limit_examples=9",
    }.items():
        done = train_distilled(command(ECHO), *words.split())
        assert done.returncode == 2 and not done.stdout
        assert message in done.stderr and "usage: " in done.stderr
