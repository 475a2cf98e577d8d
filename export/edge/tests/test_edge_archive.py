"""What a file says of itself, and files that say it badly."""

import sys
import tracemalloc
import zipfile
import zlib

import pytest
from edge_files import ABOUT, DAMAGE, WRONG_METADATA, damaged, with_metadata

from keras_luong_edge.archive import read_archive
from keras_luong_edge.tokenizers import SpecialIds


@pytest.fixture(autouse=True, scope="module")
def sentencepiece():
    return pytest.importorskip("sentencepiece")


@pytest.fixture
def members(model):
    with zipfile.ZipFile(model) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_file_of_before_has_the_defaults(model):
    contents = read_archive(model)
    assert "special_ids" not in contents.metadata
    assert contents.special == SpecialIds(pad=0, unk=1, bos=2, eos=3)
    assert contents.bytes_per_token == 64 and contents.n_best is None
    assert contents.max_source_length == 12 and contents.source_length is None
    assert contents.metadata["library"] == "keras_luong 0.1.0"


def test_a_newer_file_says_them_itself(model, tmp_path):
    special = {"eos": 2, "pad": 3, "unk": 1, "bos": 0}
    with zipfile.ZipFile(model) as archive:
        end = min(x.header_offset for x in archive.infolist())
    crc = zlib.crc32(model.read_bytes()[:end])
    changes = {"special_ids": special, "bytes_per_token": 9, "source_length": 13}
    changes |= {"whatever": "nobody reads it", "n_best": 2, "graph_crc32": crc}
    contents = read_archive(with_metadata(model, tmp_path / "x.tflite", **changes))
    assert contents.special == SpecialIds(**special)
    assert contents.bytes_per_token == 9 and contents.source_length == 13
    assert contents.n_best == 2
    assert contents.target.decode([0, 3, 2, 4]) == contents.target.pieces([4])[0]


@pytest.mark.parametrize("changes, reason", WRONG_METADATA)
def test_metadata_that_cannot_be(model, tmp_path, changes, reason):
    path = with_metadata(model, tmp_path / "x.tflite", **changes)
    with pytest.raises(ValueError, match=f"is damaged, or no file of .*{reason}"):
        read_archive(path)


def test_another_format_is_no_damage(model, tmp_path):
    path = with_metadata(model, tmp_path / "x.tflite", format=2, library="k 9")
    with pytest.raises(ValueError, match="has format 2, written by k 9; this .* 1"):
        read_archive(path)


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_file_is_named(change, model, tmp_path):
    path = damaged(model, tmp_path / "x.tflite", change)
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


@pytest.fixture
def little_memory():
    """What is read meanwhile takes less than 60 MB."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 << 20


def packed(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", [ABOUT, "source.spm", "target.txt"])
def test_s7_what_unpacks_to_gigabytes(members, tmp_path, name, request):
    path = packed(tmp_path / "x.tflite", {**members, name: bytes(64 << 20)})
    assert path.stat().st_size < 1 << 20
    request.getfixturevalue("little_memory")
    message = f"x.tflite' is damaged.*{name} unpacks to more"
    with pytest.raises(ValueError, match=message):
        read_archive(path)


def test_s7_a_size_that_is_not_true_unpacks_no_further(members, tmp_path, request):
    size, said = (x.to_bytes(4, "little") for x in (64 << 20, 99))
    path = packed(tmp_path / "x.tflite", {**members, "source.spm": bytes(64 << 20)})
    path.write_bytes(path.read_bytes().replace(size, said))
    request.getfixturevalue("little_memory")
    with pytest.raises(ValueError, match="x.tflite' is damaged"):
        read_archive(path)


def test_s7_only_what_every_runtime_unpacks(members, tmp_path):
    path = packed(tmp_path / "x.tflite", members, zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match="is damaged.*compressed by method 14"):
        read_archive(path)
