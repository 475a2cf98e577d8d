"""Batches of a corpus: every pair once, padded and weighted right, so many."""

import itertools
import math
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_luong as kl
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text import batches as making
from keras_luong.text.batches import BatchShape, evaluation_batches, training_batches
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.survey import PairCounts, count_pairs

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


def texts(ids, tokenizer=TOKENIZERS.source):
    return [text.decode() for text in tokenizer.decode(ids).numpy()]


def sentences(batches):
    """Reads the pairs of sentences back out of the batches."""
    sides = [(texts(x["source"]), texts(labels)) for x, labels, _ in batches]
    return [pair for both in sides for pair in zip(*both, strict=True)]


def flat(batches):
    return [
        [array.tolist() for array in (x["source"], x["target"], labels, weights)]
        for x, labels, weights in batches.as_numpy_iterator()
    ]


def test_a_batch_by_hand():
    pairs = dataset([("a b", "x"), ("b", "x y")])
    ((inputs, labels, weights),) = evaluation_batches(pairs, LETTERS)
    assert inputs["source"].numpy().tolist() == [[4, 5, EOS_ID], [5, EOS_ID, PAD_ID]]
    assert inputs["target"].numpy().tolist() == [
        [BOS_ID, 4, PAD_ID],
        [BOS_ID, 4, UNK_ID],
    ]
    assert labels.numpy().tolist() == [[4, EOS_ID, PAD_ID], [4, UNK_ID, EOS_ID]]
    np.testing.assert_allclose(weights, [[0.2, 0.2, 0.0], [0.2, 0.2, 0.2]])
    for ids in (inputs["source"], inputs["target"], labels):
        assert ids.dtype == tf.int32
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
    pairs, expected = corpus(some_lengths(60))
    made = make(pairs, TOKENIZERS, batch_tokens=100, max_length=20)
    assert made.options().autotune.enabled is False  # it holds up an iterator's end
    batches = list(made.as_numpy_iterator())
    assert sorted(sentences(batches)) == sorted(expected)
    for batch in batches:
        assert_well_made(*batch)


@pytest.mark.parametrize("batch_tokens", [1, 64])
def test_batches_hold_so_many_tokens_and_are_of_one_bucket(batch_tokens):
    pairs, _ = corpus(some_lengths(150))
    batches = training_batches(pairs, TOKENIZERS, batch_tokens, max_length=20)
    full, longest = [], []
    for inputs, labels, _ in batches.as_numpy_iterator():
        both = inputs["source"], labels
        length, rows = max(x.shape[1] for x in both), len(labels)
        assert rows == 1 or length * rows <= batch_tokens
        full.append(length * rows)
        longest.append(inputs["source"].shape[1])
        longer = np.maximum(*(np.count_nonzero(x, axis=1) for x in both))
        assert len(set(np.searchsorted(making.bucket_lengths(20), longer))) == 1
    # All but the buckets' last batches are nearly full, and the order is not by length.
    assert batch_tokens == 1 or np.mean(np.array(full) > 40) > 0.8
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.35


def test_training_leaves_out_empty_and_long_pairs_only():
    lengths = [(3, 3), (0, 3), (3, 0), (5, 5), (6, 5), (5, 6), (0, 0), (1, 5)]
    pairs, expected = corpus(lengths)
    kept = [expected[i] for i in (0, 3, 7)]
    batches = training_batches(pairs, TOKENIZERS, 100, max_length=5)
    assert sorted(sentences(batches)) == sorted(kept)


def test_evaluation_keeps_empty_pairs_and_cuts_long_ones():
    pairs, expected = corpus([(3, 3), (0, 2), (9, 0), (7, 7)])
    cut = [tuple(" ".join(text.split()[:5]) for text in pair) for pair in expected]
    batches = evaluation_batches(pairs, TOKENIZERS, 100, max_length=5)
    assert sorted(sentences(batches)) == sorted(cut)
    assert flat(batches) == flat(batches)
    for inputs, labels, weights in batches:
        assert (np.count_nonzero(inputs["source"] == EOS_ID, axis=1) == 1).all()
        assert (np.count_nonzero(labels == EOS_ID, axis=1) == 1).all()
        assert np.isfinite(weights).all()


