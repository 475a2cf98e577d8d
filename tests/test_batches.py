"""Batches: every pair once, padded and weighted right, so many; and epochs of them."""

import functools
import math
import random
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import small_model

import keras_luong as kl
from keras_luong.runs.epochs import FollowEpoch
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.batches import (
    A_PASS,
    BatchShape,
    EpochShape,
    bucket_lengths,
    epoch_shape,
    evaluation_batches,
)
from keras_luong.text.corpus import mix_pairs, sample_pairs
from keras_luong.text.epoch_batches import training_batches
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.token_store import PairCounts, count_pairs
from keras_luong.training.optimizers import make_optimizer

WORDS = [f"w{i}" for i in range(500)]
TOKENIZERS = kl.TokenizerPair(kl.WordTokenizer(WORDS))
LETTERS = kl.TokenizerPair(kl.WordTokenizer(["a", "b"]), kl.WordTokenizer(["x"]))


def dataset(pairs):
    source, target = zip(*pairs, strict=True)
    sides = {"source": list(source), "target": list(target)}
    return tf.data.Dataset.from_tensor_slices(sides)


def corpus(lengths):
    """Pairs whose first words number them, of the given lengths."""
    rng = random.Random(0)

    def sentence(index, length):
        return " ".join([WORDS[index], *rng.choices(WORDS, k=length - 1)][:length])

    pairs = [tuple(sentence(i, x) for x in both) for i, both in enumerate(lengths)]
    return dataset(pairs), pairs


def some_lengths(count, longest=20):
    rng = random.Random(0)
    return [(rng.randint(1, longest), rng.randint(1, longest)) for _ in range(count)]


def texts(ids):
    """What rows of ids say, of `WORDS`, which come after the four special ones."""
    rows = np.asarray(ids).tolist()
    return [" ".join(WORDS[i - 4] for i in row if i > EOS_ID) for row in rows]


def sentences(batches):
    """Reads the pairs of sentences back out of the batches."""
    sides = [(texts(x["source"]), texts(labels)) for x, labels, _ in batches]
    return [pair for both in sides for pair in zip(*both, strict=True)]


@functools.cache
def made(make, batch_tokens=64, **options):
    """Pairs, and batches of them in NumPy, which are only read."""
    keras.utils.set_random_seed(0)  # of which the order is made too
    pairs, expected = corpus(some_lengths(150))
    batches = make(pairs, TOKENIZERS, batch_tokens, 20, **options)
    assert batches.options().autotune.enabled is False  # it holds up an iterator's end
    return expected, list(batches.as_numpy_iterator())


def test_a_batch_by_hand():
    pairs = dataset([("a b", "x"), ("b", "x y")])
    ((inputs, labels, weights),) = evaluation_batches(pairs, LETTERS)
    for ids, expected in (
        (inputs["source"], [[4, 5, EOS_ID], [5, EOS_ID, PAD_ID]]),
        (inputs["target"], [[BOS_ID, 4, PAD_ID], [BOS_ID, 4, UNK_ID]]),
        (labels, [[4, EOS_ID, PAD_ID], [4, UNK_ID, EOS_ID]]),
    ):
        assert ids.dtype == tf.int32 and ids.numpy().tolist() == expected
    np.testing.assert_allclose(weights, [[0.2, 0.2, 0.0], [0.2, 0.2, 0.2]])
    assert weights.dtype == tf.float32


def assert_well_made(inputs, labels, weights):
    """A batch is padded as far as it must be, and weighted by its words."""
    lengths = np.count_nonzero(labels, axis=1)
    for row, length in enumerate(lengths):
        assert labels[row][length - 1] == EOS_ID and not labels[row][length:].any()
        target = inputs["target"][row]
        assert target[0] == BOS_ID and not target[length:].any()
        assert (target[1:length] == labels[row][: length - 1]).all()
    assert labels.shape[1] == lengths.max()
    assert (inputs["source"][:, -1] != PAD_ID).any()
    np.testing.assert_array_equal(weights > 0, labels != PAD_ID)
    np.testing.assert_allclose(weights[labels != PAD_ID], 1 / sum(lengths), rtol=1e-5)


