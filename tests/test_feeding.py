"""Feeding back: against plain loops, one call of the cell after the other."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from finite_differences import check_gradients
from keras import ops
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.layers import recurrence
from keras_luong.layers.feeding import sample_ids

UNITS, WIDTH, WORDS, STEPS, POSITIONS = 4, 3, 7, 5, 6
rng = np.random.default_rng(0)
TARGET = rng.integers(0, WORDS, size=(2, STEPS))
VALUES = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, POSITIONS, UNITS)).astype("float32")
SOURCES = [MEMORY, rng.normal(size=(2, 4, 2)).astype("float32")]
MASK = np.arange(POSITIONS) < np.array([[6], [3]])
MASKS = [MASK, np.ones((2, 4), bool)]
LEFT = np.arange(STEPS) >= np.array([[0], [2]])
RIGHT = np.arange(STEPS) < np.array([[5], [3]])


@keras.saving.register_keras_serializable(package="tests")
class EchoCell(keras.layers.Layer):
    """A cell of somebody's own: its output is its input."""

    state_size = output_size = WIDTH

    def call(self, inputs, states):
        return inputs, [inputs]


def luong(**options):
    return kl.InputFeedingDecoderCell(UNITS, kl.LuongAttention("general"), **options)


def echo():
    return kl.AttentionWrapper(EchoCell(), None, input_feeding=False)


def several():
    attentions = [kl.LuongAttention("general"), kl.MonotonicAttention("general")]
    return kl.InputFeedingDecoderCell(UNITS, kl.MultiSourceAttention(attentions))


CELLS = {
    "luong": luong,
    "attends_after_loop": lambda: luong(input_feeding=False, num_layers=2),
    "local_gru": lambda: kl.InputFeedingDecoderCell(
        UNITS, kl.LocalAttention(1), cell_type="gru"
    ),
    "wrapped": lambda: kl.AttentionWrapper(
        keras.layers.LSTMCell(UNITS), kl.LuongAttention()
    ),
    "wrapped_not_fed": lambda: kl.AttentionWrapper(
        [keras.layers.GRUCell(UNITS), keras.layers.GRUCell(UNITS)],
        kl.LuongAttention(),
        input_feeding=False,
    ),
    "any_cell": echo,
    "several": several,
}
CASES = [f"{kind}-{how}" for kind in CELLS for how in ("eager", "graph", "xla")]
TRACED = [case for case in CASES if "eager" not in case]


def source_of(cell):
    several = isinstance(cell.attention, kl.MultiSourceAttention)
    return (SOURCES, MASKS) if several else (MEMORY, MASK)


def embedding(seed=1):
    return keras.layers.Embedding(
        WORDS, WIDTH, keras.initializers.RandomNormal(seed=seed)
    )


def scores(units=WORDS):
    normal = keras.initializers.RandomNormal(stddev=1.5, seed=2)
    return keras.layers.Dense(units, kernel_initializer=normal)


def by_hand(decoder, inputs, choose, mask=None):
    """Outputs, and final states, of one call of the cell after the other.

    `choose(t, outputs)` says where [B] the next input is an own one, and which [B, E].
    """
    cell, (memory, source_mask) = decoder.cell, source_of(decoder.cell)
    prepared = cell.prepare(
        keras.tree.map_structure(ops.convert_to_tensor, memory), source_mask
    )
    states = cell.initial_states((2, 1), None, prepared)
    outputs, seen, before = [], np.zeros(2, bool), None
    for t in range(inputs.shape[1]):
        x, keep = inputs[:, t], np.ones(2, bool) if mask is None else mask[:, t]
        if before is not None:
            own, fed = choose(t, before)
            x = np.where((own & seen)[:, None], fed, x)
        y, new, _ = cell(ops.convert_to_tensor(x[:, None]), states, prepared)
        y = y if decoder.output_layer is None else decoder.output_layer(y)
        y = ops.convert_to_numpy(y)[:, 0]
        states = [
            ops.where(keep.reshape(2, *[1] * (len(a.shape) - 1)), a, b)
            for a, b in zip(new, states, strict=True)
        ]
        before = y if before is None else np.where(keep[:, None], y, before)
        outputs.append(np.where(keep[:, None], y, 0))
        seen |= keep
    return np.stack(outputs, 1), [s[:, 0] for s in states]


