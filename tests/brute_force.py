"""Models that are looked up, and in plain Python all that a search may find by them."""

import math
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.decoding import BeamSearch, Constraints, penalties
from keras_luong.decoding.lexical import Spelling
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

INF = float("inf")
TABLE_ROWS = 101
SOURCES = [[7, 9, 3], [4, 3, 0], [3, 0, 0]]
WIDE = 48  # beams: as many as there are sequences


class TableState(NamedTuple):
    history: dict
    constant: tuple


class TableModel:
    """Logits and attention looked up by a hash of the sentence and all tokens so far.

    The state is a nest of every kind, so that a beam that follows the wrong parent
    reads another row.
    """

    def __init__(self, seed, vocabulary=5, scale=2.0, dtype="float32"):
        table = np.random.default_rng(seed).normal(0, scale, (TABLE_ROWS, vocabulary))
        self.table, self.seen = table.astype(dtype), []  # what steps are given

    def encode(self, source_ids):
        start = tf.reduce_sum(source_ids, axis=1, keepdims=True)
        state = TableState({"hash": start}, (tf.zeros_like(start), [tf.zeros([1])][1:]))
        positions = tf.range(tf.shape(source_ids)[1])
        return {"positions": tf.zeros_like(source_ids)[:, None] + positions}, state

    def step(self, tokens, state, memory):
        self.seen.append((*tokens.shape, len(memory["positions"].shape)))
        code = (state.history["hash"] * 7 + tokens) % TABLE_ROWS
        code3 = code[..., None] * 3
        weights = tf.cast((code3 + memory["positions"] * 5) % 11, self.table.dtype) / 16
        state = TableState({"hash": code}, state.constant)
        return tf.gather(self.table, code), state, weights

    def read(self, source, tokens):
        """In plain Python: the log-probabilities and attention after some tokens."""
        code = int(sum(source))
        for token in [BOS_ID, *tokens]:
            code = (code * 7 + token) % TABLE_ROWS
        logits = self.table[code].astype("float32")
        log_probs = logits - np.logaddexp.reduce(logits)
        weights = (code * 3 + np.arange(len(source)) * 5) % 11 / np.float32(16)
        return log_probs, weights


class ScriptModel:
    """Says what a function of the source and the tokens so far says."""

    def __init__(self, logits_of, vocabulary=6, length=30):
        self.logits_of, self.vocabulary, self.length = logits_of, vocabulary, length
        self.sizes = []  # of the batch, at each step

    def encode(self, source_ids):
        batch = source_ids.shape[0]
        said = tf.fill([batch, 1, self.length], -1)
        return source_ids, (said, tf.reshape(source_ids[:, 0], [batch, 1]))

    def step(self, tokens, state, memory):
        assert len(tokens) == len(memory)
        self.sizes.append(len(tokens))
        said, source = state
        said = tf.concat([said[..., 1:], tokens[..., None]], axis=-1)
        logits = np.zeros([*tokens.shape, self.vocabulary], "float32")
        for place in np.ndindex(*tokens.shape):
            words = said[place].numpy()
            spoken = tuple(int(w) for w in words[words >= 0][1:])
            logits[place] = self.logits_of(int(source[place]), spoken)
        weights = tf.ones([*tokens.shape, memory.shape[1]])
        return tf.constant(logits), (said, source), weights


def log_of(probabilities, vocabulary=6):
    """Logits with these probabilities and nothing else."""
    logits = np.full(vocabulary, -np.inf, "float32")
    for token, probability in probabilities.items():
        logits[token] = np.log(probability) if probability else -np.inf
    return logits


