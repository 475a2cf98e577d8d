import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import InputFeedingDecoderCell, LuongAttention


def sources(batch=2, positions=5, units=6):
    rng = np.random.default_rng(0)
    memory = rng.normal(size=(batch, positions, units)).astype("float32")
    mask = np.arange(positions) < np.array([[positions], [2]])
    return memory, mask


def built(cell, inputs=4, memory_units=6):
    cell.build((None, None, inputs), (None, None, memory_units))
    return cell


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_a_step_is_the_papers():
    """One LSTM layer, general score, input feeding; Eq. 5, 7 and 8 in NumPy."""
    cell = built(InputFeedingDecoderCell(3, LuongAttention("general")))
    rng = np.random.default_rng(1)
    for weight in cell.weights:
        if "seed" not in weight.path:
            weight.assign(rng.normal(size=weight.shape))
    memory, mask = sources()
    x = rng.normal(size=(2, 1, 4)).astype("float32")
    h, c, fed = (rng.normal(size=(2, 1, 3)).astype("float32") for _ in range(3))
    prepared = cell.prepare(ops.array(memory), mask)
    states = cell.initial_states((2, 1), [h, c])
    states[2] = ops.array(fed)
    h_tilde, new, weights = cell(x, states, prepared)

    lstm = cell.recurrent.layers[0].cell
    z = (
        x @ lstm.kernel.numpy()
        + fed @ cell.feeding_kernel.numpy()
        + h @ lstm.recurrent_kernel.numpy()
        + lstm.bias.numpy()
    )
    i, f, g, o = np.split(z, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    scores = h @ cell.attention.score.kernel.numpy() @ memory.transpose(0, 2, 1)
    e = np.where(mask[:, None], np.exp(scores), 0)
    a = e / e.sum(-1, keepdims=True)
    wanted = np.tanh(
        np.concatenate([a @ memory, h], -1) @ cell.attentional_vector.kernel.numpy()
    )
    np.testing.assert_allclose(weights, a, atol=1e-5)
    np.testing.assert_allclose(h_tilde, wanted, atol=1e-5)
    for state, expected in zip(new, [h, c, wanted, np.ones((2, 1, 1))], strict=True):
        np.testing.assert_allclose(state, expected, atol=1e-5)


def test_residual_adds_each_layers_input():
    cell = built(InputFeedingDecoderCell(4, None, num_layers=3, residual=True))
    x = np.random.default_rng(0).normal(size=(2, 1, 4)).astype("float32")
    states = cell.initial_states((2, 1))
    memory, mask = sources()
    h, new, _ = cell(x, states, cell.prepare(ops.array(memory), mask))
    np.testing.assert_allclose(h, new[0] + new[2] + new[4], atol=1e-6)


def test_beams_are_stepped_independently():
    cell = built(InputFeedingDecoderCell(3, LuongAttention("concat"), num_layers=2))
    memory, mask = sources()
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 5, 4)).astype("float32")
    prepared = cell.prepare(ops.array(memory), mask)
    recurrent = [rng.normal(size=(2, 5, 3)).astype("float32") for _ in range(4)]
    together, _, weights = cell(x, cell.initial_states((2, 5), recurrent), prepared)
    for k in range(5):
        own = [s[:, k : k + 1] for s in recurrent]
        alone, _, alone_weights = cell(
            x[:, k : k + 1], cell.initial_states((2, 1), own), prepared
        )
        np.testing.assert_allclose(together[:, k], alone[:, 0], atol=1e-6)
        np.testing.assert_allclose(weights[:, k], alone_weights[:, 0], atol=1e-6)


def test_without_attention_the_output_is_h():
    cell = built(InputFeedingDecoderCell(3, None, input_feeding=False))
    memory, mask = sources()
    x = np.ones((2, 1, 4), "float32")
    output, states, weights = cell(
        x, cell.initial_states((2, 1)), cell.prepare(ops.array(memory), mask)
    )
    np.testing.assert_array_equal(output, states[0])
    np.testing.assert_array_equal(weights, np.zeros((2, 1, 5)))


def test_config_round_trip():
    cell = InputFeedingDecoderCell(
        3,
        LuongAttention("concat", units=2),
        num_layers=2,
        attentional_units=5,
        cell_type="gru",
        input_feeding=False,
        dropout=0.1,
        recurrent_dropout=0.2,
        residual=True,
    )
    again = InputFeedingDecoderCell.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()


def test_dropout_masks_are_drawn_only_in_training():
    cell = built(
        InputFeedingDecoderCell(
            3, None, num_layers=2, dropout=0.5, recurrent_dropout=0.5
        )
    )
    memory = cell.prepare(ops.zeros((50, 5, 6)))
    assert not any(cell.make_mode(memory, training=False).noise)
    noise = cell.make_mode(memory, training=True).noise
    assert {i: n.shape for i, n in noise.below.items()} == {1: (50, 3)}
    assert {i: n.shape for i, n in noise.recurrent.items()} == {0: (50, 3), 1: (50, 3)}
    assert set(np.unique(noise.below[1])) == {0, 2}


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"units": -1}, ValueError, "units.*-1"),
        ({"attention": "dot"}, TypeError, "LuongAttention.*'dot'"),
        ({"cell_type": "ssm"}, ValueError, "ssm"),
        ({"recurrent_dropout": 2}, ValueError, "recurrent_dropout.*2"),
        ({"attention": None, "attentional_units": 5}, ValueError, "attentional_units"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    arguments = {"units": 3, "attention": LuongAttention("dot"), **arguments}
    with pytest.raises(error, match=message):
        InputFeedingDecoderCell(**arguments)


def test_a_wrong_number_of_states_is_named():
    cell = built(InputFeedingDecoderCell(3, LuongAttention("general"), num_layers=2))
    with pytest.raises(ValueError, match="4 initial states.*all 6.*Received: 3"):
        cell.initial_states((2,), [keras.ops.zeros((2, 3))] * 3)
