"""Whatever reads or translates a file: a table for a test of odd text."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import keras
import tensorflow as tf
from commands import options
from export_scripts import export_script
from odd_rows import ROWS
from opinionated import opinionated
from small_translator import written_run

import keras_luong
from keras_luong import Translator, export_saved_model, export_tflite
from keras_luong.cli import (
    distill,
    evaluate,
    score,
    translate,
    translators,
    tune,
    verify,
)
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation import scores
from keras_luong.evaluation.scores import bleu
from keras_luong.files import read_lines, read_raw_lines
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs import load_save
from keras_luong.text.corpora import TextFiles
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)


class Answer(NamedTuple):
    """What came of a file: a line for each line, and whether it says what it left."""

    lines: list[bytes]
    said: bool = False


#: Among its words are some that end lines: a translation must not become two.
TARGET = [
    f"{word}{letter}"
    for word in (
        "der\u2028Hund",
        "ist\x85da",
        "ro\u00adt",
        "e\u0301r",
        "\u200fk",
        "\ufeffx",
    )
    for letter in "abcd"
]


def odd_translator():
    """Pieces in, odd words out."""
    # Every letter is a piece, so that a text that is read otherwise is another text.
    corpus = [x for row in ROWS.values() for x in row.lines or [] if len(x) < 1000]
    source = SentencePieceTokenizer.train(
        corpus, vocab_size=120, character_coverage=1.0
    )
    pair = TokenizerPair(source, WordTokenizer(TARGET))
    sizes = source.vocab_size, pair.target.vocab_size
    keras.utils.set_random_seed(1)
    model = opinionated(Seq2Seq(Seq2SeqConfig(*sizes, units=16)), scale=6.0)
    search = BeamSearch(2, min_length=5, max_length=5)
    return Translator(model, pair, search, max_source_length=20)


class Runtimes:
    """The same translator everywhere, loaded once; its methods are the columns."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.patch = directory, monkeypatch
        self.keras = odd_translator()
        self.run = written_run(directory / "run", self.keras).path
        self.version = export_saved_model(self.keras, directory / "model")
        self.model = tf.saved_model.load(str(self.version))
        monkeypatch.setattr(translators, "load_translator", lambda _: self.keras)
        monkeypatch.setattr(load_save, "load_ensemble", lambda *_: self.keras)
        monkeypatch.setattr(load_save, "load", lambda _: self.keras)
        # Commands make other searches of it, whose traces are what takes long.
        kept = {1: self.keras, 2: self.keras.with_search(n_best=2)}
        self.two = kept[2]
        monkeypatch.setattr(
            self.keras, "with_search", lambda n_best, **others: kept[n_best]
        )

    def serve(self, texts):
        """What the SavedModel says, as Serving would."""
        said = self.model.signatures["serving_default"](text=tf.constant(texts))
        return {name: x.numpy().tolist() for name, x in said.items()}

    def expected(self, lines):
        """A line for each line, whatever is in its translation."""
        return [one_line(t.text) for t in self.keras.translate(lines)]

    def expected_scores(self, lines):
        """A number for each line, which is its own translation."""
        return [f"{t.score:.4f}".encode() for t in self.keras.score(lines, lines)]

    def expected_lists(self, lines):
        """Up to two lines for each line."""
        return [
            b"%d ||| %b ||| %.4f" % (number, one_line(t.text), t.score)
            for number, found in enumerate(self.two.translate(lines, n_best=True))
            for t in found
        ]

    def read_lines(self, path):
        return Answer([x.encode() for x in read_lines(path)])

    def read_raw_lines(self, path):
        return Answer([*read_raw_lines(path)])

    def training(self, path):
        corpus = TextFiles({"train": (path, path)}, "en", "de")
        pairs = corpus.pairs("train").as_numpy_iterator()
        return Answer([pair["source"] for pair in pairs])

    def translator(self, path):
        with said() as texts:
            found = self.keras.translate(read_raw_lines(path))
        return Answer([one_line(t.text) for t in found], bool(texts))

    def translate(self, path, *words):
        out = self.directory / "translated"
        words = ["--input", path, "--output", out, *words]
        with said() as texts:
            translate.run(options("translate", self.run, *words))
        return Answer(file_lines(out), bool(texts))

    def lists(self, path):
        return self.translate(path, "--n_best", 2)

    def alignments(self, path):
        """Each line's links are to words that it has."""
        answer, lines = self.translate(path, "--alignments"), []
        for line, source in zip(answer.lines, read_raw_lines(path), strict=True):
            text, links = line.split(b" ||| ")
            words = source.decode(errors="replace").split()
            assert all(int(x.split(b"-")[0]) < len(words) for x in links.split())
            assert text or not links
            lines.append(text)
        return Answer(lines, answer.said)

    def score(self, path):
        out = self.directory / "scores"
        with said() as texts:
            score.run(options("score", self.run, path, path, "--output", out))
        return Answer(file_lines(out), bool(texts))

    def evaluate(self, path):
        out = self.directory / "evaluated"
        words = ["--test", path, path, "--output", out, "--bleu_tokenize", "13a"]
        with said() as texts:
            evaluate.run(options("evaluate", self.run, *words))
        return Answer(file_lines(out / f"{path.name}.translated"), bool(texts))

    def verify(self, path):
        seen = []

        def served(texts):
            seen.extend(self.serve(texts)["translation"])
            return [text.decode() for text in seen]

        asked = options("verify", self.run, path, "--bleu_tokenize", "13a")
        with said() as texts:
            verify.run(asked, {"SavedModel": served})
        return Answer([one_line(x.decode()) for x in seen], bool(texts))

    def tune(self, path):
        """The validation data is translated."""
        found = []

        def scored(texts, references, tokenize):
            found.extend(texts)
            return bleu(texts, references, tokenize)

        words = ["--beam_widths", 2, "--length_penalties", 0, "--bleu_tokenize", "13a"]
        with self.patch.context() as patch, said() as texts:
            patch.setattr(scores, "bleu", scored)
            tune.run(options("tune", self.run, *words, *corpus_of(path)))
        return Answer([one_line(text) for text in found], bool(texts))

    def distill(self, path):
        """Each source is there twice: with its reference, and with its translation."""
        out = path.with_name("distilled")
        with said() as texts:
            distill.run(options("distill", self.run, "--out", out, *corpus_of(path)))
        sources, targets = (file_lines(out / f"train.{x}") for x in ("en", "de"))
        assert sources[::2] == sources[1::2] == targets[::2]
        return Answer([one_line(x.decode()) for x in targets[1::2]], bool(texts))

    def evaluate_script(self, path):
        out = self.directory / "evaluated by the script"
        with self.patch.context() as patch:
            # It takes the library away from its process.
            patch.setitem(sys.modules, "keras_luong", keras_luong)
            script = export_script("evaluate")
        with self.patch.context() as patch:
            patch.setattr(script.tf.saved_model, "load", lambda _: self.model)
            patch.setattr(sys, "stderr", err := io.StringIO())
            words = [self.version, path, path, "--output", out, "--tokenize", "13a"]
            try:
                script.main([str(word) for word in words])
            except SystemExit as error:
                raise ValueError(error.code) from error
        return Answer(file_lines(out), "beginnings" in err.getvalue())

    def saved_model(self, path):
        lines = [*read_raw_lines(path)]
        found = self.serve(tf.constant(lines, tf.string))
        texts = [one_line(x.decode()) for x in found["translation"]]
        return Answer(texts, any(found["truncated"]))

    def edge(self, path):
        found = self.on_edge.translate(read_raw_lines(path))
        lines = [one_line(t.text) for t in found]
        return Answer(lines, any(t.truncated for t in found))

    @property
    def on_edge(self):
        from keras_luong_edge import EdgeTranslator

        path = self.directory / "x.tflite"
        if not path.exists():
            export_tflite(self.keras, path)
            self._on_edge = EdgeTranslator(path)
        return self._on_edge

    def edge_command(self, path):
        from keras_luong_edge import command

        on_edge = self.on_edge
        self.patch.setattr(command, "EdgeTranslator", lambda *_: on_edge)
        self.patch.setattr(command, "_forget_output", lambda: None)

        def main():
            if command.main(["x.tflite"]):
                raise ValueError(sys.stderr.getvalue())

        return self.piped(main, path)

    def rest(self, path):
        def predict(server, model, inputs):
            said = self.serve(inputs["text"])
            return {**said, "translation": [x.decode() for x in said["translation"]]}

        client = export_script("rest_client")
        self.patch.setattr(client, "predict", predict)
        return self.piped(client.main, path)

    def grpc(self, path):
        client = export_script("grpc_client")
        stub = SimpleNamespace(predict=lambda inputs: self.serve(inputs["text"]))
        self.patch.setattr(client, "Client", lambda *_: stub)
        return self.piped(client.main, path)

    def c(self, path):
        c_client, program = export_script("serving.c_client"), self.program
        self.patch.setattr(c_client, "build", lambda _: program)
        return self.piped_in_c(c_client, path)

    def c_program(self, path):
        """It reads the file itself, without c_client.py before it."""
        line = export_script("serving.c_client").command(self.program, self.version)
        done = subprocess.run(line, input=path.read_bytes(), capture_output=True)
        if done.returncode:
            raise ValueError(done.stderr.decode())
        *lines, rest = done.stdout.split(b"\n")
        assert rest == b""
        return Answer(lines, b" 0 longer than" not in done.stderr)

    @functools.cached_property
    def program(self):
        return export_script("serving.c_client").build(self.directory)

    def piped(self, main, path):
        """Runs a program that reads standard input, in this process."""
        with self.patch.context() as patch:
            patch.setattr(sys, "argv", ["client", "server", "model"])
            patch.setattr(sys, "stdin", Stream(path.read_bytes()))
            patch.setattr(sys, "stdout", out := Stream(b""))
            patch.setattr(sys, "stderr", err := io.StringIO())
            try:
                main()
            except SystemExit as error:
                raise ValueError(error.code) from error
        lines = out.buffer.getvalue().split(b"\n")
        assert lines.pop() == b""
        return Answer(lines, "beginnings" in err.getvalue())

    def piped_in_c(self, c_client, path):
        """Runs c_client.py, whose program writes to the files of this process."""
        run = c_client.subprocess.Popen
        out, err = self.directory / "c.out", self.directory / "c.err"
        with self.patch.context() as patch, out.open("wb") as o, err.open("wb") as e:

            def popen(line, **given):
                return run(line, stdout=o, stderr=e, **given)

            patch.setattr(c_client.subprocess, "Popen", popen)
            patch.setattr(sys, "argv", ["c_client.py", str(self.version)])
            patch.setattr(sys, "stdin", Stream(path.read_bytes()))
            try:
                c_client.main()
            except SystemExit as error:
                if error.code:
                    raise ValueError(error.code) from error
        report = err.read_text()
        return Answer(file_lines(out), " 0 longer than" not in report)


