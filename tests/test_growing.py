"""Vocabularies that grow, and models that grow with them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

import keras_luong as kl
from keras_luong.models.growing import grow_into
from keras_luong.special_ids import UNK_ID
from keras_luong.text.growing import add_tokens, grow_tokenizers, origins
from keras_luong.text.tags import check_tag, tags_of
from keras_luong_edge import EdgeTranslator
from keras_luong_edge.tokenizers import SentencePieceTokenizer as EdgeTokenizer
from keras_luong_edge.tokenizers import SpecialIds

LATIN = ["a dog runs in the park", "two dogs run", "the cat sleeps", "a park, a cat."]
CYRILLIC = ["собака бежит в парке", "две собаки бегут", "кошка спит", "парк и кошка"]


def pairs(sources, targets):
    return tf.data.Dataset.from_tensor_slices({"source": sources, "target": targets})


def pair(shared=False, kind="sentencepiece", **options):
    text = pairs(LATIN, [line.upper() for line in LATIN])
    return kl.TokenizerPair.train(text, kind, 60, shared, **options)


NEW = pairs(CYRILLIC, [f"{line} ÄÖ" for line in CYRILLIC])


def ids_of(tokenizer, text):
    return tokenizer.encode(tf.constant([text])).to_list()[0]


@pytest.mark.parametrize("shared", [False, True])
def test_k2_a_new_script_is_known_and_old_ids_stay(shared):
    old = pair(shared)
    new = grow_tokenizers(old, NEW, 40)
    assert new.shared == shared
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


def test_k2_every_runtime_has_the_same_ids():
    tokens = ["<news>", "<2de>"]
    new = add_tokens(grow_tokenizers(pair(True), NEW, 30), tokens, ["source"]).source
    edge = EdgeTokenizer(new.model, SpecialIds())
    fast = tensorflow_text.FastSentencepieceTokenizer(new.model)  # of LiteRT
    lines = [*LATIN, *CYRILLIC, "<news> a dog", "a <2de> кот", "x<news> ＜news＞ 東"]
    for line in lines:
        ids = ids_of(new, line)
        assert edge.encode(line) == ids == fast.tokenize([line]).to_list()[0]
        assert edge.decode(ids) == new.decode(tf.constant([ids])).numpy()[0].decode()


def test_k2_letters_come_first_where_there_is_room_for_few():
    old = pair()
    new = grow_tokenizers(old, NEW, 5).source
    added = new.vocabulary[old.source.vocab_size :]
    assert len(added) == 5 and all(len(piece) == 1 for piece in added)
    assert set(added) <= set("".join(CYRILLIC))


def test_k2_words_too_and_other_tokenizers_are_refused():
    old = pair(kind="word")
    new = grow_tokenizers(old, NEW, 3)
    assert new.source.words == [*old.source.words, "кошка", "бегут", "бежит"]
    assert new.target.words[-1] not in old.target.words

    class Own(kl.WordTokenizer.__base__):
        vocab_size, vocabulary, encode = 9, [], None
        decode = texts = _joined = _looked_up = _to_bytes = _from_bytes = None

    with pytest.raises(TypeError, match="can get more tokens. Received: Own"):
        grow_tokenizers(kl.TokenizerPair(Own()), NEW, 3)
    with pytest.raises(ValueError, match="grow_vocab"):
        grow_tokenizers(old, NEW, 0)


def test_k2_a_tag_is_one_piece_also_where_splits_are_drawn():
    old = pair(False)
    new = add_tokens(old, ["<news>"], ["source"])
    assert new.target is old.target and tags_of(new.source) == ["news"]
    tag = old.source.vocab_size
    texts = tf.constant(["<news> a dog runs"])
    assert ids_of(new.source, "<news> a dog") == [tag, *ids_of(old.source, "a dog")]
    drawn = {
        tuple(new.source.sample(texts, seed, alpha=0.1).to_list()[0])
        for seed in range(20)
    }
    assert len(drawn) > 5 and all(ids[0] == tag for ids in drawn)
    again = add_tokens(new, ["<news>"], ["source"])
    assert again.source.vocab_size == new.source.vocab_size
    with pytest.raises(ValueError, match="trained with: news. Received: sport"):
        check_tag(new.source, "sport")


@pytest.mark.parametrize("tie", [None, "target", "all"])
def test_k2_a_grown_model_says_what_it_said(tie):
    """Of the tokens that it had; its weights, the new rows apart, are equal."""
    before = pair(tie == "all")
    after = add_tokens(grow_tokenizers(before, NEW, 20), ["<news>"], ["source"])

    def made(tokenizers):
        sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
        bias = {} if tie else {"output_bias": True}
        return kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, units=8, tie_embeddings=tie, **bias))

    old, new = made(before), made(after)
    grow_into(new, old, before, after)
    size = before.target.vocab_size
    inputs = {"source": np.array([[4, 9, 8, 3]]), "target": np.array([[2, 7, 5]])}
    logits = new(inputs).numpy()
    np.testing.assert_allclose(logits[..., :size], old(inputs).numpy(), atol=1e-6)
    assert logits.shape[-1] == after.target.vocab_size
    matrix = new.target_embedding.embeddings.numpy()
    added = matrix[size:]
    assert len(np.unique(added, axis=0)) == len(added)
    assert np.isfinite(added).all()
    assert np.abs(added).max() <= 2 * np.abs(matrix[:size]).max()


def test_k2_a_new_piece_begins_as_the_mean_of_what_it_was():
    old = pair(kind="word")
    new = add_tokens(old, ["unheard"], ["source"])
    assert origins(old.source, new.source) == [[]]
    pieces = pair()
    more = add_tokens(pieces, ["park,"], ["source"])
    [was] = origins(pieces.source, more.source)
    assert was == ids_of(pieces.source, "park,")


@pytest.mark.slow
def test_k2_exports_of_a_grown_model_agree(tmp_path):
    after = add_tokens(grow_tokenizers(pair(True), NEW, 30), ["<news>"], ["source"])
    size = after.source.vocab_size
    model = kl.Seq2Seq(kl.Seq2SeqConfig(size, size, units=8, tie_embeddings="all"))
    search = kl.BeamSearch(2, max_length=6)
    translator = kl.Translator(model, after, search, max_source_length=20)
    texts = ["<news> собака a dog", "кошка спит", "<news>"]
    expected = [x.text for x in translator.translate(texts)]
    path = kl.export_saved_model(translator, tmp_path / "model", version=1)
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    said = served(text=tf.constant(texts))["translation"].numpy()
    assert [x.decode() for x in said] == expected
    kl.export_tflite(translator, tmp_path / "model.tflite")
    edge = EdgeTranslator(tmp_path / "model.tflite")
    assert [x.text for x in edge.translate(texts)] == expected
