"""Four papers' models in plain NumPy, one sentence and one word at a time.

Written from the papers and tensorflow/nmt, apart from the layers, for tests to compare
them with. The cells' conventions are Keras's: biases, an update gate z that keeps the
old state (1 - z in Bahdanau et al.), and a reset gate after the product with U (in the
papers only Cho's decoder has it there). More than one layer is the library's own, but
for GNMT's.

`weights` maps the paths of a model's variables to arrays; `source` and `target` are the
ids of one sentence without padding; what comes back are its logits [T, V].
"""

import itertools

import numpy as np
from reference_attention import global_weights


def part(weights, prefix):
    """Those of one layer, by their own names."""
    prefix += "/"
    own = {p: w for p, w in weights.items() if p.startswith(prefix)}
    return {path.split("/")[-1]: w for path, w in own.items()}


def stack(weights, prefix):
    """Those of the layers prefix_0, prefix_1, ..., from the bottom."""
    layers = (part(weights, f"{prefix}_{i}") for i in itertools.count())
    return list(itertools.takewhile(bool, layers))


def sigmoid(x):
    """Of an array."""
    return 1 / (1 + np.exp(-x))


def gru(x, u, bias, h):
    """Gates z, r and the candidate; u is what the reset gate lets through."""
    x_z, x_r, x_h = np.split(x + bias[0], 3)
    u_z, u_r, u_h = np.split(u + bias[1], 3)
    z, r = sigmoid(x_z + u_z), sigmoid(x_r + u_r)
    return [z * h + (1 - z) * np.tanh(x_h + r * u_h)]


