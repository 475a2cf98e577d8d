"""Whatever reads or translates a file: a table for a test of odd text."""

import contextlib
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
from commands import options, run
from export_scripts import export_script
from odd_rows import ROWS
from opinionated import opinionated
from small_translator import written_run

import keras_luong as kl
from keras_luong.cli import translators, verify
from keras_luong.evaluation import scores
from keras_luong.evaluation.scores import bleu
from keras_luong.files import read_lines, read_raw_lines
from keras_luong.runs import load_save
from keras_luong.text.corpora import TextFiles


class Answer(NamedTuple):
    """What came of a file: a line for each line, and whether it says what it left."""

    lines: list[bytes]
    said: bool = False


#: Among its words are some that end lines: a translation must not become two.
ENDS = ["der\u2028Hund", "ist\x85da", "ro\u00adt", "e\u0301r", "\u200fk", "\ufeffx"]
TARGET = [word + letter for word in ENDS for letter in "abcd"]


def odd_translator():
    """Pieces in, odd words out."""
    # Every letter is a piece, so that a text that is read otherwise is another text.
    corpus = [x for row in ROWS.values() for x in row.lines or [] if len(x) < 1000]
    options = {"vocab_size": 120, "character_coverage": 1.0}
    source = kl.SentencePieceTokenizer.train(corpus, **options)
    pair = kl.TokenizerPair(source, kl.WordTokenizer(TARGET))
    sizes = source.vocab_size, pair.target.vocab_size
    keras.utils.set_random_seed(1)
    model = opinionated(kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, units=16)), scale=6.0)
    search = kl.BeamSearch(2, min_length=5, max_length=5)
    return kl.Translator(model, pair, search, max_source_length=20)


BLEU = ["--bleu_tokenize", "13a"]


