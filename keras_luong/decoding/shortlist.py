"""Shortlists: the few target words that a sentence's translation may be made of.

Shapes: B sentences, S source length, P prefix length, K beam, V target vocabulary, M
words on all shortlists of the batch, F frequent words, C translations of a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_same, check_size
from keras_luong.decoding.generate import force
from keras_luong.decoding.step_model import (
    StepModel,
    copies,
    is_ids,
    restricted,
    vocab_size_of,
)
from keras_luong.files import saved_beside
from keras_luong.progress import Progress
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID


class Words(NamedTuple):
    """The words that a batch's hypotheses may be made of."""

    ids: tf.Tensor  # [M] ascending, so that ties go to the lower id
    allowed: tf.Tensor  # [B, M] which of them are on the sentence's own shortlist


class Shortlist:
    """The frequent target words, and for each source word its likely translations.

    With a shortlist a search scores only the words that are on the lists of the batch's
    sentences (Jean et al. 2015, arXiv:1412.2007, section 3.3). Each sentence uses only
    the words on its own list, so its translation does not depend on the other
    sentences. Probabilities are normalised over the list, so scores are a little higher
    than without it. A list of all words changes nothing.

    Args:
        frequent: Integers [F], target ids that every sentence may use.
        lexicon: Integers [source vocabulary, C], each source word's translations,
            padded with `pad_id`.
        vocab_size: V.
        pad_id: The id of padding, in both languages. It and the following ids are on
            every list: without the end token nothing ends, and the others keep their
            share of the probability, as in a search without a shortlist.
        unk_id: The id of unknown words.
        bos_id: The id that targets begin with.
        eos_id: The id that ends sentences.

    Raises:
        TypeError: If an argument does not hold integers.
        ValueError: If an id is not below `vocab_size`, or a shape is wrong.

    Example:
        >>> shortlist = kl.Shortlist(
        ...     frequent=[4, 5], lexicon=np.full([9, 2], 6), vocab_size=9
        ... )
        >>> shortlist.save("shortlist.npz")
        >>> search = kl.BeamSearch(5, shortlist=kl.Shortlist.load("shortlist.npz"))
    """

    def __init__(
        self,
        frequent: Any,
        lexicon: Any,
        vocab_size: int,
        *,
        pad_id: int = PAD_ID,
        unk_id: int = UNK_ID,
        bos_id: int = BOS_ID,
        eos_id: int = EOS_ID,
    ):
        ids = {"pad_id": pad_id, "unk_id": unk_id, "bos_id": bos_id, "eos_id": eos_id}
        self.special_ids = {x: check_size(x, i, smallest=0) for x, i in ids.items()}
        self.pad_id = self.special_ids["pad_id"]
        self.always = sorted(set(self.special_ids.values()))
        smallest = self.always[-1] + 1
        self.vocab_size = check_size("vocab_size", vocab_size, smallest=smallest)
        self.frequent = self._ids("frequent", frequent, 1)
        self.lexicon = self._ids("lexicon", lexicon, 2)

    def _ids(self, name: str, value: Any, rank: int) -> np.ndarray:
        ids = np.asarray(value)
        if not ids.size:  # its type is arbitrary
            ids = ids.astype("int32")
        if not np.issubdtype(ids.dtype, np.integer):
            raise TypeError(f"{name} must hold integers. Received: {value!r:.60}")
        if ids.ndim != rank:
            raise ValueError(f"{name} must have rank {rank}. Received: {ids.shape}")
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(
                f"{name} must hold ids from 0 to vocab_size - 1 = "
                f"{self.vocab_size - 1}. Received: {ids.min()} to {ids.max()}"
            )
        return ids.astype("int32")

    def __call__(self, source_ids: tf.Tensor, prefix_ids: tf.Tensor) -> Words:
        """Returns the words that a batch's hypotheses may be made of.

        Args:
            source_ids: int32 [B, S], right-padded with `pad_id`.
            prefix_ids: int32 [B, P], likewise; a prefix's words are allowed too.
        """
        B, S = tf.unstack(tf.shape(source_ids))
        V, width = self.vocab_size, self.lexicon.shape[1]
        read = (source_ids != self.pad_id)[..., None]
        likely = tf.where(read, tf.gather(self.lexicon, source_ids), self.pad_id)
        likely = tf.reshape(likely, [B, S * width])
        ids = tf.concat([likely, prefix_ids], axis=1)
        rows = tf.broadcast_to(tf.range(B)[:, None], tf.shape(ids))
        places = tf.stack([rows, ids], axis=-1)
        counts = tf.scatter_nd(places, tf.ones_like(ids), [B, V])
        always = np.isin(np.arange(V), [*self.always, *self.frequent])
        listed = (counts > 0) | always
        # Those always listed are so even in an empty batch.
        ids = tf.where(tf.reduce_any(listed, axis=0) | always)[:, 0]
        return Words(tf.cast(ids, tf.int32), tf.gather(listed, ids, axis=1))

    def check_ids(self, **special_ids: int) -> None:
        """Raises ValueError unless a search's special ids are the shortlist's."""
        for name, own in special_ids.items():
            if own != self.special_ids[name]:
                raise ValueError(
                    f"{name} must be the same in a search and its shortlist. Received: "
                    f"{own} and {self.special_ids[name]}"
                )

    def restrict(
        self,
        model: StepModel,
        source_ids: tf.Tensor,
        prefix_ids: tf.Tensor,
    ) -> tuple[tf.Tensor, StepModel]:
        """Returns the ids of a batch's words, and the model restricted to them.

        Of a model that copies, a sentence's own words are on its list too.

        Args:
            model: A `StepModel` with a method `restricted`, as keras_luong's have.
            source_ids: int32 [B, S], right-padded with `pad_id`.
            prefix_ids: int32 [B, P], likewise.

        Returns:
            int32 [M], and a `StepModel` whose logits are [B, K, M].

        Raises:
            TypeError: If the model has no method `restricted`, or the source is no ids.
            ValueError: If its vocabularies are not the shortlist's.
        """
        if not is_ids(source_ids):
            raise TypeError(
                "A shortlist needs a source of ids, int32 [B, S]. Received: "
                f"{source_ids!r:.200}"
            )
        own = {"source": len(self.lexicon), "target": self.vocab_size}
        for side, size in own.items():
            models = vocab_size_of(model, side)
            check_same(f"{side}_vocab_size", shortlist=size, model=models)
        if copies(model):  # what may be copied is on the list
            prefix_ids = tf.concat([prefix_ids, source_ids], axis=1)
        words = self(source_ids, prefix_ids)
        return words.ids, restricted(model, *words)

    @classmethod
    def learn(
        cls,
        model: Any,
        batches: Iterable[tuple[Any, ...]],
        per_word: int = 50,
        frequent: int = 400,
        progress: bool = False,
        **special_ids: int,
    ) -> Shortlist:
        """Learns a shortlist from training data, by the model's own attention.

        Each target word of the data counts as a translation of the source word that the
        model attends to most when it predicts the word. A model without attention gets
        the frequent words only, and needs many of them.

        Args:
            model: A `StepModel` with a `config` that has its vocabularies' sizes.
            batches: Training data, as `evaluation_batches` returns it.
            per_word: Translations of each source word, C.
            frequent: Words that are on every list, F.
            progress: Whether to show progress on standard error.
            **special_ids: `pad_id`, `unk_id`, `bos_id` and `eos_id`, where they are not
                this library's.

        Raises:
            TypeError: If a number is no integer.
            ValueError: If a number is negative.
        """
        check_size("per_word", per_word, smallest=0)
        check_size("frequent", frequent, smallest=0)
        sizes = model.config.source_vocab_size, model.config.target_vocab_size
        none = cls([], np.zeros([sizes[0], 0], int), sizes[1], **special_ids)
        attended_words = tf.function(
            partial(_attended, model, none), reduce_retracing=True, autograph=False
        )
        links: Counter[int] = Counter()
        words = np.zeros(sizes[1], int)
        bar = Progress(None, "batch") if progress else None
        for inputs, targets, *_ in batches:
            pairs = attended_words(inputs["source"], targets)
            source, target, attended = (x.numpy() for x in pairs)
            words += np.bincount(target[target != none.pad_id], minlength=sizes[1])
            pairs = source[attended].astype(int) * sizes[1] + target[attended]
            links.update(dict(zip(*np.unique(pairs, return_counts=True), strict=True)))
            if bar:
                bar.add(1)
        words[none.always] = 0
        most = np.argsort(-words, kind="stable")[:frequent]
        most = most[words[most] > 0]
        lexicon = _lexicon(links, sizes, per_word, none.pad_id)
        return cls(most, lexicon, sizes[1], **none.special_ids)

    def save(self, path: str | Path) -> None:
        """Writes the shortlist to a NumPy file.

        Args:
            path: The file, usually with the suffix ".npz".
        """
        names = ("frequent", "lexicon", "vocab_size")
        arrays: dict[str, Any] = {name: getattr(self, name) for name in names}
        with saved_beside(path) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **{**arrays, **self.special_ids})

    @classmethod
    def load(cls, path: str | Path) -> Shortlist:
        """Reads a shortlist from a file.

        Args:
            path: A file that `save` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is not a shortlist.
        """
        Path(path).stat()  # a missing file is not a damaged one
        try:
            with np.load(path) as arrays:
                return cls(**{name: array[()] for name, array in arrays.items()})
        except Exception as error:  # damaged files raise many kinds of errors
            raise ValueError(f"{path} is not a shortlist: {error}") from error

    def __repr__(self) -> str:
        """Returns a description with the numbers of words."""
        return (
            f"Shortlist({len(self.frequent)} frequent words, {self.lexicon.shape[1]} "
            f"per source word, of {self.vocab_size})"
        )


