"""W8: what was damaged on its way is not used, whatever file of it: it says so."""

import random
import re
import shutil

import h5py
import keras
import numpy as np
import pytest
from export_scripts import export_script
from small_translator import sentencepiece_translator, word_translator

import keras_luong as kl
from keras_luong.export.saved_model import check_saved_model
from keras_luong.runs.load_save import load_weights

edge = pytest.importorskip("keras_luong_edge")
TRIES = 15
pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")


@pytest.fixture(scope="module")
def translator():
    return word_translator(kl.BeamSearch(2, max_length=6))


@pytest.fixture(scope="module")
def run(translator, tmp_path_factory):
    return kl.save_run(translator, tmp_path_factory.mktemp("runs") / "run")


def flip(path, seed, begin=0, end=None, bits=1):
    """Changes so many bits of a file."""
    content, rng = bytearray(path.read_bytes()), random.Random(seed)
    for place in rng.sample(range(begin, len(content[:end])), bits):
        content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def check_refused(load, path, *bits, end=None):
    """Whatever bits are others, `load` says that the file is damaged."""
    content, said = path.read_bytes(), rf"{re.escape(path.name)}'? is damaged"
    for seed in range(TRIES):
        for number in bits:
            path.write_bytes(content)
            flip(path, seed, end=end, bits=number)
            with pytest.raises(ValueError, match=said):
                load()


def test_weights(run, translator, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / "model.weights.h5"
    check_refused(lambda: load_weights(translator.model, path), path, 1, 300)
    for content in (path.read_bytes(), path.read_bytes()[:3000], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.weights\.h5 is damaged"):
            kl.load(copy)


def test_weights_whose_note_is_damaged_too(run, translator, tmp_path):
    path = shutil.copy(run / "model.weights.h5", tmp_path / "1.weights.h5")
    load_weights(translator.model, path)
    flip(path, 0, begin=0, end=18)
    flip(path, 0, begin=4096, bits=300)
    with pytest.raises(ValueError, match="is damaged: it is not what was written"):
        load_weights(translator.model, path)


def test_weights_are_a_file_of_hdf5_for_anybody(run, translator):
    path = run / "model.weights.h5"
    with h5py.File(path) as file:
        assert file.userblock_size == 512 and "optimizer" not in file
    other = kl.load(run, weights=None).model
    keras.Model.load_weights(other, path)
    for a, b in zip(other.weights, translator.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_of_others_have_no_note_or_a_block_of_their_own(translator, tmp_path):
    old, new = tmp_path / "k.weights.h5", tmp_path / "other.weights.h5"
    translator.model.save_weights(old)
    load_weights(translator.model, old)
    with h5py.File(old) as a, h5py.File(new, "w", userblock_size=1024) as b:
        for name in a:
            a.copy(name, b)
    with new.open("rb+") as file:
        file.write(b"the notes of another program")
    load_weights(translator.model, new)


@pytest.mark.parametrize("make", [sentencepiece_translator, word_translator])
def test_a_tokenizer(make, tmp_path):
    run = kl.save_run(make(), tmp_path / "run")
    (path,) = (run / "tokenizer").glob("source.*")
    check_refused(lambda: kl.load(run), path, 1)


def test_a_tflite_file(pieces_tflite, tmp_path):
    path = shutil.copy(pieces_tflite, tmp_path / "m.tflite")
    end = path.read_bytes().index(b"PK\x03\x04")
    check_refused(lambda: edge.EdgeTranslator(path), path, 1, 207, end=end)


def test_a_saved_model(pieces_model, tmp_path):
    find_version = export_script("saved_models").find_version
    check_saved_model(pieces_model)
    assert find_version(pieces_model.parent) == pieces_model
    copy = shutil.copytree(pieces_model, tmp_path / "models" / "1")
    sums = copy / "assets.extra" / "crc32.json"
    paths = {path for path in copy.rglob("*") if path.is_file()} - {sums}
    assert paths > {copy / "saved_model.pb", copy / "assets.extra" / "keras_luong.json"}

    def refused(said):
        with pytest.raises(ValueError, match=said):
            check_saved_model(copy)
        with pytest.raises(SystemExit, match=said):
            find_version(copy.parent)

    for seed, path in enumerate(sorted(paths)):
        content, said = path.read_bytes(), re.escape(f"{path} is damaged")
        flip(path, seed)
        refused(said)
        path.unlink()
        with pytest.raises(ValueError, match=said):
            check_saved_model(copy)
        path.write_bytes(content)
    check_saved_model(copy)
    for text in ("[]", "null", '"a"', "[" * 100_000, '{"saved_model.pb": null}', "{"):
        sums.write_text(text)
        refused("is damaged")
