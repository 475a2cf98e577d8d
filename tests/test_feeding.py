"""Feeding back: against plain loops, one call of the cell after the other."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import CELLS, MASK, MEMORY, UNITS, WIDTH, fed, source_of
from finite_differences import check_gradients
from keras import ops
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.compat import autocasting
from keras_luong.layers import recurrence
from keras_luong.layers.feeding import sample_ids

WORDS, STEPS = 7, 4
rng = np.random.default_rng(0)
TARGET = rng.integers(0, WORDS, size=(2, STEPS))
VALUES = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
LEFT = np.arange(STEPS) >= np.array([[0], [2]])
RIGHT = np.arange(STEPS) < np.array([[4], [2]])


@keras.saving.register_keras_serializable(package="tests")
class EchoCell(keras.layers.Layer):
    """A cell of somebody's own: its output is its input."""

    state_size = output_size = WIDTH

    def call(self, inputs, states):
        return inputs, [inputs]


def echo(**options):
    return kl.AttentionWrapper(EchoCell(), None, input_feeding=False, **options)


def cell_of(kind):
    return echo() if kind == "any" else CELLS[kind]()


def embedding(seed=1):
    normal = keras.initializers.RandomNormal(seed=seed)
    return keras.layers.Embedding(WORDS, WIDTH, normal)


def scores(units=WORDS, **options):
    normal = keras.initializers.RandomNormal(stddev=1.5, seed=2)
    return keras.layers.Dense(units, kernel_initializer=normal, **options)


def decoder_of(cell, feeding, units=WORDS, **options):
    layer = scores(units) if isinstance(units, int) else units
    return kl.InputFeedingDecoder(cell, feeding=feeding, output_layer=layer, **options)


def by_hand(decoder, inputs, own, fed, mask):
    """Outputs, and final states, of one call of the cell after the other.

    Where `own` [T, B], a row's input is what `fed(t, outputs)` makes of those before.
    """
    cell, (memory, source_mask) = decoder.cell, source_of(decoder.cell)
    tensors = keras.tree.map_structure(ops.convert_to_tensor, memory)
    prepared = cell.prepare(tensors, source_mask)
    states = cell.initial_states((2, 1), None, prepared)
    outputs, seen, before = [], np.zeros(2, bool), None
    for t in range(inputs.shape[1]):
        x, keep = inputs[:, t], np.ones(2, bool) if mask is None else mask[:, t]
        if before is not None:
            x = np.where((own[t] & seen)[:, None], fed(t, before), x)
        y, new, _ = cell(ops.convert_to_tensor(x[:, None]), states, prepared)
        y = ops.convert_to_numpy(decoder.output_layer(y))[:, 0]
        states = [
            ops.where(keep.reshape(2, *[1] * (len(a.shape) - 1)), a, b)
            for a, b in zip(new, states, strict=True)
        ]
        before = y if before is None else np.where(keep[:, None], y, before)
        outputs.append(np.where(keep[:, None], y, 0))
        seen |= keep
    return np.stack(outputs, 1), *(s[:, 0] for s in states)


def drawn(seed, how, draws):
    """Random numbers [T, B] as a feeding of that seed draws them.

    XLA has other ones for the same seed.
    """
    generator = keras.random.SeedGenerator(seed)

    def draw():
        return [keras.random.uniform((STEPS, 2), seed=generator) for _ in range(draws)]

    return [ops.convert_to_numpy(x) for x in called(draw, how)]


def draw_word(logits, uniforms):
    """By the inverse of the cumulative distribution, in NumPy."""
    share = np.exp(logits.astype("float64"))
    cumulated = np.cumsum(share / share.sum(-1, keepdims=True), -1)
    pairs = zip(cumulated, uniforms, strict=True)
    return np.array([np.searchsorted(c, u, side="right") for c, u in pairs])


def called(function, how):
    """A call: eager, in a graph, or compiled by XLA."""
    if how != "eager":
        function = tf.function(function, jit_compile=how == "xla", autograph=False)
    return function()


def close(found, expected, atol=1e-5):
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=atol)


def same(found, expected):
    for x, y in zip(found, expected, strict=True):
        close(x, ops.convert_to_numpy(y))