def _lexicon(links, sizes, per_word, pad_id):
    """Returns each source word's most frequent translations.

    Args:
        links: Number of links between source word s and target word t, by `s V + t`.
        sizes: The sizes of the source and the target vocabulary.
        per_word: Translations of each word, C.
        pad_id: What fills the rows up.
    """
    lexicon = np.full([sizes[0], per_word], pad_id, "int32")
    places = np.zeros(sizes[0], int)
    # At a tie the lower id comes first, whatever the order of the data.
    for link, _ in sorted(links.items(), key=lambda item: (-item[1], item[0])):
        s, t = divmod(int(link), sizes[1])
        if places[s] < per_word:
            lexicon[s, places[s]] = t
            places[s] += 1
    return lexicon


def _attended(model, shortlist, source, target):
    """Finds the source word that each target word attends to most.

    Returns these source words, the target words, and whether they count as a pair, all
    [B, T]. Ends, padding and target words without attention do not count.
    """
    ids = {x: y for x, y in shortlist.special_ids.items() if x != "unk_id"}
    forced = force(model, source, target, **ids)
    target = forced.ids[:, 0]
    if forced.weights.shape[-1] == 0:  # there is no attention
        return target, target, tf.zeros_like(target, tf.bool)
    weights = forced.weights[:, 0]
    places = tf.argmax(weights, axis=-1, output_type=tf.int32)
    words = tf.gather(source, places, batch_dims=1)

    def is_word(x):
        return tf.reduce_all(x[..., None] != shortlist.always, axis=-1)

    attended = (tf.reduce_max(weights, axis=-1) > 0) & is_word(words)
    return words, target, attended & is_word(target)
