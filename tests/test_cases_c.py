"""What commands do with what people really give them: one test a case, at least."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import shlex
import shutil
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from commands import options, run
from export_scripts import EXPORT
from small_training import small_data, small_model, train_words, write_corpus
from small_translator import word_translator, written_run

from keras_luong import export_saved_model, progress
from keras_luong.cli import export
from keras_luong.cli.export import check_text
from keras_luong.cli.train import next_steps
from keras_luong.decoding import BeamSearch
from keras_luong.export import saved_model
from keras_luong.export.warmup import replay_warmup
from keras_luong.files import read_lines, write_json, write_lines
from keras_luong.runs.callbacks import EpochBar, StepCurves
from keras_luong.runs.description import count_texts
from keras_luong.runs.opening import check_corpus, describe_corpus, open_run
from keras_luong.runs.run import RunDirectory, read_record
from keras_luong.text.batches import training_batches
from keras_luong.text.corpora import TextFiles, load_corpus
from keras_luong.text.corpus import fingerprint
from keras_luong.text.held_out import with_validation
from keras_luong.text.survey import count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

LONG = " ".join("abcdefg" * 3)  # 21 tokens
EMPTY, TOO_LONG = 3, 2


def add_lines(folder, lines, split="train", target=str.upper):
    for side, change in (("xx", str), ("yy", target)):
        with (folder / f"{split}.{side}").open("a") as file:
            file.writelines(f"{change(line)}\n" for line in lines)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus of 40 pairs to train on, some of which cannot be."""
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder, train=40 - EMPTY - TOO_LONG, val=8)
    add_lines(folder, ["", " \t", ""], target=lambda line: line and "A")
    add_lines(folder, [LONG] * TOO_LONG)
    return folder


def words(data, run_dir, **changes):
    return train_words(data, run_dir, **{"max_length": 20, "epochs": 1, **changes})


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A trained run, and what was said on the way."""
    path, said = tmp_path_factory.mktemp("my runs") / "my run", io.StringIO()
    with contextlib.redirect_stdout(said):
        run("train", *words(data, path))
    return path, said.getvalue()


def go_on(data, path, **changes):
    """Whether a command would go on with the run; nothing is trained."""
    config, path, _ = options("train", *words(data, path, **changes))
    with open_run(config, path) as begun:
        return begun.resuming


@pytest.mark.slow
def test_c1_a_mistyped_folder(tmp_path):
    """Before: 512 lines on standard error, and no guess at what was meant."""
    (tmp_path / "corpus").mkdir()
    said = subprocess.run(
        [sys.executable, "-m", "keras_luong.cli", "train"]
        + ["--run_dir", "run", "--data", "corpse"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert said.returncode == 2 and not said.stdout
    (line,) = said.stderr.splitlines()
    assert line.startswith("keras-luong: 'corpse' is no folder")
    assert "did you mean 'corpus'?" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("data", ["no/such/folder", "xyz", "a\\*[b"])
def test_c1_a_folder_like_no_other(data, tmp_path, monkeypatch):
    """Nothing is guessed; the message is a sentence all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    with pytest.raises(ValueError, match="Found no corpus") as said:
        load_corpus(data, "en", "de")
    assert "did you mean" not in str(said.value) and "\n" not in str(said.value)


@pytest.mark.parametrize("spelling", ["{}/", "{}/../{}", "absolute", "link", "copy"])
def test_c2_a_folder_written_otherwise(trained, data, tmp_path, monkeypatch, spelling):
    """Before: refused, as data differed as strings."""
    monkeypatch.chdir(data.parent)
    other = spelling.format(data.name, data.name)
    if spelling == "absolute":
        other = data
    elif spelling == "link":
        other = tmp_path / "link"
        other.symlink_to(data)
    elif spelling == "copy":
        other = shutil.copytree(data, tmp_path / "copy")
    assert go_on(other, trained[0])
    assert read_record(trained[0])["settings"]["data"] == str(data)  # as it was given


@pytest.fixture
def copied(data, tmp_path):
    return shutil.copytree(data, tmp_path / "copied")


