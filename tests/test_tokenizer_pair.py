import gc
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text import sentencepiece as sentencepiece_tokenizer
from keras_luong.text import tokenizer_pair as tokenizers
from keras_luong.text.sentencepiece import _parts
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)

SENTENCES = [
    "a dog runs over the green hill",
    "the dog sees a cat",
    "a cat runs and the dog sleeps",
    "the hill is green and the cat is grey",
] * 5


def strings(tensor):
    return np.vectorize(lambda text: text.decode(), otypes=[object])(tensor.numpy())


def pairs_dataset(sources, targets):
    return tf.data.Dataset.from_tensor_slices({"source": sources, "target": targets})


@pytest.fixture(scope="module", params=[SentencePieceTokenizer, WordTokenizer])
def tokenizer(request):
    return request.param.train(SENTENCES, vocab_size=60)


def test_round_trip(tokenizer):
    texts = tf.constant(SENTENCES[:4])
    assert list(strings(tokenizer.decode(tokenizer.encode(texts)))) == SENTENCES[:4]


def test_encode_gives_int32_and_no_special_ids(tokenizer):
    ids = tokenizer.encode(tf.constant(SENTENCES))
    assert ids.dtype == tf.int32
    assert ids.flat_values.numpy().min() > EOS_ID
    assert ids.flat_values.numpy().max() < tokenizer.vocab_size


@pytest.mark.parametrize("text", [b"", b" ", b" \t\r\n  "])
def test_blank_text_is_an_empty_row(tokenizer, text):
    ids = tokenizer.encode(tf.constant([text, b"a dog"]))
    assert ids.row_lengths().numpy()[0] == 0
    assert tokenizer.decode(ids).numpy()[0] == b""


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"a \xc3", b"\0", b"a\0b", "☃".encode(), b"\xef\xbb\xbfa", b"x" * 99],
)
def test_odd_text_never_fails(tokenizer, text):
    ids = tokenizer.encode(tf.constant([text]))
    assert set(ids.flat_values.numpy()) <= {UNK_ID, *range(4, tokenizer.vocab_size)}
    tokenizer.decode(ids).numpy()[0].decode("utf-8")


@pytest.mark.parametrize(
    "tokenizer",
    [pytest.param(SentencePieceTokenizer, marks=pytest.mark.slow), WordTokenizer],
    indirect=True,
)
def test_very_long_text(tokenizer):
    ids = tokenizer.encode(tf.constant(["dog " * 50_000, "x" * 200_000]))
    dogs = tokenizer.encode(tf.constant(["dog"])).row_lengths()[0]
    assert ids.row_lengths().numpy()[0] == 50_000 * dogs.numpy()


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=30), max_size=4))
def test_any_bytes_decode_to_utf8(tokenizer, texts):
    decoded = tokenizer.decode(tokenizer.encode(tf.constant(texts, tf.string)))
    assert decoded.shape == [len(texts)]
    for text in decoded.numpy():
        text.decode("utf-8")


@pytest.mark.parametrize("special", ["<pad>", "<s>", "</s>", "<unk>"])
def test_special_tokens_in_a_text_are_plain_text(tokenizer, special):
    ids = tokenizer.encode(tf.constant([f"dog {special} dog"])).flat_values.numpy()
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
    assert tokenizer.decode(ids).numpy().decode().count("dog") == 2


def test_decode_stops_at_eos_and_drops_pad_and_bos(tokenizer):
    dog, cat = (tokenizer.encode(tf.constant(["dog", "cat"]))[i] for i in (0, 1))
    row = [[BOS_ID], dog, [PAD_ID, EOS_ID], cat, [EOS_ID]]
    assert tokenizer.decode(np.concatenate(row)).numpy() == b"dog"
    assert tokenizer.decode(np.concatenate(row[:3] + [[PAD_ID] * 3])).numpy() == b"dog"


