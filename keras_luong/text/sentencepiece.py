"""The SentencePiece tokenizer: splits words into pieces, unigram models only.

The rules by which a text is changed before it is split are data within a SentencePiece
model, so every runtime that has the model follows them. Two models may have the same
pieces and different rules.

Shapes: B sentences, T tokens.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import io
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_above, check_choice, check_coverage
from keras_luong.compat import sentencepiece_op, set_sentencepiece_model
from keras_luong.config.fields import Normalization
from keras_luong.signals import ending_at_once
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.tokenizer import (
    SPECIAL_PIECES,
    VocabularyTokenizer,
    as_str,
    check_vocab_size,
    nonblank,
    valid_utf8,
)

NORMALIZATIONS = get_args(Normalization)
"""SentencePiece's rules. "identity" changes nothing but white space: each run of it,
whatever characters it is of, becomes one space, and none is left at the ends. "nfkc" is
Unicode's, which writes `，` as `,` and `½` as `1⁄2`; "nmt_nfkc" also drops invisible
characters, and "_cf" lower-cases."""

WORD_START = "▁"  # stands for a space within SentencePiece, so a text cannot keep it
_UNKNOWN = "\u2047"
_PART = "\ua66e"  # a letter that no text has: for one byte of another
LONGEST_LINE = 2**14  # characters; of longer ones SentencePiece learns very slowly

_SEED_LOCK = threading.Lock()  # SentencePiece has one global seed
RESERVED = "\0\u2585"  # the trainer would leave their line out


class SentencePieceTokenizer(VocabularyTokenizer):
    """A tokenizer that splits words into the pieces of a SentencePiece unigram model.

    Args:
        model: The serialised SentencePiece model, with the library's special ids
            (padding 0, unknown 1, begin 2, end 3), as `train` makes it.

    Raises:
        TypeError: If `model` is not bytes.
        ValueError: If it is not such a model.

    Example:
        >>> text = ["a dog runs", "a dog sleeps", "two dogs run", "a cat runs"]
        >>> tokenizer = kl.SentencePieceTokenizer.train(text, vocab_size=30)
        >>> ids = tokenizer.encode(tf.constant(["a cat sleeps"]))  # ragged [1, None]
        >>> tokenizer.decode(ids).numpy()
        array([b'a cat sleeps'], dtype=object)
    """

    kind = "sentencepiece"
    suffix = ".spm"

    def __init__(self, model: bytes):
        import sentencepiece
        import tensorflow_text

        super().__init__()
        if not isinstance(model, bytes):
            raise TypeError(
                "model must be the bytes of a SentencePiece model; "
                "SentencePieceTokenizer.load reads a file, and .train makes one. "
                f"Received: {model!r:.60}"
            )
        try:
            if not model:  # SentencePiece would take it, and crash later
                raise RuntimeError("empty")
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(
                f"Not a SentencePiece model, or a damaged one ({len(model)} bytes)."
            ) from error
        self.vocab_size = processor.get_piece_size()
        names = ("pad", "unk", "bos", "eos")
        ids = tuple(getattr(processor, f"{name}_id")() for name in names)
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(
                "The SentencePiece model's ids of padding, unknown, begin and end are "
                f"{ids}; train it with (pad_id, unk_id, bos_id, eos_id) = (0, 1, 2, 3)."
            )
        self.model = model
        self._processor = processor
        self._tokenizer = tensorflow_text.SentencepieceTokenizer(model)
        resource = _SharedModel(sentencepiece_op(), model)
        set_sentencepiece_model(self._tokenizer, resource)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | bytes],
        vocab_size: int = 8000,
        character_coverage: float = 0.9999,
        normalization: str = "identity",
        split_digits: bool = False,
    ) -> SentencePieceTokenizer:
        """Trains a unigram model; the same sentences always give the same model.

        Args:
            sentences: The text to learn from. SentencePiece keeps all of it in memory.
            vocab_size: Largest number of pieces, the 4 special ones included. A small
                corpus may have fewer; see the tokenizer's own `vocab_size`.
            character_coverage: Share of the text's characters that must be covered by
                pieces, at least 0.98; rarer ones become `<unk>`. (So do NUL and U+2585
                `▅`, which SentencePiece keeps for itself, whatever the share.)
            normalization: What changes in a text before it is split; one of
                `keras_luong.text.sentencepiece.NORMALIZATIONS`. With the default
                nothing but white space, so that `decode(encode(text))` is the text
                wherever its characters have pieces. "nmt_nfkc" writes `，` as `,`
                and `½` as `1⁄2`, which makes a source easier to read.
            split_digits: Whether every digit is a piece of its own. Numbers are then
                longer, but far easier to learn to translate from little data.

        Returns:
            The trained tokenizer.

        Raises:
            ValueError: If there is no text, `normalization` is unknown,
                `character_coverage` is outside [0.98, 1], or `vocab_size` is below the
                number of single characters that must be covered.
        """
        import sentencepiece

        check_vocab_size(vocab_size)
        check_coverage("character_coverage", character_coverage)
        check_choice("normalization", normalization, NORMALIZATIONS)
        model, errors = io.BytesIO(), list[Exception]()
        text = _training_text(sentences, normalization, errors)
        try:
            with ending_at_once():
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=text,
                    model_writer=model,
                    model_type="unigram",
                    vocab_size=vocab_size,
                    hard_vocab_limit=False,
                    character_coverage=character_coverage,
                    max_sentence_length=8 * LONGEST_LINE,  # in bytes
                    normalization_rule_name="identity",  # the text has been
                    split_digits=split_digits,
                    pad_id=PAD_ID,
                    unk_id=UNK_ID,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                    unk_surface=_UNKNOWN,  # spaces around it would double
                    minloglevel=2,
                )
        except RuntimeError as error:
            if not errors:
                why = f"SentencePiece could not train a model: {error}"
                if "sentences_.empty()" in str(error):
                    why = "There is no text to train a tokenizer on."
                elif found := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
                    why = (
                        f"vocab_size={vocab_size} is too small: the single characters "
                        f"of this text alone need {found[1]}. Raise it, or lower "
                        "character_coverage."
                    )
                raise ValueError(why) from error
        if errors:
            raise errors[0]
        return cls(with_normalization(model.getvalue(), normalization))

    @property
    def vocabulary(self) -> list[str]:
        """All pieces, in the order of their ids."""
        return [self._processor.id_to_piece(i) for i in range(self.vocab_size)]

    @property
    def texts(self) -> list[str]:
        """What each piece writes [V]: "▁" is a space, and padding nothing."""
        begin = len(SPECIAL_PIECES)
        is_byte = self._processor.is_byte
        written = [
            _PART if is_byte(i) else piece.replace(WORD_START, " ")
            for i, piece in enumerate(self.vocabulary[begin:], begin)
        ]
        return ["", _UNKNOWN, "", "", *written]

    @property
    def normalization(self) -> str:
        """The name of the rule by which texts are changed before they are split."""
        return str(parse_model(self.model).normalizer_spec.name)

    def normalize(self, text: str) -> str:
        """Returns a text as the rule changes it before it is split.

        Args:
            text: One text.

        Example:
            >>> tokenizer = kl.SentencePieceTokenizer.train(["a b", "b a"], 8)
            >>> tokenizer.with_normalization("nmt_nfkc_cf").normalize("Ａ  b")
            'a b'
        """
        text = self._processor.normalize(text)
        return str(text).replace(WORD_START, " ").strip()

    def with_normalization(self, normalization: str) -> SentencePieceTokenizer:
        """Returns a tokenizer with the same pieces and another normalisation rule.

        Args:
            normalization: As for `train`.

        Raises:
            ValueError: If it is unknown.

        Example:
            >>> text = ["12 1", "21 2"]
            >>> tokenizer = kl.SentencePieceTokenizer.train(text, vocab_size=9)
            >>> wide = tokenizer.with_normalization("nmt_nfkc")
            >>> wide.decode(wide.encode(tf.constant(["１２"]))).numpy()
            array([b'12'], dtype=object)
        """
        check_choice("normalization", normalization, NORMALIZATIONS)
        return SentencePieceTokenizer(with_normalization(self.model, normalization))

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into int32 ids [B, None].

        Args:
            texts: tf.string [B]. Invalid UTF-8 is replaced by U+FFFD first.

        Returns:
            Ragged int32 [B, None] without BOS or EOS; an empty row for a blank text.
        """
        return self._tokenizer.tokenize(valid_utf8(texts))

    def sample(
        self, texts: tf.Tensor, seed: tf.Tensor, alpha: float = 0.1
    ) -> tf.RaggedTensor:
        """Splits each text in one of its possible ways, drawn at random.

        A model that sees different splits of a word generalises better (subword
        regularization, Kudo 2018, arXiv:1804.10959). This is for training only, as it
        runs in Python's SentencePiece, which cannot be exported.

        Args:
            texts: tf.string [B].
            seed: int32 []; the same seed and texts give the same splits.
            alpha: A split's probability is proportional to the probability of its
                pieces to the power of `alpha`. Near 0 all splits are equally likely;
                large values give the split of `encode`.

        Returns:
            Ragged int32 [B, None], as from `encode`.

        Raises:
            TypeError: If `alpha` is no number.
            ValueError: If it is not above 0.

        Example:
            >>> text = ["a red shirt", "red shirts", "a shirt"]
            >>> tokenizer = kl.SentencePieceTokenizer.train(text, vocab_size=20)
            >>> ids = tokenizer.sample(tf.constant(["a red shirt"]), seed=1)
            >>> tokenizer.decode(ids).numpy()  # of whatever pieces
            array([b'a red shirt'], dtype=object)
        """
        import sentencepiece

        check_above("alpha", alpha, 0)

        def split(texts, seed):
            texts = [text.decode() for text in texts]
            # Each call starts one thread, which then takes the seed.
            options = {"alpha": alpha, "nbest_size": -1, "num_threads": 1}
            with _SEED_LOCK:
                sentencepiece.set_random_generator_seed(int(seed))
                rows = self._processor.encode(texts, enable_sampling=True, **options)
            lengths = np.array([len(row) for row in rows], np.int64)
            return np.array([i for row in rows for i in row], np.int32), lengths

        ids, lengths = tf.numpy_function(
            split, [valid_utf8(texts), seed], [tf.int32, tf.int64]
        )
        lengths = tf.ensure_shape(lengths, texts.shape)
        return tf.RaggedTensor.from_row_lengths(tf.ensure_shape(ids, [None]), lengths)

    def word_ids(self, text: str | bytes) -> list[int]:
        """Returns the word that each token of a text belongs to, counted from 0.

        Args:
            text: One text. Its words are what white space separates, whatever the rule
                for its normalisation makes of them.

        Returns:
            One int for each token that `encode` gives.

        Example:
            >>> text = ["a dog runs", "a dog sleeps", "two dogs run", "a cat runs"]
            >>> tokenizer = kl.SentencePieceTokenizer.train(text, vocab_size=20)
            >>> tokenizer.word_ids("cat")  # "▁", "c", "a", "t"
            [0, 0, 0, 0]
        """
        text = as_str(text)
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        pieces = self._processor.encode(text, out_type="immutable_proto").pieces
        # A piece's end is in its word; white space before the word is of the piece too.
        last = max(len(ends) - 1, 0)  # a rule may make letters of white space alone
        return [min(bisect.bisect_left(ends, x.end), last) for x in pieces]

    def _joined(self, rows: tf.RaggedTensor) -> tf.Tensor:
        return self._tokenizer.detokenize(rows)

    def _looked_up(self, ids: tf.Tensor) -> tf.Tensor:
        return self._tokenizer.id_to_string(ids)

    def _to_bytes(self) -> bytes:
        return self.model

    @classmethod
    def _from_bytes(cls, content: bytes) -> SentencePieceTokenizer:
        return cls(content)


