import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_luong.models.seq2seq import Seq2Seq, Seq2SeqConfig
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.batches import (
    A_PASS,
    BatchShape,
    bucket_lengths,
    ended_rows,
    evaluation_batches,
    training_batches,
)
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.survey import count_pairs
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)
from keras_luong.training.losses import SequenceCrossentropy

WORDS = [f"w{i}" for i in range(500)]
TOKENIZERS = TokenizerPair(WordTokenizer(WORDS))


def corpus(lengths, seed=0):
    """Pairs whose first words number them, of the given lengths."""
    rng = random.Random(seed)

    def sentence(index, length):
        return " ".join([WORDS[index], *rng.choices(WORDS, k=length - 1)][:length])

    pairs = [
        (sentence(i, source), sentence(i, target))
        for i, (source, target) in enumerate(lengths)
    ]
    return dataset(pairs), pairs


def dataset(pairs):
    source, target = zip(*pairs, strict=True)
    return tf.data.Dataset.from_tensor_slices(
        {"source": list(source), "target": list(target)}
    )


def some_lengths(count, longest=20, seed=0):
    rng = random.Random(seed)
    return [(rng.randint(1, longest), rng.randint(1, longest)) for _ in range(count)]


def sentences(batches):
    """Reads the pairs of sentences back out of the batches."""
    decode = TOKENIZERS.source.decode
    return [
        (source.decode(), target.decode())
        for inputs, labels, _ in batches
        for source, target in zip(
            decode(inputs["source"]).numpy(), decode(labels).numpy(), strict=True
        )
    ]


def flat(batches):
    return [
        [array.tolist() for array in (x["source"], x["target"], labels, weights)]
        for x, labels, weights in batches.as_numpy_iterator()
    ]


def test_a_batch_by_hand():
    tokenizers = TokenizerPair(WordTokenizer(["a", "b"]), WordTokenizer(["x"]))
    pairs = dataset([("a b", "x"), ("b", "x y")])
    ((inputs, labels, weights),) = evaluation_batches(pairs, tokenizers)
    np.testing.assert_array_equal(
        inputs["source"], [[4, 5, EOS_ID], [5, EOS_ID, PAD_ID]]
    )
    np.testing.assert_array_equal(
        inputs["target"], [[BOS_ID, 4, PAD_ID], [BOS_ID, 4, UNK_ID]]
    )
    np.testing.assert_array_equal(labels, [[4, EOS_ID, PAD_ID], [4, UNK_ID, EOS_ID]])
    np.testing.assert_allclose(weights, [[0.2, 0.2, 0.0], [0.2, 0.2, 0.2]])
    for ids in (inputs["source"], inputs["target"], labels):
        assert ids.dtype == tf.int32
    assert weights.dtype == tf.float32


@pytest.mark.parametrize(
    "make", [pytest.param(training_batches, marks=pytest.mark.slow), evaluation_batches]
)
def test_every_pair_exactly_once(make):
    pairs, expected = corpus(some_lengths(150))
    batches = make(pairs, TOKENIZERS, batch_tokens=100, max_length=20)
    assert sorted(sentences(batches)) == sorted(expected)


@pytest.mark.parametrize(
    "make", [pytest.param(training_batches, marks=pytest.mark.slow), evaluation_batches]
)
def test_batches_are_padded_and_weighted_right(make):
    pairs, _ = corpus(some_lengths(200))
    for inputs, labels, weights in make(pairs, TOKENIZERS, batch_tokens=100):
        lengths = tf.reduce_sum(tf.cast(labels != PAD_ID, tf.int32), axis=1).numpy()
        for row, length in enumerate(lengths):
            assert labels[row, length - 1] == EOS_ID
            assert not labels[row, length:].numpy().any()
            assert inputs["target"][row, 0] == BOS_ID
            expected = labels[row, : length - 1].numpy()
            assert (inputs["target"][row, 1:length].numpy() == expected).all()
            assert not inputs["target"][row, length:].numpy().any()
        assert labels.shape[1] == lengths.max()
        assert (inputs["source"][:, -1] != PAD_ID).numpy().any()
        np.testing.assert_array_equal(weights.numpy() > 0, labels.numpy() != PAD_ID)
        np.testing.assert_allclose(weights.numpy()[labels != PAD_ID], 1 / sum(lengths))