@pytest.mark.slow
def test_same_seed_same_epochs_and_every_epoch_differs():
    pairs, _ = corpus(some_lengths(40))

    def epochs(seed):
        batches = training_batches(pairs, TOKENIZERS, 100, max_length=20, seed=seed)
        return [flat(batches) for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert first == again and first[0] not in (other[0], first[1])


@pytest.mark.slow
def test_shuffling_holds_a_bounded_window_and_reads_no_further():
    taken = []

    def endless():
        for index in itertools.count():
            taken.append(index)
            yield {"source": "w1 w2", "target": "w3"}

    spec = dict.fromkeys(["source", "target"], tf.TensorSpec([], tf.string))
    pairs = tf.data.Dataset.from_generator(endless, output_signature=spec)
    batches = training_batches(pairs, TOKENIZERS, 400, shuffle_pairs=100)
    assert len(list(batches.take(1))) == 1
    assert len(taken) < 50_000


@pytest.mark.slow
def test_odd_bytes_make_finite_batches():
    pairs = dataset([(b"\xff \xfe", b"\0"), (b"w1", b"\xc3"), (b" \t ", b"w1")])
    for make in (training_batches, evaluation_batches):
        for _, _, weights in make(pairs, TOKENIZERS, 100):
            np.testing.assert_allclose(np.sum(weights), 1, rtol=1e-6)


def test_ended_rows_end_with_eos_and_tell_what_was_cut():
    ids = TOKENIZERS.source.encode(tf.constant(["w0 w1 w2", "", "w0 w1 w2 w3"]))
    rows, cut = making.ended_rows(ids, max_length=3)
    assert rows.to_list() == [[4, 5, 6, EOS_ID], [EOS_ID], [4, 5, 6, EOS_ID]]
    assert list(cut.numpy()) == [False, False, True]
    assert rows.dtype == tf.int32


@pytest.mark.parametrize("max_length", [1, 2, 3, 4, 50, 1000])
def test_bucket_lengths_rise_to_the_longest_row(max_length):
    lengths = making.bucket_lengths(max_length)
    steps = np.diff(lengths)
    assert lengths[-1] == max_length + 1
    assert (steps > 0).all()
    assert (steps <= np.maximum(2, 0.08 * np.array(lengths[:-1]))).all()


@pytest.mark.parametrize("name", ["batch_tokens", "max_length", "shuffle_pairs"])
def test_numbers_below_one_are_refused(name):
    pairs, _ = corpus([(1, 1)])
    with pytest.raises(ValueError, match=f"{name} must be at least 1. Received: 0"):
        training_batches(pairs, TOKENIZERS, **{name: 0})
    for value in ("8", 2.5, None):
        with pytest.raises(TypeError, match=f"{name} must be an integer.*{value}"):
            training_batches(pairs, TOKENIZERS, **{name: value})


@pytest.mark.slow
def test_words_are_split_in_other_ways_each_epoch():
    rng = random.Random(1)
    lines = [" ".join(rng.choices(["aba", "abab", "bab"], k=5)) for _ in range(20)]
    tokenizer = kl.SentencePieceTokenizer.train(lines, vocab_size=10)
    pairs = dataset([(line, line) for line in lines])

    def epoch(seed):
        batches = training_batches(
            pairs, kl.TokenizerPair(tokenizer), seed=seed, subword_sampling=0.1
        )
        both = [ids for x, labels, _ in batches for ids in (x["source"], labels)]
        return {
            (text, tuple(row))
            for ids in both
            for text, row in zip(texts(ids, tokenizer), ids.numpy(), strict=True)
        }

    first, again, second = epoch(1), epoch(1), epoch(2)
    assert first == again
    assert len(first & second) < len(first) / 2
    for rows in (first, second):
        assert {text for text, _ in rows} == set(lines)  # and yet it is the same text
    with pytest.raises(ValueError, match="sentencepiece.*WordTokenizer"):
        training_batches(pairs, TOKENIZERS, subword_sampling=0.1)


def shape_of(inputs, labels, _):
    return BatchShape(*inputs["source"].shape, labels.shape[1])


def test_a_batch_of_a_fixed_shape_by_hand():
    pairs, shape = dataset([("a b", "x")]), BatchShape(2, 4, 3)
    ((inputs, labels, weights),) = training_batches(pairs, LETTERS, shapes=[shape])
    empty = [EOS_ID, 0, 0, 0]
    np.testing.assert_array_equal(inputs["source"], [[4, 5, EOS_ID, 0], empty])
    np.testing.assert_array_equal(inputs["target"], [[BOS_ID, 4, 0], [BOS_ID, 0, 0]])
    np.testing.assert_array_equal(labels, [[4, EOS_ID, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0], [0, 0, 0]])


def test_fixed_shapes_hold_every_pair_once():
    together = 3
    pairs, expected = corpus(some_lengths(150))
    shapes = [BatchShape(7, 6, 6), BatchShape(5, 12, 18)]  # and one for what is longer
    options = {"gradient_accumulation_steps": together, "shapes": shapes}
    batches = list(training_batches(pairs, TOKENIZERS, 100, 20, **options))
    assert {shape_of(*x) for x in batches} == {*shapes, BatchShape(4, 21, 21)}
    assert sorted(filter(any, sentences(batches))) == sorted(expected)
    assert len(batches) % together == 0
    for i in range(0, len(batches), together):
        group = batches[i : i + together]
        assert sum(np.sum(x[2]) for x in group) == pytest.approx(together)
        for inputs, _, _ in group:
            assert all((ids[:, 0] != PAD_ID).numpy().all() for ids in inputs.values())


@pytest.mark.slow
def test_an_epoch_of_a_corpus_has_few_shapes_and_not_much_padding():
    pairs = PhraseCorpus("en", "de", train=2500).pairs("train")
    tokenizers = kl.TokenizerPair.train(pairs, vocab_size=200)
    counts = count_pairs(pairs, tokenizers, 50)

    def shapes(fixed):
        batches = training_batches(pairs, tokenizers, 500, shapes=fixed)
        found = [shape_of(*batch) for batch in batches.as_numpy_iterator()]
        assert len(found) == counts.batches(500, making.A_PASS, fixed)
        positions = sum(rows * (source + target) for rows, source, target in found)
        return len(set(found)), positions

    (without, cut), (few, positions) = shapes(None), shapes(counts.batch_shapes(500))
    assert without > 16 >= few and positions < 1.1 * cut


MOST = 60
BUCKETS = len(making.bucket_lengths(MOST))


def counts_of(lengths):
    return PairCounts(0, 0, 0.0, 0.0, 0, 0, lengths, MOST)


def counts(buckets):
    pairs = zip(making.bucket_lengths(MOST), buckets, strict=True)
    return counts_of({(n, n): x for n, x in pairs})


@given(st.lists(st.integers(0, 200), min_size=BUCKETS, max_size=BUCKETS))
def test_only_the_last_batch_of_each_length_is_not_full(buckets):
    found = counts(buckets)
    full, batches = found.full_batches(1000), found.batches(1000)
    assert full <= batches < full + BUCKETS
    many = found.batches(1000, making.EpochShape(passes=1000))
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
    shape = making.epoch_shape(found.full_batches(1000), 200)
    assert shape.passes > 1
    steps = found.batches(1000, shape)
    assert 150 < steps < 250 + BUCKETS


@pytest.mark.slow
def test_a_shape_is_filled_without_a_change_of_loss_or_gradients():
    pairs, _ = corpus([(n % 9 + 1, n * 5 % 9 + 1) for n in range(12)])
    size = TOKENIZERS.source.vocab_size
    config = kl.Seq2SeqConfig(size, size, units=4, num_layers=1, dropout=0.0)
    model, loss = kl.Seq2Seq(config), kl.SequenceCrossentropy()

    shapes = [BatchShape(11, 7, 10), BatchShape(8, 11, 12)]
    batches = training_batches(pairs, TOKENIZERS, max_length=11, shapes=shapes)

    @tf.function(input_signature=batches.element_spec)
    def gradients(inputs, labels, weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True), weights)
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

    class Traced(kl.Seq2Seq):
        def train_step(self, batch):
            inputs, labels, _ = batch
            traced.append(1)
            sizes = tf.concat([tf.shape(inputs["source"]), tf.shape(labels)], 0)
            noted = tf.numpy_function(lambda x: shapes.append(tuple(x)), [sizes], [])
            with tf.control_dependencies([noted]):
                return super().train_step(batch)

    size = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = Traced(kl.Seq2SeqConfig(*size, units=2, num_layers=1))
    model.compile("sgd", kl.SequenceCrossentropy())

    def epoch(fixed):
        traced.clear(), shapes.clear()
        batches = training_batches(pairs, tokenizers, 500, shapes=fixed)
        model.fit(batches, verbose=0)
        assert len(shapes) == counts.batches(500, making.A_PASS, fixed)
        positions = sum(rows * (s + t) for rows, s, _, t in shapes)
        return len(traced), len(set(shapes)), positions

    _, without, cut = epoch(None)
    traces, compiled, positions = epoch(counts.batch_shapes(500))
    assert without > 16 >= compiled and traces <= 1
    assert positions < 1.1 * cut
