"""Luong et al. 2015 in plain NumPy loops, one query and one source word at a time.

Written from the paper, apart from the layers, for tests to compare them with.
"""

import numpy as np

#: Scores without weights that could change a size.
SAME_SIZES = ("dot", "scaled_dot", "cosine")


def score(mode, weights, h, h_s):
    """Eq. 8 for one decoder state and one source state."""
    if mode == "dot":
        return h @ h_s
    if mode == "scaled_dot":
        return h @ h_s / np.sqrt(len(h))
    if mode == "cosine":
        return h @ h_s / (np.linalg.norm(h) * np.linalg.norm(h_s))
    if mode == "general":
        return h @ weights["kernel"] @ h_s
    if mode == "scaled_general":
        return weights["gain"] * (h @ weights["kernel"] @ h_s)
    if mode == "normed_concat":
        hidden = h @ weights["query_kernel"] + h_s @ weights["value_kernel"]
        v = weights["scale"] / np.linalg.norm(weights["scale"])
        return weights["gain"] * (v @ np.tanh(hidden + weights["bias"]))
    if mode == "concat":
        hidden = h @ weights["query_kernel"] + h_s @ weights["value_kernel"]
        return weights["scale"] @ np.tanh(hidden)
    if mode == "reduced_rank":
        return (h @ weights["query_kernel"]) @ (h_s @ weights["value_kernel"])
    raise KeyError(mode)


def marked_score(mode, weights, h, h_s, mark):
    """The same where `mark` is added to what the score compares with."""
    if mode == "concat":
        hidden = h @ weights["query_kernel"] + h_s @ weights["value_kernel"] + mark
        return weights["scale"] @ np.tanh(hidden)
    if mode == "normed_concat":
        bias = {**weights, "bias": weights["bias"] + mark}
        return score(mode, bias, h, h_s)
    if mode == "reduced_rank":
        return score(mode, weights, h, h_s) + (h @ weights["query_kernel"]) @ mark
    if mode == "cosine":
        return score(mode, weights, h, h_s) + h @ mark / np.linalg.norm(h)
    return score(mode, weights, h, h_s) + h @ mark


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
    result = np.zeros(len(stops))
    for k, stop in enumerate(stops):
        chunk = [j for j in range(max(0, k - size + 1), k + 1) if words[j]]
        if chunk:
            result[chunk] += stop * softmax([scores[j] for j in chunk])
    return result


def softmax(scores):
    """Over a list of numbers."""
    e = np.exp(np.array(scores) - max(scores))
    return e / e.sum()


def global_weights(mode, weights, h, source, words):
    """a_t over those positions of a source [S, H] that are words (Eq. 7)."""
    a = np.zeros(len(source))
    places = [s for s, word in enumerate(words) if word]
    if mode == "location":
        places = [s for s in places if s < weights["kernel"].shape[1]]
        scores = [h @ weights["kernel"][:, s] for s in places]
    else:
        scores = [score(mode, weights, h, source[s]) for s in places]
    if places:
        a[places] = softmax(scores)
    return a


def centre(alignment, position, h, t, length):
    """p_t: t clamped to the sentence, or Eq. 9."""
    if alignment == "monotonic":
        return float(max(0, min(t, length - 1)))
    hidden = np.tanh(h @ position["position_kernel"])
    return length / (1 + np.exp(-(position["position_scale"] @ hidden)))


def local_weights(
    mode, weights, h, source, length, p, window, gaussian, renormalize, allowed=None
):
    """a_t of local attention around p (Eq. 10), where the query may attend at all."""
    a = np.zeros(len(source))
    first, last = int(np.floor(p)) - window, int(np.floor(p)) + window
    places = [s for s in range(first, last + 1) if 0 <= s < length]
    places = [s for s in places if allowed is None or allowed[s]]
    if not places:
        return a
    a[places] = softmax([score(mode, weights, h, source[s]) for s in places])
    if gaussian:
        sigma = window / 2
        for s in places:
            a[s] *= np.exp(-((s - p) ** 2) / (2 * sigma**2))
    return a / a.sum() if renormalize else a
