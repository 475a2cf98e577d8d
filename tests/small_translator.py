"""Untrained translators that say something, and sentences to put to them."""

import contextlib
import itertools

import tensorflow as tf
from opinionated import opinionated

import keras_luong as kl
from keras_luong.runs.load_save import save_weights
from keras_luong.runs.run import RunDirectory, write_record

SENTENCES = [
    *("the red dog", "", "   \t\n ", "\u00a0\u3000", b"\xff\xfe", b"the \xc3 dog"),
    *(b"\xed\xa0\x80 cat", b"the\x00dog", "Ж漢字 \U0001f600 the"),
    *("the cat is in the house " * 20, "x" * 100_000, "the " * 25_000, "a"),
    *("the blue cat is under the tree", "the" * 70),
    "thereddogisunderthetreebluecatinthehouse" * 5,
]


@contextlib.contextmanager
def untraced(eager=True):
    """Runs functions as they are written: to trace a search takes longer than it."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eager)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def to_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def sentencepiece_translator():
    words = ("red", "blue"), ("dog", "cat"), ("in", "under"), ("house", "tree")
    cases = itertools.product(*words)
    sentences = [f"the {a} {b} is {c} the {d}" for a, b, c, d in cases]
    tokenizer = kl.SentencePieceTokenizer.train(sentences, vocab_size=40)
    size = tokenizer.vocab_size
    model = kl.Seq2Seq(kl.Seq2SeqConfig(size, size, units=8))
    search = kl.BeamSearch(3, max_length=8, length_penalty=0.6)
    return kl.Translator(opinionated(model), tokenizer, search, max_source_length=30)


def word_translator(search=None, **config):
    source = kl.WordTokenizer(["the", "red", "dog", "cat", "is"])
    pair = kl.TokenizerPair(source, kl.WordTokenizer(["der", "Hund", "ist"]))
    config = kl.Seq2SeqConfig(9, 7, **{"units": 4, **config})
    search = search or kl.BeamSearch(2, max_length=None)
    model = opinionated(kl.Seq2Seq(config))
    return kl.Translator(model, pair, search, max_source_length=10)


def written_run(path, translator, settings=None):
    """A run directory that holds a translator, as if it had been trained."""
    run = RunDirectory(path)
    model, search = translator.model, translator.search
    settings = {"epochs": 3} if settings is None else settings
    write_record(run.path, model, search, translator.max_source_length, settings)
    tokenizers = translator.tokenizers
    if not isinstance(tokenizers, kl.TokenizerPair):
        tokenizers = kl.TokenizerPair(tokenizers, tokenizers)
    tokenizers.save(run.tokenizer)
    save_weights(model, run.best_weights)
    return run