def drawn(seed, how="eager", draws=2):
    """Random numbers [T, B] as a feeding of that seed draws them.

    XLA has other ones for the same seed.
    """
    generator = keras.random.SeedGenerator(seed)

    def draw():
        return [keras.random.uniform((STEPS, 2), seed=generator) for _ in range(draws)]

    if how != "eager":
        draw = tf.function(draw, jit_compile=how == "xla", autograph=False)
    return [ops.convert_to_numpy(x) for x in draw()]


def draw_word(logits, uniforms):
    """By the inverse of the cumulative distribution, in NumPy."""
    share = np.exp(logits.astype("float64"))
    cumulated = np.cumsum(share / share.sum(-1, keepdims=True), -1)
    pairs = zip(cumulated, uniforms, strict=True)
    return np.array([np.searchsorted(c, u, side="right") for c, u in pairs])


def called(decoder, how, *args, **options):
    """A call: eager, in a graph, or compiled by XLA."""
    if how == "eager":
        return decoder(*args, **options)
    run = tf.function(
        lambda: decoder(*args, **options), jit_compile=how == "xla", autograph=False
    )
    return run()


def close(found, expected, atol=1e-5):
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, atol=atol)


def same(found, expected):
    for x, y in zip(found, expected, strict=True):
        close(x, ops.convert_to_numpy(y))


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", slow_but(CASES, "luong-eager", "several-graph"))
def test_tfa_scheduled_embedding_training_sampler(case):
    """With the rate, the embedding of a word drawn from the softmax is the input."""
    kind, how = case.split("-")
    words = embedding()
    decoder = kl.InputFeedingDecoder(
        CELLS[kind](),
        feeding=kl.ScheduledEmbedding(0.6, words, seed=3),
        output_layer=scores(),
    )
    inputs = ops.convert_to_numpy(words(TARGET))
    memory, mask = source_of(decoder.cell)
    decoder(inputs, memory, mask)  # makes the weights; draws nothing
    own, uniforms = drawn(3, how)
    own = own < 0.6
    assert own.any() and not own.all()

    def choose(t, logits):
        ids = draw_word(logits, uniforms[t - 1])
        return own[t], ops.convert_to_numpy(words(ids))

    expected, states = by_hand(decoder, inputs, choose)
    found = called(decoder, how, inputs, memory, mask, training=True, return_state=True)
    same(found, [expected, *states])
    forced = kl.InputFeedingDecoder(decoder.cell, output_layer=decoder.output_layer)
    close(decoder(inputs, memory, mask), forced(inputs, memory, mask))
    assert np.abs(expected - forced(inputs, memory, mask)).max() > 1e-3


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", slow_but(CASES, "luong-graph", "any_cell-xla"))
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(None, marks=pytest.mark.slow),
        LEFT,
        pytest.param(RIGHT, marks=pytest.mark.slow),
    ],
    ids=["all", "left", "right"],
)
def test_tfa_scheduled_output_training_sampler(words, case):
    """With the rate, the output is the input, beside auxiliary ones."""
    kind, how = case.split("-")
    decoder = kl.InputFeedingDecoder(
        CELLS[kind](), feeding=kl.ScheduledOutput(0.6, seed=4), output_layer=scores(2)
    )
    memory, mask = source_of(decoder.cell)
    decoder(VALUES, memory, mask)
    own = drawn(4, how, 1)[0] < 0.6

    def choose(t, outputs):
        return own[t], np.concatenate([outputs, VALUES[:, t, 2:]], -1)

    expected, states = by_hand(decoder, VALUES, choose, words)
    found = called(
        decoder,
        how,
        VALUES,
        memory,
        mask,
        mask=words,
        training=True,
        return_state=True,
    )
    same(found, [expected, *states])
    last = kl.InputFeedingDecoder(
        decoder.cell,
        return_sequences=False,
        feeding=kl.ScheduledOutput(0.6, seed=4),
        output_layer=decoder.output_layer,
    )
    at = -1 if words is None else [4, 4 if words is LEFT else 2]
    found = called(last, how, VALUES, memory, mask, mask=words, training=True)
    close(found, expected[[0, 1], at])


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", slow_but(CASES, "wrapped_not_fed-eager"))
def test_tfa_inference_sampler(case):
    """A number of steps, each of which reads a function of the output before."""
    kind, how = case.split("-")
    decoder = kl.InputFeedingDecoder(
        CELLS[kind](),
        feeding=kl.FreeRunning(STEPS, function=lambda y: ops.tanh(2 * y)),
        output_layer=scores(WIDTH),
    )
    memory, mask = source_of(decoder.cell)
    start = VALUES[:, :1]
    decoder(start, memory, mask)
    always = np.ones(2, bool)
    expected, states = by_hand(
        decoder, VALUES, lambda t, outputs: (always, np.tanh(2 * outputs))
    )
    found = called(decoder, how, start, memory, mask, return_state=True)
    same(found, [expected, *states])


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "how, training",
    [
        pytest.param("eager", False, marks=pytest.mark.slow),
        ("graph", True),
        pytest.param("xla", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sample"])
def test_tfa_greedy_and_sample_embedding_samplers(sample, how, training):
    words = embedding()
    decoder = kl.InputFeedingDecoder(
        luong(),
        feeding=kl.FreeRunning(STEPS, words, sample=sample, seed=5),
        output_layer=scores(),
    )
    start = ops.convert_to_numpy(words(TARGET[:, :1]))
    inputs = np.repeat(start, STEPS, 1)
    decoder.build(start.shape, MEMORY.shape)
    (uniforms,) = drawn(5, how, 1)

    def choose(t, logits):
        ids = draw_word(logits, uniforms[t - 1]) if sample else logits.argmax(-1)
        return np.ones(2, bool), ops.convert_to_numpy(words(ids))

    expected, _ = by_hand(decoder, inputs, choose)
    close(called(decoder, how, start, MEMORY, MASK, training=training), expected)


def every_other(outputs, teacher_input, time):
    return ops.where(time % 2 == 1, outputs - teacher_input, teacher_input)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "how, training",
    [
        ("eager", False),
        pytest.param("graph", True, marks=pytest.mark.slow),
        pytest.param("xla", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("words", [None, LEFT], ids=["all", "left"])
def test_tfa_custom_sampler(words, how, training):
    decoder = kl.InputFeedingDecoder(
        luong(), feeding=every_other, output_layer=scores(WIDTH)
    )
    decoder.build(VALUES.shape, MEMORY.shape)
    time = np.cumsum(np.ones((2, STEPS)) if words is None else words, 1)

    def choose(t, outputs):
        odd = time[:, t - 1] % 2 == 1
        return odd, outputs - VALUES[:, t]

    expected, _ = by_hand(decoder, VALUES, choose, words)
    found = called(decoder, how, VALUES, MEMORY, MASK, mask=words, training=training)
    close(found, expected)


def test_custom_feeding_runs_on_without_a_teacher():
    def doubled(outputs, teacher_input, time):
        assert len(time.shape) == 2 and time.shape[1] == 1
        return 2 * outputs + teacher_input

    decoder = kl.InputFeedingDecoder(echo(), feeding=kl.CustomFeeding(doubled, 4))
    found = decoder(VALUES[:, :1], MEMORY)
    close(found, VALUES[:, :1] * 2.0 ** np.arange(4)[:, None])
    with pytest.raises(ValueError, match="at most 4 steps"):
        decoder(VALUES, MEMORY)


@pytest.mark.parametrize("training", [False, True])
def test_rate_0_is_teacher_forcing_and_rate_1_free_running(training):
    layer, words = scores(), embedding()
    cell = luong()
    inputs = words(TARGET)

    def outputs(feeding, inputs=inputs, training=True):
        decoder = kl.InputFeedingDecoder(cell, feeding=feeding, output_layer=layer)
        return decoder(inputs, MEMORY, MASK, training=training)

    forced = outputs(None)
    free = outputs(kl.FreeRunning(STEPS, words), inputs[:, :1], training=training)
    close(outputs(kl.ScheduledEmbedding(0, words)), forced, 1e-6)
    close(outputs(kl.ScheduledEmbedding(1, words, sample=False)), free, 1e-6)
    assert np.abs(forced - free).max() > 1e-3


def test_the_rate_is_the_share_of_own_inputs():
    decoder = kl.InputFeedingDecoder(
        echo(), feeding=kl.ScheduledOutput(0.3, lambda y: -ops.ones_like(y), seed=6)
    )
    teacher, memory = np.ones((100, 101, WIDTH)), np.ones((100, 2, 2))
    outputs = ops.convert_to_numpy(decoder(teacher, memory, training=True))
    assert (outputs[:, 0] == 1).all()
    own = outputs[:, 1:] == -1
    assert (own | (outputs[:, 1:] == 1)).all()
    # Four standard deviations of 10,000 throws, each for all of an input's columns.
    assert abs(own[..., 0].mean() - 0.3) < 4 * (0.3 * 0.7 / 10_000) ** 0.5
    assert (own == own[..., :1]).all()
    assert own[..., 0].std(0).min() > 0 and own[..., 0].std(1).min() > 0
    forced = decoder(teacher, memory)
    assert (ops.convert_to_numpy(forced) == 1).all()


def test_words_are_drawn_with_their_probabilities():
    logits = np.array([1.0, -np.inf, 0.0, 2.0, -np.inf], "float32")
    uniforms = (np.arange(10_000) + 0.5) / 10_000
    ids = sample_ids(
        ops.convert_to_tensor(np.tile(logits, (10_000, 1))),
        ops.convert_to_tensor(uniforms.astype("float32")),
    )
    share = np.bincount(ops.convert_to_numpy(ids), minlength=5) / 10_000
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(share, expected, atol=2e-4)
    assert share[1] == share[4] == 0


def test_no_word_without_probability_is_drawn_by_the_largest_number():
    logits = rng.normal(size=(50, 1000)).astype("float32")
    logits[:, 900:] = -np.inf
    logits[:, 0] = -np.inf
    for uniform in (0.0, 1 - 2**-24):
        numbers = ops.convert_to_tensor(np.full(50, uniform, "float32"))
        ids = ops.convert_to_numpy(sample_ids(ops.convert_to_tensor(logits), numbers))
        assert (ids >= 1).all() and (ids < 900).all()


@pytest.mark.parametrize("kind", ["luong", "several"])
def test_free_running_goes_on(kind):
    cell, layer = CELLS[kind](), scores(WIDTH)
    memory, mask = source_of(cell)

    def run(steps, *args, **options):
        feeding = kl.FreeRunning(steps)
        decoder = kl.InputFeedingDecoder(cell, feeding=feeding, output_layer=layer)
        return decoder(*args, return_state=True, **options)

    whole, *final = run(7, VALUES[:, :1], memory, mask)
    first, *states = run(3, VALUES[:, :1], memory, mask)
    rest, *end = run(4, first[:, -1:], memory, mask, initial_state=states)
    close(np.concatenate([first, rest], 1), whole, 1e-6)
    same(end, final)


def test_free_running_after_what_is_given():
    """Rows of different lengths, padded on either side, go on from their ends."""
    layer, cell = scores(WIDTH), luong()
    free = kl.FreeRunning(8, given=STEPS)
    decoder = kl.InputFeedingDecoder(cell, feeding=free, output_layer=layer)
    assert decoder(VALUES, MEMORY, MASK).shape == (2, 8, WIDTH)
    for mask in (LEFT, RIGHT):
        found = ops.convert_to_numpy(decoder(VALUES, MEMORY, MASK, mask=mask))
        given = VALUES[1:][:, mask[1]]  # the second row alone
        alone = kl.InputFeedingDecoder(
            cell, feeding=kl.FreeRunning(6, given=3), output_layer=layer
        )
        expected = alone(given, MEMORY[1:], MASK[1:])
        seen = np.concatenate([mask[1], np.ones(3, bool)])
        close(found[1, seen], expected[0], 1e-6)
        assert not found[1, ~seen].any()


def test_free_running_with_auxiliary_inputs():
    decoder = kl.InputFeedingDecoder(
        luong(), feeding=kl.FreeRunning(STEPS), output_layer=scores(1)
    )
    decoder.build(VALUES.shape, MEMORY.shape)
    always = np.ones(2, bool)

    def choose(t, outputs):
        return always, np.concatenate([outputs, VALUES[:, t, 1:]], -1)

    expected, _ = by_hand(decoder, VALUES, choose)
    close(decoder(VALUES, MEMORY, MASK), expected)
    with pytest.raises(ValueError, match="length of inputs must be 5 .*auxiliary"):
        decoder(VALUES[:, :1], MEMORY, MASK)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", slow_but(list(CELLS), "luong"))
@pytest.mark.parametrize("which", slow_but(["scheduled", "free", "custom"], "custom"))
def test_gradients_flow_through_values_that_are_fed(which, kind):
    start = VALUES[:, :1] if which == "free" else VALUES
    given = keras.Variable(MEMORY)
    feeding = {
        "scheduled": lambda: kl.ScheduledOutput(0.5, ops.sin),
        "free": lambda: kl.FreeRunning(
            STEPS, function=keras.layers.Dense(WIDTH, "tanh")
        ),
        "custom": lambda: every_other,
    }[which]()
    decoder = kl.InputFeedingDecoder(
        CELLS[kind](), feeding=feeding, output_layer=scores(WIDTH)
    )
    memory, mask = source_of(decoder.cell)
    decoder(start, memory, mask)

    def loss():
        if which == "scheduled":  # the same numbers each time
            state = decoder.feeding.seed_generator.state
            state.assign(ops.convert_to_tensor([1, 2], state.dtype))
        source = [given, memory[1]] if isinstance(memory, list) else given
        y = decoder(start, source, mask, training=True)
        return ops.sum(ops.sin(3 * y))

    variables = [v for v in decoder.trainable_variables if v.shape]
    check_gradients(loss, [*variables, given], absolute=2e-2, relative=2e-2)


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", slow_but(TRACED, "wrapped-graph"))
def test_the_fast_loop_has_the_gradients_of_the_plain_one(case, monkeypatch):
    """Of the embedding and the output layer too, which the loop calls."""
    kind, how = case.split("-")
    words = embedding()
    decoder = kl.InputFeedingDecoder(
        CELLS[kind](),
        feeding=kl.ScheduledEmbedding(0.7, words, seed=7),
        output_layer=scores(),
    )
    memory, mask = source_of(decoder.cell)
    decoder(words(TARGET), memory, mask)
    variables = decoder.trainable_variables
    assert any(v is words.embeddings for v in variables)

    def gradients():
        decoder.feeding.seed_generator.state.assign([3, 1])
        with tf.GradientTape() as tape:
            logits = decoder(words(TARGET), memory, mask, training=True)
            loss = ops.mean(
                keras.losses.sparse_categorical_crossentropy(TARGET, logits, True)
            )
        found = tape.gradient(loss, [v.value for v in variables])
        return loss, [tf.convert_to_tensor(x) for x in found]

    def run():
        return tf.function(gradients, jit_compile=how == "xla", autograph=False)()

    fast_loss, fast = run()
    monkeypatch.setattr(recurrence, "_in_graph", lambda: False)
    loss, plain = run()
    close(fast_loss, loss)
    same(fast, plain)
    assert all(np.abs(x).max() > 0 for x in plain)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_gradient_penalty_of_what_is_fed():
    decoder = kl.InputFeedingDecoder(
        luong(), feeding=kl.FreeRunning(3), output_layer=scores(WIDTH)
    )
    start = tf.Variable(VALUES[:, :1])
    decoder(start, MEMORY)
    weight = decoder.output_layer.kernel

    def penalty():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = ops.sum(decoder(start, MEMORY, training=True) ** 2)
            slope = inner.gradient(loss, start)
            value = ops.sum(slope**2)
        return value, outer.gradient(value, weight.value)

    expected, found = penalty(), tf.function(penalty, autograph=False)()
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4)


class Rates(keras.callbacks.Callback):
    """Changes the rate in training, as a user's callback does."""

    def __init__(self, feeding):
        self.feeding = feeding

    def on_epoch_begin(self, epoch, logs=None):
        self.feeding.rate.assign(min(1.0, epoch / 10))


def copier(feeding, words):
    """Says the source's words again."""
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    cell = kl.InputFeedingDecoderCell(16, kl.LuongAttention())
    decoder = kl.InputFeedingDecoder(
        cell, feeding=feeding, output_layer=keras.layers.Dense(WORDS), name="decoder"
    )
    memory = keras.layers.Embedding(WORDS, 16)(source)
    return keras.Model([source, target], decoder(words(target), memory))


FITS = [
    f"{kind}-{how}"
    for kind in ("schedule", "function", "variable")
    for how in ("graph", "xla")
]


def schedule(step):
    return ops.minimum(ops.cast(step, "float32") / 100, 0.5)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("case", FITS)
def test_fit_lowers_the_loss(case):
    kind, how = case.split("-")
    keras.utils.set_random_seed(1)
    words = keras.layers.Embedding(WORDS, 8)
    rate = {
        "schedule": keras.optimizers.schedules.PolynomialDecay(0.0, 40, 0.5),
        "function": schedule,
        "variable": 0.0,
    }[kind]
    feeding = kl.ScheduledEmbedding(rate, words, seed=1)
    model = copier(feeding, words)
    source = rng.integers(1, WORDS, size=(64, 4))
    target = np.pad(source, ((0, 0), (1, 0)))[:, :-1]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=how == "xla")
    callbacks = [Rates(feeding)] if kind == "variable" else []
    history = model.fit(
        [source, target],
        source,
        batch_size=32,
        epochs=15,
        verbose=0,
        callbacks=callbacks,
        validation_data=([source, target], source),
    ).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    expected = {"schedule": 30 / 80, "function": 0.3, "variable": 1.0}[kind]
    np.testing.assert_allclose(float(feeding.rate), expected, rtol=1e-5)


FEEDINGS = {
    "scheduled": lambda words: kl.ScheduledEmbedding(0.4, words, seed=1),
    "schedule": lambda words: kl.ScheduledEmbedding(
        keras.optimizers.schedules.PolynomialDecay(0.1, 40, 0.5), words
    ),
    "variable": lambda words: kl.ScheduledEmbedding(
        keras.Variable(0.4, trainable=False), words
    ),
    "free": lambda words: kl.FreeRunning(4, words),
}


@pytest.mark.parametrize("kind", slow_but(FEEDINGS, "scheduled", "schedule"))
def test_a_saved_model_shares_its_embedding(kind, tmp_path):
    words = keras.layers.Embedding(WORDS, 8)
    feeding = FEEDINGS[kind](words)
    model = copier(feeding, words)
    source = rng.integers(1, WORDS, size=(2, 4))
    inputs = [source, source[:, :1] if kind == "free" else source]
    if kind != "free":
        model.get_layer("decoder")(words(source), np.zeros((2, 3, 16)), training=True)
        if kind != "schedule":
            feeding.rate.assign(0.7)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    close(again(inputs), ops.convert_to_numpy(model(inputs)), 1e-6)
    decoder = again.get_layer("decoder")
    found = [x for x in again.layers if isinstance(x, keras.layers.Embedding)]
    assert any(x is decoder.feeding.embedding for x in found)
    assert len(again.trainable_weights) == len(model.trainable_weights)
    if kind != "free":
        close(decoder.feeding.rate, ops.convert_to_numpy(feeding.rate))


@keras.saving.register_keras_serializable(package="tests")
def negated(*outputs):
    return -outputs[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: kl.ScheduledEmbedding(0.4, embedding(), sample=False, seed=1),
        lambda: kl.ScheduledOutput(0.4, negated, seed=1),
        lambda: kl.ScheduledOutput(0.4, keras.layers.Dense(2)),
        lambda: kl.FreeRunning(4, embedding(), sample=True, given=2, seed=2),
        lambda: kl.FreeRunning(4, function=negated),
        lambda: kl.CustomFeeding(negated, 4),
    ],
)
def test_configurations_come_back(make):
    feeding = make()
    saved = keras.saving.serialize_keras_object(feeding)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is type(feeding)
    assert keras.saving.serialize_keras_object(again) == saved
    decoder = kl.InputFeedingDecoder(luong(), feeding=feeding, output_layer=scores())
    config = decoder.get_config()
    assert kl.InputFeedingDecoder.from_config(config).get_config() == config


def test_one_variable_for_two_decoders():
    rate = keras.Variable(1.0, trainable=False)
    decoders = [
        kl.InputFeedingDecoder(echo(), feeding=kl.ScheduledOutput(rate, negated))
        for _ in range(2)
    ]
    for value in (1.0, 0.0):
        rate.assign(value)
        signs = (1 - 2 * value) ** np.arange(STEPS)[:, None]
        for decoder in decoders:
            found = decoder(VALUES[:, :1].repeat(STEPS, 1), MEMORY, training=True)
            close(found, VALUES[:, :1] * signs)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "policy, layer_dtype",
    [
        pytest.param("mixed_float16", None, marks=pytest.mark.slow),
        ("mixed_bfloat16", "float32"),
        pytest.param("mixed_float16", "float32", marks=pytest.mark.slow),
        pytest.param("float64", None, marks=pytest.mark.slow),
    ],
)
def test_other_precisions(policy, layer_dtype):
    words = embedding()
    expected = build_precise(words, None, None)
    exact = expected(words(TARGET), MEMORY, MASK, training=True)
    keras.config.set_dtype_policy(policy)
    theirs = embedding()
    decoder = build_precise(theirs, policy, layer_dtype)
    decoder(theirs(TARGET), MEMORY, MASK)
    decoder.set_weights(expected.get_weights())

    @tf.function(autograph=False)
    def run():
        with tf.GradientTape() as tape:
            logits = decoder(theirs(TARGET), MEMORY, MASK, training=True)
            loss = ops.sum(ops.cast(logits, "float32") ** 2)
        return logits, tape.gradient(loss, decoder.trainable_variables)

    logits, gradients = run()
    wanted = layer_dtype or keras.config.dtype_policy().compute_dtype
    assert keras.backend.standardize_dtype(logits.dtype) == wanted
    atol = {"mixed_bfloat16": 0.1, "mixed_float16": 0.02, "float64": 1e-5}[policy]
    close(ops.cast(logits, "float32"), ops.convert_to_numpy(exact), atol)
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


