"""Files that differ from a given one."""

import json
import zipfile
import zlib

LEFT_OUT = object()
FULLY_CONNECTED = 9
ABOUT = "keras_luong.json"
IDS = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}

#: What a file may say wrongly, and what every runtime says of it.
WRONG_METADATA = [
    ({"max_source_length": LEFT_OUT}, "it does not say max_source_length"),
    ({"tokenizers": LEFT_OUT}, "it does not say tokenizers"),
    ({"format": LEFT_OUT}, "format"),
    ({"max_source_length": 0}, "its max_source_length is 0"),
    ({"max_source_length": "12"}, "its max_source_length is .12."),
    ({"max_source_length": True}, "its max_source_length is [Tt]rue"),
    ({"source_length": 12}, "its source_length is 12"),
    ({"bytes_per_token": 0}, "its bytes_per_token is 0"),
    ({"bytes_per_token": None}, "its bytes_per_token is (None|null)"),
    ({"n_best": 0}, "its n_best is 0"),
    ({"special_ids": {"pad": 0, "unk": 1, "bos": 2}}, "its eos is "),
    ({"special_ids": [0, 1, 2, 3]}, "its pad is|list"),
    ({"special_ids": {**IDS, "pad": 2_000_000_000}}, "lacks special tokens"),
    # S7: no file needs so much.
    ({"max_source_length": 65_537}, "its max_source_length is 65537"),
    ({"source_length": 65_538}, "its source_length is 65538"),
    ({"bytes_per_token": 1_025}, "its bytes_per_token is 1025"),
    ({"graph_crc32": 1}, "its graph is not what was written"),
    ({"tokenizers": {"source": {"kind": "x"}}}, "a tokenizer of the kind .x."),
]


def spoilt(content):
    """One bit of a tokenizer is another one."""
    place = content.index(b"source.spm") + 200
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


#: Damage: of all bytes, or of what the archive holds; None for a file that is missing.
DAMAGE = [
    lambda content: b"",
    lambda content: content[:-10],
    lambda content: content[:1000],
    spoilt,
    {ABOUT: None},
    {ABOUT: b"{"},
    {ABOUT: b"[]"},
    {"source.spm": None},
    {"source.spm": b"\xff" * 9},
    {"source.spm": b""},
    {"target.txt": b"\xff" * 9},
]


def damaged(path, target, change):
    """The same file with one of `DAMAGE`."""
    if callable(change):
        target.write_bytes(change(path.read_bytes()))
        return target
    with zipfile.ZipFile(path) as archive:
        members = {x: archive.read(x) for x in archive.namelist()}
    left = {k: v for k, v in {**members, **change}.items() if v is not None}
    return with_archive(path, target, left)


def with_metadata(path, target, **changes):
    """The same file, but for what it says of itself; `LEFT_OUT` leaves a key out."""
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read("keras_luong.json"))
        rest = {x: archive.read(x) for x in archive.namelist()}
    about = {k: v for k, v in {**about, **changes}.items() if v is not LEFT_OUT}
    rest["keras_luong.json"] = json.dumps(about).encode()
    return with_archive(path, target, rest)


def with_archive(path, target, members):
    """The same graph with another archive."""
    with zipfile.ZipFile(path) as archive:
        graph = path.read_bytes()[: min(x.header_offset for x in archive.infolist())]
    target.write_bytes(graph)
    with zipfile.ZipFile(target, "a") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def with_graph(path, target, change):
    """The same archive behind another graph; `change` changes the graph in place."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    graph = schema.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = schema.ModelT.InitFromObj(graph)
    change(graph)
    builder = flatbuffers.Builder(0)
    builder.Finish(graph.Pack(builder), b"TFL3")
    changed = bytes(builder.Output())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(members["keras_luong.json"])
    if "graph_crc32" in about:
        about["graph_crc32"] = zlib.crc32(changed)
        members["keras_luong.json"] = json.dumps(about).encode()
    target.write_bytes(changed)
    with zipfile.ZipFile(target, "a") as other:
        for name, content in members.items():
            other.writestr(name, content)
    return target


def too_new(graph):
    """Asks for a version of an operation that no runtime has yet."""
    (code,) = (x for x in graph.operatorCodes if x.builtinCode == FULLY_CONNECTED)
    code.version = 99
