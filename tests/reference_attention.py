"""Every attention in plain NumPy, one query, head and source word at a time.

Written from the papers, apart from the layers, for tests to compare them with.
"""

import numpy as np

from keras_luong import layers

#: Scores without weights that could change a size.
SAME_SIZES = ("dot", "scaled_dot", "cosine")


def score(mode, weights, h, h_s, mark=0.0):
    """Eq. 8 for one state each; `mark` is added to what the score compares with."""
    if mode in ("concat", "normed_concat"):
        hidden = h @ weights["query_kernel"] + h_s @ weights["value_kernel"] + mark
        v = weights["scale"]
        if mode == "concat":
            return v @ np.tanh(hidden)
        v = weights["gain"] * v / np.linalg.norm(v)
        return v @ np.tanh(hidden + weights["bias"])
    if mode == "cosine":
        h, h_s = h / np.linalg.norm(h), h_s / np.linalg.norm(h_s)
    elif mode == "scaled_dot":
        h_s = h_s / np.sqrt(len(h))
    elif mode == "general":
        h_s = weights["kernel"] @ h_s
    elif mode == "scaled_general":
        h_s = weights["gain"] * (weights["kernel"] @ h_s)
    elif mode == "reduced_rank":
        h, h_s = h @ weights["query_kernel"], h_s @ weights["value_kernel"]
    elif mode != "dot":
        raise KeyError(mode)
    return h @ (h_s + mark)


def scores(mode, weights, h, keys, marks=None):
    """Of every source word; -inf where "location" knows no position."""
    if mode == "location":
        known = h @ weights["kernel"]
        return np.append(known, [-np.inf] * len(keys))[: len(keys)]
    marks = np.zeros(len(keys)) if marks is None else marks
    pairs = zip(keys, marks, strict=True)
    return np.array([score(mode, weights, h, k, m) for k, m in pairs])


def softmax(scores, places=None):
    """Over those places that have a score; 0 at all others."""
    places = np.isfinite(scores) & (True if places is None else places)
    e = np.zeros(len(scores))
    if places.any():
        e[places] = np.exp(scores[places] - scores[places].max())
    return e / max(e.sum(), 1e-300)


def global_weights(mode, weights, h, keys, words):
    """a_t over those positions of a source [S, H] that are words (Eq. 7)."""
    return softmax(scores(mode, weights, h, keys), np.asarray(words, bool))


def hardened(a):
    """All of it at the first of the highest; zeros stay."""
    return np.float64((np.arange(len(a)) == a.argmax()) & (a > 0))


def location_features(filters, seen):
    """`f_s`: every filter [k, n] laid over the earlier weights [S] around s."""
    half = len(filters) // 2
    features = np.zeros((len(seen), filters.shape[1]))
    for s in range(len(seen)):
        for i in range(len(filters)):
            if 0 <= s + i - half < len(seen):
                features[s] += filters[i] * seen[s + i - half]
    return features


def stopping(p, previous):
    """Walks on from each earlier stop, position by position (Raffel et al. 2017)."""
    result = np.zeros(len(p))
    for start, reached in enumerate(previous):
        for j in range(start, len(p)):
            result[j] += reached * p[j]
            reached *= 1 - p[j]
    return result


def chunkwise(stops, scores, words, size):
    """A softmax over the words of each stop's chunk (Chiu & Raffel 2018)."""
    result, place = np.zeros(len(stops)), np.arange(len(stops))
    for k, stop in enumerate(stops):
        result += stop * softmax(scores, words & (k - size < place) & (place <= k))
    return result


def centre(alignment, position, h, t, length):
    """p_t: t clamped to the sentence, or Eq. 9."""
    if alignment == "monotonic":
        return float(max(0, min(t, length - 1)))
    hidden = np.tanh(h @ position["position_kernel"])
    return length / (1 + np.exp(-(position["position_scale"] @ hidden)))