def test_decode_without_eos_reads_the_whole_row(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["a dog"])).numpy()[0] == b"a dog"


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3), (0, 3), (2, 0), (2, 0, 3)])
def test_decode_takes_any_leading_shape(tokenizer, shape):
    ids = tf.fill(shape, UNK_ID)
    decode = tf.function(tokenizer.decode)
    assert decode(ids).shape == shape[:-1]
    assert tokenizer.pieces(ids).shape == shape


def test_ids_outside_the_vocabulary_are_unknown(tokenizer):
    odd = tf.constant([[-1, tokenizer.vocab_size, 10**9]])
    assert tokenizer.decode(odd) == tokenizer.decode(tf.fill([1, 3], UNK_ID))
    assert list(strings(tokenizer.pieces(odd))[0]) == ["<unk>"] * 3


def test_pieces_of_the_special_ids(tokenizer):
    ids = tf.constant([PAD_ID, UNK_ID, BOS_ID, EOS_ID])
    assert list(strings(tokenizer.pieces(ids))) == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize(
    "disturb",
    [
        lambda: tf.random.set_seed(1),
        lambda: keras.utils.set_random_seed(1),
        keras.backend.clear_session,
    ],
)
def test_outlives_tensorflows_kernel_cache(tokenizer, disturb):
    """tensorflow_text's own tokenizer fails here: tensorflow/text#570."""
    text = tf.constant(["a dog"])
    function = tf.function(tokenizer.encode)
    dataset = tf.data.Dataset.from_tensors(text).map(tokenizer.encode).repeat(3)
    iterator = iter(dataset)
    expected = tokenizer.encode(text).to_list()
    assert function(text).to_list() == next(iterator).to_list() == expected
    disturb()
    assert tokenizer.encode(text).to_list() == expected
    assert function(text).to_list() == next(iterator).to_list() == expected
    assert [ids.to_list() for ids in dataset] == [expected] * 3


def test_two_models_at_a_time():
    first = SentencePieceTokenizer.train(SENTENCES, vocab_size=60)
    second = SentencePieceTokenizer.train(["b c d e"], vocab_size=60)
    same_as_first = SentencePieceTokenizer(first.model)
    texts = tf.constant(["a dog runs", "b c"])
    expected = first.encode(texts).to_list()
    assert second.encode(texts).to_list() != expected
    assert same_as_first.encode(texts).to_list() == expected
    del same_as_first
    gc.collect()
    assert first.encode(texts).to_list() == expected


def test_pieces_join_to_the_text():
    tokenizer = SentencePieceTokenizer.train(SENTENCES, vocab_size=60)
    pieces = strings(tokenizer.pieces(tokenizer.encode(tf.constant(["a dog"]))[0]))
    assert "".join(pieces) == "▁a▁dog"


def test_frequent_words_stay_whole():
    """SentencePiece alone splits words that are part of no other word."""
    words = ["und", "einem", "blauen", "Hund", "springt", "über", "Zaun"]
    sentences = [" ".join(words[i:] + words[:i]) for i in range(7)] * 20
    tokenizer = SentencePieceTokenizer.train(sentences, vocab_size=100)
    ids = tokenizer.encode(tf.constant(sentences[:1]))
    assert list(strings(tokenizer.pieces(ids[0]))) == [f"▁{word}" for word in words]