class Stream:
    """A standard stream whose bytes are in memory."""

    def __init__(self, content):
        self.buffer = io.BytesIO(content)

    def isatty(self):
        return False


def one_line(text):
    return " ".join(text.splitlines()).encode()


def corpus_of(path):
    """A corpus whose splits are all this file, as options."""
    directory = path.with_name("corpus")
    directory.mkdir()
    for split in ("train", "validation"):
        for language in ("en", "de"):
            (directory / f"{split}.{language}").write_bytes(path.read_bytes())
    return ["--data", directory, "--source", "en", "--target", "de"]


def file_lines(path: Path):
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b""
    return lines


def said():
    """The warnings within."""
    return warnings.catch_warnings(record=True, action="always")


READERS = {
    "`read_lines`": Runtimes.read_lines,
    "`read_raw_lines`": Runtimes.read_raw_lines,
    "training corpus (`TextFiles`)": Runtimes.training,
}
TRANSLATORS = {
    "`Translator.translate`": Runtimes.translator,
    "`keras-luong translate`": Runtimes.translate,
    "`keras-luong translate --n_best 2`": Runtimes.lists,
    "`keras-luong translate --alignments`": Runtimes.alignments,
    "`keras-luong score`": Runtimes.score,
    "`keras-luong evaluate`": Runtimes.evaluate,
    "`keras-luong verify`": Runtimes.verify,
    "`keras-luong tune`": Runtimes.tune,
    "`keras-luong distill`": Runtimes.distill,
    "SavedModel in Python": Runtimes.saved_model,
    "`export/evaluate.py`": Runtimes.evaluate_script,
    "`EdgeTranslator.translate`": Runtimes.edge,
    "`keras-luong-edge`": Runtimes.edge_command,
    "REST client": Runtimes.rest,
    "gRPC client": Runtimes.grpc,
}
IN_C = {"C client": Runtimes.c, "C program": Runtimes.c_program}
COLUMNS = {**READERS, **TRANSLATORS, **IN_C}
EXPECTED = {
    "`keras-luong score`": Runtimes.expected_scores,
    "`keras-luong translate --n_best 2`": Runtimes.expected_lists,
}