def test_c3_lines_that_were_appended(trained, copied):
    """Before: the run went on with other data, without a word."""
    add_lines(copied, ["a b c"] * 500)
    with pytest.raises(ValueError) as refused:
        go_on(copied, trained[0])
    said = str(refused.value)
    assert "its train split had 40 pairs" in said
    assert "has 540: pairs were added at its end" in said
    assert "Give another run directory to train on this text" in said
    assert f"--init_from {trained[0]} starts from what this run has learned" in said


def test_c3_lines_that_were_appended_to_what_is_held_out_of_too(tmp_path):
    """Other pairs are held out of the longer text, which has grown at its end alone."""
    pairs = [f"a {n}\tA {n}" for n in range(300)]
    for folder, lines in (("before", pairs[:200]), ("after", pairs)):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "mine.tsv", lines)
    before, after = (
        load_corpus(tmp_path / folder / "mine.tsv", "xx", "yy")
        for folder in ("before", "after")
    )
    before, after = with_validation(before), with_validation(after)
    record_of_before = {
        **{"format": 1, "model": {}, "search": {}, "max_source_length": 9},
        **{"settings": {"data": "mine"}, "corpus": describe_corpus(before, None)},
        **{"paths": {}, "came_from": None},
    }
    write_json(tmp_path / "run" / "run.json", record_of_before)
    now = describe_corpus(after, None)
    with pytest.raises(ValueError, match=": pairs were added at its end. Give another"):
        check_corpus(tmp_path / "run", "mine", now, after)


def test_c3_other_text_is_not_called_an_addition(trained, copied):
    lines = (copied / "train.xx").read_text()
    (copied / "train.xx").write_text(lines.replace("a", "b", 1))
    add_lines(copied, ["a b c"] * 500)
    with pytest.raises(ValueError, match="and that of '.*' has 540. Give another"):
        go_on(copied, trained[0])


def test_c3_a_line_that_was_changed(trained, copied):
    """Before: the run went on; nothing but the digest tells."""
    lines = (copied / "val.yy").read_text()
    (copied / "val.yy").write_text(lines.replace("A", "B", 1))
    with pytest.raises(ValueError, match="validation split had 8 pairs.*8, of which"):
        go_on(copied, trained[0])


def test_c3_what_does_not_shape_the_run_may_change(trained, copied, capsys):
    """Text for tests, and how text is packed."""
    write_corpus(copied, test=3)
    text = (copied / "train.xx").read_bytes()
    (copied / "train.xx").write_bytes(text.replace(b"\n", b"\r\n"))
    assert go_on(copied, trained[0])
    assert go_on(copied, trained[0].parent / "none") is False  # a new one
    assert not capsys.readouterr().out


def test_c3_only_pairs_that_are_trained_on_count(data, copied):
    """Lines after --limit_examples are no part of a run."""
    first = [fingerprint(load_corpus(data, "xx", "yy"), "train", n) for n in (30, None)]
    add_lines(copied, ["a b c"])
    corpus = load_corpus(copied, "xx", "yy")
    then = [fingerprint(corpus, "train", n) for n in (30, None)]
    assert first[0] == then[0] and first[0].pairs == 30
    assert first[1].digest != then[1].digest and then[1].pairs == 41


def test_c3_a_corpus_of_ones_own_needs_no_fingerprint(data):
    """What is read of its pairs is what text files say of themselves."""

    class Mine:
        def __init__(self, corpus):
            self.pairs = corpus.pairs

    corpus = load_corpus(data, "xx", "yy")
    assert fingerprint(Mine(corpus), "train") == fingerprint(corpus, "train")


def test_what_looks_wrong_is_said(trained):
    """How long it takes is said after 20 steps: `test_c2_and_c8_by_the_command`."""
    assert re.search(
        "^note: 1 epoch of [0-9]+ steps: a model", trained[1], re.MULTILINE
    )


def test_c5_last_lines_can_be_pasted(trained):
    """Before: paths with spaces were not quoted."""
    path, said = trained
    assert next_steps(path) in said
    for line in next_steps(path).strip().splitlines():
        pasted = shlex.split(line)
        assert str(path) in pasted or str(path / "logs") in pasted


@pytest.fixture(scope="module")
def on_edge(tmp_path_factory):
    """A .tflite file of three hypotheses, its translator, and what was said of it."""
    pytest.importorskip("ai_edge_litert.interpreter")
    folder = tmp_path_factory.mktemp("edge")
    translator = word_translator(BeamSearch(3, max_length=6))
    path = written_run(folder / "run", translator, {"data": "x"}).path
    out, said = folder / "my file.tflite", io.StringIO()
    with contextlib.redirect_stdout(said):
        run("export", path, out, "--check", "the red dog", "--n_best", "3")
    return out, translator, said.getvalue()


