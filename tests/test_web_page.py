"""The page in Chromium says what Python says, to anybody, on any screen, offline too.

`KERAS_LUONG_WEB_RUN` names a trained run, and `KERAS_LUONG_WEB_TEXT` a file of
sentences, for the test of a real model; else it is the run of `make demo` and its test
set.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_translator
from odd_rows import ROWS
from test_hostile import hostile
from web_page import WEB, Quiet, address, built_page, drive, packed, served

import keras_luong
from keras_luong import BeamSearch, export_tflite
from keras_luong.evaluation.alignment import merge_weights
from keras_luong.files import read_lines

quiet = pytest.mark.filterwarnings("ignore:.*max_source_length")
pytestmark = [pytest.mark.slow, quiet]
edge = pytest.importorskip("keras_luong_edge")
pytest.importorskip("ai_edge_litert.interpreter")
sys.path.append(str(WEB.parent / "edge" / "tests"))

from edge_files import too_new, with_graph  # noqa: E402

ROOT = WEB.parents[1]
SAID = "the red dog"
LENGTH = 31
GROWTH = 15  # megabytes
LARGEST = 100_000  # bytes of the page, but for LiteRT's files and the model
HOSTILE = 2_000
SAYS = 8  # words of each translation, at least
FAINTEST = 0.05  # attention that has a line


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return built_page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def translator():
    """Untrained, and it says at least eight words to everything, in three ways."""
    translator = small_translator.sentencepiece_translator()
    tokenizer = translator.tokenizers
    pieces = [p.decode() for p in tokenizer.pieces(range(40)).numpy()]
    words = [i for i, p in enumerate(pieces) if p.startswith("▁") and p != "▁"]
    others = set(range(40)) - {0, 2, 3, *words}
    sizes = {"n_best": 3, "min_length": SAYS, "max_length": SAYS + 1}
    return translator.with_search(**sizes, forbidden=tuple(sorted(others)))


@pytest.fixture(scope="module")
def site(page, translator, tmp_path_factory):
    """The folder of a page with a tiny model."""
    path = tmp_path_factory.mktemp("site") / "site"
    shutil.copytree(page / "dist", path)
    settings = {"run": {"settings": {"source": "en", "target": "de"}}}
    model = path / "model.tflite"
    export_tflite(translator, model, source_length=LENGTH, metadata=settings)
    pieces = small_translator.sentencepiece_translator().with_search(n_best=3)
    export_tflite(pieces, path / "pieces.tflite", source_length=LENGTH)
    words = small_translator.word_translator(BeamSearch(3, n_best=3, max_length=6))
    export_tflite(words, path / "words.tflite", source_length=11)
    export_tflite(translator, path / "any.tflite")
    export_tflite(translator, path / "long.tflite", source_length=1000)
    return path


@pytest.fixture(scope="module")
def server(site):
    with served(site) as server:
        yield server


@pytest.fixture(scope="module")
def on_edge(site):
    return edge.EdgeTranslator(site / "model.tflite")


def compare(answers, expected, tolerance=1e-3):
    """All that was found in the browser, with all that Python found."""
    for found, hypotheses in zip(answers, expected, strict=True):
        assert [x["text"] for x in found] == [x.text for x in hypotheses]
        for one, other in zip(found, hypotheses, strict=True):
            assert one["tokens"] == other.tokens
            assert one["sourceTokens"] == other.source_tokens
            assert one["truncated"] == other.truncated
            assert one["score"] == pytest.approx(other.score, abs=tolerance)
            alignment = np.reshape(one["alignment"], other.alignment.shape)
            np.testing.assert_allclose(alignment, other.alignment, atol=tolerance)


@pytest.mark.parametrize("model", ["pieces.tflite", "words.tflite"])
def test_hostile_strings(model, page, server, site):
    rng = random.Random(4)
    texts = [small_translator.to_bytes(text) for text in small_translator.SENTENCES]
    texts += [line for row in ROWS.values() for line in row.lines or []]
    texts += [hostile(rng)[:20_000] for _ in range(HOSTILE - len(texts))]
    packs = [packed(text) for text in texts]
    found = drive(page, "worker", server, model=model, texts=packs)
    expected = edge.EdgeTranslator(site / model).translate(texts, n_best=True)
    compare(found["answers"], expected)
    # What is read, as the models are untrained, and say what they like.
    assert len({tuple(x[0].source_tokens) for x in expected}) > 50
    assert max(map(len, expected)) > 1 and any(x[0].truncated for x in expected)


def test_what_stands_on_the_page(page, server, on_edge):
    texts = [
        *(SAID, "", "  \u3000", f"{SAID}\n\nthe cat is in the house\n", "the " * 99),
        "the " * 99 + f"\n{SAID}",
        *("\ufeffthe\x00dog \U0001f600", "<b>the</b> &amp; dog"),
    ]
    said = drive(page, "texts", server, texts=texts)
    for text, found in zip(texts, said["found"], strict=True):
        lines = text.split("\n")
        assert found["lines"] == [x.text for x in on_edge.translate(lines)]
        cut = [x.truncated for x in on_edge.translate(lines)]
        assert found["cut"] == cut
        assert ("longer than the model reads" in found["note"]) == any(cut)
    (hypotheses,) = on_edge.translate(texts[-1:], n_best=True)
    assert said["choices"] == [x.text for x in hypotheses]
    assert said["title"] == "English to German"
    assert not [x for x in said["said"] if x.startswith("error")]
    assert {x.startswith(address(server)) for x in said["requests"]} == {True}


@pytest.mark.parametrize("words, said", [("test", "# skipped 0"), ("run check", "")])
def test_tests_and_types_of_the_modules_with_npms_packages(page, words, said):
    command = ["npm", *words.split()]
    done = subprocess.run(command, cwd=page, capture_output=True, text=True)
    assert done.returncode == 0 and said in done.stdout, done.stdout[-3000:]


def test_how_much_is_loaded(page):
    files = filter(Path.is_file, (page / "dist").iterdir())
    sizes = {x.name: x.stat().st_size for x in files}
    assert sizes.pop("LICENSE.txt") and sizes.pop("THIRD_PARTY.txt")
    assert 0 < sum(sizes.values()) < LARGEST, sizes


def test_keyboard_alone(page, server, on_edge):
    found = drive(page, "keyboard", server, text=SAID)
    (hypotheses,) = on_edge.translate([SAID], n_best=True)
    first, second, *_ = (x.text for x in hypotheses)
    assert found["best"] == [first] and found["second"] == [second]
    words = SAID.split()
    steps = [at for _, at in found["steps"]]
    start, to_choices, down, tab, end, left, to_target, right, alt, *rest = steps
    assert (start, to_choices, down) == ("source", "0", "1")
    assert tab.startswith(f"{words[0]}: “{words[0]}” was looked at by ")
    assert end.startswith(f"{words[2]}: ") and left.startswith(f"{words[1]}: ")
    assert to_target.startswith("{0}: “{0}” looked at ".format(second.split()[0]))
    assert right == f"{second.split()[1]}: {found['caption']}" == alt
    assert rest[-3:] == ["file", "url", "source"]  # where one goes on, once it is open
    assert "nowhere.tflite” cannot be loaded: the server says 404" in found["error"]
    assert "“model.tflite” is still in use" in found["error"]


def test_a_telephone(page, server):
    found = drive(page, "phone", server, text="the red dog is in the house")
    assert found["width"] == 360  # nothing to be scrolled sideways
    for name in ("source", "target"):
        assert 0 <= found[name]["left"] and found[name]["right"] <= 360
    assert found["source"]["bottom"] <= found["target"]["top"]
    source, target = found["words"]
    assert source["right"] < target["left"]  # one column beside the other
    assert found["fontSize"] >= 16  # else telephones magnify the page
    assert min(found["heights"]) >= 24
    assert " looked at " in found["caption"]


def test_a_word_without_an_end(page, server):
    text = f"{'dogcat' * 300} " + "d\u0338\u0321\u0359" * 300
    found = drive(page, "endless", server, text=text)
    assert all(len(word) <= 31 for word in found["words"])
    assert min(found["widths"]) > 100 and max(found["heights"]) < 1000


def test_lines_and_shading(page, server, on_edge):
    """Drawn as the attention is that Python has, and lit under the pointer."""
    found = drive(page, "figure", server, text=SAID, word=2)
    (best,) = on_edge.translate([SAID])
    merged = merge_weights(best.alignment, best.source_tokens, best.tokens)
    said = best.text.split()
    weights = merged[: len(said), : len(SAID.split())]  # without the ends
    drawn = {(x["target"], x["source"]): x for x in found["lines"]}
    assert set(drawn) == set(zip(*np.nonzero(weights >= FAINTEST), strict=True))
    assert len(drawn) > 3
    for place, line in drawn.items():
        assert line["weight"] == pytest.approx(weights[place], abs=2e-3)
        assert line["isLong"] and line["isBright"] == (place[0] == 2)
    np.testing.assert_allclose(found["shading"], weights[2], atol=2e-3)
    assert len(set(found["colors"])) > 1
    assert found["caption"].startswith(f"“{said[2]}” looked at ")
    assert found["languages"] == ["en"] * 3 + ["de"] * len(said)
    assert found["order"] == ["others", "attention"]
    # Unknown words are those of the text.
    found = drive(page, "figure", server, text="the ω dog", word=0)
    assert found["words"] == ["the", "⁇", "dog"]


def test_several_lines(page, server, site):
    sentences = [f"the {x} dog" for x in ("red", "blue", "in", "is", "under", "tree")]
    text, added = "\n".join(sentences), "the house"
    model = "model.tflite"
    found = drive(page, "lines", server, text=text, added=added, model=model)
    on_edge = edge.EdgeTranslator(site / model)
    expected = on_edge.translate([*sentences, added], n_best=True)
    best = [x[0].text for x in expected]
    assert len({*best}) > 2 and found["all"] == best[:-1]
    done = [[x["text"] for x in y["lines"] if x["isDone"]] for y in found["snapshots"]]
    assert {len(x) for x in done} > {1, len(sentences) - 1}  # not all at once
    lines = [x for y in found["snapshots"] for x in y["lines"] if x["isDone"]]
    assert {x["opacity"] for x in lines} == {"1"}
    *others, second = found["second"]
    assert others == best[:-2] and second == expected[-2][1].text
    assert found["elsewhere"] == "0" and found["back"] == "1"
    assert found["without"] == found["second"]
    assert found["directions"] == ["auto"] * (len(sentences) + 1)
    all_said, new = (x.split("\n") for x in found["spoken"])
    assert all_said == best[:-1]
    assert set(new) <= {second, best[-1]} and len(new) < len(all_said)


def test_manners(page, server):
    found = drive(page, "manners", server, text=SAID)
    assert found["rings"] == ["none", "solid"]
    assert found["isTextKept"]
    assert found["failed"]["state"].startswith("model.tflite, ")
    assert "“bad.tflite” is damaged" in found["failed"]["error"]
    assert "“model.tflite” is still in use." in found["failed"]["error"]
    assert found["later"] == {"state": found["failed"]["state"], "isWrong": False}
    assert not found["isWrong"]


def test_addresses_of_files(page, server):
    queries = {
        "?model=http://[": "“http://[” is not the address of a file",
        "?model=100%25.tflite": "“100%.tflite” cannot be loaded: the server says 40",
        "?model=https://example.org/x": "“https://example.org/x” cannot be loaded. It",
        "?model=words.tflite": None,
    }
    *wrong, right = drive(page, "addresses", server, queries=[*queries])
    for said, reason in zip(wrong, queries.values(), strict=False):
        assert said["error"].startswith(reason) and said["isOpen"]
        assert said["state"] == "There is no model."
    assert right["error"] is None and right["state"].startswith("words.tflite, ")


class OnlyGet(Quiet):
    """A server that does not know HEAD."""

    def do_HEAD(self):
        self.send_error(405)


def test_folders_and_servers_that_lack_something(page, site, tmp_path):
    with served(site, OnlyGet) as server:
        (found,) = drive(page, "addresses", server, queries=[""])
    assert found["state"].startswith("model.tflite, ") and found["error"] is None
    shutil.copytree(page / "dist", tmp_path / "site")
    with served(tmp_path / "site") as server:
        (found,) = drive(page, "addresses", server, queries=[""])
    assert found["state"].startswith("Drop a .tflite file") and found["isOpen"]
    (tmp_path / "site" / "worker.js").unlink()
    shutil.copy(site / "model.tflite", tmp_path / "site")
    with served(tmp_path / "site") as server:
        (found,) = drive(page, "addresses", server, queries=[""])
    assert "(worker.js) cannot be loaded" in found["error"]


def test_axe_finds_nothing(page, server):
    found = drive(page, "axe", server, text=SAID)
    assert len(found) == 6
    assert not any(x["violations"] for x in found), found
    assert min(x["passes"] for x in found) > 20


def test_the_policy_holds(page, server):
    with served(page / "dist") as other:
        found = drive(page, "policy", server, text=SAID, other=address(other))
        assert other.asked == []
    assert {x.startswith(address(server)) for x in found["requests"][:-1]} == {True}
    assert found["image"] == "refused"
    for where in ("page", "worker"):
        said = found[where]
        assert set(said) == {"fetch", "eval", "socket"}
        assert "allowed" not in said.values()
        assert "Content Security Policy" in said["eval"]


@pytest.mark.parametrize("scenario", ["offline", "update", "replaced"])
def test_without_a_network(scenario, page, site, on_edge, tmp_path):
    """After one visit; of a new release too, with the model that an old one loaded.

    S8: half of a model does not take the place of a whole one.
    """
    folder = shutil.copytree(site, tmp_path / "site")
    with served(folder) as server:
        kept = {"text": SAID, "folder": str(folder)}
        found = drive(page, scenario, server, server.close, **kept)
    expected = [x.text for x in on_edge.translate([SAID])]
    if scenario == "offline":
        assert found["before"] == found["after"] == expected
        assert found["isIsolated"]  # by the service worker's headers
        return
    assert found["lines"] == expected
    if scenario == "update":
        assert {*found["before"], "/model.tflite"} <= {*found["after"]}
    else:
        assert "“model.tflite” is damaged" in found["error"]


def test_files_that_are_dropped(page, server, site, on_edge, tmp_path):
    content = (site / "model.tflite").read_bytes()
    newer = with_graph(site / "model.tflite", tmp_path / "newer.tflite", too_new)
    files = {
        "any.tflite": (site / "any.tflite").read_bytes(),
        "empty.tflite": b"",
        "cut.tflite": content[: len(content) // 2],
        "page.html": b"<!doctype html>",
        "spoilt.tflite": bytes(99) + content[99:],
        "newer.tflite": newer.read_bytes(),
        "words.tflite": (site / "words.tflite").read_bytes(),
    }
    packs = [{"file": name, "content": packed(x)} for name, x in files.items()]
    *wrong, last = drive(page, "drops", server, text=SAID, files=packs)
    reasons = [
        "“any.tflite” takes sources of any length.*again with --source_length 64",
        "“empty.tflite” is damaged, or no file of keras-luong export: it has no",
        "“cut.tflite” is damaged",
        "“page.html” is damaged",
        "“spoilt.tflite” is damaged.*its graph is not what was written",
        r"LiteRT.js .* graph of “newer.tflite”: Didn't find op .*'99'",
    ]
    for said, reason in zip(wrong, reasons, strict=True):
        with pytest.raises(ValueError, match=reason):
            raise ValueError(said["error"])
        assert said["state"].startswith("model.tflite, ")
        assert said["lines"] == [x.text for x in on_edge.translate([SAID])]
    assert last["error"] is None and "words.tflite" in last["state"]
    expected = edge.EdgeTranslator(site / "words.tflite").translate([SAID])
    assert last["lines"] == [x.text for x in expected]


def test_five_hundred_in_a_row(page, server):
    """Each has 0.1 MB of attention, which nothing frees but the page."""
    model = "long.tflite"
    found = drive(page, "memory", server, text=SAID, times=500, model=model)
    print("megabytes:", *map(round, found["used"]))
    _, _, before, *_, after = found["used"]
    assert after - before < GROWTH
    assert found["lines"][0]


def trained():
    """A trained run, and sentences for it."""
    # One that is empty counts as none.
    path = Path(os.environ.get("KERAS_LUONG_WEB_RUN") or ROOT / "runs" / "demo")
    text = Path(os.environ.get("KERAS_LUONG_WEB_TEXT") or path / "test.en")
    if not (path / "run.json").is_file() or not text.is_file():
        pytest.skip("there is no trained run")
    return path, text


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_trained_model(quantize, page, site, server):
    path, text = trained()
    sentences = [line for line, _ in zip(read_lines(text), range(200), strict=False)]
    translator = keras_luong.load(path)
    model = site / "trained.tflite"
    widest = translator.with_search(n_best=2)
    export_tflite(widest, model, quantize=quantize, source_length=64)
    packs = [packed(sentence.encode()) for sentence in sentences]
    found = drive(page, "worker", server, model=model.name, texts=packs)["answers"]
    expected = edge.EdgeTranslator(model).translate(sentences, n_best=True)
    texts = [hypotheses[0]["text"] for hypotheses in found]
    if quantize is None:
        compare(found, expected)
        assert texts == [x.text for x in translator.translate(sentences)]
        return
    # WebAssembly rounds products of integers otherwise, which may decide a near tie.
    others = [i for i, x in enumerate(expected) if texts[i] != x[0].text]
    assert len(others) <= len(texts) // 100, [(texts[i], expected[i]) for i in others]
    for i in set(range(len(texts))).difference(others):
        assert found[i][0]["score"] == pytest.approx(expected[i][0].score, abs=0.05)
