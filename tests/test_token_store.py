"""Ids on disk, and the batches that are planned by their lengths."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_luong as kl
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text import epoch_batches
from keras_luong.text.batches import BatchShape, EpochShape
from keras_luong.text.epoch_batches import epoch_order, plan_batches, stored_batches
from keras_luong.text.token_store import TokenStore, count_pairs

WORDS = [f"w{i}" for i in range(300)]
TOKENIZERS = kl.TokenizerPair(kl.WordTokenizer(WORDS), kl.WordTokenizer(WORDS[:50]))
MOST = 12
ALPHA = 0.5
SIZES = {"batch_tokens": 60, "max_length": MOST}


@pytest.fixture(scope="module")
def pairs():
    """Sentences of 0 to 14 words, the first of which numbers the pair."""
    rng = np.random.default_rng(0)

    def sentence(number):
        return " ".join([WORDS[number % 300], *rng.choice(WORDS, rng.integers(14))])

    sides = {x: [sentence(i) for i in range(400)] for x in ("source", "target")}
    sides["source"][7] = " "
    return tf.data.Dataset.from_tensor_slices(sides)


@pytest.fixture(scope="module")
def tokenizers(pairs):
    """By whether pieces are drawn."""
    return {None: TOKENIZERS, ALPHA: kl.TokenizerPair.train(pairs, vocab_size=400)}


@pytest.fixture(scope="module", params=[None, ALPHA], ids=["stored", "drawn"])
def store(request, pairs, tokenizers, tmp_path_factory):
    """Of ids; or of texts, whose ids are drawn 150 pairs at a time."""
    folder, alpha = tmp_path_factory.mktemp("store") / "tokens", request.param
    counts = count_pairs(pairs, tokenizers[alpha], MOST, alpha, folder)
    assert counts == count_pairs(pairs, tokenizers[alpha], MOST, alpha)
    made = TokenStore(folder, tokenizers[alpha], alpha)
    assert len(made) == sum(counts.lengths.values()) == 400 - counts.too_long - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoch_batches, "DRAWN_AT_ONCE", 150)
        yield made


def rows_of(batches):
    """How often each pair of rows is there, without padding."""
    rows = Counter()
    for inputs, labels, _ in batches.as_numpy_iterator():
        for source, row in zip(inputs["source"], labels, strict=True):
            if row.any():
                rows[tuple(source[source > 0]), tuple(row[row > 0])] += 1
    return rows


def texts_of(rows, tokenizers):
    """How often each pair of texts is there."""
    both = zip(*rows.elements(), strict=True)
    texts = [
        x.decode(tf.ragged.constant([*side])).numpy().tolist()
        for x, side in zip((tokenizers.source, tokenizers.target), both, strict=True)
    ]
    return Counter(zip(*texts, strict=True))


def test_batches_are_those_of_the_text(pairs, store, tokenizers):
    """Each pair is there whose usual split is no longer than `MOST`."""
    stored = stored_batches(store, 3, **SIZES)
    pieces = tokenizers[store.subword_sampling]
    block = next(pairs.batch(400).as_numpy_iterator())
    usual = (getattr(pieces, x).encode(block[x]).to_list() for x in block)
    fits = (x for x in zip(*usual, strict=True) if all(0 < len(y) <= MOST for y in x))
    expected = Counter(tuple((*ids, EOS_ID) for ids in pair) for pair in fits)
    found = rows_of(stored)
    assert texts_of(found, pieces) == texts_of(expected, pieces)
    assert (found == expected) is (store.subword_sampling is None)
    for inputs, labels, weights in stored.as_numpy_iterator():
        source, target = inputs["source"], inputs["target"]
        assert (target[:, 0] == BOS_ID).all() and EOS_ID not in target
        assert (target[:, 1:] == labels[:, :-1])[labels[:, 1:] > 0].all()
        for ids in (source, labels):  # rows end with EOS, and the longest is as wide
            last = (ids > 0).sum(1) - 1
            assert (ids[np.arange(len(ids)), last] == EOS_ID).all()
            assert last.max() == ids.shape[1] - 1 and ids.size <= 60 + ids.shape[1]
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-6)
        assert ((weights > 0) == (labels != PAD_ID)).all()


lengths_of_pairs = st.lists(st.tuples(*[st.integers(1, 12)] * 2), max_size=60)


@settings(max_examples=50)
@given(lengths_of_pairs, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_parts_of_a_pass_are_each_pair_once(lengths, parts, together, fixed):
    lengths = np.array(lengths, np.int32).reshape(-1, 2)
    shapes = [BatchShape(3, 6, 6), BatchShape(2, 13, 13)] if fixed else None
    passes = []
    for first in (0, parts):
        places = []
        for epoch in range(first, first + parts):
            options = {"gradient_accumulation_steps": together, "shapes": shapes}
            shape = EpochShape(parts=parts)
            order = epoch_order(len(lengths), epoch, shape, seed=5)
            plan = plan_batches(lengths, order, [epoch], 12, 40, **options)
            assert len(plan.begins) == len(plan.labels)
            assert len(plan.ends) % together == 0
            batches = zip(plan.begins, plan.ends, plan.shapes, strict=True)
            for begin, end, size in batches:
                own = plan.order[begin:end]
                places += own.tolist()
                assert len(own) <= size[0]
                assert (lengths[own] + 1 <= size[1:]).all()
            total = (lengths[plan.order, 1] + 1).sum()
            np.testing.assert_allclose(plan.labels.sum(), total, rtol=1e-6)
        assert sorted(places) == list(range(len(lengths)))
        passes.append(places)
    if len(lengths) > 20:
        assert passes[0] != passes[1]  # another order


def test_several_passes_are_batched_together():
    lengths, shape = np.full((3, 2), 4), EpochShape(passes=4)
    order, again = (epoch_order(3, epoch, shape, seed=0) for epoch in (0, 1))
    plan = plan_batches(lengths, order, [0], 12, batch_tokens=30)
    assert Counter(plan.order.tolist()) == {0: 4, 1: 4, 2: 4}
    assert sorted(plan.ends - plan.begins) == [2, 5, 5]  # 30 tokens, six a row
    assert again.tolist() != order.tolist()


def test_an_epoch_is_the_same_in_every_process(store):
    """Order and splits follow from the seed and the epoch."""
    epochs = [(1, 2), (1, 2), (2, 2), (1, 3)]
    made = [stored_batches(store, epoch, seed=x, **SIZES) for x, epoch in epochs]
    first, again, *others = ([*x.as_numpy_iterator()] for x in made)
    tf.nest.map_structure(np.testing.assert_array_equal, first, again)
    assert all(str(first) != str(other) for other in others)
    rows, *others = map(rows_of, made[1:])
    for other in others:
        same = (rows & other).total() / len(store)
        assert same == 1 if store.subword_sampling is None else same < 0.5


@pytest.mark.parametrize("together", (1, 3))
@pytest.mark.parametrize("shapes", (None, [BatchShape(4, 6, 7), BatchShape(3, 13, 13)]))
def test_parts_of_rows_are_the_whole(store, together, shapes):
    """Machines' gradients sum up to one machine's: weights are of the whole batch."""
    options = {**SIZES, "shapes": shapes, "gradient_accumulation_steps": together}
    whole = [*stored_batches(store, 1, **options).as_numpy_iterator()]
    every = [stored_batches(store, 1, part=(i, 3), **options) for i in range(3)]
    parts = [[*one.as_numpy_iterator()] for one in every]
    assert len(whole) % together == 0
    for batch, *pieces in zip(whole, *parts, strict=True):
        assert len({len(labels) for _, labels, _ in pieces}) == 1
        joined = [np.stack([piece[k] for piece in pieces], 1) for k in (1, 2)]
        for mine, theirs in zip(batch[1:], joined, strict=True):
            flat = theirs.reshape(-1, theirs.shape[-1])
            np.testing.assert_array_equal(flat[: len(mine)], mine)
            assert not flat[len(mine) :].any()
        for inputs, _, _ in pieces:
            assert (inputs["source"][:, 0] > 0).all()  # cuDNN needs a word
    groups = np.array([weights.sum() for _, _, weights in whole]).reshape(-1, together)
    np.testing.assert_allclose(groups.sum(1), together, rtol=1e-5)
    if shapes:
        found = {labels.shape for _, labels, _ in whole}
        assert found == {(rows, target) for rows, _, target in shapes}


def test_nothing_to_train_on(tmp_path):
    pairs = tf.data.Dataset.from_tensor_slices({"source": [""], "target": [""]})
    count_pairs(pairs, TOKENIZERS, MOST, folder=tmp_path / "tokens")
    store = TokenStore(tmp_path / "tokens", TOKENIZERS)
    assert len(store) == 0 and not [*stored_batches(store, 0)]
