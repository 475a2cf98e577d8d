"""What a file says of itself, and files that say it badly."""

import sys
import tracemalloc
import zipfile
import zlib

import pytest
from edge_files import LEFT_OUT, with_archive, with_metadata

from keras_luong_edge.archive import read_archive
from keras_luong_edge.tokenizers import SpecialIds

IDS = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}


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
        ({"max_source_length": True}, "its max_source_length is True"),
        ({"special_ids": {**IDS, "pad": 2_000_000_000}}, "lacks special tokens"),
        # S7: no file needs so much.
        ({"max_source_length": 2_000_000_000}, "its max_source_length is 2000000000"),
        ({"source_length": 2_000_000_000}, "its source_length is 2000000000"),
        ({"bytes_per_token": 2_000_000_000}, "its bytes_per_token is 2000000000"),
        ({"graph_crc32": 1}, "its graph is not what was written"),
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


def test_w8_a_graph_that_is_whole(model, tmp_path):
    with zipfile.ZipFile(model) as archive:
        end = min(x.header_offset for x in archive.infolist())
    crc = zlib.crc32(model.read_bytes()[:end])
    path = with_metadata(model, tmp_path / "x.tflite", graph_crc32=crc)
    assert read_archive(path).metadata["graph_crc32"] == crc


@pytest.mark.parametrize("name", ["keras_luong.json", "source.spm", "target.txt"])
def test_s7_an_archive_that_unpacks_to_gigabytes(model, tmp_path, name):
    with zipfile.ZipFile(model) as archive:
        members = {x: archive.read(x) for x in archive.namelist()}
    path = with_archive(model, tmp_path / "x.tflite", members)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        with pytest.warns(UserWarning, match="Duplicate name"):
            writer = archive.open(name, "w", force_zip64=True)
        with writer:
            for _ in range(200):
                writer.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=f"x.tflite' is damaged.*{name} unpacks to more"
    ):
        read_archive(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20


def test_s7_a_size_that_is_not_true_unpacks_no_further(model, tmp_path):
    with zipfile.ZipFile(model) as archive:
        members = {x: archive.read(x) for x in archive.namelist()}
    members["source.spm"] = bytes(100 << 20)
    path = tmp_path / "x.tflite"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    size = (100 << 20).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (99).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(ValueError, match="x.tflite' is damaged"):
        read_archive(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20


def test_s7_only_what_every_runtime_unpacks(model, tmp_path):
    with zipfile.ZipFile(model) as archive:
        members = {x: archive.read(x) for x in archive.namelist()}
    path = tmp_path / "x.tflite"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match="is damaged.*compressed by method 14"):
        read_archive(path)
