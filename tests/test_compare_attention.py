"""The benchmark that compares the attentions of the paper."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_luong import Translation, files
from keras_luong.cli.command_line import parse
from keras_luong.config.presets import PRESETS

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "compare_attention.py"
sys.path.append(str(SCRIPT.parent))
compare = importlib.import_module(SCRIPT.stem)


def translation(tokens, source_tokens, alignment, text="?"):
    return Translation(text, 0.0, tokens, source_tokens, np.array(alignment), False, ())


def test_unknown_words_are_replaced_where_words_are_whole():
    t = translation(
        ["<unk>", "rennt", "</s>"],
        ["<unk>", "runs", "</s>"],
        [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]],
        "<unk> rennt",
    )
    assert compare.with_unknowns_replaced(t, "Rex runs") == "Rex rennt"
    pieces = t._replace(source_tokens=["▁Re", "x", "▁runs", "</s>"])
    assert compare.with_unknowns_replaced(pieces, "Rex runs") == "<unk> rennt"
    pieces = t._replace(tokens=["<unk>", "▁rennt", "</s>"])  # of the target alone
    assert compare.with_unknowns_replaced(pieces, "Rex runs") == "<unk> rennt"


def test_alignment_error_is_that_of_the_references():
    example = SimpleNamespace(alignment=((0, 1), (1, 0)))
    corpus = SimpleNamespace(examples=lambda split: [example])
    read = translation(["▁b", "▁a", "</s>"], ["▁a", "▁b", "</s>"], np.eye(3)[[1, 0, 2]])
    translator = SimpleNamespace(score=lambda sources, references: [read])
    error = compare.alignment_error(translator, corpus, "test", ["a b"], ["b a"])
    assert error == 0
    assert compare.alignment_error(translator, object(), "test", [], []) is None


@pytest.mark.parametrize("column, error", [(None, None), (2, 100)])
def test_no_attention_has_no_alignment_error(column, error):
    """All weights 0; attention to the end token alone is attention, and wrong."""
    weights = np.zeros((3, 3))
    weights[:, [] if column is None else column] = 1
    corpus = SimpleNamespace(examples=lambda _: [SimpleNamespace(alignment=((0, 0),))])
    read = translation(["▁b", "▁a", "</s>"], ["▁a", "▁b", "</s>"], weights)
    translator = SimpleNamespace(score=lambda sources, references: [read])
    found = compare.alignment_error(translator, corpus, "test", ["a b"], ["b a"])
    assert found == error


MULTI30K = ("train", "validation", "test_2016_flickr")


@pytest.mark.parametrize(
    "splits, asked, split",
    [
        (MULTI30K, None, "test_2016_flickr"),
        (MULTI30K, "validation", "validation"),
        (("train", "validation", "extra", "test", "test2"), None, "test"),
    ],
)
def test_split_to_translate(splits, asked, split):
    assert compare.held_out(SimpleNamespace(splits=splits), asked) == split


@pytest.fixture
def corpus(tmp_path):
    """A directory of text files; flags of it; nothing in it can be trained on."""
    for file in ("train", "val", "test_1"):
        for language in ("xx", "yy"):
            (tmp_path / f"{file}.{language}").write_text("a b\n")
    return f"--out {tmp_path / 'out'} --data {tmp_path} --source xx --target yy".split()


@pytest.fixture
def trained(monkeypatch):
    """Commands that would train; each leaves the record and results of a run."""
    commands = []

    def run(command, check):
        commands.append(command)
        _, (config, path, _) = parse(command[3:])
        path.mkdir(parents=True, exist_ok=True)
        model = dataclasses.asdict(config.model_config(9, 9))
        parts = {"format": 1, "search": {}, "max_source_length": 9}
        parts["model"] = {"config": {"config": model}}
        parts |= {"paths": {}, "corpus": None, "came_from": None}
        settings = {"settings": config.settings()}
        files.write_json(path / "run.json", parts | settings)
        files.write_json(path / "results.json", {})

    def measure(run, corpus, split, tokenize):
        number = len(measured)
        measured.append((split, tokenize))
        row = dict.fromkeys(compare.COLUMNS, number)
        return row | {"learning_curve": [2.0], "by_length": {"10": 1.0}}

    measured = []
    monkeypatch.setattr(compare.subprocess, "run", run)
    monkeypatch.setattr(compare, "measure", measure)
    return SimpleNamespace(commands=commands, measured=measured)


@pytest.mark.parametrize("split", ["test", "train"])
def test_refuses_an_unknown_split_before_it_trains(split, corpus, trained):
    with pytest.raises(ValueError, match=r"\['validation', 'test_1'\]. .*" + split):
        compare.main([*corpus, "--split", split])
    assert not trained.commands


def test_refuses_where_there_is_no_test_set():
    with pytest.raises(ValueError, match="--split must be.*Received: None"):
        compare.held_out(SimpleNamespace(splits=("train", "validation")), None)


@pytest.mark.slow
def test_measures_again_for_another_split_or_tokenizer(corpus, trained):
    corpus += ["--variants", "none"]
    first = compare.main(corpus)
    assert trained.measured == [("test_1", "13a")]
    assert compare.main(corpus) == first
    assert len(trained.measured) == 1
    other = compare.main([*corpus, "--split", "validation"])
    assert trained.measured[1:] == [("validation", "13a")] and other != first
    compare.main([*corpus, "--split", "validation", "--bleu_tokenize", "none"])
    assert trained.measured[2:] == [("validation", "none")]


def test_a_measurement_that_does_not_say_of_what_is_made_again(tmp_path, monkeypatch):
    files.write_json(tmp_path / "comparison.json", {"bleu": 1.0})
    monkeypatch.setattr(compare, "measure", lambda *_, **__: {"bleu": 2.0})
    args = argparse.Namespace(split="test", bleu_tokenize="13a")
    assert compare.measured(tmp_path, None, args)["bleu"] == 2


@pytest.mark.slow
def test_refuses_a_variant_that_was_trained_otherwise(corpus, trained, tmp_path):
    compare.main([*corpus, "--units", "8", "--variants", "none"])
    result = tmp_path / "out" / "none" / "results.json"
    with pytest.raises(ValueError, match="'none' .*units: 8 there, 16 now"):
        # Nothing of the other variant is trained either.
        compare.main([*corpus, "--units", "16", "--variants", "global (dot)", "none"])
    assert len(trained.commands) == 1 and result.exists()
    compare.main([*corpus, "--units", "8", "--variants", "none"])
    assert len(trained.commands) == len(trained.measured) == 1


def test_what_its_preset_says_may_be_said_of_a_variant(corpus, trained, tmp_path):
    corpus += ["--variants", "none"]
    compare.main(corpus)
    layers = str(PRESETS["luong2015-dropout"].fields["num_layers"])
    compare.main([*corpus, "--num_layers", layers])
    assert trained.commands[1][-2:] == ["--num_layers", layers]
    with pytest.raises(ValueError, match=f"num_layers: {layers} there, 9 now"):
        compare.main([*corpus, "--num_layers", "9"])


def test_mistakes_are_found_before_anything_is_trained(corpus, trained, capsys):
    with pytest.raises(SystemExit):
        compare.main([*corpus, "--unit", "8"])
    assert "no option --unit. Did you mean --units?" in capsys.readouterr().err
    assert not trained.commands


@pytest.mark.slow
def test_goes_on_with_a_variant_for_more_epochs(corpus, trained, tmp_path):
    corpus += ["--variants", "none"]
    compare.main([*corpus, "--epochs", "1"])
    compare.main([*corpus, "--epochs", "2"])
    assert trained.commands[1][-2:] == ["--epochs", "2"]
    assert len(trained.commands) == len(trained.measured) == 2


@pytest.mark.slow
def test_an_interrupted_variant_is_not_finished(corpus, trained, monkeypatch):
    argv = [*corpus, "--variants", "none", "--epochs"]
    compare.main([*argv, "1"])
    with monkeypatch.context() as patch:
        patch.setattr(compare.subprocess, "run", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compare.main([*argv, "2"])
    compare.main([*argv, "2"])
    assert trained.commands[1][-2:] == ["--epochs", "2"]


def test_variants_of_before_flags_were_kept_are_accepted(corpus, trained, tmp_path):
    compare.main([*corpus, "--units", "8", "--variants", "none"])
    (tmp_path / "out" / "none.flags.json").unlink()
    compare.main([*corpus, "--units", "16", "--variants", "none"])
    assert len(trained.commands) == 1


def test_a_table_has_a_row_a_variant():
    row = dict.fromkeys(compare.COLUMNS, 1234.5) | {"variant": "dot", "aer": None}
    row["parameters"] = 1234
    *_, last = compare.table([row])
    assert last == "| dot | 1234.50 | 1234.50 | 1234.50 | – | 1,234 | 1,234 |"


def test_variants_are_presets_and_directories_of_their_own():
    slugs = {compare.slug(name) for name in compare.VARIANTS}
    assert len(slugs) == len(compare.VARIANTS) == 15
    assert "local-p-general-no-feed" in slugs
    for variant in compare.VARIANTS.values():
        assert variant.split()[1] in PRESETS


def test_recipes_are_not_compared(corpus, trained, capsys):
    with pytest.raises(SystemExit):
        compare.main([*corpus, "--variants", "multi30k"])
    assert "multi30k" in capsys.readouterr().err and not trained.commands


@pytest.mark.slow
def test_trains_once_and_compares(tmp_path, monkeypatch):
    """Two variants on a tiny corpus; the second time nothing is trained."""
    rng = random.Random(0)
    for split, size in (("train", 30), ("val", 6), ("test", 6)):
        lines = [" ".join(rng.choices("abcde", k=5)) for _ in range(size)]
        (tmp_path / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
    flags = f"--out {tmp_path / 'out'} --data {tmp_path} --source xx --target yy "
    flags += "--units 8 --num_layers 1 --tokenizer word --optimizer adam --epochs 1 "
    flags += "--beam_width 2 --variants"
    argv = [*flags.split(), "none", "local-p (general)"]
    rows = compare.main(argv)
    assert [row["variant"] for row in rows] == ["none", "local-p (general)"]
    assert rows[1]["parameters"] > rows[0]["parameters"]
    assert json.loads((tmp_path / "out" / "table.json").read_text()) == rows
    for picture in ("learning_curves.png", "bleu_by_length.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 1000
    monkeypatch.setattr(compare.subprocess, "run", None)
    assert compare.main(argv) == rows
    with pytest.raises(SystemExit):
        compare.main([*flags.split(), "local-q"])