@keras.saving.register_keras_serializable(package="tests")
def every_other(outputs, teacher_input, time):
    return ops.where(time % 2 == 1, outputs - teacher_input, teacher_input)


def sampler(name, words, how, mask):
    """One of tfa's: feeding, number of outputs, inputs, `by_hand`'s own and fed."""
    first, second = drawn(3, how, 2)
    targets = ops.convert_to_numpy(words(TARGET))
    always, rate = np.ones((STEPS, 2), bool), first < 0.6
    assert rate.any() and not rate.all()
    time = np.cumsum(np.ones((2, STEPS)) if mask is None else mask, 1)

    def word(logits, uniforms=None):
        ids = logits.argmax(-1) if uniforms is None else draw_word(logits, uniforms)
        return ops.convert_to_numpy(words(ids))

    return {
        "scheduled_embedding_training": (  # a word drawn from the softmax, sometimes
            *(kl.ScheduledEmbedding(0.6, words, seed=3), WORDS, targets, rate),
            lambda t, y: word(y, second[t - 1]),
        ),
        "scheduled_output_training": (  # the output beside auxiliary inputs, sometimes
            *(kl.ScheduledOutput(0.6, seed=3), 2, VALUES, rate),
            lambda t, y: np.concatenate([y, VALUES[:, t, 2:]], -1),
        ),
        "inference": (  # a function of the output before
            kl.FreeRunning(STEPS, function=lambda y: ops.tanh(2 * y)),
            *(WIDTH, VALUES[:, :1], always),
            lambda t, y: np.tanh(2 * y),
        ),
        "inference, auxiliary": (
            *(kl.FreeRunning(STEPS), 1, VALUES, always),
            lambda t, y: np.concatenate([y, VALUES[:, t, 1:]], -1),
        ),
        "greedy_embedding": (
            *(kl.FreeRunning(STEPS, words), WORDS, targets[:, :1], always),
            lambda t, y: word(y),
        ),
        "sample_embedding": (
            kl.FreeRunning(STEPS, words, sample=True, seed=3),
            *(WORDS, targets[:, :1], always),
            lambda t, y: word(y, first[t - 1]),
        ),
        "custom": (
            *(every_other, WIDTH, VALUES, np.roll(time.T % 2 == 1, 1, axis=0)),
            lambda t, y: y - VALUES[:, t],
        ),
    }[name]


KINDS = "lstm", "lstm, not fed", "wrapped", "wrapped, not fed", "any", "several"
XLA = "any", "xla"
#: The fast ones; the slow ones are all of these, and XLA, for each sampler.
CASES = {
    "scheduled_embedding_training": ("several", "graph"),
    "scheduled_output_training": ("any", "eager"),
    "inference": ("wrapped, not fed", "eager"),
    "inference, auxiliary": ("lstm", "eager"),
    "greedy_embedding": ("lstm", "graph"),
    "sample_embedding": ("lstm", "eager"),
    "custom": ("lstm", "eager"),
}


OF_TFA = [
    pytest.param(cell, how, name, marks=[pytest.mark.slow] * (case != (cell, how)))
    for name, case in CASES.items()
    for cell, how in sorted({*CASES.values(), *((x, "graph") for x in KINDS), XLA})
]


@pytest.mark.tensorflow
@pytest.mark.parametrize("cell, how, name", OF_TFA)
def test_tfa(cell, how, name):
    """Each of its samplers: padded on the left, on the right, or not at all."""
    words, mask = embedding(), {"eager": LEFT, "graph": RIGHT, "xla": None}[how]
    feeding, units, inputs, own, fed = sampler(name, words, how, mask)
    mask = None if inputs.shape[1] == 1 else mask
    training = how == "graph" or name.startswith("scheduled")
    decoder = decoder_of(cell_of(cell), feeding, units)
    memory, source_mask = source_of(decoder.cell)
    decoder.build(inputs.shape, keras.tree.map_structure(lambda x: x.shape, memory))

    def run(decoder=decoder, **options):
        options |= {"mask": mask, "training": training}
        return decoder(inputs, memory, source_mask, **options)

    teacher = inputs.repeat(STEPS, 1) if inputs.shape[1] == 1 else inputs
    expected = by_hand(decoder, teacher, own, fed, mask)
    same(called(lambda: run(return_state=True), how), expected)
    if how == "eager":  # and the last word alone, with the same random numbers
        again = sampler(name, words, how, mask)[0]
        layer, options = decoder.output_layer, {"return_sequences": False}
        last = run(decoder_of(decoder.cell, again, layer, **options))
        close(last, expected[0][:, -1])


