"""Models that are changed: their vocabularies grow, or parts are frozen."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.compat import flat_layers
from keras_luong.config.presets import PRESETS
from keras_luong.models.growing import PARTS, freeze, grow_into
from keras_luong.models.translation_model import model_class
from keras_luong.special_ids import UNK_ID
from keras_luong.text import growing
from keras_luong.text.growing import add_tokens, grow_tokenizers, origins
from keras_luong.text.tags import check_tag, tags_of
from keras_luong.training.optimizers import make_optimizer
from keras_luong_edge.tokenizers import SentencePieceTokenizer as EdgeTokenizer
from keras_luong_edge.tokenizers import SpecialIds

LATIN = ["a dog runs in the park", "two dogs run", "the cat sleeps", "a park, a cat."]
CYRILLIC = ["собака бежит в парке", "две собаки бегут", "кошка спит", "парк и кошка"]


def pairs(sources, targets):
    return tf.data.Dataset.from_tensor_slices({"source": sources, "target": targets})


def pair(shared=False, kind="sentencepiece"):
    text = pairs(LATIN, [line.upper() for line in LATIN])
    return kl.TokenizerPair.train(text, kind, 60, shared)


def model_of(tokenizers, **fields):
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    return kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, units=8, **fields))


NEW = pairs(CYRILLIC, [f"{line} ÄÖ" for line in CYRILLIC])


def ids_of(tokenizer, text):
    return tokenizer.encode(tf.constant([text])).to_list()[0]


@pytest.mark.parametrize("shared", [False, True])
def test_k2_a_new_script_is_known_and_old_ids_stay(shared):
    old = pair(shared)
    new = grow_tokenizers(old, NEW, 40)
    assert new.shared == shared
    sample = SimpleNamespace(sources=CYRILLIC, targets=["ÄÖ Ä"])
    missing = growing.missing_characters(old, sample)  # the most frequent first
    assert missing[:2] == ["к", "а"] and {*missing} > set("бшÄÖ") and " " not in missing
    assert growing.missing_characters(new, sample) == []
    for side in ("source", "target"):
        before, now = getattr(old, side), getattr(new, side)
        assert now.vocabulary[: before.vocab_size] == before.vocabulary
        assert before.vocab_size < now.vocab_size <= before.vocab_size + 40
        assert now.normalization == before.normalization
        for line in CYRILLIC:
            assert UNK_ID in ids_of(before, line)
            ids = ids_of(now, line)
            assert UNK_ID not in ids and len(ids) < len(line)  # pieces, not letters
            assert now.decode(tf.constant([ids])).numpy()[0].decode() == line
    for line in LATIN:
        assert ids_of(new.source, line) == ids_of(old.source, line)
    # In every runtime.
    tagged = add_tokens(new, ["<news>", "<2de>"], ["source"]).source
    edge = EdgeTokenizer(tagged.model, SpecialIds())
    fast = tensorflow_text.FastSentencepieceTokenizer(tagged.model)  # of LiteRT
    lines = [*LATIN, *CYRILLIC, "<news> a dog", "a <2de> кот", "x<news> ＜news＞ 東"]
    for line in lines:
        ids = ids_of(tagged, line)
        assert edge.encode(line) == ids == fast.tokenize([line]).to_list()[0]
        text = tagged.decode(tf.constant([ids])).numpy()[0].decode()
        assert edge.decode(ids) == text


def test_k2_what_a_few_more_tokens_are():
    old = pair()
    new = grow_tokenizers(old, NEW, 5).source
    added = new.vocabulary[old.source.vocab_size :]
    assert len(added) == 5 and set(added) <= set("".join(CYRILLIC))  # letters first
    words = pair(kind="word")
    new = grow_tokenizers(words, NEW, 3)
    assert new.source.words == [*words.source.words, "кошка", "бегут", "бежит"]
    assert new.target.words[-1] not in words.target.words

    other = SimpleNamespace(source=None, target=None, shared=False)
    with pytest.raises(TypeError, match="can get more tokens. Received: NoneType"):
        add_tokens(other, ["a"], ["source"])
    with pytest.raises(ValueError, match="grow_vocab"):
        grow_tokenizers(words, NEW, 0)


def test_k2_a_tag_is_one_piece_also_where_splits_are_drawn():
    old = pair(False)
    new = add_tokens(old, ["<news>"], ["source"])
    assert new.target is old.target and tags_of(new.source) == ["news"]
    tag = old.source.vocab_size
    texts = tf.constant(["<news> a dog runs"])
    assert ids_of(new.source, "<news> a dog") == [tag, *ids_of(old.source, "a dog")]
    drawn = [new.source.sample(texts, i, alpha=0.1).to_list()[0] for i in range(20)]
    assert len({*map(tuple, drawn)}) > 5 and {ids[0] for ids in drawn} == {tag}
    again = add_tokens(new, ["<news>"], ["source"])
    assert again.source.vocab_size == new.source.vocab_size
    with pytest.raises(ValueError, match="trained with: news. Received: sport"):
        check_tag(new.source, "sport")


@pytest.mark.parametrize("tie", [None, "target", "all"])
def test_k2_a_grown_model_says_what_it_said(tie):
    """Of the tokens that it had; a new one begins as the mean of what it was.

    Or of all, as words that nobody had heard.
    """
    kind = "word" if tie == "target" else "sentencepiece"
    before = pair(tie == "all", kind)
    after = add_tokens(grow_tokenizers(before, NEW, 20), ["park,"], ["source"])
    fields = {"tie_embeddings": tie} if tie else {"output_bias": True}
    old, new = model_of(before, **fields), model_of(after, **fields)
    grow_into(new, old, before, after)
    size = before.target.vocab_size
    inputs = {"source": np.array([[4, 9, 8, 3]]), "target": np.array([[2, 7, 5]])}
    logits = new(inputs).numpy()
    np.testing.assert_allclose(logits[..., :size], old(inputs).numpy(), atol=1e-6)
    assert logits.shape[-1] == after.target.vocab_size
    vectors, known = new.source_embedding.embeddings.numpy(), before.source.vocab_size
    added, spread = vectors[known:], vectors[:known].std()
    assert len(np.unique(added, axis=0)) == len(added)
    were = origins(before.source, after.source)
    known_before = [] if kind == "word" else ids_of(before.source, "park,")
    assert were[-1] == known_before and UNK_ID not in known_before
    for vector, ids in zip(added, were, strict=True):
        mean = vectors[ids or range(4, known)].mean(axis=0)
        assert 0 < np.abs(vector - mean).max() < 0.5 * spread


def test_k2_a_vocabulary_whose_vectors_are_frozen_cannot_grow():
    before = pair()
    after = grow_tokenizers(before, NEW, 5)
    old, new = model_of(before), model_of(after)
    freeze(new, ["source_embedding"])
    with pytest.raises(ValueError, match="freeze must leave source_embedding.* out"):
        grow_into(new, old, before, after)


# Parts of models, which can be frozen.

MODELS = {x.model: name for name, x in reversed(PRESETS.items())}


@pytest.mark.parametrize("name", MODELS.values())
def test_k2_every_model_has_its_parts_or_says_that_it_has_not(name):
    changes = {"units": 8, "num_layers": 1}
    if PRESETS[name].model == "Transformer":
        changes |= {"num_heads": 2, "feedforward_units": 8, "tie_embeddings": None}
    model = model_class(name).from_preset(name, 9, 9, **changes)
    layers = flat_layers(model)
    for part in PARTS:
        for layer in layers:
            layer.trainable = True
        try:
            freeze(model, [part])
        except ValueError as error:
            assert f"Received: '{part}'" in str(error)
            tied = model.output_layer is None
            assert part in ("attention", "bridge", *["output"] * tied)
        else:
            assert 0 < len(model.trainable_weights) < len(model.weights)


FROZEN = slow_but(["embeddings", "decoder", "encoder"], "encoder")


@pytest.mark.parametrize("part", FROZEN)
def test_k2_what_is_frozen_stays_and_the_rest_moves(part):
    """With the fused loss, weight decay and a moving average."""
    config = kl.Seq2SeqConfig(9, 9, units=8, tie_embeddings="all", dropout=0.2)
    model = kl.Seq2Seq(config)
    freeze(model, [part])
    optimizer = make_optimizer("adam", 0.1, ema_momentum=0.9, weight_decay=0.1)
    loss = kl.SequenceCrossentropy(label_smoothing=0.1)
    model.compile(optimizer, loss, run_eagerly=True)
    frozen = {id(weight) for weight in model.non_trainable_weights}
    before = [weight.numpy() for weight in model.weights]
    x = {"source": np.array([[4, 5, 3]]), "target": np.array([[2, 8]])}
    model.fit(x, np.array([[8, 3]]), epochs=2, verbose=0)
    optimizer.finalize_variable_values(model.trainable_variables)
    for weight, value in zip(model.weights, before, strict=True):
        moved = not np.array_equal(weight.numpy(), value)
        assert moved == (id(weight) not in frozen), weight.path


NO_PARTS = [
    (["embeddings", "encoder", "decoder"], "freeze must leave something to train"),
    (["output"], "its output is its target_embedding.*'output'"),
    (["bridge"], "has not, as it is configured. Received: 'bridge'"),
    (["legs"], "freeze must be one of .*'legs'"),
]


@pytest.mark.parametrize("parts, message", NO_PARTS)
def test_k2_something_must_be_left_and_be_there(parts, message):
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=8, tie_embeddings="all"))
    with pytest.raises(ValueError, match=message):
        freeze(model, parts)
