"""Command lines: help, options, what is said of mistakes, and exit codes."""

import dataclasses
import gzip
import importlib
import json
import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf
from commands import options
from processes import ROOT, python
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.checks import check_size
from keras_luong.cli import command_line, export, translators
from keras_luong.cli import main as command
from keras_luong.cli.command_line import COMMANDS, parse
from keras_luong.cli.errors import run_carefully
from keras_luong.cli.main import main, warnings_as_notes
from keras_luong.cli.train import RARE, TRAINING, default_run_dir
from keras_luong.config.fields import hints_of
from keras_luong.config.presets import PAPERS, PRESETS
from keras_luong.config.training import TrainingConfig
from keras_luong.export import signatures
from keras_luong.files import saved_beside, write_json
from keras_luong.runs.run import read_record

HELP = """
import sys
from keras_luong.cli.command_line import COMMANDS, parse
from keras_luong.cli.main import main
for words in [["--help"], *([name, "--help"] for name in COMMANDS), ["--version"]]:
    assert parse(words) is None
    print("END")
for words in ("translate no/run", "train docs --source a --target b"):
    try:
        main(words.split())
    except SystemExit as error:
        assert error.code == 2
print({"tensorflow", "keras", "numpy", "sacrebleu"} & sys.modules.keys())
"""


def test_help_tells_every_option_and_does_not_wait_for_tensorflow():
    """Nor do mistakes; and whatever is a run is looked for at once."""
    done = python("-c", HELP, cwd=ROOT)
    all_commands, *texts, version, loaded = done.stdout.split("END\n")
    assert loaded == "set()\n" and version.strip() == kl.__version__
    one, other = done.stderr.splitlines()
    assert one.startswith("keras-luong: There is no run directory at no/run. ")
    assert other.startswith("keras-luong: docs has no train.a and train.b, ")
    for name, text in zip(COMMANDS, texts, strict=True):
        module = importlib.import_module(f"keras_luong.cli.{name}")
        assert name in all_commands and f"keras-luong {name}" in text
        cls = vars(module)[f"{name.capitalize()}Options"]
        for field, hint in hints_of(cls).items():
            option = rf"(--{field}|{field.upper()})\b"
            assert re.search(option, text), f"{name} {option}"
            is_run = field in ("run_dir", "run_dirs", "ensemble", "against")
            assert name == "train" or ("_check_run" in str(hint)) == is_run


def help_of_training(capsys, *words):
    assert parse(["train", *words]) is None
    return capsys.readouterr().out


def test_help_of_training_has_all_there_is(capsys):
    text = help_of_training(capsys, "--help=all")
    for cls in (*TRAINING.values(), kl.Seq2SeqConfig):
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
    lines = help_of_training(capsys, "--preset", "multi30k", "--help").split()
    assert "[default: 4000]" in " ".join(lines) and "Dropout" not in lines
    assert "--num_heads" in help_of_training(capsys, "--preset=wu2021-tiny", "--help")
    usual = help_of_training(capsys, "--help")
    few, every = ({*re.findall(r"^ *--(\w+)", x, re.M)} for x in (usual, text))
    assert len(few) <= 45 and few < every and RARE <= every - few


def table(text):
    """The rows of a table: what is typed, and what is said of it."""
    rows = [row.partition(" | ") for row in text.strip().splitlines()]
    return [pytest.param(argv.strip(), said, id=argv.strip()) for argv, _, said in rows]