class Rules(NamedTuple):
    """What a search is told of a sentence, for the plain Python below."""

    limit: int
    length: Any = penalties.GNMTLengthPenalty(0.0)
    coverage: Any = None
    least: int = 0
    ngram: int = 0
    forbidden: tuple = ()
    prefix: tuple = ()
    phrases: tuple = ()
    texts: Any = None

    def allows(self, tokens, token):
        """Whether `token` may follow `tokens`."""
        place = len(tokens)
        if place < len(self.prefix):
            return token == self.prefix[place]
        if token in (PAD_ID, BOS_ID, *self.forbidden):
            return False
        if token == EOS_ID and place + 1 < min(self.least, self.limit):
            return False
        longer = (*tokens, token)
        if not self.ngram or len(longer) < self.ngram:
            return True
        earlier = [tokens[i : i + self.ngram] for i in range(len(tokens))]
        return longer[-self.ngram :] not in earlier

    def score(self, model, source, tokens, log_prob):
        score = score_of_length(self.length, log_prob, len(tokens))
        if self.coverage is not None:
            seen = [model.read(source, tokens[:i])[1] for i in range(len(tokens))]
            mask = np.array(source) != PAD_ID
            score += score_of_coverage(self.coverage, np.sum(seen, 0)[mask])
        return score

    def lacks(self, tokens):
        return missing(tokens, self.phrases, self.texts)

    def best(self, model, source, width, number, first=False):
        """(tokens, log p, score) of what a search returns, the best first."""

        def ranked(rules):
            search = all_sequences if width == WIDE else plain_beam_search
            ended, cut = search(model, source, rules, width, first)
            ended = [x for x in ended if not rules.lacks(x[0])]
            fewest = min((rules.lacks(t) for t, _ in cut), default=0)
            cut = [x for x in cut if rules.lacks(x[0]) == (0 if ended else fewest)]
            scored = (
                [(list(t), lp, self.score(model, source, t, lp)) for t, lp in group]
                for group in (ended, cut)
            )
            return [x for group in scored for x in sorted(group, key=lambda x: -x[2])]

        free = ranked(self._replace(phrases=()))
        if not self.phrases:
            return free[:number]
        met = [x for x in free[:1] if not self.lacks(x[0])]
        said = [x[0] for x in met]
        return [*met, *(x for x in ranked(self) if x[0] not in said)][:number]


def score_of_length(penalty, log_prob, length):
    if isinstance(penalty, penalties.WordReward):
        return log_prob + penalty.reward * length
    if isinstance(penalty, penalties.AverageLengthPenalty):
        return log_prob / length**penalty.alpha
    return log_prob / ((5 + length) / 6) ** penalty.alpha


def score_of_coverage(penalty, coverage):
    if isinstance(penalty, penalties.SummaryCoveragePenalty):
        return -penalty.beta * sum(max(c - 1, 0) for c in coverage)
    return penalty.beta * sum(np.log(min(max(c, 1e-6), 1)) for c in coverage)


def extended(model, source, hypotheses, rules):
    return [
        ((*tokens, token), log_prob + gain)
        for tokens, log_prob in hypotheses
        for token, gain in enumerate(model.read(source, tokens)[0])
        if rules.allows(tokens, token)
    ]


def split(hypotheses):
    """Those that ended, and the others."""
    ended = [x for x in hypotheses if x[0][-1] == EOS_ID]
    return ended, [x for x in hypotheses if x[0][-1] != EOS_ID]


def all_sequences(model, source, rules, *_):
    """Every sequence that ends, and every one that the limit cuts, with its log p."""
    beams, ended = [((), 0.0)], []
    for _ in range(rules.limit):
        more, beams = split(extended(model, source, beams, rules))
        ended += more
    return ended, beams


