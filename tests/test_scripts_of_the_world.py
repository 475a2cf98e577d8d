"""Targets in scripts of their own: what a model has learnt it writes, to the letter.

Each corpus in `tests/data/scripts` is 24 pairs, English and the other language. A small
model learns them by heart, so its translations are perfect, and must score 100.
"""

import json
import re
from pathlib import Path

import pytest
import tensorflow as tf
from commands import run

from keras_luong import export_saved_model, export_tflite, load
from keras_luong.cli.main import main
from keras_luong.config.training import bleu_tokenization

FILES = sorted((Path(__file__).parent / "data" / "scripts").glob("*.tsv"))
OPTIONS = """
    --preset small --units 64 --dropout 0 --vocab_size 600 --batch_tokens 1000
    --optimizer adam --learning_rate 0.01 --schedule constant --epochs 30
    --beam_width 1 --eval_sentences 1 --keep_epochs 0
""".split()


@pytest.fixture(
    scope="module",
    params=[pytest.param(path, id=path.stem, marks=pytest.mark.slow) for path in FILES],
)
def learnt(request, tmp_path_factory):
    """A run directory, its sources and its references."""
    folder, code = tmp_path_factory.mktemp("scripts"), request.param.stem
    lines = request.param.read_text(encoding="utf-8").splitlines()
    sides = list(zip(*(line.split("\t") for line in lines), strict=True))
    for split in ("train", "val"):
        for side, texts in zip(("en", code), sides, strict=True):
            text = "".join(f"{line}\n" for line in texts)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8")
    languages = ["--source", "en", "--target", code]
    more = ["--shared"] if code in ("zh", "ja") else []
    words = ["--run_dir", str(folder / "run"), "--data", str(folder), *OPTIONS, *more]
    main(["train", *words, *languages])
    return folder / "run", *sides


def test_t1_perfect_translations_score_100(learnt, capsys):
    path, sources, references = learnt
    said = [translation.text for translation in load(path).translate(sources)]
    assert said == [" ".join(line.split()) for line in references]
    results = json.loads((path / "results.json").read_text())["validation"]
    assert results["bleu"] == pytest.approx(100) and results["chrf"] == 100
    code = path.parent.glob("val.*")
    (code,) = {file.suffix[1:] for file in code} - {"en"}
    assert f"tok:{bleu_tokenization(code)}|" in results["signature"]
    capsys.readouterr()
    run("evaluate", path)
    out = capsys.readouterr().out
    (scores,) = re.findall(r"^\| run +\|(.*)", out, re.MULTILINE)
    assert scores.split() == ["100.00", "|", "100.00", "|", "0.00", "|"]


def test_t1_every_runtime_writes_the_same(learnt, tmp_path):
    path, sources, references = learnt
    expected = [" ".join(line.split()) for line in references]
    translator = load(path)
    version = export_saved_model(translator, tmp_path / "model")
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    said = serve(text=tf.constant(sources))["translation"].numpy()
    assert [text.decode() for text in said] == expected
    edge = pytest.importorskip("keras_luong_edge")
    pytest.importorskip("ai_edge_litert.interpreter")
    on_edge = edge.EdgeTranslator(export_tflite(translator, tmp_path / "x.tflite"))
    assert [x.text for x in on_edge.translate(sources)] == expected


def test_t1_what_is_given_is_kept(learnt):
    """Prefixes, and targets that are scored, are the text itself."""
    path, sources, references = learnt
    translator = load(path).with_search(beam_width=2)
    expected = [" ".join(line.split()) for line in references]
    scored = translator.score(sources, references)
    assert [x.text for x in scored] == expected
    starts = [text[: len(text) // 2].strip() for text in expected]
    found = translator.translate(sources, prefixes=starts)
    pairs = zip(found, starts, strict=True)
    assert all(x.text.startswith(start) for x, start in pairs)
