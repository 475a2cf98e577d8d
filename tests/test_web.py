"""The page's modules read what Python reads, in Node.js; and the folder is written."""

import json
import random
import re
import shutil
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest
from odd_rows import ROWS
from small_translator import SENTENCES
from test_hostile import hostile
from web_page import WEB, ask, node, packed

from keras_luong.evaluation.alignment import CONTROLS, merge_weights, words_of
from keras_luong.export import web
from keras_luong.text.sentencepiece import NORMALIZATIONS, SentencePieceTokenizer
from keras_luong.text.words import WordTokenizer

edge = pytest.importorskip("keras_luong_edge")
sys.path.append(str(WEB.parent / "edge" / "tests"))

from edge_files import (  # noqa: E402
    DAMAGE,
    WRONG_METADATA,
    damaged,
    with_archive,
    with_metadata,
)

from keras_luong_edge.source import read_text  # noqa: E402
from keras_luong_edge.tokenizers import TOKENIZERS, SpecialIds  # noqa: E402

FORMAT_1 = WEB.parent / "edge" / "tests" / "format1" / "model.tflite"
PROSE = [
    "Der Fluß fließt über die Brücke, und zwei Hunde spielen im Gras.",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "Zwei junge, weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "½ Liter kostet 3,50 €; der ﬁnale Preis beträgt １２ €.",
    "我喜歡吃蘋果。 ça va? naïve café",
]
LETTERS = "aeßü▁ \u3000\u00a0\u200b\u0301ﬁ½１Ω漢가\U0001f600\0\ufeff\ufffd"


def mixed(rng):
    """Prose with letters exchanged, so that much is nearly known."""
    text = rng.choice(PROSE) * rng.randrange(1, 4)
    letters = (rng.choice(LETTERS) if rng.random() < 0.15 else x for x in text)
    return "".join(letters)


def strings(count):
    """Hostile strings, odd ones, and prose with something odd in it."""
    rng = random.Random(count)
    odd = [line[:4000] for row in ROWS.values() for line in row.lines or []]
    while len(odd) < count:
        odd.append(hostile(rng)[:4000] if len(odd) % 2 else mixed(rng).encode())
    return odd[:count]