def test_custom_feeding_runs_on_without_a_teacher():
    def doubled(outputs, teacher_input, time):
        assert len(time.shape) == 2 and time.shape[1] == 1
        return 2 * outputs + teacher_input

    decoder = decoder_of(echo(), kl.CustomFeeding(doubled, 4), keras.layers.Identity())
    found = decoder(VALUES[:, :1], MEMORY)
    close(found, VALUES[:, :1] * 2.0 ** np.arange(4)[:, None])
    unknown = keras.Input((None, WIDTH)), keras.Input((None, UNITS))
    with pytest.raises(ValueError, match="at most 4 steps"):
        decoder(keras.Input((5, WIDTH)), unknown[1])
    decoder(VALUES, MEMORY)
    assert decoder(*unknown).shape == (None, 4, WIDTH)


def test_rate_0_is_teacher_forcing_and_rate_1_free_running():
    cell, layer, words = fed(), scores(), embedding()
    inputs = words(TARGET)

    def outputs(feeding, inputs=inputs, training=True):
        decoder = decoder_of(cell, feeding, layer)
        return decoder(inputs, MEMORY, MASK, training=training)

    forced = outputs(None)
    free = outputs(kl.FreeRunning(STEPS, words), inputs[:, :1], training=False)
    close(outputs(kl.ScheduledEmbedding(0, words)), forced, 1e-6)
    close(outputs(kl.ScheduledEmbedding(1, words, sample=False)), free, 1e-6)
    close(outputs(kl.ScheduledEmbedding(1, words), training=False), forced, 1e-6)
    assert np.abs(forced - free).max() > 1e-3


def test_the_rate_is_the_share_of_own_inputs():
    feeding = kl.ScheduledOutput(0.3, lambda y: -ops.ones_like(y), seed=6)
    decoder = decoder_of(echo(), feeding, None)
    teacher, memory = np.ones((100, 101, WIDTH)), np.ones((100, 2, 2))
    outputs = ops.convert_to_numpy(decoder(teacher, memory, training=True))
    assert (outputs[:, 0] == 1).all()
    own = outputs[:, 1:] == -1
    assert (own | (outputs[:, 1:] == 1)).all()
    # Four standard deviations of 10,000 throws, each for all of an input's columns.
    assert abs(own[..., 0].mean() - 0.3) < 4 * (0.3 * 0.7 / 10_000) ** 0.5
    assert (own == own[..., :1]).all()
    assert own[..., 0].std(0).min() > 0 and own[..., 0].std(1).min() > 0


def test_in_half_precision_the_rate_is_exact():
    feeding = kl.ScheduledOutput(0.9985, dtype="mixed_bfloat16")
    with autocasting(feeding):  # as within a call
        assert 0.99 < ops.mean(feeding.is_own(100, 100)) < 1


def test_words_are_drawn_with_their_probabilities():
    logits = np.array([1.0, -np.inf, 0.0, 2.0, -np.inf], "float32")

    def draw(logits, uniforms):
        given = logits, np.asarray(uniforms, "float32")
        return ops.convert_to_numpy(sample_ids(*map(ops.convert_to_tensor, given)))

    ids = draw(np.tile(logits, (10_000, 1)), (np.arange(10_000) + 0.5) / 10_000)
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(np.bincount(ids, minlength=5) / 1e4, expected, atol=2e-4)
    # None without probability is, by the largest number or the smallest either.
    logits = rng.normal(size=(50, 1000)).astype("float32")
    logits[:, [0, *range(900, 1000)]] = -np.inf
    for uniform in (0.0, 1 - 2**-24, 1.0):  # 1 by rounding
        ids = draw(logits, [uniform] * 50)
        assert (ids >= 1).all() and (ids < 900).all()


def test_free_running_takes_inputs_of_an_unknown_length():
    inputs = keras.Input((None, WIDTH)), keras.Input((None, UNITS))
    decoder = decoder_of(fed(), kl.FreeRunning(4), WIDTH)
    assert decoder(*inputs).shape == (None, 4, WIDTH)


