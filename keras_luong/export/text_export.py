"""Text in, text out: what an export has of a `Translator`.

Shapes: B sentences, N hypotheses of each, S source tokens, T target tokens,
end tokens included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.stepping import StepModel
from keras_luong.special_ids import UNK_ID
from keras_luong.translation.batching import all_bytes
from keras_luong.translation.constraints import SEPARATOR
from keras_luong.translation.graph import BYTES_PER_TOKEN, read_ids
from keras_luong.translation.scoring import TEXT
from keras_luong.translation.translator import IDS, Translator

MOST_TOKENS = 1 << 16  # of a source, that a `.tflite` file may say it reads
TARGET = tf.TensorSpec([None], tf.string, name="target")
LENGTH = tf.TensorSpec([None], tf.int32, name="length")
PHRASES = tf.TensorSpec([None], tf.string, name="phrases")  # with tabs between them


class TextExport:
    """What an export has of a translator: sequences of ids with tokenizers around."""

    def __init__(self, translator: Translator):
        self.translator = translator
        self.model: StepModel = translator.model
        self.search = translator.search
        self.longest: int | None = translator.max_source_length + 1
        self.about: dict[str, Any] = {"max_source_length": translator.max_source_length}

    @property
    def resources(self) -> list[Any]:
        """What the graphs use beside the weights."""
        return [self.translator.source_tokenizer, self.translator.target_tokenizer]

    def asked(self) -> dict[str, Any]:
        """Returns each signature's function and the specs of its arguments."""
        asked = {
            "serving_default": (self.translator.serve, TEXT),
            "n_best": (self._n_best(), TEXT),
            "align": (self._align, TEXT),
            "score": (self._score, TEXT, TARGET),
            "ids": (self._ids, IDS, LENGTH),
        }
        if isinstance(self.search, BeamSearch):  # no other takes constraints
            asked["constrain"] = (self._constrain, TEXT, PHRASES)
        return asked

    def _n_best(self):
        """Returns a function that finds all hypotheses that its search keeps."""
        wide, search = self.translator, self.search
        if isinstance(search, BeamSearch) and search.n_best < search.beam_width:
            wide = wide.with_search(n_best=search.beam_width)

        def n_best(text):
            found = wide.explain(text)
            kept = {name: found[name] for name in ("score", "truncated")}
            return {"translation": found["text"], **kept}

        return n_best

    def _align(self, text):
        found = self.translator.explain(text)
        best = ("score", "tokens", "length", "log_probs", "alignment")
        shared = ("source_tokens", "source_length", "truncated")
        return {
            "translation": found["text"][:, 0],
            **{name: found[name][:, 0] for name in best},
            **{name: found[name] for name in shared},
        }

    def _score(self, text, target):
        found = self.translator.forced(text, target)
        best = {name: found[name][:, 0] for name in ("tokens", "length", "log_probs")}
        log_prob = found["score"][:, 0]
        truncated = found["truncated"] | found["target_truncated"]
        return {"log_prob": log_prob, **best, "truncated": truncated}

    def _constrain(self, text, phrases):
        nothing = tf.fill(tf.shape(text), "")
        found = self.translator.explain_constrained(text, phrases, nothing)
        there = (found["phrases"] != "") & found["unmet"][:, 0]
        unmet = tf.ragged.boolean_mask(found["phrases"], there)
        return {
            "translation": found["text"][:, 0],
            "score": found["score"][:, 0],
            "unmet": tf.strings.reduce_join(unmet, axis=1, separator=SEPARATOR),
            "truncated": found["truncated"],
        }

    def _ids(self, ids, length):
        vocab_size = self.translator.source_tokenizer.vocab_size
        most = self.translator.max_source_length
        source = read_ids(ids, length, vocab_size, most)
        found = self.translator.find(source.ids)
        return {
            "ids": tf.where(source.empty[:, tf.newaxis], 0, found.ids[:, 0]),
            "length": tf.where(source.empty, 0, found.lengths[:, 0]),
            "score": tf.where(source.empty, 0.0, found.scores[:, 0]),
            "truncated": source.truncated,
        }

    def check_warmup(self, warmup: Iterable[str | bytes]) -> list[bytes]:
        """Returns the texts in UTF-8; raises TypeError for anything else."""
        return all_bytes("warmup", warmup)

    def requests(self, texts: list[bytes]) -> dict[str, dict[str, Any]]:
        """Returns the inputs of each signature."""
        ids = self.translator.source_tokenizer.encode(tf.constant(texts))
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        asked = {
            "serving_default": {"text": texts},
            "n_best": {"text": texts},
            "align": {"text": texts},
            "score": {"text": texts, "target": texts},
            "ids": {"ids": ids.to_tensor().numpy(), "length": lengths.numpy()},
            "constrain": {"text": texts, "phrases": [b""] * len(texts)},
        }
        return {name: asked[name] for name in self.asked()}

    def compare(self, said: Mapping[str, tf.Tensor], texts: list[bytes]) -> None:
        """Raises RuntimeError if an export translates texts differently.

        Args:
            said: The answer of `serving_default`.
            texts: The texts that it was asked for.
        """
        expected = self.translator.serve(tf.constant(texts))["translation"].numpy()
        translations = said["translation"].numpy()
        for text, a, b in zip(texts, translations, expected, strict=True):
            if a != b:
                raise RuntimeError(
                    f"The export translates {text!r} as {a.decode()!r}, the translator "
                    f"as {b.decode()!r}."
                )

    def one_source(self, source_length: int | None) -> tf.TensorSpec:
        """Returns the spec of one sentence's ids."""
        return tf.TensorSpec([1, source_length], tf.int32, name="source")

    def describe_file(self, source_length: int | None) -> dict[str, Any]:
        """Returns what the edge runtime must know, to be kept in a `.tflite` file."""
        most = min(self.translator.max_source_length, MOST_TOKENS)
        if source_length is not None:
            most = min(most, source_length - 1)
        return {
            "max_source_length": most,
            "special_ids": {"unk": UNK_ID},
            "bytes_per_token": BYTES_PER_TOKEN,
            "tokenizers": {
                side: {"kind": x.kind, "file": f"{side}{x.suffix}"}
                for side, x in self.tokenizers().items()
            },
        }

    def tokenizers(self) -> dict[str, Any]:
        """Returns the tokenizers by side.

        Raises:
            TypeError: If the edge runtime does not know one of them.
        """
        sides = dict(zip(("source", "target"), self.resources, strict=True))
        for side, tokenizer in sides.items():
            if getattr(tokenizer, "kind", None) not in ("sentencepiece", "word"):
                raise TypeError(
                    f"The {side} tokenizer must be a SentencePieceTokenizer or a Word"
                    "Tokenizer, which the edge runtime knows. Received: "
                    f"{tokenizer!r}"
                )
        return sides
