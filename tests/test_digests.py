"""W8: what was damaged on its way is not used, whatever file of it: it says so."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
from export_scripts import EXPORT, export_script
from small_translator import sentencepiece_translator, word_translator

import keras_luong
from keras_luong import export_saved_model, export_tflite, save_run
from keras_luong.decoding import BeamSearch
from keras_luong.export.saved_model import check_saved_model
from keras_luong.runs.average import load_average
from keras_luong.runs.load_save import load_weights

edge = pytest.importorskip("keras_luong_edge")
TRIES = 15
pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")


@pytest.fixture(scope="module")
def translator():
    return word_translator(BeamSearch(2, max_length=6))


@pytest.fixture(scope="module")
def run(translator, tmp_path_factory):
    return save_run(translator, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def tflite(translator, tmp_path_factory):
    return export_tflite(translator, tmp_path_factory.mktemp("edge") / "m.tflite")


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("models") / "m")


def flip(path, seed, begin=0, end=None, bits=1):
    """Changes so many bits of a file."""
    content, rng = bytearray(path.read_bytes()), random.Random(seed)
    for place in rng.sample(range(begin, len(content[:end])), bits):
        content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("bits", [1, 300])
def test_w8_weights_of_a_run(run, tmp_path, bits):
    for seed in range(TRIES):
        copy = shutil.copytree(run, tmp_path / f"{seed}")
        flip(copy / "model.weights.h5", seed, bits=bits)
        with pytest.raises(ValueError, match=r"model\.weights\.h5 is damaged"):
            keras_luong.load(copy)


def test_w8_every_file_of_weights(run, translator, tmp_path):
    path = tmp_path / "1.weights.h5"
    shutil.copy(run / "model.weights.h5", path)
    load_weights(translator.model, path)
    flip(path, 0)
    with pytest.raises(ValueError, match="is damaged"):
        load_weights(translator.model, path)
    with pytest.raises(ValueError, match="is damaged"):
        load_average(translator.model, [run / "model.weights.h5", path])


def test_weights_are_a_file_of_hdf5_for_anybody(run, translator):
    path = run / "model.weights.h5"
    with h5py.File(path) as file:
        assert file.userblock_size == 512 and "optimizer" not in file
    other = keras_luong.load(run, weights=None).model
    keras.Model.load_weights(other, path)
    for a, b in zip(other.weights, translator.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_that_keras_saved_have_no_note(translator, tmp_path):
    path = tmp_path / "k.weights.h5"
    translator.model.save_weights(path)
    load_weights(translator.model, path)


def test_weights_of_keras_may_have_a_block_of_somebody_elses(translator, tmp_path):
    old, new = tmp_path / "k.weights.h5", tmp_path / "other.weights.h5"
    translator.model.save_weights(old)
    with h5py.File(old) as a, h5py.File(new, "w", userblock_size=1024) as b:
        for name in a:
            a.copy(name, b)
    with new.open("rb+") as file:
        file.write(b"the notes of another program")
    load_weights(translator.model, new)


def test_w8_weights_whose_note_is_damaged_too(run, translator, tmp_path):
    path = shutil.copy(run / "model.weights.h5", tmp_path / "1.weights.h5")
    flip(path, 0, begin=0, end=18)
    flip(path, 0, begin=4096, bits=300)
    with pytest.raises(ValueError, match="is damaged: it is not what was written"):
        load_weights(translator.model, path)


@pytest.mark.parametrize("make", [sentencepiece_translator, word_translator])
def test_w8_a_tokenizer(make, tmp_path):
    run = save_run(make(), tmp_path / "run")
    (path,) = (run / "tokenizer").glob("source.*")
    content = path.read_bytes()
    for seed in range(TRIES):
        flip(path, seed)
        with pytest.raises(ValueError, match=re.escape(f"{path} is damaged")):
            keras_luong.load(run)
        path.write_bytes(content)


@pytest.mark.parametrize("bits", [1, 207])
def test_w8_a_tflite_file(tflite, tmp_path, bits):
    path = tmp_path / "m.tflite"
    for seed in range(TRIES):
        shutil.copy(tflite, path)
        graph = path.read_bytes().index(b"PK\x03\x04")
        flip(path, seed, end=graph, bits=bits)
        with pytest.raises(ValueError, match=r"m\.tflite' is damaged"):
            edge.EdgeTranslator(path)


def test_w8_a_saved_model(version, tmp_path, monkeypatch):
    find_version = export_script("saved_models").find_version
    check_saved_model(version)
    assert find_version(version.parent) == version
    names = {x.relative_to(version) for x in version.rglob("*") if x.is_file()}
    names = {str(x) for x in names} - {"assets.extra/crc32.json"}
    assert names > {"saved_model.pb", "assets.extra/keras_luong.json"}
    for seed, name in enumerate(sorted(names)):
        copy = shutil.copytree(version, tmp_path / f"{seed}" / "1")
        flip(copy / name, seed)
        damaged = re.escape(f"{copy / name} is damaged")
        with pytest.raises(ValueError, match=damaged):
            check_saved_model(copy)
        with pytest.raises(SystemExit, match=damaged):
            find_version(copy.parent)
        (copy / name).unlink()
        with pytest.raises(ValueError, match=damaged):
            check_saved_model(copy)


@pytest.mark.parametrize(
    "content",
    ["[]", "3", "null", '"a"', "[" * 100_000, '{"saved_model.pb": null}', "{"],
)
def test_w8_the_sums_of_a_saved_model(version, tmp_path, content):
    copy = shutil.copytree(version, tmp_path / "1")
    (copy / "assets.extra" / "crc32.json").write_text(content)
    with pytest.raises(ValueError, match="is damaged"):
        check_saved_model(copy)
    with pytest.raises(SystemExit, match="is damaged"):
        export_script("saved_models").find_version(copy)


@pytest.mark.parametrize("content", ["[" * 100_000, "infinite"])
def test_w8_the_manifest_of_tokenizers(translator, tmp_path, content):
    run = save_run(translator, tmp_path / "run")
    path = run / "tokenizer" / "tokenizer.json"
    about = re.sub(r'"vocab_size": \d+', '"vocab_size": 1e999', path.read_text())
    path.write_text(about if content == "infinite" else content)
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
        keras_luong.load(run)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["evaluate.py", "serving/load.py"])
def test_w8_scripts_refuse_a_damaged_saved_model(version, tmp_path, script):
    copy = shutil.copytree(version, tmp_path / "1")
    flip(copy / "saved_model.pb", 0)
    text = tmp_path / "t"
    text.write_text("the dog\n")
    given = [copy, text, text] if script == "evaluate.py" else [text]
    given += [] if script == "evaluate.py" else ["--saved_model", copy]
    command = [sys.executable, EXPORT / script, *given]
    done = subprocess.run(map(str, command), capture_output=True, text=True)
    assert done.returncode == 1 and "saved_model.pb is damaged" in done.stderr