def local(layer, weights, h, t, scores, words, allowed):
    """a_t of local attention (Eq. 7 in a window, Eq. 10)."""
    p = centre(layer.alignment, weights, h, t, words.sum())
    place = np.arange(len(scores))
    inside = np.abs(place - np.floor(p)) <= layer.window
    a = softmax(scores, inside & words & allowed)
    gaussian = layer.gaussian
    if layer.alignment == "predictive" if gaussian is None else gaussian:
        a = a * np.exp(-((place - p) ** 2) / (2 * (layer.window / 2) ** 2))
    return a / max(a.sum(), 1e-300) if layer.renormalize else a


def arrays(layer):
    """A layer's weights in float64, by their paths."""
    return {w.path: np.float64(w) for w in layer.trainable_weights}


def attend(layer, query, value, key, words, pairs, there, weights=None):
    """What a layer of any kind says: contexts [B, Q, H], weights of N heads.

    Args:
        layer: An attention that is built.
        query, value, key: [B, Q or S, H].
        words: Which source positions there are, [B, S].
        pairs: Which of them each query may attend to, [B, Q, S].
        there: Which queries there are, [B, Q].
        weights: In place of the layer's own, as of `arrays`.

    Returns:
        [B, Q, Hv] and [B, N, Q, S].
    """
    weights = arrays(layer) if weights is None else weights

    def of(part):
        return {w.name: weights[w.path] for w in part.trainable_weights}

    def split(kernel):
        return np.split(weights[kernel.path], layer.num_heads, axis=1)

    heads = getattr(layer, "num_heads", 1)
    a = np.zeros((len(query), heads, query.shape[1], value.shape[1]))
    by_head = isinstance(layer, layers.MultiHeadLuongAttention)
    for b, keys in enumerate(key):
        walks = isinstance(layer, layers.MonotonicAttention)
        state = np.eye(len(keys))[0] if walks else np.zeros(len(keys))
        for t, h in enumerate(query[b]):
            if not there[b, t]:
                continue
            seen = words[b] & pairs[b, t]
            if by_head:
                W, U = split(layer.score.query_kernel), split(layer.score.key_kernel)
                for n, one in enumerate(layer.score.scores):
                    row = scores(layer.score_mode, of(one), h @ W[n], keys @ U[n])
                    a[b, n, t] = softmax(row, seen)
                    if layer.hard:
                        a[b, n, t] = hardened(a[b, n, t])
                continue
            a[b, 0, t], state = _one_query(
                layer, of, h, t, keys, words[b], pairs[b, t], state
            )
    if not by_head:
        return a[:, 0] @ value, a
    V = split(layer.value_kernel)
    contexts = [a[:, n] @ (value @ V[n]) for n in range(heads)]
    return np.concatenate(contexts, -1) @ weights[layer.output_kernel.path], a


def _one_query(layer, of, h, t, keys, words, allowed, state):
    """The weights [S] of one query, and the state after it."""
    own, marks, seen = of(layer), None, words & allowed
    if layer.coverage:
        marks = state[:, None] * own["coverage_kernel"]
    if isinstance(layer, layers.LocationAwareAttention):
        features = location_features(own["filter_kernel"], state)
        marks = features @ own["location_kernel"] + own["location_bias"]
    row = scores(layer.score_mode, of(layer.score), h, keys, marks)
    if isinstance(layer, layers.MonotonicAttention):
        logits = row + own["score_bias"]
        p = logits > 0 if layer.hard else 1 / (1 + np.exp(-logits))
        stops = stopping(np.where(seen, p, 0.0), state)
        if not isinstance(layer, layers.MonotonicChunkwiseAttention):
            return stops, stops
        mode = layer.chunk_score_mode or layer.score_mode
        row = scores(mode, of(layer.chunk_score), h, keys)
        return chunkwise(stops, row, seen, layer.chunk_size), stops
    if isinstance(layer, layers.LocalAttention):
        a = local(layer, own, h, t, row, words, allowed)
    else:
        a = softmax(row, seen)
    if layer.hard:
        a = hardened(a)
    adds_up = layer.coverage or getattr(layer, "cumulative", False)
    return a, state + a if adds_up else a
