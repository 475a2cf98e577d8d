"""What a file says of itself, and files that say it badly."""

import sys
import zipfile

import pytest
from edge_files import LEFT_OUT, with_archive, with_metadata

from keras_luong_edge.archive import read_archive
from keras_luong_edge.tokenizers import SpecialIds


@pytest.fixture(autouse=True, scope="module")
def sentencepiece():
    return pytest.importorskip("sentencepiece")


def test_a_file_of_before_has_the_defaults(model):
    contents = read_archive(model)
    assert "special_ids" not in contents.metadata
    assert contents.special == SpecialIds(pad=0, unk=1, bos=2, eos=3)
    assert contents.bytes_per_token == 64
    assert contents.max_source_length == 12 and contents.source_length is None
    assert contents.metadata["library"] == "keras_luong 0.1.0"


def test_a_newer_file_says_them_itself(model, tmp_path):
    special = {"eos": 2, "pad": 3, "unk": 1, "bos": 0}
    changes = {"special_ids": special, "bytes_per_token": 9, "source_length": 13}
    changes["whatever"] = "nobody reads it"
    contents = read_archive(with_metadata(model, tmp_path / "x.tflite", **changes))
    assert contents.special == SpecialIds(**special)
    assert contents.bytes_per_token == 9 and contents.source_length == 13
    assert contents.target.decode([0, 3, 2, 4]) == contents.target.pieces([4])[0]


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"max_source_length": LEFT_OUT}, "it does not say max_source_length"),
        ({"tokenizers": LEFT_OUT}, "it does not say tokenizers"),
        ({"format": LEFT_OUT}, "format"),
        ({"max_source_length": 0}, "its max_source_length is 0"),
        ({"max_source_length": "12"}, "its max_source_length is '12'"),
        ({"source_length": 12}, "its source_length is 12"),
        ({"bytes_per_token": 0}, "its bytes_per_token is 0"),
        ({"bytes_per_token": None}, "its bytes_per_token is None"),
        ({"special_ids": {"pad": 0, "unk": 1, "bos": 2}}, "its eos is None"),
        ({"special_ids": [0, 1, 2, 3]}, "list"),
        ({"tokenizers": {"source": {"kind": "x"}}}, "a tokenizer of the kind 'x'"),
    ],
)
def test_metadata_that_cannot_be(model, tmp_path, changes, reason):
    path = with_metadata(model, tmp_path / "x.tflite", **changes)
    with pytest.raises(ValueError, match=f"is damaged, or no file of .*{reason}"):
        read_archive(path)


def test_another_format_is_no_damage(model, tmp_path):
    path = with_metadata(model, tmp_path / "x.tflite", format=2, library="k 9")
    with pytest.raises(ValueError, match="has format 2, written by k 9; this .* 1"):
        read_archive(path)


def damaged(how, model, target):
    """A file that somebody or something has spoilt."""
    content = model.read_bytes()
    with zipfile.ZipFile(model) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if how == "empty":
        target.touch()
    elif how == "cut":
        target.write_bytes(content[:-10])
    elif how == "no archive":
        target.write_bytes(content[:1000])
    elif how == "no metadata":
        with_archive(model, target, {"x": b""})
    elif how == "no json":
        with_archive(model, target, {**members, "keras_luong.json": b"{"})
    elif how == "no object":
        with_archive(model, target, {**members, "keras_luong.json": b"[]"})
    elif how == "no tokenizer":
        name = "keras_luong.json"
        with_archive(model, target, {name: members[name]})
    elif how == "bad tokenizer":
        with_archive(model, target, {**members, "source.spm": b"\xff" * 9})
    elif how == "bad words":
        with_archive(model, target, {**members, "target.txt": b"\xff" * 9})
    elif how == "empty tokenizer":
        with_archive(model, target, {**members, "source.spm": b""})
    return target


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "cut",
        "no archive",
        "no metadata",
        "no json",
        "no object",
        "no tokenizer",
        "bad tokenizer",
        "bad words",
        "empty tokenizer",
    ],
)
def test_a_damaged_file_is_named(how, model, tmp_path):
    path = damaged(how, model, tmp_path / "x.tflite")
    with pytest.raises(ValueError, match="x.tflite' is damaged, or no file of keras_"):
        read_archive(path)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.tflite"):
        read_archive("nowhere.tflite")
    with pytest.raises(OSError, match="tmp|directory|denied"):
        read_archive(tmp_path)


def test_without_sentencepiece(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ModuleNotFoundError, match="pip install sentencepiece"):
        read_archive(model)