def test_samples_splits_by_their_probability():
    """All splits of a word that its pieces allow, as often as the model says."""
    tokenizer = SentencePieceTokenizer.train(
        ["abab ab aba ba bab a b cab cabab"] * 3, vocab_size=14
    )
    processor, word = tokenizer._processor, "▁abab"
    scores = {}
    for where in range(1 << 4):  # the bits tell where it is cut
        cuts = [0, *(i for i in range(1, 5) if where >> (i - 1) & 1), 5]
        pieces = [word[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
        ids = tuple(processor.piece_to_id(piece) for piece in pieces)
        if 1 not in ids:
            scores[ids] = sum(processor.get_score(i) for i in ids)
    rows = tokenizer.sample(tf.constant(["abab"] * 4000), 7, alpha=0.5).to_list()
    seen = {ids: rows.count(list(ids)) / len(rows) for ids in set(map(tuple, rows))}
    weights = {ids: np.exp(0.5 * score) for ids, score in scores.items()}
    assert len(weights) > 2 and seen.keys() <= weights.keys()
    for ids, weight in weights.items():
        expected = weight / sum(weights.values())
        assert seen.get(ids, 0) == pytest.approx(expected, abs=0.03)


def test_a_large_alpha_samples_what_encode_gives():
    tokenizer = SentencePieceTokenizer.train(SENTENCES, vocab_size=60)
    texts = tf.constant([*SENTENCES[:5], "", b"\xff odd"])
    rows = tokenizer.sample(texts, 1, alpha=1e4).to_list()
    assert rows == tokenizer.encode(texts).to_list()


@pytest.mark.parametrize("alpha, error", [(0, ValueError), ("1", TypeError)])
def test_bad_alpha_is_refused(alpha, error):
    tokenizer = SentencePieceTokenizer.train(SENTENCES, vocab_size=60)
    with pytest.raises(error, match=f"alpha.*{alpha}"):
        tokenizer.sample(tf.constant(["a"]), 1, alpha)


def test_digits_can_be_split():
    tokenizer = SentencePieceTokenizer.train(
        ["page 12 12", "page 123"] * 9, vocab_size=40, split_digits=True
    )
    pieces = tokenizer.pieces(tokenizer.encode(tf.constant(["page 12"]))[0])
    assert list(strings(pieces)) == ["▁page", "▁", "1", "2"]


def test_words_are_ranked_by_frequency_then_code_point():
    tokenizer = WordTokenizer.train(["b a c b", "c <s> Ä", b"d"], vocab_size=8)
    assert tokenizer.words == ["b", "c", "a", "d"]
    ids = tokenizer.encode(tf.constant(["d b  new\tÄ"])).to_list()
    assert ids == [[7, 4, UNK_ID, UNK_ID]]
    assert tokenizer.decode(tf.constant(ids)).numpy()[0] == b"d b <unk> <unk>"


def test_training_is_deterministic(tokenizer, tmp_path):
    again = type(tokenizer).train(iter(SENTENCES), vocab_size=60)
    first, second = tokenizer.save(tmp_path / "a"), again.save(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_vocab_size_is_an_upper_limit(tokenizer):
    sentences = [f"{i} {i * i} {i % 7}" for i in range(300)]
    assert type(tokenizer).train(sentences, vocab_size=50).vocab_size == 50
    large = type(tokenizer).train(sentences, vocab_size=100_000)
    assert 50 < large.vocab_size < 100_000


@pytest.mark.parametrize("sentences", [[], [""], ["  ", b"\t"]])
def test_no_text_is_refused(tokenizer, sentences):
    with pytest.raises(ValueError, match="no text"):
        type(tokenizer).train(sentences, vocab_size=60)


@pytest.mark.parametrize("sentences", ["a dog", b"a dog", [1, 2], [None], 3])
def test_what_is_no_text_is_refused(tokenizer, sentences):
    with pytest.raises(TypeError, match="must be .*string"):
        type(tokenizer).train(sentences, vocab_size=60)


@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("letters", ["\0", "\u2585", "\u2581", " \u3000", "\0\u2585 "])
def test_texts_that_hold_nothing_to_learn_are_refused(letters, normalization):
    """SentencePiece's trainer would end the process."""
    with pytest.raises(ValueError, match="no text .* needs a sentence with a letter"):
        SentencePieceTokenizer.train([letters] * 5, 10, normalization=normalization)


def test_a_text_of_signs_that_a_rule_drops():
    with pytest.raises(ValueError, match="nor what nmt_nfkc drops"):
        SentencePieceTokenizer.train(["\x01"], 10, normalization="nmt_nfkc")
    SentencePieceTokenizer.train(["\x01", "\0", "\u2585"], 10)


def test_long_lines_are_learned_from(monkeypatch):
    """SentencePiece leaves out those above its limit, and says nothing."""
    text = ["hill " * 40, "x" * 200, "a dog"]
    whole = SentencePieceTokenizer.train(text, 20)
    monkeypatch.setattr(sentencepiece_tokenizer, "LONGEST_LINE", 16)
    parts = SentencePieceTokenizer.train(text, 20)
    assert "\u2581hill" in whole.vocabulary and "\u2581hill" in parts.vocabulary
    assert "".join(_parts(text[0])) == text[0] and "".join(_parts(text[1])) == text[1]
    assert {len(x) for x in _parts(text[0])} == {15, 5}
    assert _parts_of_words(text[0]) == {"hill"}


def _parts_of_words(text):
    return {word for part in _parts(text) for word in part.split()}


@pytest.mark.slow
def test_lines_that_sentencepiece_would_leave_out_are_learned_from():
    words = "hill " * (2**24 // 5 + 1)
    tokenizer = SentencePieceTokenizer.train([words, "a dog"], 20)
    assert "\u2581hill" in tokenizer.vocabulary


def test_lone_surrogates_are_read_as_bytes_are():
    odd, same = "a\ud800b c", b"a\xed\xa0\x80b c"
    pieces, words = SentencePieceTokenizer.train([odd] * 3, 12), WordTokenizer
    assert pieces.vocabulary == SentencePieceTokenizer.train([same] * 3, 12).vocabulary
    assert pieces.word_ids(odd) == pieces.word_ids(same)
    assert len(pieces.word_ids(odd)) == len(pieces.encode([same])[0])
    assert words.train([odd]).words == words.train([same]).words
    assert words.train([odd]).word_ids(odd) == [0, 1]
    with pytest.raises(ValueError, match=r"surrogates.*Received: 'a\\ud800b'"):
        words(["a\ud800b"])


def test_vocabulary_below_the_characters_is_refused():
    with pytest.raises(ValueError, match=r"vocab_size=8 is too small: .* need \d+"):
        SentencePieceTokenizer.train(SENTENCES, vocab_size=8)


@pytest.mark.parametrize(
    ("vocab_size", "error"), [(4, ValueError), (-1, ValueError), (8.5, TypeError)]
)
def test_bad_vocab_size_is_refused(tokenizer, vocab_size, error):
    with pytest.raises(error, match=str(vocab_size)):
        type(tokenizer).train(SENTENCES, vocab_size=vocab_size)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["a", "b", "a"], ValueError, "'a'"),
        (["a b"], ValueError, "'a b'"),
        ([""], ValueError, "''"),
        (["<s>"], ValueError, "'<s>'"),
        ([], ValueError, "at least one word"),
        ("abc", TypeError, "list of words.*'abc'"),
        (None, TypeError, "list of words.*None"),
        (["a", 1], TypeError, "must be a str.*1"),
    ],
)
def test_bad_words_are_refused(words, error, message):
    with pytest.raises(error, match=message):
        WordTokenizer(words)


@pytest.mark.parametrize("model", [None, "en.spm", 3])
def test_a_sentencepiece_model_is_bytes(model):
    with pytest.raises(TypeError, match=f"bytes of a SentencePiece model.*{model}"):
        SentencePieceTokenizer(model)


def test_save_and_load(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path / "en")
    loaded = tokenizers.load(path)
    assert type(loaded) is type(tokenizer)
    assert loaded.vocab_size == tokenizer.vocab_size
    texts = tf.constant(SENTENCES[:4])
    assert loaded.encode(texts).to_list() == tokenizer.encode(texts).to_list()


def test_words_are_saved_as_plain_text(tmp_path):
    path = WordTokenizer(["dog", "Ä\u2028b"]).save(tmp_path / "words")
    assert path == tmp_path / "words.txt"
    content = "<pad>\n<unk>\n<s>\n</s>\ndog\nÄ\u2028b\n"
    assert path.read_bytes().decode() == content
    assert tokenizers.load(path).words == ["dog", "Ä\u2028b"]


def test_missing_file_is_refused(tokenizer, tmp_path):
    path = tmp_path / f"none{tokenizer.suffix}"
    with pytest.raises(FileNotFoundError, match="none"):
        tokenizers.load(path)


def test_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"words\.json.*\.spm, \.txt"):
        tokenizers.load(tmp_path / "words.json")