def build_precise(words, policy, layer_dtype):
    layer = keras.layers.Dense(
        WORDS,
        kernel_initializer=keras.initializers.RandomNormal(seed=2),
        dtype=layer_dtype,
    )
    return kl.InputFeedingDecoder(
        luong(),
        feeding=kl.ScheduledEmbedding(0.5, words, sample=False, seed=9),
        output_layer=layer,
    )


def test_an_output_layer_without_feeding():
    layer, cell = scores(), luong()
    h_tilde = kl.InputFeedingDecoder(cell)
    decoder = kl.InputFeedingDecoder(cell, output_layer=layer)
    close(decoder(VALUES, MEMORY), layer(h_tilde(VALUES, MEMORY)), 1e-6)
    assert decoder.compute_output_shape((2, 5, WIDTH), MEMORY.shape) == (2, 5, WORDS)
    last = kl.InputFeedingDecoder(cell, return_sequences=False, output_layer=layer)
    layer.bias.assign(np.ones(WORDS))
    mask = RIGHT & [[True], [False]]
    outputs = ops.convert_to_numpy(decoder(VALUES, MEMORY, mask=mask))
    assert not outputs[1].any() and outputs[0].any()
    close(last(VALUES, MEMORY, mask=mask), outputs[:, -1])


def test_dropout_is_of_own_inputs_too():
    """The same units at every step, as with teacher forcing."""
    cell = kl.AttentionWrapper(
        EchoCell(), None, input_feeding=False, dropout=0.5, output_dropout=0.0, seed=1
    )
    decoder = kl.InputFeedingDecoder(cell, feeding=kl.FreeRunning(4))
    inputs, memory = np.ones((8, 1, WIDTH)), np.ones((8, 2, 2))
    outputs = ops.convert_to_numpy(decoder(inputs, memory, training=True))
    kept = outputs[:, :1] > 0
    assert kept.any() and not kept.all()
    close(outputs, kept * 2.0 ** np.arange(1, 5)[:, None])


