"""Files that differ from a given one."""

import json
import zipfile
import zlib

LEFT_OUT = object()
FULLY_CONNECTED = 9


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
