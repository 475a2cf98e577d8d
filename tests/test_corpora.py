import pytest

from keras_luong.text import load_corpus
from keras_luong.text.corpora import TfdsCorpus
from keras_luong.text.corpus import fingerprint, sentences
from keras_luong.text.phrases import PhraseCorpus


def texts(corpus, split):
    return [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs(split).as_numpy_iterator()
    ]


@pytest.fixture
def mocked_tfds():
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=5):
        yield tfds


def test_tfds_corpus(mocked_tfds):
    corpus = load_corpus("wmt14_translate/de-en", "en", "de")
    assert isinstance(corpus, TfdsCorpus)
    assert set(corpus.splits) >= {"train", "validation", "test"}
    expected = mocked_tfds.load("wmt14_translate/de-en", split="train")
    expected = [
        (pair["en"].decode(), pair["de"].decode())
        for pair in expected.as_numpy_iterator()
    ]
    assert len(expected) == 5
    assert texts(corpus, "train") == expected
    other_way = TfdsCorpus("wmt14_translate/de-en", "de", "en")
    assert texts(other_way, "train") == [(de, en) for en, de in expected]


def test_what_tells_prepared_data_from_other(mocked_tfds):
    found = {
        fingerprint(TfdsCorpus("wmt14_translate/de-en", *languages), split)
        for languages in (("en", "de"), ("de", "en"))
        for split in ("train", "validation")
    }
    assert len(found) == 4 and {x.pairs for x in found} == {5}
    again = TfdsCorpus("wmt14_translate/de-en", "en", "de")
    assert fingerprint(again, "train") in found


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("wmt14_translate/de-en", ("en", "fr"), r"in 'fr'; it has \['de', 'en'\]"),
        ("wmt14_translate/de-en", ("en", "en"), "same: 'en'"),
        ("imdb_reviews", ("en", "de"), r"in 'en'; it has \['label', 'text'\]"),
        ("wmt14_translate/xx-en", ("en", "xx"), r"it has \[.*'de-en'"),
        ("no_such_thing", ("en", "de"), "no data set 'no_such_thing'"),
    ],
)
def test_bad_tfds_arguments_are_refused(mocked_tfds, name, languages, message):
    with pytest.raises(ValueError, match=message):
        TfdsCorpus(name, *languages)


def test_unknown_tfds_split_is_refused(mocked_tfds):
    corpus = TfdsCorpus("wmt14_translate/de-en", "en", "de")
    with pytest.raises(ValueError, match="no split 'valid'.*'validation'"):
        corpus.pairs("valid")


@pytest.mark.parametrize("data", ["no_such_thing", "./no/such/directory", "a b"])
def test_load_says_what_it_tried(data):
    with pytest.raises(ValueError, match="(?s)'phrases'.*directory.*datasets") as error:
        load_corpus(data, "en", "de")
    assert repr(data) in str(error.value)


@pytest.mark.slow
def test_load_phrases():
    assert isinstance(load_corpus("phrases", "en", "de"), PhraseCorpus)
    assert load_corpus("phrases").target_language == "de"


def test_other_corpora_need_both_languages(tmp_path):
    (tmp_path / "corpus").mkdir()
    for data in (tmp_path / "corpse", "wmt14_translate/de-en", {"test": ("a", "b")}):
        with pytest.raises(ValueError, match="needs both languages. .* 'en' and None"):
            load_corpus(data, "en")
    with pytest.raises(ValueError, match="no folder or file.*and needs both"):
        load_corpus(tmp_path / "corpse")


def test_load_text_files(tmp_path):
    files = tmp_path / "test.en", tmp_path / "test.de"
    for path, text in zip(files, "12", strict=True):
        path.write_text(f"{text}\n")
    corpus = load_corpus(str(tmp_path), "en", "de")
    assert texts(corpus, "test") == [("1", "2")]
    corpus = load_corpus({"test": files}, "en", "de")
    assert texts(corpus, "test") == [("1", "2")]


def test_sentences_of_a_split(tmp_path):
    (tmp_path / "val.en").write_text("a b\n\u00fc\n")
    (tmp_path / "val.de").write_text("A B\n\u00dc\n")
    corpus = load_corpus(str(tmp_path), "en", "de")
    assert sentences(corpus, "validation") == (["a b", "ü"], ["A B", "Ü"])
    assert sentences(corpus, "validation", 1) == (["a b"], ["A B"])
    with pytest.raises(ValueError, match="no split 'test'"):
        sentences(corpus, "test")
