"""The options of `keras-luong train`, and what they ask for."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from commands import help_of

from keras_luong.cli.command_line import parse
from keras_luong.cli.train import RARE, TRAINING, default_run_dir
from keras_luong.config.models import Seq2SeqConfig
from keras_luong.config.presets import PAPERS, PRESETS
from keras_luong.config.training import TrainingConfig


@pytest.mark.slow
def test_help_of_training_has_all_there_is():
    text = help_of("train", "--help=all")
    for cls in (*TRAINING.values(), Seq2SeqConfig):
        for field in dataclasses.fields(cls):
            name = field.name.upper() if field.name == "data" else f"--{field.name}"
            assert name in text or field.name.endswith("_vocab_size")
    assert "Size of every decoder layer" in text  # the docstring's
    assert "[choices: sgd, adam] [default: adam]" in " ".join(text.split())
    plain, papers = " ".join(text.split()).split("Presets of papers, in their sizes: ")
    for preset in PRESETS:
        assert preset in (papers if preset in PAPERS else plain[plain.index("Pres") :])
    # The mark above an h takes no place of its own.
    assert max(len(line.replace("\u0303", "")) for line in text.splitlines()) <= 80
    lines = " ".join(help_of("train", "--preset", "multi30k", "--help").split())
    assert "[default: 4000]" in lines and "Dropout" not in lines
    assert "--num_heads" in help_of("train", "--preset=wu2021-tiny", "--help")


def test_help_shows_what_is_needed_without_a_paper(capsys):
    shown = []
    for word in ("--help", "--help=all"):
        parse(["train", word])
        shown.append(set(re.findall(r"^ *--(\w+)", capsys.readouterr().out, re.M)))
    few, all_options = shown
    assert len(few) <= 45 and few < all_options and RARE <= all_options - few


def said(words):
    """The configuration, the run directory, and whether it distills."""
    return parse(words.split())[1]


def test_a_training_is_a_configuration():
    words = "train --run_dir r --preset multi30k-small --units 12 --attention none"
    config, run_dir, distill = said(f"{words} --no-input_feeding --epochs=3")
    assert str(run_dir) == "r" and not distill
    assert config == TrainingConfig.from_preset(
        "multi30k-small", units=12, attention=None, input_feeding=False, epochs=3
    )
    words = "train --preset gnmt --learning_rate 1e-3 --seed 7 --distill"
    config, run_dir, distill = said(words)
    assert (config.learning_rate, config.seed, config.vocab_size) == (1e-3, 7, 50000)
    assert run_dir == Path("runs/gnmt") and distill
    twice = "train --run_dir r --preset gnmt --seed 1 --preset=small --seed 2"
    config, *_ = said(twice)  # the last one counts
    assert (config.preset, config.seed) == ("small", 2)


@pytest.mark.parametrize(
    "words, run_dir, given",
    [
        ("my/corpus --source fr --target en", "runs/corpus-fr-en", {}),
        ("--data my/corpus/ --target en", "runs/corpus-en", {}),
        ("my/corpus --run_dir runs/x", "runs/x", {}),
        ("phrases", "runs/phrases", {}),
        (
            "my/corpus --source fr --dropout 0.25 --no-shared --epochs 7",
            "runs/corpus-fr",
            {"dropout": 0.25, "shared": False, "epochs": 7},
        ),
    ],
)
def test_a_corpus_is_all_that_training_needs(words, run_dir, given):
    """What is given is not chosen."""
    training, path, _ = said(f"train {words}")
    assert path == Path(run_dir) and training.given == given
    assert training.data == re.search(r"my/corpus/?|phrases", words)[0]
    assert [training.source, training.target] == [
        (re.findall(rf"--{side} (\w+)", words) or [None])[0]
        for side in ("source", "target")
    ]


def test_where_pydantic_is_imported():
    """With it cyclopts looks at defaults too, whoever has imported it."""
    pytest.importorskip("pydantic")
    training = said("train my/corpus --source en --target de")
    assert training.config.source == "en" and not training.config.given


def test_a_run_from_another_one_has_a_name_of_its_own():
    words = {"data": "my/corpus", "source": "en", "target": "de"}
    assert default_run_dir(words) == Path("runs/corpus-en-de")
    start = {"init_from": "runs/captions"}
    assert default_run_dir({**words, **start}) == Path("runs/corpus-en-de")
    assert default_run_dir(start) == Path("runs/captions-more")