@pytest.mark.parametrize("kind", slow_but(["lstm", "several"], "lstm"))
def test_free_running_goes_on(kind):
    cell, layer = cell_of(kind), scores(WIDTH)
    memory, mask = source_of(cell)

    def run(steps, *args, **options):
        decoder = decoder_of(cell, kl.FreeRunning(steps), layer)
        return decoder(*args, memory, mask, return_state=True, **options)

    whole, *final = run(5, VALUES[:, :1])
    first, *states = run(2, VALUES[:, :1])
    rest, *end = run(3, first[:, -1:], initial_state=states)
    same([np.concatenate([first, rest], 1), *end], [whole, *final])


@pytest.mark.parametrize("mask", [LEFT, RIGHT])
def test_free_running_after_what_is_given(mask):
    """Rows of different lengths, padded on either side, go on from their ends."""
    layer, cell = scores(WIDTH), fed()
    decoder = decoder_of(cell, kl.FreeRunning(6, given=STEPS), layer)
    found = ops.convert_to_numpy(decoder(VALUES, MEMORY, MASK, mask=mask))
    given = VALUES[1:][:, mask[1]]  # the second row alone
    alone = decoder_of(cell, kl.FreeRunning(4, given=2), layer)
    seen = np.concatenate([mask[1], np.ones(2, bool)])
    close(found[1, seen], alone(given, MEMORY[1:], MASK[1:])[0], 1e-6)
    assert found.shape == (2, 6, WIDTH) and not found[1, ~seen].any()


@pytest.mark.tensorflow
def test_gradients_flow_through_values_that_are_fed():
    given = keras.Variable(MEMORY)
    feeding = kl.FreeRunning(STEPS, function=keras.layers.Dense(WIDTH, "tanh"))
    decoder = decoder_of(fed(), feeding, WIDTH)
    decoder(VALUES[:, :1], MEMORY, MASK)

    def loss():
        return ops.sum(ops.sin(3 * decoder(VALUES[:, :1], given, MASK, training=True)))

    variables = [*decoder.trainable_variables, given]
    check_gradients(loss, variables, absolute=2e-2, relative=2e-2)