@pytest.mark.parametrize(
    "batch_tokens",
    [64, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 21, 1000))],
)
def test_batches_hold_so_many_tokens(batch_tokens):
    pairs, _ = corpus(some_lengths(150))
    sizes = [
        (max(inputs["source"].shape[1], labels.shape[1]), len(labels))
        for inputs, labels, _ in training_batches(
            pairs, TOKENIZERS, batch_tokens, max_length=20
        )
    ]
    for length, rows in sizes:
        assert rows == 1 or length * rows <= batch_tokens
    full = [length * rows for length, rows in sizes]
    if batch_tokens == 64:  # all but the buckets' last batches are nearly full
        assert np.mean(np.array(full) > 40) > 0.8


def test_rows_of_a_batch_are_of_one_bucket():
    pairs, _ = corpus(some_lengths(150))
    bounds = bucket_lengths(20)
    for inputs, labels, _ in training_batches(pairs, TOKENIZERS, 100, max_length=20):
        longer = np.maximum(
            np.count_nonzero(inputs["source"], axis=1), np.count_nonzero(labels, axis=1)
        )
        assert len(set(np.searchsorted(bounds, longer))) == 1


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
    for inputs, labels, weights in batches:
        assert (np.count_nonzero(inputs["source"] == EOS_ID, axis=1) == 1).all()
        assert (np.count_nonzero(labels == EOS_ID, axis=1) == 1).all()
        assert np.isfinite(weights).all()


@pytest.mark.slow
def test_same_seed_same_epochs_and_every_epoch_differs():
    pairs, _ = corpus(some_lengths(150))

    def epochs(seed):
        batches = training_batches(pairs, TOKENIZERS, 100, max_length=20, seed=seed)
        return [flat(batches) for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert first == again
    assert first[0] != other[0]
    assert first[0] != first[1]


def test_evaluation_is_the_same_every_time():
    pairs, _ = corpus(some_lengths(150))
    batches = evaluation_batches(pairs, TOKENIZERS, 100, max_length=20)
    assert flat(batches) == flat(batches)


@pytest.mark.parametrize("make", [training_batches, evaluation_batches])
def test_no_tuning_thread_holds_up_the_end_of_an_iterator(make):
    pairs, _ = corpus(some_lengths(4))
    assert make(pairs, TOKENIZERS).options().autotune.enabled is False


def test_order_of_training_batches_is_not_by_length():
    pairs, _ = corpus(some_lengths(150))
    lengths = [
        inputs["source"].shape[1]
        for inputs, _, _ in training_batches(pairs, TOKENIZERS, 100, max_length=20)
    ]
    place = np.arange(len(lengths))
    assert abs(np.corrcoef(place, lengths)[0, 1]) < 0.35


@pytest.mark.slow
def test_shuffling_holds_a_bounded_window_and_reads_no_further():
    taken = []

    def endless():
        for index in itertools.count():
            taken.append(index)
            yield {"source": "w1 w2", "target": "w3"}

    spec = tf.TensorSpec([], tf.string)
    pairs = tf.data.Dataset.from_generator(
        endless, output_signature={"source": spec, "target": spec}
    )
    batches = training_batches(pairs, TOKENIZERS, 40, shuffle_pairs=100)
    assert len(list(batches.take(3))) == 3
    assert len(taken) < 50_000


@pytest.mark.slow
def test_odd_bytes_make_finite_batches():
    pairs = dataset([(b"\xff \xfe", b"\0"), (b"w1", b"\xc3"), (b" \t ", b"w1")])
    for make in (training_batches, evaluation_batches):
        for _, _, weights in make(pairs, TOKENIZERS, 100):
            assert np.isfinite(weights).all()
            np.testing.assert_allclose(np.sum(weights), 1, rtol=1e-6)


def test_ended_rows_end_with_eos_and_tell_what_was_cut():
    texts = tf.constant(["w0 w1 w2", "", "w0 w1 w2 w3"])
    rows, cut = ended_rows(TOKENIZERS.source.encode(texts), max_length=3)
    assert rows.to_list() == [[4, 5, 6, EOS_ID], [EOS_ID], [4, 5, 6, EOS_ID]]
    assert list(cut.numpy()) == [False, False, True]
    assert rows.dtype == tf.int32


@pytest.mark.parametrize("max_length", [1, 2, 3, 4, 50, 1000])
def test_bucket_lengths_rise_to_the_longest_row(max_length):
    lengths = bucket_lengths(max_length)
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
    texts = [" ".join(rng.choices(["aba", "abab", "bab"], k=5)) for _ in range(20)]
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=10)
    pairs = dataset([(text, text) for text in texts])

    def epoch(seed):
        batches = training_batches(
            pairs, TokenizerPair(tokenizer), seed=seed, subword_sampling=0.1
        )
        return {
            (text.decode(), tuple(row))
            for inputs, labels, _ in batches
            for ids in (inputs["source"], labels)
            for text, row in zip(
                tokenizer.decode(ids).numpy(), ids.numpy(), strict=True
            )
        }

    first, again, second = epoch(1), epoch(1), epoch(2)
    assert first == again
    assert len(first & second) < len(first) / 2
    for rows in (first, second):
        assert {text for text, _ in rows} == set(texts)  # and yet it is the same text