@pytest.mark.parametrize("weights", [False, True])
def test_shapes_before_running(weights):
    decoder = kl.InputFeedingDecoder(
        luong(), feeding=kl.FreeRunning(6, embedding()), output_layer=scores()
    )
    inputs, memory = keras.Input((1, WIDTH)), keras.Input((None, UNITS))
    results = decoder(
        inputs, memory, return_attention_scores=weights, return_state=True
    )
    assert results[0].shape == (None, 6, WORDS)
    model = keras.Model([inputs, memory], results)
    for x, like in zip(model([VALUES[:, :1], MEMORY]), results, strict=True):
        shape = [2 if i == 0 else n or POSITIONS for i, n in enumerate(like.shape)]
        assert tuple(x.shape) == tuple(shape)
    if weights:
        assert results[1].shape == (None, 6, None)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: kl.ScheduledOutput(1.5), ValueError, r"\[0, 1\]. Received: 1.5"),
        (lambda: kl.ScheduledOutput("half"), TypeError, "rate must be.*'half'"),
        (lambda: kl.ScheduledOutput(keras.Variable(0.5)), ValueError, "trainable=Fal"),
        (lambda: kl.ScheduledEmbedding(0.5, None), TypeError, "embedding must be"),
        (lambda: kl.ScheduledEmbedding(0.5, len), TypeError, "embedding must be.*len"),
        (lambda: kl.FreeRunning(0), ValueError, "steps must be at least 1"),
        (lambda: kl.FreeRunning(2, given=3), ValueError, "given must be at most 2"),
        (lambda: kl.FreeRunning(2, sample=True), ValueError, "needs an embedding"),
        (lambda: kl.FreeRunning(2, embedding(), function=len), ValueError, "both"),
        (lambda: kl.CustomFeeding(3), TypeError, "function must be callable.*3"),
        (
            lambda: kl.InputFeedingDecoder(luong(), feeding="free"),
            TypeError,
            "feeding must be None.*'free'",
        ),
        (
            lambda: kl.InputFeedingDecoder(luong(), feeding=kl.FreeRunning),
            TypeError,
            "feeding must be None.*class",
        ),
        (
            lambda: kl.InputFeedingDecoder(luong(), output_layer=7),
            TypeError,
            "output_layer must be a layer.*7",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "feeding, units, message",
    [
        (lambda: kl.ScheduledOutput(0.5), 4, "4 columns, inputs with 3"),
        (lambda: kl.FreeRunning(5, embedding()), 9, "9 outputs.*input_dim=7"),
        (lambda: kl.FreeRunning(6), WIDTH, "1 or 6 with.*given=1.*2, 5, 3"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_what_does_not_fit_is_refused_at_once(feeding, units, message, symbolic):
    decoder = kl.InputFeedingDecoder(
        luong(), feeding=feeding(), output_layer=scores(units)
    )
    inputs = [VALUES, MEMORY]
    if symbolic:
        inputs = [keras.Input(batch_shape=x.shape) for x in inputs]
    with pytest.raises(ValueError, match=message):
        decoder(*inputs)


@pytest.mark.parametrize("fed", [lambda x: None, lambda x: (x, x), lambda x: x[0]])
def test_a_function_that_feeds_no_tensor_is_named(fed):
    feeding = kl.CustomFeeding(lambda outputs, teacher, time: fed(outputs))
    decoder = kl.InputFeedingDecoder(luong(), feeding=feeding)
    with pytest.raises(TypeError, match="CustomFeeding feeds must be a tensor.*Rec"):
        decoder(VALUES, MEMORY)