FAST = slow_but(["wrapped", "any", "several", "lstm"], "wrapped")


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", FAST)
def test_the_fast_loop_has_the_gradients_of_the_plain_one(kind, monkeypatch):
    """Of the embedding and the output layer too, which the loop calls."""
    words = embedding()
    decoder = decoder_of(cell_of(kind), kl.ScheduledEmbedding(0.7, words, seed=7))
    memory, mask = source_of(decoder.cell)
    decoder(words(TARGET), memory, mask)
    variables = decoder.trainable_variables
    assert any(v is words.embeddings for v in variables)

    def gradients():
        decoder.feeding.seed_generator.state.assign([3, 1])
        with tf.GradientTape() as tape:
            logits = decoder(words(TARGET), memory, mask, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(TARGET, logits, True)
            loss = ops.mean(losses)
        found = tape.gradient(loss, [v.value for v in variables])
        return [loss, *map(tf.convert_to_tensor, found)]

    def run():
        return tf.function(gradients, jit_compile=kind == "lstm", autograph=False)()

    fast = run()
    monkeypatch.setattr(recurrence, "_in_graph", lambda: False)
    # XLA has random numbers of its own; else eager code takes that loop.
    plain = run() if kind == "lstm" else gradients()
    same(fast, plain)
    assert all(np.abs(x).max() > 0 for x in plain)


@pytest.mark.parametrize("kind", slow_but(["schedule", "variable"], "schedule"))
def test_a_saved_model_shares_its_embedding(kind, tmp_path):
    """And has the rate that it had; a schedule counts the calls in training."""
    rate = keras.Variable(0.4, trainable=False)
    if kind == "schedule":
        rate = keras.optimizers.schedules.PolynomialDecay(0.1, 40, 0.5)
    words = embedding()
    decoder = decoder_of(fed(), kl.ScheduledEmbedding(rate, words), name="decoder")
    ids, memory = keras.Input((None,), dtype="int32"), keras.Input((None, UNITS))
    model = keras.Model([ids, memory], decoder(words(ids), memory))
    for training in (False, True, True):
        decoder(words(TARGET), MEMORY, training=training)
    if kind == "variable":
        decoder.feeding.rate.assign(0.12)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    given = [TARGET, MEMORY]
    close(again(given), ops.convert_to_numpy(model(given)), 1e-6)
    decoder = again.get_layer("decoder")
    found = [x for x in again.layers if isinstance(x, keras.layers.Embedding)]
    assert found == [decoder.feeding.embedding]
    assert len(again.trainable_weights) == len(model.trainable_weights)
    close(decoder.feeding.rate, 0.12, 1e-6)  # 0.1 + 0.4 * 2 / 40


@keras.saving.register_keras_serializable(package="tests")
def negated(*outputs):
    return -outputs[0]


CONFIGURED = [
    lambda: kl.ScheduledEmbedding(0.4, embedding(), sample=False, seed=1),
    lambda: kl.ScheduledOutput(0.4, negated, seed=1),
    lambda: kl.ScheduledOutput(0.4, keras.layers.Dense(2)),
    lambda: kl.FreeRunning(4, embedding(), sample=True, given=2, seed=2),
    lambda: kl.FreeRunning(4, function=negated),
    lambda: kl.CustomFeeding(negated, 4),
]


@pytest.mark.parametrize("make", CONFIGURED)
def test_configurations_come_back(make):
    feeding = make()
    saved = keras.saving.serialize_keras_object(feeding)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is type(feeding)
    assert keras.saving.serialize_keras_object(again) == saved
    config = decoder_of(fed(), feeding).get_config()
    assert kl.InputFeedingDecoder.from_config(config).get_config() == config


def test_an_output_layer_without_feeding():
    layer, cell = scores(), fed()
    decoder = decoder_of(cell, None, layer)
    expected = layer(kl.InputFeedingDecoder(cell)(VALUES, MEMORY))
    close(decoder(VALUES, MEMORY, return_attention_scores=True)[0], expected, 1e-6)
    shape = 2, STEPS, WIDTH
    assert decoder.compute_output_shape(shape, MEMORY.shape) == (2, STEPS, WORDS)
    last = decoder_of(cell, None, layer, return_sequences=False)
    layer.bias.assign(np.ones(WORDS))
    mask = np.arange(STEPS) < [[1], [0]]
    outputs = ops.convert_to_numpy(decoder(VALUES, MEMORY, mask=mask))
    assert not outputs[1].any() and outputs[0].any()
    close(last(VALUES, MEMORY, mask=mask), outputs[:, 0])


def test_dropout_is_of_own_inputs_too():
    """The same units at every step, as with teacher forcing."""
    cell = echo(dropout=0.5, output_dropout=0.0, seed=1)
    decoder = decoder_of(cell, kl.FreeRunning(4), None)
    inputs, memory = np.ones((8, 1, WIDTH)), np.ones((8, 2, 2))
    outputs = ops.convert_to_numpy(decoder(inputs, memory, training=True))
    kept = outputs[:, :1] > 0
    assert kept.any() and not kept.all()
    close(outputs, kept * 2.0 ** np.arange(1, 5)[:, None])


MISFITS = [
    (lambda: kl.ScheduledOutput(0.5), 4, "4 columns, inputs with 3"),
    (lambda: kl.FreeRunning(4, embedding()), 9, "9 outputs.*input_dim=7"),
    (lambda: kl.FreeRunning(6), WIDTH, "1 or 6 with.*given=1.*2, 4, 3"),
    (lambda: kl.FreeRunning(6), 2, "inputs must be 6 .*auxiliary.*2, 4, 3"),
    (lambda: lambda outputs, *_: None, WIDTH, "feeds must be a tensor.*None"),
    (lambda: lambda outputs, *_: outputs[0], WIDTH, "feeds must be a tensor"),
]


@pytest.mark.parametrize("make, units, message", MISFITS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_does_not_fit_is_refused_at_once(make, units, message, symbolic):
    decoder, inputs = decoder_of(fed(), make(), units), [VALUES, MEMORY]
    if symbolic:
        inputs = [keras.Input(batch_shape=x.shape) for x in inputs]
    error = TypeError if "tensor" in message else ValueError
    with pytest.raises(error, match=message):
        decoder(*inputs)