def with_normalization(model: bytes, normalization: str) -> bytes:
    """Gives a SentencePiece model another normalisation rule.

    Args:
        model: The serialised model.
        normalization: One of `NORMALIZATIONS`.

    Returns:
        The serialised model, its pieces and ids as before.
    """
    changed = parse_model(model)
    changed.normalizer_spec.CopyFrom(parse_model(_ruled(normalization)).normalizer_spec)
    changed.normalizer_spec.name = normalization
    # Which says where a temporary file was.
    changed.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(changed.SerializeToString(deterministic=True))


def normalizer(normalization: str) -> Callable[[str], str]:
    """Returns a function that normalises text by a SentencePiece rule.

    Args:
        normalization: One of `NORMALIZATIONS`.

    Example:
        >>> from keras_luong.text.sentencepiece import normalizer
        >>> normalizer("nmt_nfkc")("１２ ½")
        '12 1⁄2'
    """
    import sentencepiece

    rule = with_normalization(_ruled(normalization), normalization)
    return sentencepiece.SentencePieceNormalizer(
        model_proto=rule, remove_extra_whitespaces=True
    ).normalize


@functools.cache
def _ruled(normalization: str) -> bytes:
    """The smallest model that has the rule: only SentencePiece's trainer makes them."""
    import sentencepiece

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        options = {"normalization_rule_name": normalization}
        if normalization == "identity":
            spaces = (x for x in map(chr, range(0x110000)) if x.isspace())
            file.writelines(f"{ord(x):X}\t20\n" for x in (WORD_START, *spaces))
            file.flush()
            options = {"normalization_rule_tsv": file.name}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter("a"),
            model_writer=model,
            vocab_size=5,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    return model.getvalue()