def lists_of_ids(size, count):
    """Ids of any kind, with many special ones and unknown ones."""
    rng = random.Random(size)
    ids = [*range(size), *[0, 1, 2, 3, size, size + 9] * (size // 9)]
    return [rng.choices(ids, k=rng.randrange(12)) for _ in range(count)]


@pytest.fixture(scope="module")
def prose():
    """A SentencePiece model of it, whatever its rule."""
    corpus = [*PROSE, *(" ".join(x.split()[::-1]) for x in PROSE)] * 3
    return SentencePieceTokenizer.train(corpus, vocab_size=300)


def compare(kind, model, texts, ids):
    """The tokenizer in JavaScript with that of the edge runtime, on all of them."""
    python = TOKENIZERS[kind](model, SpecialIds())
    read = [text.decode("utf-8", "replace") for text in texts]
    given = {"model": {"kind": kind, "model": packed(model)}, "ids": ids}
    packs = [packed(text.encode()) for text in read]
    found = ask("tokenize", {**given, "texts": packs})
    expected = [python.encode(text) for text in read]
    for text, ours, theirs in zip(read, found["encoded"], expected, strict=True):
        assert ours == theirs, repr(text[:200])
    assert found["pieces"] == [python.pieces(row) for row in expected]
    assert found["decoded"] == [python.decode(row) for row in ids]
    return expected


RULES = [
    *((rule, 100) for rule in NORMALIZATIONS),
    pytest.param("identity", 10_000, marks=pytest.mark.slow),
    pytest.param("nmt_nfkc", 10_000, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("rule, count", RULES)
def test_pieces_are_pythons(prose, rule, count):
    model = prose.with_normalization(rule).model
    ids = lists_of_ids(prose.vocab_size, count)
    found = compare("sentencepiece", model, strings(count), ids)
    assert len({i for row in found for i in row}) > 50


def test_words_are_pythons():
    words = ["der", "Hund", "\ufeffa", "\u00a0", "ist\u2028", "</S>", "漢字", "a\0b"]
    model = WordTokenizer(words)._to_bytes()
    rng = random.Random(0)
    lists = [rng.choices(words, k=9) for _ in range(200)]
    mine = [rng.choice(" \n\x1c\u3000").join(x).encode() for x in lists]
    found = compare("word", model, mine + strings(100), lists_of_ids(12, 300))
    assert {i for row in found for i in row} == {1, *range(4, 12)}


OTHER_MAKERS = {  # what makes a model, and why it is refused, if it is
    "a surface of unknown words": ({"unk_surface": " ? "}, None),
    "no space in front": ({"add_dummy_prefix": False}, None),
    "all white space": ({"remove_extra_whitespaces": False}, None),
    "another algorithm": ({"model_type": "bpe"}, "is no unigram model"),
    "own symbols": ({"user_defined_symbols": "Hund"}, "“Hund” is user-defined"),
    "bytes": ({"byte_fallback": True}, "is user-defined or a byte"),
    "spaces behind": ({"treat_whitespace_as_suffix": True}, "pieces end with spaces"),
}


@pytest.mark.parametrize("options, reason", OTHER_MAKERS.values(), ids=OTHER_MAKERS)
def test_models_of_other_makers(options, reason, known, tmp_path):
    """What the library's own training does not make, and its tokenizer takes."""
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("\n".join(PROSE * 20), encoding="utf-8")
    given = {"input": str(tmp_path / "text"), "model_prefix": str(tmp_path / "m")}
    given |= {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2}
    given["vocab_size"] = 400 if "byte_fallback" in options else 120
    given["hard_vocab_limit"] = options.get("model_type") == "bpe"
    sentencepiece.SentencePieceTrainer.train(**given, **options)
    model = (tmp_path / "m.model").read_bytes()
    if reason is None:
        compare("sentencepiece", model, strings(100), lists_of_ids(90, 300))
    else:
        content = {**members_of(known), "source.spm": model}
        assert_refused([with_archive(known, tmp_path / "x", content)], [reason])


def test_what_is_read_of_a_text(prose):
    most, special = 12, SpecialIds()
    source = TOKENIZERS["sentencepiece"](prose.model, special)
    contents = edge.archive.Contents({}, source, source, special, most, None, 64)
    texts = [*SENTENCES, *strings(100), "a\ud800b", "\udfff", "\ufeff", "a" * 769]
    texts += ["\u3000", "\x1c\x85 ", " " * 900 + "der", "漢" * 256, "漢" * 257]
    question = {
        "model": {"kind": "sentencepiece", "model": packed(prose.model)},
        "maxSourceLength": most,
        "texts": [x if isinstance(x, str) else {"bytes": packed(x)} for x in texts],
    }
    found = ask("read", question)
    assert found == [read_text(text, contents)._asdict() for text in texts]
    for name in ("truncated", "empty"):
        assert {answer[name] for answer in found} == {True, False}


def test_words_of_pieces_are_pythons():
    rng = random.Random(2)
    kinds = ["▁", "▁a", "b", "▁▁", "c▁d", "▁▁e", "</s>", "<s>", "<unk>", "Hund"]
    lists = [rng.choices(kinds, k=rng.randrange(9)) for _ in range(300)]
    lists += [rng.choices(kinds[-4:], k=5) for _ in range(20)]
    for found, tokens in zip(ask("words", lists), lists, strict=True):
        said = [(x["text"], range(x["start"], x["stop"])) for x in found]
        assert said == [(x.text, x.tokens) for x in words_of(tokens)]


def test_attention_between_words_is_pythons():
    rng, numbers, given = random.Random(3), np.random.default_rng(3), []
    for _ in range(50):
        source, target = (
            [*rng.choices(["▁", "▁a", "b", "c"], k=rng.randrange(1, 7)), "</s>"]
            for _ in range(2)
        )
        weights = numbers.dirichlet(np.ones(len(source)), len(target)).tolist()
        given.append({"tokens": target, "sourceTokens": source, "alignment": weights})
    for found, x in zip(ask("links", given), given, strict=True):
        source, target, weights = x["sourceTokens"], x["tokens"], x["alignment"]
        both = target, source
        rows, columns = ([x.text not in CONTROLS for x in words_of(y)] for y in both)
        merged = merge_weights(np.array(weights), source, target)[rows][:, columns]
        shape = np.shape(found["weights"])
        assert shape[: merged.ndim] == merged.shape or not merged.size
        np.testing.assert_allclose(found["weights"], merged, atol=1e-9)


@pytest.fixture
def known(tmp_path):
    """A file of a known length, as far as it says."""
    return with_metadata(FORMAT_1, tmp_path / "known.tflite", source_length=13)


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def assert_refused(paths, reasons):
    found = ask("archive", [str(path) for path in paths])
    for answer, reason in zip(found, reasons, strict=True):
        assert re.search(reason, answer.get("error", "none"), re.DOTALL), answer


def test_what_archives_say(known, tmp_path):
    about = json.loads(members_of(known)["keras_luong.json"])
    with zipfile.ZipFile(known) as archive:
        end = min(x.header_offset for x in archive.infolist())
    crc = zlib.crc32(known.read_bytes()[:end])
    whole = with_metadata(known, tmp_path / "whole", graph_crc32=crc)
    again = tmp_path / "again"  # packed again
    again.write_bytes(b"something in front")
    with zipfile.ZipFile(again, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members_of(known).items():
            archive.writestr(name, content)
        archive.comment = b"PK said"
    found = ask("archive", [str(known), str(whole), str(again)])
    others = about, {**about, "graph_crc32": crc}, about
    assert found == [{"metadata": x} for x in others]


OWN_METADATA = [
    ({"source_length": None}, "any length.*again with --source_length 64"),
    ({"format": 2, "library": "k 9"}, "format 2, written by k 9; this page.* 1"),
    ({"tokenizers": {"source": {"kind": "toString"}}}, "damaged.*of the kind"),
]


def test_metadata_that_cannot_be(known, tmp_path):
    rows = [*OWN_METADATA, *((x, f"damaged.*{y}") for x, y in WRONG_METADATA)]
    parts = [(tmp_path / str(i), changes) for i, (changes, _) in enumerate(rows)]
    paths = [with_metadata(known, path, **changes) for path, changes in parts]
    assert_refused(paths, [f"“x.tflite” .*{reason}" for _, reason in rows])


def test_damaged_files(known, tmp_path):
    paths = [damaged(known, tmp_path / str(i), x) for i, x in enumerate(DAMAGE)]
    reasons = ["is damaged, or no file of "] * len(paths)
    for name in ("keras_luong.json", "target.txt"):  # S7
        members = {**members_of(known), name: bytes(20 << 20)}
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for other, x in members.items():
                archive.writestr(other, x)
        paths.append(tmp_path / name)
        reasons.append(f"is damaged.*{name} unpacks to more than")
    assert_refused(paths, reasons)


@pytest.mark.parametrize("name", sorted(x.name for x in WEB.glob("tests/*.test.js")))
def test_the_modules_own_tests(name):
    command = [node(), f"tests/{name}"]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "# pass" in done.stdout


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program that fails as npm does, and says what it was asked."""
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\necho "npm error code ENOTFOUND $*" >&2\nexit 1\n')
    npm.chmod(0o755)
    monkeypatch.setattr(web.shutil, "which", lambda name: str(npm))
    return npm


def test_model_and_page_lie_together(pieces_site):
    """What the model says is in `test_tflite.py`."""
    assert web.page_sources() == WEB and (WEB / "build.js").exists()
    assert {x.name for x in pieces_site.iterdir()} == {"index.html", "model.tflite"}


def test_where_there_is_no_npm_or_it_fails(pieces, npm, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(web.shutil, "which", lambda name: None)
        with pytest.raises(FileNotFoundError, match="Install Node.js 20.11 or later"):
            web.export_web(pieces, tmp_path / "site")
    for wrong in ({"source_length": 1}, {"quantize": "int3"}):  # before npm is called
        with pytest.raises(ValueError, match=next(iter(wrong))):
            web.export_web(pieces, tmp_path / "site", **wrong)
    monkeypatch.setattr(web, "export_tflite", lambda *args: None)
    # A registry that does not answer is not waited for as long as npm would.
    message = "npm could not build .*ENOTFOUND.*--fetch-retries=1 .*-timeout=30000"
    with pytest.raises(RuntimeError, match=message):
        web.export_web(pieces, tmp_path / "site")
    assert list(tmp_path.iterdir()) == [npm]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_page(pieces, npm, tmp_path, overwrite):
    def refuses(path):
        with pytest.raises(FileExistsError, match=f"{path} exists and is no page"):
            web.export_web(pieces, path, overwrite=overwrite)

    refuses(npm)
    refuses(tmp_path)
    (tmp_path / "index.html").write_text("<p>Mine")
    refuses(tmp_path)
    (tmp_path / "model.tflite").touch()
    refuses(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_page_that_is_there(pieces, tmp_path, monkeypatch):
    def export(translator, path, kind, *args):
        path.write_text(str(kind))

    monkeypatch.setattr(web, "find_npm", lambda: "npm")
    monkeypatch.setattr(web, "build_page", lambda x: shutil.copy(WEB / "index.html", x))
    monkeypatch.setattr(web, "export_tflite", export)
    path = tmp_path / "site"
    path.mkdir()  # an empty one will do
    web.export_web(pieces, path)
    (path / "old.js").touch()
    with pytest.raises(FileExistsError, match="site holds a page.*--overwrite"):
        web.export_web(pieces, path)
    web.export_web(pieces, path, quantize="int8", overwrite=True)
    assert {x.name for x in path.iterdir()} == {"index.html", "model.tflite"}
    assert (path / "model.tflite").read_text() == "int8"