def test_c5_so_can_those_of_an_export(on_edge):
    """Before: the path of a .tflite file was not quoted."""
    command = re.search("^  (keras-luong-edge .*) <", on_edge[2], re.M)[1]
    assert shlex.split(command) == ["keras-luong-edge", str(on_edge[0])]


def test_c6_an_export_is_tried_out_with_text_of_the_run(trained, data):
    """Before: "A dog runs.", whatever the language."""
    asked = options("export", trained[0], "out")
    assert check_text(asked) == (data / "val.xx").read_text().splitlines()[0]


def test_c8_an_operation_that_litert_does_not_know(on_edge, tmp_path, monkeypatch):
    """Before: the file was said to be damaged."""
    edge = pytest.importorskip("keras_luong_edge")
    monkeypatch.syspath_prepend(EXPORT / "edge" / "tests")
    from edge_files import too_new, with_graph

    path = with_graph(on_edge[0], tmp_path / "new.tflite", too_new)
    with pytest.raises(ValueError, match="cannot run the graph.*version '99'") as said:
        edge.EdgeTranslator(path)
    assert "damaged" not in str(said.value)


@pytest.mark.slow
def test_c9_n_best_on_the_edge(on_edge, capsysbinary, monkeypatch):
    """Before: .tflite files held one hypothesis, whatever was asked for."""
    command = pytest.importorskip("keras_luong_edge.command")
    text = "the red dog"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert command.main([str(on_edge[0]), "--n_best", "3"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    (expected,) = on_edge[1].with_search(n_best=3).translate([text], n_best=True)
    said = [line.split(" ||| ")[1] for line in lines]
    assert said == [t.text for t in expected] and len(said) > 1


@pytest.mark.slow
def test_c10_exporting_says_how_to_warm_up(tmp_path, capsys, monkeypatch):
    """Before: "No warm-up requests", not what that means, nor that a batch helps."""
    path = written_run(tmp_path / "run", word_translator(), {"data": "x"}).path
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    run("export", path, tmp_path / "model", "--check", "the red dog")
    said = " ".join(capsys.readouterr().out.split())
    assert "No warm-up requests are written, so TensorFlow Serving compiles" in said
    assert "first request to each signature compiles it" in said
    signatures = tf.saved_model.load(str(tmp_path / "model" / "1")).signatures
    pasted = said.split("done before: ")[1]
    names = {"serve": signatures["serving_default"], "tf": tf}
    assert eval(pasted, names)["score"].shape == [1]
    assert len(signatures) == 6
    for signature in signatures.values():
        specs = signature.structured_input_signature[1].items()
        empty = {k: tf.zeros([0] * spec.shape.rank, spec.dtype) for k, spec in specs}
        assert all(value.shape[0] == 0 for value in signature(**empty).values())


@pytest.mark.slow
def test_c10_warm_up_requests_are_for_all_signatures(tmp_path, monkeypatch):
    """And each is answered, before the version is published."""
    pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    found = []
    monkeypatch.setattr(
        saved_model,
        "replay_warmup",
        lambda path: found.append(replay_warmup(path)) or found[-1],
    )
    path = export_saved_model(word_translator(), tmp_path, warmup=["the red dog"])
    assert found[0].keys() == tf.saved_model.load(str(path)).signatures.keys()


class TestSteps:
    def test_c11_the_first_epochs_steps_are_known(self, trained):
        """Before: "1/Unknown", and no time of arrival."""
        path, said = trained
        steps = read_record(path)["corpus"]["train"]["steps"]
        assert f"\n{steps}/{steps} - " in said  # exact

    @pytest.mark.parametrize(
        "batch_tokens",
        [*(pytest.param(n, marks=pytest.mark.slow) for n in (20, 60)), 5000],
    )
    def test_c11_they_are_counted_as_batches_are_made(self, data, batch_tokens):
        """Before: they were not counted."""
        pairs = load_corpus(data, "xx", "yy").pairs("train")
        tokenizers = TokenizerPair.train(pairs, "word")
        counts = count_pairs(pairs, tokenizers, 20)
        batches = list(training_batches(pairs, tokenizers, batch_tokens, 20))
        assert counts.batches(batch_tokens) == len(batches)
        rows = sum(len(labels) for _, labels, _ in batches)
        assert sum(counts.lengths.values()) == rows == 40 - EMPTY - TOO_LONG

    @pytest.mark.slow
    def test_c11_an_estimate_where_words_are_split_at_random(self, data):
        """It may be wrong by some batches."""
        pairs = load_corpus(data, "xx", "yy").pairs("train")
        tokenizers = TokenizerPair.train(pairs, "sentencepiece", 30)
        counts = count_pairs(pairs, tokenizers, 20, subword_sampling=0.1)
        batches = training_batches(
            pairs, tokenizers, 200, 20, subword_sampling=0.1
        ).reduce(0, lambda n, _: n + 1)
        assert counts.batches(200) == pytest.approx(int(batches), rel=0.5)


@pytest.mark.parametrize("steps", [7, 3, 20])
def test_c11_a_bar_that_knows_its_end(steps, capsys):
    """Before: "1/Unknown". Where more steps come than were thought, it says so."""
    bar = EpochBar(steps)
    every_step = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(bar.progbar, "interval", -1)
    )
    small_model("adam").fit(
        small_data(7), epochs=2, verbose=1, callbacks=[every_step, bar]
    )
    said = re.sub("\x1b.*?m", "", capsys.readouterr().out)
    assert f"1/{steps} " in said
    assert ("4/Unknown" in said) == (steps == 3)
    assert said.count("7/7") >= 2  # the end of each epoch


def test_c11_a_bar_of_the_rest_of_an_epoch(capsys):
    """Where a training goes on, the steps that were done before are not waited for."""
    bar = EpochBar(7, started_at=(1, 4))
    small_model("adam").fit(
        small_data(3), initial_epoch=1, epochs=2, verbose=1, callbacks=[bar]
    )
    assert "1/3" in re.sub("\x1b.*?m", "", capsys.readouterr().out)
    bar.on_epoch_begin(2)
    assert bar.target == 7


@pytest.mark.slow
def test_c11_a_line_now_and_then(capsys, monkeypatch):
    """Before: nothing until the epoch's end where there is no terminal."""
    monkeypatch.setattr(progress, "SECONDS", -1)
    small_model("adam").fit(small_data(3), verbose=2, callbacks=[EpochBar(3)])
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [f"{n} of 3 steps in 0 min, 0 min left" for n in (1, 2, 3)]
    assert last.startswith("3/3 - ")
    small_model("adam").fit(small_data(3), verbose=0, callbacks=[EpochBar(3)])
    assert capsys.readouterr().out == ""


def test_c11_tensorboard_within_the_epoch(tmp_path):
    """Before: nothing but what an epoch ends with."""
    model = small_model("adam")
    model.fit(small_data(7), verbose=0, callbacks=[StepCurves(tmp_path, every=3)])
    model.fit(small_data(3), verbose=0, callbacks=[StepCurves(tmp_path, every=3)])
    found = [
        (event.step, value.tag)
        for path in sorted(tmp_path.glob("events*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert found == [(step, "batch_loss") for step in (3, 6, 9)]


@pytest.mark.parametrize("length", [1, 3])
def test_t7_lone_carriage_returns_as_line_ends(length, data, tmp_path):
    """Before: training failed after 51 s with a message about batches."""
    lines = "".join(f"{line}\r" for line in ["a b", "c d", "e f"][: length + 1])
    old = tmp_path / "old.txt"
    old.write_text(lines, newline="")
    for given in (old, old.open("rb")):
        with pytest.raises(ValueError, match="old.txt is one line with.*Convert it"):
            list(read_lines(given))
    folder = shutil.copytree(data, tmp_path / "data")
    shutil.copy(old, folder / "train.xx")
    with pytest.raises(ValueError, match=r"train\.xx is one line with.*tr '\\r' '\\n'"):
        go_on(folder, tmp_path / "run")
    assert not RunDirectory(tmp_path / "run").record.exists()


def test_t7_what_it_says_to_do_helps(tmp_path):
    """The command that it names can be pasted."""
    (tmp_path / "old.txt").write_bytes(b"a b\rc d\r")
    with pytest.raises(ValueError) as said:
        list(read_lines(tmp_path / "old.txt"))
    command = str(said.value).split("first: ")[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "new.txt")) == ["a b", "c d"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_t7_a_carriage_return_within_a_line(tmp_path, suffix):
    """Before: training dropped it, so that two words became one."""
    for side in ("xx", "yy"):
        content = b"\xef\xbb\xbfa\rb c\r\n\rd\r\r\n"
        packed = gzip.compress(content) if suffix else content
        (tmp_path / f"train.{side}{suffix}").write_bytes(packed)
    corpus = TextFiles.from_directory(tmp_path, "xx", "yy")
    read = [
        pair["source"].decode() for pair in corpus.pairs("train").as_numpy_iterator()
    ]
    assert read == ["a\rb c", "\rd"]
    assert read == list(read_lines(tmp_path / f"train.xx{suffix}"))
    pair = TokenizerPair(WordTokenizer(["a", "b", "c", "d"]))
    assert pair.source.encode(tf.constant(read)).to_list() == [[4, 5, 6], [7]]


def test_t8_pairs_that_are_left_out(trained):
    """Before: they were left out without a word."""
    path, said = trained
    line = (
        "left out     5 of 40 training pairs: 3 with an empty side, 2 of over 20 tokens"
    )
    assert line in said
    known = read_record(path)["corpus"]["train"]
    assert [known[x] for x in ("pairs", "empty", "too_long")] == [40, EMPTY, TOO_LONG]


@pytest.mark.slow
def test_t8_what_is_left_out_elsewhere(data, tmp_path):
    """Before: letters without a piece, and long pairs to validate by, were not told."""
    copied = shutil.copytree(data, tmp_path / "data")
    add_lines(copied, [LONG], "val")
    with open_run(*options("train", *words(copied, tmp_path / "run"))[:2]) as begun:
        # As if a corpus had more words than its vocabularies: "A" is unknown.
        tokenizers = TokenizerPair(
            WordTokenizer([*"abcdefg"]), WordTokenizer([*"BCDEFG"])
        )
        counted = count_texts(begun, tokenizers, 60)
    assert counted["validation"]["too_long"] == 1
    lines = (copied / "train.yy").read_text()
    target = counted["train"]["unknown_target"]
    assert target == lines.count("A") / len(lines.split()) > 0.1
    assert counted["train"]["unknown_source"] == 0


@pytest.mark.slow
def test_t8_what_is_left_out_elsewhere_is_said(trained, data, tmp_path, capsys):
    """Before: as above."""
    copied = shutil.copytree(data, tmp_path / "data")
    add_lines(copied, [LONG], "val")
    add_lines(copied, ["a ж c d"])
    changes = {"tokenizer": "sentencepiece", "vocab_size": 20, "max_length": 20}
    given = words(copied, tmp_path / "run", character_coverage=0.99, **changes)
    run("train", *given)
    said = capsys.readouterr().out
    assert (
        "\ncut          1 of 9 validation pairs: val_loss is of their first 20" in said
    )
    share, other = re.search(
        r"\nunknown      (.*)% of the xx tokens are <unk>, (.*)% of the yy ones\n", said
    ).groups()
    known = read_record(tmp_path / "run")["corpus"]["train"]
    assert float(share) == pytest.approx(100 * known["unknown_source"], abs=0.01)
    assert float(other) == pytest.approx(100 * known["unknown_target"], abs=0.01)
    assert float(share) > 0.1
    assert "\ncut " not in trained[1] and "\nunknown " not in trained[1]


def test_t8_a_vocabulary_smaller_than_was_asked_for(trained):
    """Before: --vocab_size 30000 silently became 2,348."""
    path, said = trained
    assert (
        "vocabulary   11 xx, 11 yy, word; the text is too small for all 50,000" in said
    )
    record = read_record(path)
    assert record["settings"]["vocab_size"] == 50_000  # as it was asked for
    assert record["model"]["config"]["config"]["target_vocab_size"] == 11


@pytest.mark.slow
def test_t8_nothing_is_left(data, tmp_path):
    """Before: "The data has no batch", after the whole epoch's data was read."""
    given = words(data, tmp_path / "run", max_length=1)
    with pytest.raises(ValueError, match="No pair is left.*3 have an empty side.*37"):
        run("train", *given)