@pytest.mark.parametrize("make", [training_batches, evaluation_batches])
def test_every_pair_exactly_once_in_batches_that_are_well_made(make):
    expected, batches = made(make)
    assert sorted(sentences(batches)) == sorted(expected)
    for batch in batches:
        assert_well_made(*batch)


def test_batches_hold_so_many_tokens_and_are_of_one_bucket():
    full, longest = [], []
    for inputs, labels, _ in made(training_batches)[1]:
        both = inputs["source"], labels
        length, rows = max(x.shape[1] for x in both), len(labels)
        assert length * rows <= 64
        full.append(length * rows)
        longest.append(inputs["source"].shape[1])
        longer = np.maximum(*(np.count_nonzero(x, axis=1) for x in both))
        assert len(set(np.searchsorted(bucket_lengths(20), longer))) == 1
    # All but the buckets' last batches are nearly full, and the order is not by length.
    assert np.mean(np.array(full) > 40) > 0.8
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.35


def test_training_leaves_out_empty_and_long_pairs_only():
    lengths = [(3, 3), (0, 3), (3, 0), (5, 5), (6, 5), (5, 6), (0, 0), (1, 5)]
    pairs, expected = corpus(lengths)
    kept = [expected[i] for i in (0, 3, 7)]
    # Of one token: then a sentence that is longer is a batch by itself.
    batches = list(training_batches(pairs, TOKENIZERS, 1, max_length=5))
    assert sorted(sentences(batches)) == sorted(kept)
    assert [len(labels) for _, labels, _ in batches] == [1, 1, 1]


def test_evaluation_keeps_empty_pairs_and_cuts_long_ones():
    pairs, expected = corpus([(3, 3), (0, 2), (9, 0), (7, 7)])
    cut = [tuple(" ".join(text.split()[:5]) for text in pair) for pair in expected]
    batches = evaluation_batches(pairs, TOKENIZERS, 100, max_length=5)
    first, again = (list(batches.as_numpy_iterator()) for _ in "12")
    assert sorted(sentences(first)) == sorted(cut)
    tf.nest.map_structure(np.testing.assert_array_equal, first, again)
    for inputs, labels, weights in first:
        assert (np.count_nonzero(inputs["source"] == EOS_ID, axis=1) == 1).all()
        assert (np.count_nonzero(labels == EOS_ID, axis=1) == 1).all()
        assert np.isfinite(weights).all()


