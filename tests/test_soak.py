"""Twenty thousand requests from sixteen threads on one loaded SavedModel."""

from __future__ import annotations

import pytest
import tensorflow as tf
from export_scripts import export_script
from small_translator import SENTENCES, sentencepiece_translator, to_bytes

from keras_luong import export_saved_model

load = export_script("load")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*max_source_length"),
]


def test_answers_stay_the_same_and_memory_does_not_grow(tmp_path):
    translator = sentencepiece_translator()
    path = export_saved_model(translator, tmp_path)
    serve = tf.saved_model.load(path).signatures["serving_default"]

    def translate(texts):
        return serve(text=tf.constant(texts))["translation"].numpy().tolist()

    texts = [text for text in map(to_bytes, SENTENCES) if len(text) < 1000]
    found = load.send(translate, texts, requests=20_000, threads=16)
    before, after = found.megabytes
    print(f"{before:.0f} MB after a tenth, {after:.0f} MB at the end")
    assert found.failed == found.changed == 0
    assert len(found.milliseconds) == 20_000
    assert after - before < 60
    for text in texts:  # and they were right
        assert translate([text]) == [translator.translate([text])[0].text.encode()]