def plain_beam_search(model, source, rules, width, first=False):
    """Dynamic beam allocation; a common search if there is no phrase.

    It stops early only as "first" does.
    """
    beams, ended = [((), 0.0)], []
    for _ in range(rules.limit):
        chosen = []
        for hypothesis in beams:
            longer = extended(model, source, [hypothesis], rules)
            longer = [x for x in longer if x[0][-1] != EOS_ID or not rules.lacks(x[0])]
            longer.sort(key=lambda x: -x[1])
            wanted = {*next_tokens(hypothesis[0], rules.phrases)}
            own = [k == 0 or x[0][-1] in wanted for k, x in enumerate(longer)]
            chosen += zip(longer, own, strict=True)
        chosen.sort(key=lambda x: -x[0][1])
        turns, keyed = Counter(), []
        for k, (x, own) in enumerate(chosen):
            if k < width or own:
                number = bank(x[0], rules.phrases)
                keyed.append((turns[number], -number, x))
                turns[number] += 1
        kept = [x for *_, x in sorted(keyed, key=lambda x: x[:2])][:width]
        more, beams = split(kept)
        ended += more
        if first and len(ended) >= width:
            return ended, []
    return ended, beams


def occurrences(tokens, phrase, texts):
    """How often a phrase occurs: its tokens, or their text as whole words."""
    if texts is None:
        whole, part = tuple(tokens), tuple(phrase)
    else:
        whole = "".join(texts[token] for token in tokens)
        part = "".join(texts[token] for token in phrase).removeprefix(" ")
    joined = [
        texts is not None and whole[i - 1 : i + 1].isalpha() and 0 < i < len(whole)
        for i in range(len(whole) + 1)
    ]
    n = len(part)
    starts = (i for i in range(len(whole)) if whole[i : i + n] == part)
    return sum(not joined[i] and not joined[i + n] for i in starts)


def missing(tokens, phrases, texts=None):
    """How many phrases do not occur, by counting."""
    tokens = [token for token in tokens if token > EOS_ID or token == 1]
    counts = Counter(phrases).items()
    return sum(max(0, n - occurrences(tokens, x, texts)) for x, n in counts)


def begun(tokens, phrase):
    """The length of the longest beginning of a phrase that stands at the end."""
    ends = (j for j in range(len(phrase)) if tokens[len(tokens) - j :] == phrase[:j])
    return max(ends)


def bank(tokens, phrases):
    """How many tokens of the phrases are met, those of a begun one included."""
    met, most, counts = 0, 0, Counter()
    for phrase in phrases:
        counts[phrase] += 1
        if missing(tokens, [phrase] * counts[phrase]) == 0:
            met += len(phrase)
        else:
            most = max(most, begun(tokens, phrase))
    return met + most


def next_tokens(tokens, phrases):
    """The token of each unmet phrase that follows on the longest beginning."""
    for phrase in phrases:
        if missing(tokens, [phrase] * phrases.count(phrase)):
            yield phrase[begun(tokens, phrase)]


def padded(rows):
    """Rows of phrases as ids [B, C, L]."""
    ragged = tf.ragged.constant([[*map(list, row)] for row in rows], tf.int32, 2)
    return ragged.to_tensor(PAD_ID)


def constraints(rows, texts=None):
    spelling = None if texts is None else Spelling.of(texts, str.isalpha)
    return Constraints(padded(rows), spelling)


# What tokens write: words of their own, one that goes on, two ways to write "ab".
SPELLED = (
    ["", " u", "", "", " a"],
    ["", "b", "", "", " a"],
    ["", "a", "", "", " a"],
    ["", "-", "", "", " a-a"],
)


