import subprocess
import sys
from pathlib import Path

import pytest

import keras_luong as kl

SCRIPT = Path(__file__).parent.parent / "export" / "evaluate.py"
SENTENCES = ["a dog runs", "the dog sees a cat", "a b", "", "runs  runs runs"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small untrained model: what it says matters less than that it is the same."""
    tokenizer = kl.WordTokenizer.train(SENTENCES, vocab_size=20)
    config = kl.Seq2SeqConfig(tokenizer.vocab_size, tokenizer.vocab_size, units=8)
    search = kl.BeamSearch(beam_width=2, max_length=6)
    translator = kl.Translator(kl.Seq2Seq(config), tokenizer, search)
    path = kl.export_saved_model(translator, tmp_path_factory.mktemp("model"))
    return translator, path


def run(*arguments):
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_it_scores_what_the_translator_says(exported, tmp_path):
    translator, path = exported
    expected = [t.text for t in translator.translate(SENTENCES)]
    source, reference = tmp_path / "test.en", tmp_path / "test.de"
    source.write_text("\n".join(SENTENCES) + "\n")
    reference.write_text("\n".join(expected) + "\n")
    output = tmp_path / "output"
    options = ["--tokenize", "none", "--output", output, "--show", 1]
    result = run(path, source, reference, *options)
    assert result.returncode == 0, result.stderr
    assert output.read_text() == "\n".join(expected) + "\n"
    assert f"source       {SENTENCES[0]}" in result.stdout
    assert "BLEU 100.00 on 5 sentences" in result.stdout
    assert "chrF 100.00" in result.stdout and "nc:6" in result.stdout
    assert "tok:none" in result.stdout