@pytest.mark.slow
def test_same_seed_same_epochs_and_every_epoch_differs():
    pairs, _ = corpus(some_lengths(40))

    def epochs(seed):
        batches = training_batches(pairs, TOKENIZERS, 100, max_length=20, seed=seed)
        return [str([*batches.as_numpy_iterator()]) for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert first == again and first[0] not in (other[0], first[1])


@pytest.mark.parametrize("max_length", [1, 2, 3, 4, 50, 1000])
def test_bucket_lengths_rise_to_the_longest_row(max_length):
    lengths = bucket_lengths(max_length)
    steps = np.diff(lengths)
    assert lengths[-1] == max_length + 1
    assert (steps > 0).all()
    assert (steps <= np.maximum(2, 0.08 * np.array(lengths[:-1]))).all()


REFUSED = {
    "batch_tokens": (0, "batch_tokens must be at least 1. Received: 0"),
    "max_length": (0, "max_length must be at least 1. Received: 0"),
    "subword_sampling": (0.1, "sentencepiece.*WordTokenizer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    value, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        training_batches(None, TOKENIZERS, **{name: value})


def shape_of(inputs, labels, _):
    return BatchShape(*inputs["source"].shape, labels.shape[1])


def test_a_batch_of_a_fixed_shape_by_hand():
    pairs, shape = dataset([("a b", "x")]), BatchShape(2, 4, 3)
    ((inputs, labels, weights),) = training_batches(pairs, LETTERS, shapes=[shape])
    empty = [EOS_ID, 0, 0, 0]
    np.testing.assert_array_equal(inputs["source"], [[4, 5, EOS_ID, 0], empty])
    np.testing.assert_array_equal(inputs["target"], [[BOS_ID, 4, 0], [0, 0, 0]])
    np.testing.assert_array_equal(labels, [[4, EOS_ID, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0], [0, 0, 0]])


def test_fixed_shapes_hold_every_pair_once():
    together = 3
    pairs, expected = corpus(some_lengths(70))
    shapes = [BatchShape(7, 6, 6), BatchShape(5, 12, 18)]  # and one for what is longer
    options = {"gradient_accumulation_steps": together, "shapes": shapes}
    batches = training_batches(pairs, TOKENIZERS, 100, 20, **options)
    batches = list(batches.as_numpy_iterator())
    assert {shape_of(*x) for x in batches} == {*shapes, BatchShape(4, 21, 21)}
    assert sorted(filter(any, sentences(batches))) == sorted(expected)
    assert len(batches) % together == 0
    for i in range(0, len(batches), together):
        group = batches[i : i + together]
        assert sum(np.sum(x[2]) for x in group) == pytest.approx(together)
        assert all((inputs["source"][:, 0] != PAD_ID).all() for inputs, _, _ in group)


MOST = 60
BUCKETS = len(bucket_lengths(MOST))


def counts_of(lengths):
    return PairCounts(0, 0, 0.0, 0.0, 0, 0, lengths, MOST)


def counts(buckets):
    pairs = zip(bucket_lengths(MOST), buckets, strict=True)
    return counts_of({(n, n): x for n, x in pairs})


@given(st.lists(st.integers(0, 200), min_size=BUCKETS, max_size=BUCKETS))
def test_only_the_last_batch_of_each_length_is_not_full(buckets):
    found = counts(buckets)
    full, batches = found.full_batches(1000), found.batches(1000)
    assert full <= batches < full + BUCKETS
    many = found.batches(1000, EpochShape(passes=1000))
    assert many / 1000 == pytest.approx(full, abs=BUCKETS / 1000)


LENGTH = st.integers(2, MOST + 1)


@settings(max_examples=10)
@given(st.dictionaries(st.tuples(LENGTH, LENGTH), st.integers(1, 500), min_size=1))
def test_few_shapes_hold_all_pairs_in_full_batches(lengths):
    found = counts_of(lengths)
    shapes = found.batch_shapes(300)
    assert 1 <= len(shapes) <= 15
    assert all(1 <= x.rows * max(x.source, x.target) <= 300 for x in shapes)
    in_batches = found._in_batches(300, shapes)
    assert not any(in_batches[len(shapes) :])
    for shape, batches in zip(shapes, in_batches, strict=False):
        missing = (math.ceil(batches) - batches) * shape.rows
        assert 0 <= missing < math.ceil(batches)  # not a row a batch


@given(st.lists(st.integers(1, 40), min_size=BUCKETS, max_size=BUCKETS))
def test_a_small_corpus_has_the_steps_that_are_asked_for(buckets):
    """Of so few pairs each length makes a batch, and most of them are not full."""
    found = counts(buckets)
    shape = epoch_shape(found.full_batches(1000), 200)
    assert shape.passes > 1
    assert 150 < found.batches(1000, shape) < 250 + BUCKETS


@pytest.mark.slow
def test_a_shape_is_filled_without_a_change_of_loss_or_gradients():
    pairs, _ = corpus([(n % 9 + 1, n * 5 % 9 + 1) for n in range(12)])
    size, covers = TOKENIZERS.source.vocab_size, {"coverage": True, "coverage_loss": 1}
    config = kl.Seq2SeqConfig(size, size, units=4, num_layers=1, dropout=0.0, **covers)
    model, loss = kl.Seq2Seq(config), kl.SequenceCrossentropy()

    shapes = [BatchShape(11, 7, 10), BatchShape(8, 11, 12)]
    batches = training_batches(pairs, TOKENIZERS, max_length=11, shapes=shapes)

    @tf.function(input_signature=batches.element_spec)
    def gradients(inputs, labels, weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True), weights)
            value += sum(model.losses)
        found = tape.gradient(value, model.trainable_weights)
        return [value, *map(tf.convert_to_tensor, found)]

    for batch in batches.as_numpy_iterator():
        inputs, labels, weights = batch
        assert BatchShape(*inputs["source"].shape, labels.shape[1]) in shapes
        rows, t = (np.count_nonzero(labels.any(axis=axis)) for axis in (1, 0))
        s = np.count_nonzero(inputs["source"].any(axis=0))
        assert rows < len(labels) and t < labels.shape[1]
        source, target = inputs["source"][:rows, :s], inputs["target"][:rows, :t]
        inputs = {"source": source, "target": target}
        alone = gradients(inputs, labels[:rows, :t], weights[:rows, :t])
        for filled, expected in zip(gradients(*batch), alone, strict=True):
            np.testing.assert_allclose(filled, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_epoch_of_a_corpus_is_traced_once_and_has_few_shapes():
    pairs = PhraseCorpus("en", "de", train=2500).pairs("train")
    tokenizers = kl.TokenizerPair.train(pairs, vocab_size=200)
    counts = count_pairs(pairs, tokenizers, 50)
    traced, shapes = [], []

    def note(source, labels):
        shapes.append((*source.shape, labels.shape[1]))

    class Traced(kl.Seq2Seq):
        def train_step(self, batch):
            inputs, labels, _ = batch
            traced.append(1)
            noted = tf.numpy_function(note, [inputs["source"], labels], [])
            with tf.control_dependencies([noted]):
                return super().train_step(batch)

    size = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = Traced(kl.Seq2SeqConfig(*size, units=2, num_layers=1))
    model.compile("sgd", kl.SequenceCrossentropy())

    def epoch(fixed):
        traced.clear(), shapes.clear()
        batches = training_batches(pairs, tokenizers, 500, shapes=fixed)
        model.fit(batches, verbose=0)
        assert len(shapes) == counts.batches(500, A_PASS, fixed)
        positions = sum(rows * (source + target) for rows, source, target in shapes)
        return len(traced), len(set(shapes)), positions

    _, without, cut = epoch(None)
    traces, compiled, positions = epoch(counts.batch_shapes(500))
    assert without > 16 >= compiled and traces <= 1
    assert positions < 1.1 * cut


# Epochs. Going on in the middle of one, and stopping there: test_checkpoints.py.


def numbers(dataset):
    blocks = dataset.batch(1024).as_numpy_iterator()
    return [int(x) for block in blocks for x in block]


@given(st.floats(0.01, 100_000), st.integers(1, 100_000))
def test_an_epoch_is_about_as_long_as_it_should_be(a_pass, wanted):
    shape = epoch_shape(a_pass, wanted)  # of a pass in full batches
    assert 1 in shape
    steps = a_pass * shape.passes / shape.parts
    assert 0.6 < steps / wanted < 1.51 or shape == A_PASS


def test_a_pass_is_the_default():
    assert epoch_shape(7, None) == A_PASS == EpochShape(1, 1)


@pytest.mark.parametrize("share, others", [(0.5, 30), (0.25, 10), (0.75, 90), (0, 0)])
def test_k2_the_share_is_exact_whatever_the_sizes(share, others):
    both = mix_pairs(tf.data.Dataset.range(30), tf.data.Dataset.range(100, 120), share)
    made = numbers(both)
    assert int(both.cardinality()) == len(made) == 30 + others
    assert [x for x in made if x < 100] == list(range(30))  # each once, in their order
    first = sum(x >= 100 for x in made[: len(made) // 2])
    assert abs(first - others / 2) <= 1  # and the others evenly between them


def test_k2_others_are_drawn_by_the_seed_and_each_equally_often():
    total = 3000  # more than are looked at at once
    many = tf.data.Dataset.range(total)
    some, again, other = (numbers(sample_pairs(many, 40, seed=x)) for x in (1, 1, 2))
    assert some == again == sorted(some) != other
    assert len(set(some)) == 40 and max(some) > 2048
    counts = Counter(numbers(sample_pairs(many.take(30), 67)))
    assert Counter(counts.values()) == {2: 23, 3: 7}


UNMIXED = [(0, 0.5, "no p"), (3, 1.0, "share")]


@pytest.mark.parametrize("others, share, message", UNMIXED)
def test_k2_what_cannot_be_mixed(others, share, message):
    with pytest.raises(ValueError, match=message):
        mix_pairs(tf.data.Dataset.range(3), tf.data.Dataset.range(others), share)


def test_data_without_a_batch_is_an_error():
    follow = FollowEpoch()
    follow.set_model(small_model("adam"))
    follow.on_epoch_begin(0)
    with pytest.raises(ValueError, match="no batch in epoch 1"):
        follow.on_epoch_end(0)
    follow.on_train_batch_end(0)
    follow.on_epoch_end(0)


def test_epochs_of_any_length():
    """Keras alone cuts all to the length of the first. They run in order, untuned."""
    sizes = tf.constant([3, 5, 6, 4, 6], tf.int64)
    follow = FollowEpoch((0, 1))
    row = tf.ones([4, 2]), tf.ones([4, 1])
    rows = tf.data.Dataset.from_tensors(row)
    batches = follow.batches(lambda epoch: rows.repeat(sizes[epoch]))
    options = batches.options()
    assert (options.deterministic, options.autotune.enabled) == (True, False)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(0),
        on_train_batch_end=lambda batch, logs: seen.append(seen.pop() + 1),
    )
    model.fit(batches, epochs=5, callbacks=[follow, count], verbose=0, shuffle=False)
    assert seen == [2, 5, 6, 4, 6]  # the first epoch is gone on with


def test_the_data_follows_the_epoch():
    follow, found = FollowEpoch((1, 2)), []
    data = follow.batches(
        lambda epoch: tf.data.Dataset.range(10 * epoch, 10 * epoch + 4)
    )
    follow.set_model(small_model("adam"))
    for epoch in (1, 2, 0):
        follow.on_epoch_begin(epoch)
        found.append(list(data.as_numpy_iterator()))
    assert found == [[12, 13], [20, 21, 22, 23], [0, 1, 2, 3]]


FOUR = 4  # batches of a step


def test_w9_the_batches_are_the_same_in_whole_groups():
    """Each label weighs as much as all others of its step."""
    _, single = made(training_batches)
    _, together = made(training_batches, gradient_accumulation_steps=FOUR)
    assert len(single) % FOUR  # the last group is filled up
    assert len(together) == -(-len(single) // FOUR) * FOUR
    for one, other in zip(single, together, strict=False):
        tf.nest.map_structure(np.testing.assert_array_equal, one[:2], other[:2])
    for inputs, labels, weights in together[len(single) :]:
        assert inputs["source"].shape == (1, 1)
        assert not np.any(labels) and not np.any(weights)
    for start in range(0, len(together), FOUR):
        group = together[start : start + FOUR]
        number = sum(np.count_nonzero(labels) for _, labels, _ in group)
        for _, labels, weights in group:
            expected = (np.asarray(labels) != 0) * FOUR / number
            np.testing.assert_allclose(weights, expected, 1e-6)


def test_w9_an_overflow_moves_no_batch_to_another_step():
    """float16: the batch that overflows is counted, and its step has what follows."""
    weight = keras.Variable(0.0)
    options = {"loss_scaling": True, "gradient_accumulation_steps": 2}
    optimizer = make_optimizer("sgd", 1.0, None, **options)
    seen = []
    for gradient in (np.inf, 2.0, 4.0, np.inf, 6.0, 8.0):
        scale = float(optimizer.scale_loss(1.0))
        optimizer.apply([tf.constant(-gradient * scale)], [weight])
        seen.append(float(weight.value))
    assert seen == [0.0, 1.0, 1.0, 1.0, 1.0, 8.0]
