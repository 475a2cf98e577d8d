"""Ten thousand random strings of up to 100 kB: no runtime crashes, hangs or grows.

And all of them say what Keras says.
"""

import random
import re
import time

import psutil
import pytest
import tensorflow as tf
from export_scripts import export_script
from small_translator import sentencepiece_translator

from keras_luong import export_saved_model, export_tflite

c_client = export_script("serving.c_client")

quiet = pytest.mark.filterwarnings("ignore:.*max_source_length")
pytestmark = [pytest.mark.slow, quiet]

COUNT, LONGEST = 10_000, 100_000
PATIENCE = 2.0  # seconds
GROWTH = 60  # megabytes, when what may be kept has been seen: a leak goes on


def hostile(rng):
    """A string that nobody would send in good faith."""
    length = rng.randrange(LONGEST + 1)
    if rng.random() < 0.5:  # short ones too
        length = int(length ** rng.random())
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(length)
    if kind == 1:  # any code points, surrogates among them
        points = (chr(rng.randrange(0x110000)) for _ in range(length // 4))
        return "".join(points).encode("utf-8", "surrogatepass")
    if kind == 2:
        return rng.randbytes(1) * length
    if kind == 3:
        spaces = " \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u3000"
        return "".join(rng.choices(spaces, k=length // 3)).encode()
    words = "the red dog ▁ </s> <s> <pad> <unk> \0 ﷺ e\u0301".split(" ")
    separator = rng.choice(["", " ", "\n"])
    return separator.join(rng.choices(words, k=length // 8)).encode()[:length]


@pytest.fixture(scope="module")
def strings():
    rng = random.Random(0)
    return [b"", *(hostile(rng) for _ in range(COUNT - 2)), b"\xff" * LONGEST]


@pytest.fixture(scope="module")
def translator():
    return sentencepiece_translator()


def bombard(translate, strings):
    """What it says; it must be quick, and keep nothing."""
    process, answers, slowest = psutil.Process(), [], 0.0
    translate(b"the red dog")  # what is made once does not count
    for i, text in enumerate(strings):
        start = time.perf_counter()
        answers.append(translate(text))
        slowest = max(slowest, time.perf_counter() - start)
        if i == len(strings) // 2:
            before = process.memory_info().rss
    grown = (process.memory_info().rss - before) / 1e6
    print(f"slowest {1e3 * slowest:.0f} ms, grown by {grown:.0f} MB")
    assert slowest < PATIENCE and grown < GROWTH
    return answers


@pytest.fixture(scope="module")
def expected(translator, strings):
    return bombard(lambda text: translator.translate([text])[0].text, strings)


def test_keras(expected):
    assert len(expected) == COUNT and len(set(expected)) > 10


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("model"))


def test_saved_model(version, strings, expected):
    serve = tf.saved_model.load(version).signatures["serving_default"]

    def translate(text):
        said = serve(text=tf.constant([text]))["translation"]
        return said.numpy()[0].decode()

    assert bombard(translate, strings) == expected


def test_c_api(version, strings, expected, tmp_path):
    if c_client.compiler() is None:
        pytest.skip("there is no C compiler")
    program = c_client.build(tmp_path)
    said, report = c_client.translate(program, version, strings, threads=2)
    print(report)
    assert [x.decode() for x in said] == expected
    slowest, before, after = (
        float(re.search(pattern, report)[1])
        for pattern in (r"slowest ([\d.]+)", r"megabytes: (\d+) after", r"(\d+) now")
    )
    assert slowest < 1e3 * PATIENCE
    assert after - before < GROWTH


def test_tflite(translator, strings, expected, tmp_path):
    edge = pytest.importorskip("keras_luong_edge")
    pytest.importorskip("ai_edge_litert.interpreter")
    on_edge = edge.EdgeTranslator(export_tflite(translator, tmp_path / "x.tflite"))
    assert bombard(lambda x: on_edge.translate([x])[0].text, strings) == expected