def lstm(x, u, bias, h, c):
    """Gates i, f, g, o."""
    i, f, g, o = np.split(x + u + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def step(layer, x, states, beside_x=0.0, beside_h=0.0):
    """One step: -> [h] or [h, c]. The last two are added to x W and to h U."""
    equations = {1: gru, 2: lstm}[len(states)]
    x = x @ layer["kernel"] + beside_x
    u = states[0] @ layer["recurrent_kernel"] + beside_h
    return equations(x, u, layer["bias"], *states)


def climb(layers, x, states, **beside):
    """One step of layers on top of each other; only the first has something beside."""
    new = [step(layers[0], x, states[0], **beside)]
    for layer, old in zip(layers[1:], states[1:], strict=True):
        new.append(step(layer, new[-1][0], old))
    return new


def read(layer, words):
    """One layer over [S, n]: -> all its h [S, H], its last states."""
    units, columns = layer["recurrent_kernel"].shape
    states = [np.zeros(units)] * {3: 1, 4: 2}[columns // units]
    outputs = []
    for x in words:
        states = step(layer, x, states)
        outputs.append(states[0])
    return np.array(outputs), states


def read_both_ways(forward, backward, words):
    """All h [S, 2H], and the states of the backward layer after the first word."""
    rightward, _ = read(forward, words)
    leftward, states = read(backward, words[::-1])
    return np.concatenate([rightward, leftward[::-1]], axis=1), states


def look(score_mode, attention, query, memory):
    """The context c."""
    words = np.ones(len(memory), bool)
    return global_weights(score_mode, attention, query, memory, words) @ memory


def maxout(t):
    """The larger of each pair."""
    return np.maximum(t[::2], t[1::2])


def luong(weights, source, target, activation, feeds, emits):
    """Luong et al. 2015, section 3, of one layer; and Eq. 5 as others have it.

    Without a W_c the context itself is h̃. Where `feeds`, the next step reads h̃; words
    are predicted from it, or from h: `emits` is one of the two.
    """
    words = weights["source_embedding/embeddings"][source]
    memory, states = read(part(weights, "encoder/forward_0"), words)
    layer = part(weights, "decoder/decoder_cell/recurrent/layer_0")
    attention = part(weights, "decoder/decoder_cell/attention")
    vector = part(weights, "decoder/decoder_cell/attentional_vector")
    feeding = weights.get("decoder/decoder_cell/feeding_kernel")
    before, logits = np.zeros(len(feeding) if feeds else 0), []
    for y in weights["target_embedding/embeddings"][target]:
        beside = before @ feeding if feeds else 0.0
        states = step(layer, y, states, beside_x=beside)
        h = states[0]
        h_tilde = look("general", attention, h, memory)
        if vector:
            linear = np.concatenate([h_tilde, h]) @ vector["kernel"]
            h_tilde = activation(linear + vector.get("bias", 0.0))
        before = h_tilde
        output = {"h": h, "h_tilde": h_tilde}[emits]
        logits.append(output @ weights["output/kernel"] + weights.get("output/bias", 0))
    return np.array(logits)


def bahdanau(weights, source, target):
    """Bahdanau et al. 2015, appendix A.2: attention and output read s_{t-1}."""
    memory = weights["source_embedding/embeddings"][source]
    bridges, states = iter(stack(weights, "bridge")), []
    forward, backward = (stack(weights, f"encoder/{d}ward") for d in ("for", "back"))
    for layers in zip(forward, backward, strict=True):
        memory, last = read_both_ways(*layers, memory)
        dense = [(x, next(bridges)) for x in last]
        states.append([np.tanh(x @ w["kernel"] + w["bias"]) for x, w in dense])
    cell = part(weights, "decoder/decoder_cell")
    layers = stack(weights, "decoder/decoder_cell/recurrent/layer")
    logits = []
    for y in weights["target_embedding/embeddings"][target]:
        s = states[-1][0]
        attention = part(weights, "decoder/decoder_cell/attention")
        c = look("concat", attention, s, memory)
        states = climb(layers, y, states, beside_x=c @ cell["context_kernel"])
        t = s @ cell["state_readout"] + y @ cell["word_readout"]
        t += c @ cell["context_readout"]
        logits.append(maxout(t) @ weights["output/kernel"])
    return np.array(logits)


def cho(weights, source, target):
    """Cho et al. 2014, appendix A.1; the reset gate is for the summary, too."""
    h = weights["source_embedding/embeddings"][source]
    for layer in stack(weights, "encoder/forward"):
        h, last = read(layer, h)
    cell = part(weights, "decoder/decoder_cell")
    c = np.tanh(h[-1] @ cell["summary_kernel"])
    start = np.tanh(c @ cell["start_kernel"])
    layers = stack(weights, "decoder/decoder_cell/recurrent/layer")
    states = [[start, np.zeros_like(start)][: len(last)] for _ in layers]
    logits = []
    for y in weights["target_embedding/embeddings"][target]:
        states = climb(layers, y, states, beside_h=c @ cell["context_kernel"])
        s = states[-1][0] @ cell["state_readout"] + y @ cell["word_readout"]
        s += c @ cell["context_readout"]
        logits.append(maxout(s) @ weights["output/kernel"])
    return np.array(logits)


def gnmt(weights, source, target):
    """tensorflow/nmt's "gnmt_v2" with residual connections.

    The bottom layer reads the context before, the others this step's. Of L layers the
    upper L - 2 are residual, in the encoder and in the decoder.
    """
    bottom, *upper = stack(weights, "encoder/forward")
    words = weights["source_embedding/embeddings"][source]
    (backward,) = stack(weights, "encoder/backward")
    memory, last = read_both_ways(bottom, backward, words)
    states = [last]
    for i, layer in enumerate(upper, 1):
        h, last = read(layer, memory)
        memory = h + memory if i >= 2 else h
        states.append(last)
    cell = part(weights, "decoder/decoder_cell")
    layers = stack(weights, "decoder/decoder_cell/recurrent/layer")
    context, logits = np.zeros(memory.shape[1]), []
    for y in weights["target_embedding/embeddings"][target]:
        h, new = y, []
        for i, layer in enumerate(layers):
            beside = context @ cell[f"context_kernel_{i}"]
            new.append(step(layer, h, states[i], beside_x=beside))
            h = new[i][0] + h if i >= 2 else new[i][0]
            if i == 0:
                attention = part(weights, "decoder/decoder_cell/attention")
                context = look("normed_concat", attention, h, memory)
        states = new
        logits.append(h @ weights["output/kernel"])
    return np.array(logits)


def crossentropy(labels, logits, smoothing=0.0):
    """Against the dense smoothed distribution; and its gradient [..., V], of logits."""
    p = np.exp(np.float64(logits))
    p /= p.sum(-1, keepdims=True)
    q = (1 - smoothing) * np.eye(p.shape[-1])[labels] + smoothing / p.shape[-1]
    return -(q * np.log(p)).sum(-1), p - q
