"""Files of odd text, and whatever reads or translates them: tables for a test."""

from __future__ import annotations

import gzip
import io
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import tensorflow as tf
from commands import options
from export_scripts import export_script
from opinionated import opinionated
from small_translator import written_run

from keras_luong import Translator, export_saved_model, export_tflite
from keras_luong.cli import evaluate, score, translate, verify
from keras_luong.decoding import BeamSearch
from keras_luong.files import read_lines, read_raw_lines
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.text.text_files import TextFiles
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)

BOM = "\ufeff".encode()
BEFORE, AFTER = b"the red dog", b"a cat"


class Row(NamedTuple):
    """A file, and the lines that it has for whoever reads it; None if it has none."""

    content: bytes
    lines: list[bytes] | None


def line(odd):
    """A file in which the odd line has others before and behind it."""
    odd = odd if isinstance(odd, bytes) else odd.encode()
    lines = [BEFORE, odd, AFTER]
    return Row(b"\n".join(lines) + b"\n", lines)


ROWS = {
    "byte order mark": Row(BOM + line("a dog").content, line("a dog").lines),
    "byte order mark, later": line("\ufeffa dog"),
    "CR inside a line": line("the\rdog"),
    "CR LF": Row(b"the red dog\r\na dog\r\na cat\r\n", line("a dog").lines),
    "CR alone": Row(b"the red dog\ra dog\ra cat\r", None),
    "NUL": line("the\0dog \0"),
    "U+2028": line("the\u2028dog\u2029"),
    "U+0085": line("the\x85dog\x0b\x0c"),
    "NBSP": line("the\u00a0dog\u3000"),
    "white space alone": line(" \u00a0\u2028\x85\t"),
    "zero-width letters": line("the\u200bred\u200c dog\u200d\u2060"),
    "soft hyphens": line("the d\u00ado\u00adg"),
    "combined letters (NFC)": line("d\u00f6g d\u1ed9g \uac01"),
    "combining marks (NFD)": line("do\u0308g do\u0323\u0302g \u1100\u1161\u11a8"),
    "right-to-left marks": line("\u202bthe\u202c \u200fdog\u200e \u05db\u05dc\u05d1"),
    "emoji with joiners": line("the \U0001f468\u200d\U0001f469\u200d\U0001f467 dog"),
    "unpaired surrogates": line(b"the \xed\xa0\x80 dog"),
    "other bytes": line(b"the \xff dog \xc3"),
    "1 MB": line("the dog " * 125_000),
    "1 MB without a space": line("x" * 1_000_000),
    "no last line end": Row(line("a dog").content[:-1], line("a dog").lines),
    "empty lines": line(""),
    "empty file": Row(b"", []),
    "gzip": Row(
        gzip.compress(BOM + line("a dog").content, mtime=0), line("a dog").lines
    ),
    "gzip within gzip": Row(
        gzip.compress(gzip.compress(b"a dog\n", mtime=0), mtime=0), None
    ),
}


class Answer(NamedTuple):
    """What came of a file: a line for each line, and whether it says what it left."""

    lines: list[bytes]
    said: bool = False


#: Among its words are some that end lines: a translation must not become two.
TARGET = ["der\u2028Hund", "ist\x85da", "ro\u00adt", "wei\u00dfe\u0301r", "\u200fkatze"]


def odd_translator():
    """Pieces in, odd words out."""
    corpus = ["the red dog", "a cat is under the tree", "the dog is a cat", "d\u00f6g"]
    source = SentencePieceTokenizer.train(corpus, vocab_size=32)
    pair = TokenizerPair(source, WordTokenizer(TARGET))
    sizes = source.vocab_size, pair.target.vocab_size
    model = opinionated(Seq2Seq(Seq2SeqConfig(*sizes, units=4)))
    return Translator(model, pair, BeamSearch(2, max_length=5), max_source_length=20)


class Runtimes:
    """The same translator everywhere, loaded once; its methods are the columns."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.patch = directory, monkeypatch
        self.keras = odd_translator()
        self.run = written_run(directory / "run", self.keras).path
        self.version = export_saved_model(self.keras, directory / "model")
        self.model = tf.saved_model.load(str(self.version))
        for command in (evaluate, score, translate, verify):
            monkeypatch.setattr(command, "load_translator", lambda _: self.keras)
        # `translate` makes another search of it, whose trace is what takes long.
        monkeypatch.setattr(self.keras, "with_search", lambda n_best: self.keras)

    def serve(self, texts):
        """What the SavedModel says, as Serving would."""
        said = self.model.signatures["serving_default"](text=tf.constant(texts))
        return {name: x.numpy().tolist() for name, x in said.items()}

    def expected(self, lines):
        """A line for each line, whatever is in its translation."""
        found = self.keras.translate(lines) if lines else []
        return [one_line(t.text) for t in found]

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

    def translate(self, path):
        out = self.directory / "translated"
        asked = options("translate", self.run, "--input", path, "--output", out)
        with said() as texts:
            translate.run(asked)
        return Answer(file_lines(out), bool(texts))

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
        c_client = export_script("serving.c_client")
        if not hasattr(self, "program"):
            self.program = c_client.build(self.directory)
        self.patch.setattr(c_client, "build", lambda _: self.program)
        return self.piped_in_c(c_client, path)

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
    "`keras-luong score`": Runtimes.score,
    "`keras-luong evaluate`": Runtimes.evaluate,
    "`keras-luong verify`": Runtimes.verify,
    "SavedModel in Python": Runtimes.saved_model,
    "`EdgeTranslator.translate`": Runtimes.edge,
    "`keras-luong-edge`": Runtimes.edge_command,
    "REST client": Runtimes.rest,
    "gRPC client": Runtimes.grpc,
    "C client": Runtimes.c,
}
COLUMNS = {**READERS, **TRANSLATORS}
