"""`keras-luong`: help, and what is said of mistakes."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
from commands import help_of

import keras_luong
from keras_luong.checks import check_size
from keras_luong.cli import main as command
from keras_luong.cli.command_line import COMMANDS, parse
from keras_luong.cli.errors import run_carefully
from keras_luong.cli.main import main, warnings_as_notes


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_does_not_wait_for_tensorflow(name):
    text = help_of(*([name] if name else []), "--help")
    assert "heavy: []" in text
    for other in COMMANDS if name is None else [name]:
        assert other in text
    if name:
        module = importlib.import_module(f"keras_luong.cli.{name}")
        for field in dataclasses.fields(vars(module)[f"{name.capitalize()}Options"]):
            assert re.search(rf"(--{field.name}|{field.name.upper()})\b", text)


def read(capsys, *argv):
    """What is said of a mistake: one line on standard error, exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        parse(argv)
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and not out and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    "argv, message",
    [
        ("", "A command is needed: train, translate"),
        ("trian", "no command trian. Did you mean train?"),
        ("frobnicate", "no command frobnicate. There are train, "),
        ("train", "DATA is missing: .*keras-luong train my/corpus --source fr"),
        ("train --lerning_rate 3", "--lerning_rate. Did you mean --learning_rate?"),
        ("train --run_dir x --epochs 1.5", "--epochs must be a whole number.*1.5"),
        ("train --run_dir x --epochs", "--epochs needs a value"),
        ("train --run_dir x --epochs 0", "--epochs must be at least 1. Received: 0"),
        ("train --run_dir x --dropout 3", r"--dropout must be in \[0, 1\).*3"),
        ("train --run_dir x --batch_tokens many", "a whole number or auto.*many"),
        ("train --run_dir x --preset smal", "no preset smal. Did you mean small?"),
        ("train --run_dir x --cell_type lsmt", "--cell_type must be lstm, .*lsmt"),
        ("train --run_dir x --preset gnmt --num_heads 2", "no option --num_heads"),
        ("train x y z", "Nothing takes y z"),
        ("train --preset small --beta_2 0.9", "--beta_2 needs optimizer"),
        ("translate", "RUN_DIR is missing"),
        ("translate x --length_penalty 1 --average 1", "At most one of"),
        ("train --run_dir x --seed -1", "--seed must be at least 0. Received: -1"),
        ("evaluate --test a b", "RUN_DIR is missing"),
        ("evaluate x --test a", "--test needs 2 values, and has a: see"),
        ("compare --flags a b", "RUN_DIRS is missing .it comes before"),
        ("translate x --n_best 0", "--n_best must be at least 1. Received: 0"),
        ("translate x --precision half", "--precision must be float32, .*half"),
        ("average x --last 3 --weights a", "At most one of --last, --weights"),
        ("average x --weights", "--weights needs a value"),
        ("tune x --beam_widths 4 1.5", "--beam_widths must be a whole number.*1.5"),
        ("tune x --beam_widths 4 0", "--beam_widths must be at least 1.*0"),
        ("tune x --length_penalties -1", "--length_penalties must be finite.*-1"),
        ("score x y", "TARGET is missing"),
        ("distill a b", "--out is missing"),
        ("export x", "Give one of OUT, "),
    ],
)
def test_mistakes_are_told_in_a_sentence(capsys, argv, message):
    assert re.search(message, read(capsys, *argv.split()))


def test_options_become_their_dataclass():
    name, options = parse("translate --ensemble a --ensemble=b x --n_best=3".split())
    assert name == "translate" and options.n_best == 3
    assert [str(path) for path in (options.run_dir, *options.ensemble)] == list("xab")
    _, again = parse("translate x --ensemble a --ensemble b --n_best 3".split())
    assert again == options
    _, options = parse(["distill", "a", "b", "c", "--out", "d"])
    assert [str(path) for path in options.run_dirs] == list("abc")
    _, options = parse("tune x --length_penalties 0 1.5 --beam_widths 1 4".split())
    assert options.length_penalties == (0.0, 1.5) and options.beam_widths == (1, 4)


@pytest.mark.parametrize(
    "error, code",
    [
        (ValueError("of some other library\n two"), 1),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (RuntimeError("they differ"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_of_a_command(capsys, error, code):
    def fail():
        raise error

    with pytest.raises(SystemExit) as stopped:
        run_carefully(fail)
    assert stopped.value.code == code
    said = capsys.readouterr().err
    assert "Traceback" not in said and said.count("\n") <= 1
    if not isinstance(error, KeyboardInterrupt):
        with pytest.raises(type(error)):
            run_carefully(fail, debug=True)


def test_what_the_library_refuses_is_a_mistake(capsys):
    with pytest.raises(SystemExit) as stopped:
        run_carefully(lambda: check_size("units", 0))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said == "keras-luong: units must be at least 1. Received: 0\n"


def test_what_goes_wrong_while_importing_is_told_too(monkeypatch, capsys):
    for error, code in ((KeyboardInterrupt(), 130), (ImportError("no libcudart"), 1)):

        def fail(name, error=error):
            raise error

        monkeypatch.setattr(command, "importlib", SimpleNamespace(import_module=fail))
        with pytest.raises(SystemExit) as stopped:
            main(["compare", "."])
        assert stopped.value.code == code
    assert "no libcudart (--debug shows where.)" in capsys.readouterr().err


def test_another_function_may_run_a_command():
    seen = []
    main(["compare", ".", "--debug"], run=seen.append)
    assert str(seen[0].run_dirs[0]) == "."


@pytest.mark.parametrize(
    ("given", "machine", "used"),
    [(None, "x86_64", "1"), ("0", "x86_64", "0"), (None, "aarch64", None)],
)
def test_tensorflow_computes_by_onednn_unless_users_say_otherwise(
    given, machine, used, monkeypatch
):
    name = "TF_ENABLE_ONEDNN_OPTS"
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)
    seen = []

    def run(_):
        seen.append(os.environ.get(name))

    main(["compare", "."], run)
    monkeypatch.delitem(sys.modules, "tensorflow")
    main(["compare", "."], run)
    assert seen == [given, used]  # it would not be read where TensorFlow is loaded


def test_version(capsys):
    assert parse(["--version"]) is None
    assert capsys.readouterr().out.strip() == keras_luong.__version__


@pytest.mark.slow
def test_debug_shows_the_traceback():
    command = [sys.executable, "-m", "keras_luong.cli", "average", "no/such/run"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2 and "Traceback" not in plain.stderr
    (said,) = plain.stderr.splitlines()  # and TensorFlow says nothing
    assert said.startswith("keras-luong: There is no run")
    full = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert "Traceback" in full.stderr and full.returncode == 1


def test_text_options_must_be_utf8(capsys):
    with pytest.raises(SystemExit) as exit:
        parse(["export", "runs/x", "out", "--check", "caf\udce9"])
    assert exit.value.code == 2
    message = "--check must be UTF-8. Received: 'caf\\udce9'"
    assert message in capsys.readouterr().err
    assert parse(["export", "runs/caf\udce9", "out"])[1].run_dir.name == "caf\udce9"


def test_users_are_warned_without_lines_of_code(capsys):
    with warnings_as_notes():
        for number in (1, 2):
            warnings.warn(f"{number} of 2 were cut.", stacklevel=1)
    assert capsys.readouterr().err == "note: 1 of 2 were cut.\nnote: 2 of 2 were cut.\n"