def refused(capsys, argv, work):
    """What is said of a mistake: one line on standard error, and exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        work(argv.split())
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and not out, err
    said = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert len(said) == 1 and said[0].startswith("keras-luong: ")
    return said[0]


MISTAKES = r"""
| A command is needed: train, translate
trian | no command trian. Did you mean train\?
frobnicate | no command frobnicate. There are train, check, translate
train | DATA is missing: .*keras-luong train my/corpus --source fr
train --lerning_rate 3 | --lerning_rate. Did you mean --learning_rate\?
train --run_dir x --epochs 1.5 | --epochs must be a whole number.*1.5
train --run_dir x --epochs | --epochs needs a value
train --run_dir x --batch_tokens many | a whole number or auto.*many
train --run_dir x --preset smal | no preset smal. Did you mean small\?
train --run_dir x --cell_type lsmt | --cell_type must be lstm, .*lsmt
train --run_dir x --preset gnmt --num_heads 2 | no option --num_heads
train x /dev/null | Nothing takes /dev/null: two files have a comma between them, as
train --init_from no/run | --init_from must be a run dir.*no/run, which has no run.json
train d --val a.en | lies beside that to learn from, as val.fr and val.en
train d --vocab_size 3 | --vocab_size must be above 4, .*1000 is right
translate | RUN_DIR is missing
translate RUN g.fr | Nothing takes g.fr: did you mean --input g.fr\?
translate x --length_penalty 1 --average 1 | At most one of --length_penalty, --average
translate x --average nan | --average must be finite and not negative.*nan
translate x --n_best 0 | --n_best must be at least 1. Received: 0
translate x --output a.parquet | Parquet needs --engine ray. Received: a.parquet
translate x --input a.tmx --column b | --column is of a .tsv, .csv, .*Received: a.tmx
evaluate --test a b | RUN_DIR is missing: give a run, or --hypotheses
evaluate x a b | did you mean --test a b\?
evaluate x --test a | --test needs 2 values, and has a: see
evaluate x --hypotheses c | --hypotheses needs --test
evaluate --test a b --hypotheses c --beam_width 3 | --beam_width needs RUN_DIR
evaluate x --test a b --data d | At most one of --test, --data
export x | Give one of OUT, a directory or a file whose name ends in .tflite
export x y --web z | Give one of OUT, a directory or a file whose name ends in .tflite
tune x --beam_widths 4 1.5 | --beam_widths must be a whole number.*1.5
compare --flags a b | RUN_DIRS is missing .it comes before
translate no/run | There is no run directory at no/run. keras-luong train makes one
translate rum | There is no run directory at rum. Did you mean run\?
translate folder | folder is no run directory, as it has no run.json
translate run --input no/file | There is no file no/file
translate run --input r.csv | r.csv has xx-GB and xx-US: which one is xx.*--column
translate run --input model | model is a directory, and not a file
translate run --terms png | png is no text
translate run --output run | --output must be a file to write. Received a directory
translate run --output one/x | one/x cannot be written: /
translate run --pictures one | --pictures must be a directory to write to. Received a f
translate run --engine ray --input two --output folder | --output must be a file
evaluate run --against turned | translates xx into yy. Received: turned, which tran
evaluate run --test no/file no/file | There is no file no/file
score run two pipe | pipe is a pipe or a device, and is read more than once: write
translate run --constraints pipe | pipe is a pipe
translate run --prefixes pipe --terms two | pipe is a pipe
train pipe --source a --target b | pipe is a pipe
backtranslate run --data folder --mono pipe --out x | pipe is a pipe
evaluate run --test a.tmx a.tmx | --test must be lines of plain text. .*: a.tmx; docs
score run a.tsv.gz two | SOURCE must be lines of plain text. Received: a.tsv.gz; docs
evaluate run --report x.pdf | --report is a file whose name ends in .html. Received: x
export run one | OUT must be a directory, or a file whose name ends in .tflite
export run model | --overwrite to replace it, or --version 8 for a new one
verify run two --saved_model no/model | There is no directory no/model
average run --out turned | --out
distill run --out run | --out must be new. Received: run
train phrases --run_dir one | one
train folder --source a --target b | folder has no train.a and train.b
train folder/train.xx --source a --target b | folder/train.xx
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A directory with runs and odd files, none of which a command changes here."""
    path = tmp_path_factory.mktemp("there")
    write_corpus(path, train=3, val=2)
    settings = {"data": str(path), "source": "xx", "target": "yy"}
    settings["bleu_tokenize"] = "13a"
    run = written_run(path / "run", word_translator(kl.BeamSearch(3)), settings)
    record = read_record(run.path)
    for name, changed in {
        "turned": {**settings, "source": "yy", "target": "xx"},
        "gone": {**settings, "data": "nowhere"},
        "nameless": {},
    }.items():
        write_json(path / name / "run.json", {**record, "settings": changed})
    for name, content in {
        **{"one": b"a\n", "two": b"b\nc\n", "bad": b"d\n\xff\n", "empty": b""},
        **{"folder/train.xx": b"a\n", "folder/deep/x.parquet": b"a\n"},
        **{"model/1/x": b"", "model/7/x": b"", "r.csv": b"xx-GB,xx-US"},
        "bad.gz": gzip.compress(b"a\n" * 9)[:-4],
        "png": next((ROOT / "docs" / "images").glob("*.png")).read_bytes(),
    }.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    (path / "link").symlink_to("two")
    os.mkfifo(path / "pipe")
    return path


@pytest.mark.parametrize("argv, message", table(MISTAKES))
def test_mistakes_are_told_in_a_sentence(argv, message, there, monkeypatch, capsys):
    """Wrong options, and wrong paths."""
    monkeypatch.chdir(there)
    begun = []
    said = refused(capsys, argv, lambda words: main(words, run=begun.append))
    assert re.search(message, said) and not begun


REFUSED = r"""
translate run --input two --output link | --output would overwrite the input, two
evaluate run --test one two | two has 2 lines and one has 1: line 2 of two has no tr
evaluate run --test two bad | bad is not UTF-8: line 2 has the byte 0xff
evaluate run --test empty empty | empty is empty: there is nothing to evaluate
evaluate gone | names 'nowhere' as its data, which is not there: .* by --data
evaluate nameless | give --data, --source, --target
evaluate run --test one one --hypotheses two | two has 2 lines and one has 1
evaluate run --against run | Two of .* are the same
evaluate run --bleu_tokenize 13b | --bleu_tokenize.*'13b'.*'13a'
score run one bad.gz | bad.gz .*is damaged
score run two two --output two | --output would overwrite the input, two
export run x.tflite --version 2 | --version is for a SavedModel.*2, x.tflite
export run x.tflite --precision float32 | --precision is for a SavedModel.*float32
export run x.tflite --no_constrain | --no_constrain is for a SavedModel.*True
export run x --quantize int8 | --quantize is for a .tflite file or a page.*int8, x
export run --web x --version 2 | --version is for a SavedModel.*2, --web x
verify run two | Nothing to compare
verify run empty --saved_model model | empty is empty: there is nothing to compare
tune run --bleu_tokenize foo | --bleu_tokenize.*foo
tune run --source z | train split has .*train.yy but no .z file
compare folder | There is no run directory among folder
compare run --flags source drop_out | No run has a setting drop_out
"""


@pytest.mark.parametrize("argv, message", table(REFUSED))
def test_what_does_not_fit_is_told_first(argv, message, there, monkeypatch, capsys):
    monkeypatch.chdir(there)
    monkeypatch.delattr(translators, "load_ensemble")
    before = {path: path.stat().st_mtime_ns for path in there.rglob("*")}
    assert re.search(message, refused(capsys, argv, main))
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*")} == before


def test_options_become_their_dataclass():
    name, found = parse("translate --ensemble a --ensemble=b x --n_best=3".split())
    assert name == "translate" and found.n_best == 3
    assert [str(path) for path in (found.run_dir, *found.ensemble)] == list("xab")
    assert found == parse("translate x --ensemble a --ensemble b --n_best 3".split())[1]
    found = options(*"distill a b c --out d".split())
    assert [str(path) for path in found.run_dirs] == list("abc")
    found = options(*"tune x --length_penalties 0 1.5 --beam_widths 1 4".split())
    assert found.length_penalties == (0.0, 1.5) and found.beam_widths == (1, 4)
    assert options("export", "runs/caf\udce9", "out").run_dir.name == "caf\udce9"


def test_text_options_must_be_utf8(capsys):
    said = refused(capsys, "export runs/x out --check caf\udce9", parse)
    assert "--check must be UTF-8. Received: 'caf\\udce9'" in said


def training(words):
    """The configuration, the run directory, and whether it distills."""
    return parse(["train", *words.split()])[1]


def test_a_training_is_a_configuration():
    words = "--run_dir r --preset multi30k-small --units 12 --attention none"
    config, run_dir, distill = training(f"{words} --no-input_feeding --epochs=3")
    assert str(run_dir) == "r" and not distill
    assert config == TrainingConfig.from_preset(
        "multi30k-small", units=12, attention=None, input_feeding=False, epochs=3
    )
    words = "--preset gnmt --learning_rate 1e-3 --seed 7 --distill"
    config, run_dir, distill = training(words)
    assert (config.learning_rate, config.seed, config.vocab_size) == (1e-3, 7, 50000)
    assert run_dir == Path("runs/gnmt") and distill
    twice = "--run_dir r --preset gnmt --seed 1 --preset=small --seed 2"
    config, *_ = training(twice)  # the last one counts
    assert (config.preset, config.seed) == ("small", 2)


NO_DEFAULTS = {"dropout": 0.25, "shared": False}
TRAININGS = [
    ("my/corpus --source fr --target en", "runs/corpus-fr-en", {}),
    ("--data my/corpus/ --target en", "runs/corpus-en", {}),
    ("my/corpus --run_dir runs/x", "runs/x", {}),
    ("phrases", "runs/phrases", {}),
    ("phrases --dropout 0.25 --no-shared", "runs/phrases", NO_DEFAULTS),
]


@pytest.mark.parametrize("words, run_dir, given", TRAININGS)
def test_a_corpus_is_all_that_training_needs(words, run_dir, given):
    """What is given is not chosen."""
    chosen, path, _ = training(words)
    assert path == Path(run_dir) and chosen.given == given
    assert chosen.data == re.search(r"my/corpus/?|phrases", words)[0]
    for side in ("source", "target"):
        named = re.findall(rf"--{side} (\w+)", words)
        assert getattr(chosen, side) == (named[0] if named else None)


def test_where_pydantic_is_imported():
    """With it cyclopts looks at defaults too, whoever has imported it."""
    pytest.importorskip("pydantic")
    config = training("my/corpus --source en --target de").config
    assert config.source == "en" and not config.given


def test_a_run_from_another_one_has_a_name_of_its_own():
    start = {"init_from": "runs/captions"}
    words = {"data": "my/corpus", "source": "en", "target": "de", **start}
    assert default_run_dir(words) == Path("runs/corpus-en-de")
    assert default_run_dir(start) == Path("runs/captions-more")


def failing(error):
    raise error


def failed(capsys, work, code):
    """What a command says last when it fails."""
    with pytest.raises(SystemExit) as stopped:
        run_carefully(work)
    text = capsys.readouterr().err
    assert stopped.value.code == code and "Traceback" not in text, text
    return text.splitlines()[-1] if text else ""


ECHO = SimpleNamespace(translate=lambda texts: [SimpleNamespace(text=texts[0])])
OURS = "This is a fault of keras-luong, in keras_luong.export.signatures, line"


FAULTS = [
    (lambda: check_size("a", 0), 2, "keras-luong: a must be at least 1. Rec"),
    (lambda: failing(FileNotFoundError(2, "None", "x")), 2, "None: 'x'"),
    (lambda: failing(ValueError("of others\n two")), 1, "Error: of others two"),
    (lambda: failing(RuntimeError("it fell")), 1, "RuntimeError: it fell"),
    (lambda: failing(MemoryError()), 1, "MemoryError (--debug shows where.)"),
    (lambda: failing(KeyError("x")), 1, "KeyError: 'x' (--debug shows all of it.)"),
    (lambda: failing(IndexError()), 1, "IndexError: IndexError (--debug"),
    (lambda: failing(KeyboardInterrupt()), 130, ""),
    (lambda: export._compare("x", ECHO, "a", "b"), 1, ": x translates 'a' as 'b'"),
    (lambda: signatures.fields(None), 1, OURS),
    (lambda: saved_beside(None).__enter__(), 1, "keras-luong or of pathlib, in "),
]


@pytest.mark.parametrize("work, code, message", FAULTS)
def test_whose_fault_an_error_is(work, code, message, capsys):
    assert message in failed(capsys, work, code)
    with pytest.raises(BaseException) as raised:
        run_carefully(work, debug=True)
    assert isinstance(raised.value, SystemExit) == (code == 130)


def test_what_goes_wrong_before_a_command_begins(monkeypatch, capsys):
    told = "no libcudart (--debug shows where.)"
    for error in (KeyboardInterrupt(), ImportError("no libcudart")):
        fail = SimpleNamespace(import_module=lambda name, error=error: failing(error))
        monkeypatch.setattr(command, "importlib", fail)
        expected = (1, told) if isinstance(error, ImportError) else (130, "")
        text = failed(capsys, lambda: main(["compare", "."]), expected[0])
        assert text.endswith(expected[1])
    with pytest.raises(ImportError):
        main(["compare", ".", "--debug"])
    monkeypatch.setattr(command_line, "signature", lambda *_, **__: len(None))
    text = failed(capsys, lambda: main(["average", "x"]), 1)
    assert "fault of keras-luong" in text


ONEDNN = [(None, "x86_64", "1"), ("0", "x86_64", "0"), (None, "aarch64", None)]


@pytest.mark.parametrize("given, machine, used", ONEDNN)
def test_tensorflow_computes_by_onednn(given, machine, used, monkeypatch):
    name, seen = "TF_ENABLE_ONEDNN_OPTS", []
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)

    def run(options):
        assert options.run_dirs == (Path(),)
        seen.append(os.environ.get(name))

    for _ in range(2):
        main(["compare", ".", "--debug"], run)
        monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert seen == [given, used]  # it would not be read where TensorFlow is loaded


def test_users_are_warned_without_lines_of_code(capsys):
    with warnings_as_notes():
        for number in (1, 2):
            warnings.warn(f"{number} of 2 were cut.", stacklevel=1)
    assert capsys.readouterr().err == "note: 1 of 2 were cut.\nnote: 2 of 2 were cut.\n"


DAMAGE = """
history.jsonl {"epoch": "4"} | history.jsonl, line 1 is damaged
results.json [1] | results.json is damaged: it must have an object for
run.json settings | run.json is damaged: settings must be an object
"""


@pytest.mark.parametrize("damage, message", table(DAMAGE))
def test_damaged_files_are_no_fault_of_ours(damage, message, there, tmp_path, capsys):
    path = shutil.copytree(there / "run", tmp_path / "run")
    name, content = damage.split(maxsplit=1)
    if name == "run.json":
        content = json.dumps({**json.loads((path / name).read_text()), content: 5})
    (path / name).write_text(content)
    assert message in refused(capsys, f"compare {path}", main)
    if "settings" in message:
        said = refused(capsys, f"train phrases --init_from {path}", parse)
        assert "run.json is damaged" in said


NEEDS = "need TensorFlow as Keras's backend: set KERAS_BACKEND=tensorflow"


def test_another_backend_is_told_in_a_sentence(tmp_path, monkeypatch, capsys):
    """By commands, and by what else searches, loads and exports."""
    translator = word_translator()
    model, ids = translator.model, tf.TensorSpec([None, None], tf.int32)
    generator, source = kl.SequenceGenerator(model, ids), [[4, 5, 3]]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    run_dir, out = tmp_path / "run", tmp_path / "out"
    for argv in (f"train phrases --run_dir {run_dir}", "translate x", "compare x"):
        said = refused(capsys, argv, main)
        assert NEEDS in said and "'jax'" in said
    for work in (
        lambda: kl.generate(model, source),
        lambda: kl.BeamSearch()(model, source),
        lambda: kl.GreedySearch()(model, source),
        lambda: kl.RandomSampling()(model, source),
        lambda: kl.SequenceGenerator(model, ids),
        lambda: kl.Ensemble([model, model]),
        lambda: kl.Translator(model, translator.tokenizers),
        lambda: kl.load(run_dir),
        lambda: kl.export_saved_model(generator, out),
        lambda: kl.export_tflite(generator, out),
    ):
        with pytest.raises(ValueError, match=NEEDS):
            work()
    assert not run_dir.exists() and not out.exists()


@pytest.mark.parametrize(
    "settings, told",
    [('{"backend": "torch"}', "Received: 'torch'"), ("[1]", "keras.json is damaged: ")],
)
def test_another_backend_is_found_first(settings, told, tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    (tmp_path / "keras.json").write_text(settings)
    words = ["-m", "keras_luong.cli", "translate", "x"]
    done = python(*words, check=False, environment={"KERAS_HOME": str(tmp_path)})
    assert done.returncode == 2 and told in done.stderr
