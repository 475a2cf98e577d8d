"""How probable given translations are: what a translator tells without a search.

Shapes: B sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from keras_luong.decoding.forced import force, retraced
from keras_luong.decoding.step_model import StepModel
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.translation.batching import (
    Source,
    Texts,
    Translation,
    Work,
    answers,
    in_batches,
    in_windows,
    read_text,
)

TEXT = tf.TensorSpec([None], tf.string, name="text")


class Scorer:
    """A model with tokenizers, which scores translations: what `Translator` is besides.

    Attributes:
        model: A `StepModel`.
        source_tokenizer: The tokenizer of the texts.
        target_tokenizer: The tokenizer of their translations.
        max_source_length: The most tokens that are read of a text, without the end
            token.
    """

    model: StepModel
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    max_source_length: int

    @property
    def max_target_length(self) -> int:
        """The most tokens that `score` reads of a target, without the end token."""
        return 2 * self.max_source_length + 10

    def score(
        self,
        texts: Texts,
        targets: Texts,
        batch_size: int = 32,
        progress: bool = False,
    ) -> list[Translation]:
        """Computes how probable given translations are, and their alignments.

        Args:
            texts: Source texts, as for `translate`.
            targets: A translation of each text.
            batch_size: How many pairs are scored at once.
            progress: Whether to show a progress bar on standard error; if that is not
                a terminal, a line now and then.

        Returns:
            One `Translation` per pair: `text` is the target as the tokenizer decodes
            it, `score` its log-probability, that of the end token included. For an
            empty text it is the empty translation with score 0, whatever the target. Of
            a target with more than `max_target_length` tokens only the first ones are
            read, and the result is marked `truncated`.

        Raises:
            TypeError: If either is a single string, or holds anything but strings.
            ValueError: If they differ in number, or `batch_size` is below 1.
        """
        sides = {"texts": texts, "targets": targets}
        found = in_batches(self._work(self.forced), sides, batch_size, progress)
        return [hypotheses[0] for hypotheses in found]

    def score_stream(
        self, texts: Texts, targets: Texts, batch_size: int = 32, window: int = 1024
    ) -> Iterator[Translation]:
        """Scores translations as they come, in bounded memory.

        Args:
            texts: Source texts, in any number.
            targets: A translation of each text.
            batch_size: How many pairs are scored at once.
            window: As for `stream`.

        Yields:
            The results of `score`, one by one, in the order of the texts. Warns at the
            end, once, if some texts were truncated.

        Raises:
            TypeError: If either is a single string, or holds anything but strings.
            ValueError: If they differ in number, or a size is below 1.
        """
        sides = {"texts": texts, "targets": targets}
        for found in in_windows(self._work(self.forced), sides, batch_size, window):
            yield found[0]

    @retraced(TEXT, TEXT)
    def forced(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores given translations of a batch in the graph, as `score` does.

        Args:
            text: tf.string [B].
            target: tf.string [B].
        """
        source = self._read(text)
        given = read_text(target, self.target_tokenizer, self.max_target_length)
        found = self._explained(source, force(self.model, source.ids, given.ids))
        return {**found, "target_truncated": given.truncated & ~source.empty}

    def _work(self, answer: Callable[..., dict[str, tf.Tensor]]) -> Work:
        """What to do with batches, and the limits of the texts in them."""
        names = {"texts": "max_source_length", "targets": "max_target_length"}
        limits = {side: (name, getattr(self, name)) for side, name in names.items()}
        return Work(answer, limits, self.target_tokenizer)

    def _read(self, text: tf.Tensor) -> Source:
        return read_text(text, self.source_tokenizer, self.max_source_length)

    def _explained(self, source, hypotheses, n_best=None, constraints=None):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return answers(source, hypotheses, *tokenizers, n_best, constraints)