def random_search(seed, wide):
    """A search as constrained as they come: its model, itself, what its call takes.

    And a function that says, in plain Python, what it finds for a row of `SOURCES`.
    """
    random = Random(seed)
    pick, words = random.choice, [1, 4] if wide else [1, 4, 5, 6]

    def phrase(longest):
        return tuple(random.choices(words, k=random.randint(1, longest)))

    width = WIDE if wide else random.randint(1, 6)
    number = pick([1, 2, WIDE]) if wide else random.randint(1, width)
    few = {"early_stopping": pick([True, False] if wide else [True, False, "first"])}
    vocabulary = pick([4, 5] if wide else [9, 9, 30])
    forbidden = pick([(), (), (1,), (4, 1)])
    if vocabulary == 30:
        forbidden = tuple(range(7, 28))
    given = {
        "max_length": random.randint(1, 5 if wide else 9),
        "max_length_ratio": pick([None, None, 1.5]),
        "min_length": pick([0, 0, 2, 3, 9]),
        "min_length_ratio": pick([0, 0, 0.6]),
        "no_repeat_ngram": pick([0, 0, 1, 2, 3]),
    }
    alpha, beta = pick([0.0, 0.5, 1.0, 3.0]), pick([0.2, 1.0, 2.0])
    length = pick([*penalties._LENGTH.values()])(alpha)
    coverage = pick([None, *penalties._COVERAGE.values()])
    coverage = coverage and coverage(beta)
    prefixes, rows, texts = [()] * 3, [()] * 3, None
    if has_prefix := pick([True, False]):
        prefixes = [phrase(2) if random.random() < 0.7 else () for _ in SOURCES]
    if has_phrases := pick([True, False]) and vocabulary > 4:
        longest = 2 if wide else 3
        rows = [tuple(phrase(longest) for _ in range(pick(range(4)))) for _ in SOURCES]
        texts = pick([None, *SPELLED]) if wide else None
    options = {"length_penalty": length, "coverage_penalty": coverage or 0.0}
    options |= {"forbidden": forbidden, "compact": pick([True, False])}
    search = BeamSearch(width, number, **options, **few, **given)
    model = TableModel(seed, vocabulary, dtype=pick(["float32", "float16"]))

    def best(row):
        source = SOURCES[row]
        size = sum(x != PAD_ID for x in source)
        limit = given["max_length"]
        if ratio := given["max_length_ratio"]:
            limit = min(limit, math.ceil(ratio * size))
        if prefixes[row]:
            limit = max(limit, len(prefixes[row]) + 1)
        least = max(given["min_length"], math.ceil(given["min_length_ratio"] * size))
        rules = Rules(limit, length, coverage, least, given["no_repeat_ngram"])
        more = {"phrases": rows[row], "texts": texts}
        rules = rules._replace(forbidden=forbidden, prefix=prefixes[row], **more)
        first = few["early_stopping"] == "first"
        return rules.best(model, source, width, number, first)

    ids = [[*x, *[PAD_ID] * (2 - len(x))] for x in prefixes] if has_prefix else None
    must = constraints(rows, texts) if has_phrases else None
    sources = np.pad(SOURCES, [(0, 0), (0, pick([0, 2]))])  # which changes nothing
    return model, search, (sources, ids, must), best


def assert_same(hypotheses, row, expected, model, source):
    """A sentence's hypotheses are these, in this order, padded as documented."""
    kinds = [x.dtype.name for x in hypotheses]
    assert kinds == ["int32", "int32", *["float32"] * 4]
    assert hypotheses.ids.shape[2] == max(1, hypotheses.lengths.numpy().max())
    for n in range(hypotheses.ids.shape[1]):
        arrays = (x[row, n].numpy() for x in hypotheses)
        ids, length, score, log_prob, weights, said = arrays
        assert (ids[length:] == PAD_ID).all() and (said[length:] == 0).all()
        assert (weights[length:] == 0).all()
        if n >= len(expected):
            assert length == 0 and score == log_prob == -INF
            continue
        tokens, *sums = expected[n]
        assert ids[:length].tolist() == tokens
        np.testing.assert_allclose([log_prob, score], sums, atol=1e-4)
        read = [model.read(source, tokens[:i]) for i in range(length)]
        seen = [attention for _, attention in read]
        np.testing.assert_allclose(weights[:length, : len(source)], seen, 1e-6)
        gains = [log_probs[t] for (log_probs, _), t in zip(read, tokens, strict=True)]
        np.testing.assert_allclose(said[:length], gains, atol=1e-4)