def parse_model(model: bytes) -> Any:
    """Returns a serialised SentencePiece model as a message that can be changed."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)


def _training_text(
    sentences: Iterable[str | bytes], normalization: str, errors: list[Exception]
) -> Iterator[str]:
    """Yields what SentencePiece learns from; an error is put into `errors` too.

    Some versions of SentencePiece pass errors on; others take them for the end of text.

    After the sentences comes each word that occurred at least twice, as "word.":
    SentencePiece only considers strings as pieces that occur in two distinct words. In
    tokenised text a word such as "and" may be part of no other word, and would be split
    however frequent it is, as would a quarter of the 300 most frequent words of the
    tokenised Multi30k. The full stop makes the word a candidate, and hardly changes its
    frequency.
    """
    change, counts = normalizer(normalization), Counter[str]()
    try:
        for sentence in nonblank(sentences):
            text = re.sub(f"[{RESERVED}]", " ", change(sentence))
            for part in _parts(text) if text.strip() else ():
                counts.update(part.split())
                yield part
        if not counts:  # SentencePiece would end the process
            dropped = f", nor what {normalization} drops" * (
                normalization != "identity"
            )
            raise ValueError(
                "There is no text to train a tokenizer on. It needs a sentence with a "
                f"letter: white space, NUL, ▁ and ▅ are none{dropped}."
            )
        for word, count in counts.items():
            if count > 1 and word.isalpha():
                yield f"{word}."
    except Exception as error:
        errors.append(error)
        raise


def _parts(text: str) -> Iterator[str]:
    """Yields a text in parts that are not too long, as far as it can between words."""
    begin = 0
    while len(text) - begin > LONGEST_LINE:
        most = begin + LONGEST_LINE
        end = text.rfind(" ", begin + 1, most) + 1 or most
        yield text[begin:end]
        begin = end
    yield text[begin:]


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lives as long as the process.

    tensorflow_text's own resource belongs to an eager kernel, and kernels are dropped
    by `tf.random.set_seed`, `keras.utils.set_random_seed` and `clear_session`. After
    that the tokenizer and every dataset that uses it would fail with "Resource ...
    SentencepieceResource does not exist" (tensorflow/text#570). A named resource is
    kept; the name is the model's hash, so that equal models share one.
    """

    def __init__(self, create: Callable[..., tf.Tensor], model: bytes):
        super().__init__()
        self._create = create
        self._model = model
        self._name = "sentencepiece_" + hashlib.sha256(model).hexdigest()
        _ = self.resource_handle  # creates it

    def _create_resource(self) -> tf.Tensor:
        return self._create(model=self._model, shared_name=self._name)