class Runtimes:
    """The same translator everywhere, loaded once; its methods are the columns."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.patch = directory, monkeypatch
        self.keras = odd_translator()
        self.run = written_run(directory / "run", self.keras).path
        monkeypatch.setattr(translators, "load_translator", lambda _: self.keras)
        monkeypatch.setattr(load_save, "load_ensemble", lambda *_: self.keras)
        monkeypatch.setattr(load_save, "load", lambda _: self.keras)
        # Commands make other searches of it, whose traces are what takes long.
        kept = {1: self.keras, 2: self.keras.with_search(n_best=2)}
        self.two = kept[2]
        searched = lambda n_best, **others: kept[n_best]  # noqa: E731
        monkeypatch.setattr(self.keras, "with_search", searched)

    def serve(self, text):
        """What the SavedModel says, as Serving would."""
        said = self.keras.serve(tf.constant(text, tf.string))
        return {name: x.numpy().tolist() for name, x in said.items()}

    @functools.cached_property
    def version(self):
        return kl.export_saved_model(self.keras, self.directory / "model")

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

    def command(self, out, name, *words):
        """What a command writes, and whether it warns."""
        with said() as texts:
            run(name, self.run, *words)
        return Answer(file_lines(out), bool(texts))

    def translate(self, path, *words):
        out = self.directory / "translated"
        files = ["--input", path, "--output", out]
        return self.command(out, "translate", *files, *words)

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
        return self.command(out, "score", path, path, "--output", out)

    def evaluate(self, path):
        out = self.directory / "evaluated"
        words = ["--test", path, path, "--output", out, *BLEU]
        return self.command(out / f"{path.name}.translated", "evaluate", *words)

    def verify(self, path):
        seen = []

        def served(texts):
            seen.extend(self.serve(texts)["translation"])
            return [text.decode() for text in seen]

        with said() as texts:
            asked = options("verify", self.run, path, *BLEU)
            verify.run(asked, {"SavedModel": served})
        return Answer([one_line(x.decode()) for x in seen], bool(texts))

    def tune(self, path):
        """The validation data is translated."""
        found = []

        def scored(texts, references, tokenize):
            found.extend(texts)
            return bleu(texts, references, tokenize)

        grid = ["--beam_widths", 2, "--length_penalties", 0]
        with self.patch.context() as patch, said() as texts:
            patch.setattr(scores, "bleu", scored)
            run("tune", self.run, *BLEU, *grid, *corpus_of(path))
        return Answer([one_line(text) for text in found], bool(texts))

    def distill(self, path):
        """Each source is there twice: with its reference, and with its translation."""
        out = path.with_name("distilled")
        words = ["--out", out, *corpus_of(path)]
        targets, warns = self.command(out / "train.de", "distill", *words)
        sources = file_lines(out / "train.en")
        assert sources[::2] == sources[1::2] == targets[::2]
        return Answer([one_line(x.decode()) for x in targets[1::2]], warns)

    def evaluate_script(self, path):
        out = self.directory / "evaluated by the script"
        with self.patch.context() as patch:
            # It takes the library away from its process.
            patch.setitem(sys.modules, "keras_luong", kl)
            script = export_script("evaluate")
            model = SimpleNamespace(signatures={"serving_default": self.keras.serve})
            patch.setattr(script.tf.saved_model, "load", lambda _: model)
            patch.setattr(script, "find_version", str)
            patch.setattr(sys, "stderr", err := io.StringIO())
            words = [self.directory, path, path, "--output", out, "--tokenize", "13a"]
            with exits():
                script.main([str(word) for word in words])
        return Answer(file_lines(out), "beginnings" in err.getvalue())

    @functools.cached_property
    def loaded(self):
        return tf.saved_model.load(str(self.version))

    def saved_model(self, path):
        texts = tf.constant([*read_raw_lines(path)], tf.string)
        found = self.loaded.signatures["serving_default"](text=texts)
        lines = [one_line(x.decode()) for x in found["translation"].numpy()]
        return Answer(lines, any(found["truncated"].numpy()))

    def edge(self, path):
        found = self.on_edge.translate(read_raw_lines(path))
        lines = [one_line(t.text) for t in found]
        return Answer(lines, any(t.truncated for t in found))

    @functools.cached_property
    def on_edge(self):
        from keras_luong_edge import EdgeTranslator

        return EdgeTranslator(kl.export_tflite(self.keras, self.directory / "x.tflite"))

    def edge_command(self, path):
        from keras_luong_edge import command

        stub = SimpleNamespace(n_best=1, translate=self.keras.translate)
        self.patch.setattr(command, "EdgeTranslator", lambda *_: stub)
        self.patch.setattr(command, "_forget_output", lambda: None)

        def main():
            if command.main(["x.tflite"]):
                raise ValueError(sys.stderr.getvalue())

        with said():
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
        """Runs c_client.py, whose program writes to the files of this process."""
        c_client, program = export_script("serving.c_client"), self.program
        out, err = self.directory / "c.out", self.directory / "c.err"
        with self.patch.context() as patch, out.open("wb") as o, err.open("wb") as e:
            started = functools.partial(subprocess.Popen, stdout=o, stderr=e)
            patch.setattr(c_client, "build", lambda _: program)
            patch.setattr(c_client.subprocess, "Popen", started)
            patch.setattr(sys, "argv", ["c_client.py", str(self.version)])
            patch.setattr(sys, "stdin", stream(path.read_bytes()))
            with exits():
                c_client.main()
        return Answer(file_lines(out), " 0 longer than" not in err.read_text())

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
            patch.setattr(sys, "stdin", stream(path.read_bytes()))
            patch.setattr(sys, "stdout", out := stream())
            patch.setattr(sys, "stderr", err := io.StringIO())
            with exits():
                main()
        lines = out.buffer.getvalue().split(b"\n")
        assert lines.pop() == b""
        return Answer(lines, "beginnings" in err.getvalue())


def stream(content=b""):
    """A standard stream whose bytes are in memory."""
    return io.TextIOWrapper(io.BytesIO(content))


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


@contextlib.contextmanager
def exits():
    """Raises what a script says at its end, if it fails."""
    try:
        yield
    except SystemExit as error:
        if error.code:
            raise ValueError(error.code) from error


def said():
    """The warnings within."""
    return warnings.catch_warnings(record=True, action="always")


READERS = {
    "`read_lines`": Runtimes.read_lines,
    "`read_raw_lines`": Runtimes.read_raw_lines,
    "training corpus (`TextFiles`)": Runtimes.training,
}
COMMANDS = "translate", "score", "evaluate", "verify", "tune", "distill"
TRANSLATORS = {
    "`Translator.translate`": Runtimes.translator,
    "`keras-luong translate --n_best 2`": Runtimes.lists,
    "`keras-luong translate --alignments`": Runtimes.alignments,
    **{f"`keras-luong {name}`": getattr(Runtimes, name) for name in COMMANDS},
    "SavedModel in Python": Runtimes.saved_model,
    "`export/evaluate.py`": Runtimes.evaluate_script,
    "`EdgeTranslator.translate`": Runtimes.edge,
    "`keras-luong-edge`": Runtimes.edge_command,
    **{"REST client": Runtimes.rest, "gRPC client": Runtimes.grpc},
}
IN_C = {"C client": Runtimes.c, "C program": Runtimes.c_program}
EXPORTED = ("SavedModel in Python", "`EdgeTranslator.translate`", *IN_C)  # takes long
COLUMNS = {**READERS, **TRANSLATORS, **IN_C}
EXPECTED = {
    "`keras-luong score`": Runtimes.expected_scores,
    "`keras-luong translate --n_best 2`": Runtimes.expected_lists,
}