@pytest.mark.parametrize("keep", [0, 3, 0.5, -1])
def test_cut_off_file_is_refused(tokenizer, tmp_path, keep):
    path = tokenizer.save(tmp_path / "en")
    content = path.read_bytes()
    cut = int(len(content) * keep) if isinstance(keep, float) else keep
    path.write_bytes(content[:cut])
    with pytest.raises(ValueError, match=rf"en\{tokenizer.suffix} is damaged"):
        tokenizers.load(path)


def test_vocabulary_that_is_not_utf8_is_refused(tmp_path):
    path = WordTokenizer(["dog"]).save(tmp_path / "words")
    path.write_bytes(path.read_bytes() + b"\xff\n")
    with pytest.raises(ValueError, match=r"words\.txt is damaged"):
        tokenizers.load(path)


def test_sentencepiece_model_with_other_special_ids_is_refused():
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=25,
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"\(-1, 0, 1, 2\)"):
        SentencePieceTokenizer(model.getvalue())


@pytest.mark.parametrize("kind", ["sentencepiece", "word"])
@pytest.mark.parametrize("shared", [True, False])
def test_pair_trains_saves_and_loads(tmp_path, kind, shared):
    german = [text.replace("dog", "Hund") for text in SENTENCES]
    pair = TokenizerPair.train(
        pairs_dataset(SENTENCES, german), kind=kind, vocab_size=60, shared=shared
    )
    loaded_from = tmp_path / "new" / "tokenizer"
    pair.save(loaded_from)
    loaded = TokenizerPair.load(loaded_from)
    assert pair.shared is loaded.shared is shared
    for one in (pair, loaded):
        assert one.target.decode(one.target.encode(["a Hund"])).numpy()[0] == b"a Hund"
        source = one.source.decode(one.source.encode(["a Hund"])).numpy()[0]
        assert (source == b"a Hund") is shared