def test_words_that_are_whole_cannot_be_split():
    pairs, _ = corpus([(3, 3)])
    with pytest.raises(ValueError, match="sentencepiece.*WordTokenizer"):
        training_batches(pairs, TOKENIZERS, subword_sampling=0.1)


def shape_of(inputs, labels):
    return BatchShape(*inputs["source"].shape, labels.shape[1])


def test_a_batch_of_a_fixed_shape_by_hand():
    tokenizers = TokenizerPair(WordTokenizer(["a", "b"]), WordTokenizer(["x"]))
    pairs, shape = dataset([("a b", "x")]), BatchShape(2, 4, 3)
    ((inputs, labels, weights),) = training_batches(pairs, tokenizers, shapes=[shape])
    empty = [EOS_ID, 0, 0, 0]
    np.testing.assert_array_equal(inputs["source"], [[4, 5, EOS_ID, 0], empty])
    np.testing.assert_array_equal(inputs["target"], [[BOS_ID, 4, 0], [BOS_ID, 0, 0]])
    np.testing.assert_array_equal(labels, [[4, EOS_ID, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("together", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_fixed_shapes_hold_every_pair_once(together):
    pairs, expected = corpus(some_lengths(150))
    shapes = [BatchShape(7, 6, 6), BatchShape(5, 12, 18)]  # and one for what is longer
    batches = training_batches(
        pairs, TOKENIZERS, 100, 20, gradient_accumulation_steps=together, shapes=shapes
    )
    batches = list(batches)
    assert {shape_of(*x[:2]) for x in batches} == {*shapes, BatchShape(4, 21, 21)}
    assert sorted(filter(any, sentences(batches))) == sorted(expected)
    assert len(batches) % together == 0
    for i in range(0, len(batches), together):
        group = batches[i : i + together]
        assert sum(np.sum(x[2]) for x in group) == pytest.approx(together)
        for inputs, _, _ in group:
            assert all((ids[:, 0] != PAD_ID).numpy().all() for ids in inputs.values())


@pytest.mark.slow
def test_a_shape_is_filled_without_a_change_of_loss_or_gradients():
    pairs, _ = corpus(some_lengths(12, longest=9))
    size = TOKENIZERS.source.vocab_size
    config = Seq2SeqConfig(size, size, units=4, num_layers=1, dropout=0.0)
    model, loss = Seq2Seq(config), SequenceCrossentropy()

    shapes = [BatchShape(9, 7, 8), BatchShape(8, 10, 12)]
    batches = training_batches(pairs, TOKENIZERS, max_length=11, shapes=shapes)

    @tf.function(input_signature=batches.element_spec)
    def gradients(inputs, labels, weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs, training=True), weights)
        found = tape.gradient(value, model.trainable_weights)
        return [value, *map(tf.convert_to_tensor, found)]

    for batch in batches.as_numpy_iterator():
        inputs, labels, weights = batch
        assert shape_of(inputs, labels) in shapes
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
    tokenizers = TokenizerPair.train(pairs, vocab_size=200)
    counts = count_pairs(pairs, tokenizers, 50)
    traced, shapes = [], []

    class Traced(Seq2Seq):
        def train_step(self, batch):
            inputs, labels, _ = batch
            traced.append(1)
            sizes = tf.concat([tf.shape(inputs["source"]), tf.shape(labels)], 0)
            noted = tf.numpy_function(lambda x: shapes.append(tuple(x)), [sizes], [])
            with tf.control_dependencies([noted]):
                return super().train_step(batch)

    size = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = Traced(Seq2SeqConfig(*size, units=2, num_layers=1))
    model.compile("sgd", SequenceCrossentropy())

    def epoch(fixed):
        traced.clear(), shapes.clear()
        batches = training_batches(pairs, tokenizers, 500, shapes=fixed)
        model.fit(batches, verbose=0)
        assert len(shapes) == counts.batches(500, A_PASS, fixed)
        positions = sum(rows * (s + t) for rows, s, _, t in shapes)
        return len(traced), len(set(shapes)), positions

    _, without, cut = epoch(None)
    traces, compiled, positions = epoch(counts.batch_shapes(500))
    assert without > 16 >= compiled and traces <= 1
    assert positions < 1.1 * cut