FULL_WIDTH = ["ａ ｄｏｇ, １２ ½", "ｔｈｅ ｃａｔ… １２"] * 5


@pytest.mark.parametrize("shared", [False, True])
def test_t1_a_target_is_kept_and_a_source_is_made_plain(tmp_path, shared):
    """NFKC on both sides made `½` of no target, whatever the references had."""
    pairs = pairs_dataset(FULL_WIDTH, FULL_WIDTH)
    pair = TokenizerPair.train(pairs, vocab_size=60, shared=shared)
    texts = tf.constant(FULL_WIDTH[:2])
    source, target = (
        strings(x.decode(x.encode(texts))) for x in (pair.source, pair.target)
    )
    assert list(target) == FULL_WIDTH[:2]
    assert list(source) == ["a dog, 12 1⁄2", "the cat... 12"]
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert loaded.shared == pair.shared == shared
    assert loaded.source.model == pair.source.model
    assert loaded.target.model == pair.target.model
    if shared:
        ids = [x.encode(tf.constant(["½ "])) for x in (pair.target, pair.source)]
        assert pair.source.vocabulary == pair.target.vocabulary
        assert ids[0].to_list() != ids[1].to_list()


def test_one_rule_for_both_sides_is_one_tokenizer():
    pairs = pairs_dataset(FULL_WIDTH, FULL_WIDTH)
    rules = {
        "source_normalization": "nmt_nfkc_cf",
        "target_normalization": "nmt_nfkc_cf",
    }
    pair = TokenizerPair.train(pairs, vocab_size=60, shared=True, **rules)
    assert pair.source is pair.target
    text = pair.target.decode(pair.target.encode(tf.constant(["Ａ ＤＯＧ"])))
    assert list(strings(text)) == ["a dog"]


def test_t3_long_lines_are_learnt_from():
    """SentencePiece leaves lines of over 4,192 bytes out, unless it is told not to."""
    line = "a dog runs over the green hill " * 200
    tokenizer = SentencePieceTokenizer.train([line] * 2, vocab_size=60)
    text = strings(tokenizer.decode(tokenizer.encode(tf.constant([line]))))
    assert list(text) == [line.strip()]


def test_pair_without_target_is_shared():
    tokenizer = WordTokenizer(["dog"])
    assert TokenizerPair(tokenizer).shared
    assert not TokenizerPair(tokenizer, WordTokenizer(["Hund"])).shared


def test_pair_of_two_kinds(tmp_path):
    pieces = SentencePieceTokenizer.train(SENTENCES, vocab_size=60)
    TokenizerPair(pieces, WordTokenizer(["Hund"])).save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert isinstance(loaded.source, SentencePieceTokenizer)
    assert loaded.target.words == ["Hund"]


def test_limit_samples_evenly_and_deterministically():
    words = [f"w{i:04d}" for i in range(2000)]

    def train(seed):
        return TokenizerPair.train(
            pairs_dataset(words, words), kind="word", limit=200, seed=seed
        )

    kept = train(0).source.words
    assert len(kept) == 200
    assert train(0).target.words == kept
    assert train(1).source.words != kept
    quarters = np.histogram([int(word[1:]) for word in kept], bins=4, range=(0, 2000))
    assert quarters[0].min() > 25  # expected 50; below 25 once in a million


def test_no_limit_takes_every_pair():
    words, others = ([f"{side}{i}" for i in range(5000)] for side in "ab")
    pair = TokenizerPair.train(pairs_dataset(words, others), "word", limit=None)
    assert set(pair.source.words) == set(words)
    assert set(pair.target.words) == set(others)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"kind": "bpe"}, "sentencepiece.*word.*'bpe'"), ({"limit": 0}, "limit.* 0")],
)
def test_bad_arguments_of_pair_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenizerPair.train(pairs_dataset(["a"], ["b"]), **arguments)


def test_what_is_no_tokenizer_or_corpus_is_refused():
    with pytest.raises(TypeError, match="source must be a tokenizer.*None"):
        TokenizerPair(None)
    with pytest.raises(TypeError, match="target must be a tokenizer.*3"):
        TokenizerPair(WordTokenizer(["a"]), 3)
    with pytest.raises(TypeError, match="pairs must be a tf.data.Dataset"):
        TokenizerPair.train([("a", "b")])


@pytest.mark.parametrize("missing", ["tokenizer.json", "source.txt", "target.txt"])
def test_pair_with_a_missing_file_is_refused(tmp_path, missing):
    TokenizerPair(WordTokenizer(["dog"]), WordTokenizer(["Hund"])).save(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing):
        TokenizerPair.load(tmp_path)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"shared": true}'])
def test_pair_with_a_damaged_manifest_is_refused(tmp_path, manifest):
    TokenizerPair(WordTokenizer(["dog"])).save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(manifest)
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
        TokenizerPair.load(tmp_path)


def test_pair_whose_vocabulary_lost_lines_is_refused(tmp_path):
    TokenizerPair(WordTokenizer(["dog", "cat"])).save(tmp_path)
    WordTokenizer(["dog"]).save(tmp_path / "source")
    assert json.loads((tmp_path / "tokenizer.json").read_text())["shared"]
    with pytest.raises(ValueError, match=r"source\.txt is damaged: it has 5 .* says 6"):
        TokenizerPair.load(tmp_path)


def test_exports_in_a_saved_model(tokenizer, tmp_path):
    module = tf.Module()
    module.tokenizers = TokenizerPair(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(texts):
        ids = module.tokenizers.source.encode(texts).to_tensor(PAD_ID)
        return {"text": module.tokenizers.target.decode(ids)}

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path), signatures=serve)
    serving = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    texts = tf.constant(["the dog", "", "\0", SENTENCES[0]])
    expected = tokenizer.decode(tokenizer.encode(texts)).numpy()
    assert expected[0] == b"the dog"
    assert list(serving(texts)["text"].numpy()) == list(expected)
