"""Trains a small model, exports it, and translates with the export alone.

What `make demo` runs: some minutes on two cores. The model learns dates, times, prices
and other phrases of the embedded corpus, English to German, by `train_wmt.py`. Then a
new process, which cannot import keras_luong, loads the SavedModel and translates the
test sentences from raw strings.

    python examples/demo.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = Path("runs/demo")
TEST = RUN / "test.json"
PICTURE = RUN / "attention.png"
FLAGS = """
    --data phrases --vocab_size 2000 --preset small --units 128 --init_scale 0.25
    --dropout 0.1 --batch_tokens 600 --optimizer adam --learning_rate 0.002
    --constant_epochs 4 --epochs 6 --eval_sentences 100
""".split()
SHOWN = 6


def main() -> None:
    """Trains and exports here, then translates in a new process."""
    import train_wmt

    from keras_luong.serving.saved_model import export_saved_model
    from keras_luong.text import corpora
    from keras_luong.training.run_directory import load, write_json

    train_wmt.main(["--run_dir", str(RUN), *FLAGS])
    translator = load(RUN)
    exported = export_saved_model(translator, RUN / "saved_model", overwrite=True)
    sources, references = train_wmt.sentences(
        corpora.load("phrases", "en", "de"), "test"
    )
    write_json(TEST, {"sources": sources, "references": references})
    drawn = draw(translator.translate(sources[:1])[0])

    print(f"\n{'-' * 79}\nIn a new process, from the SavedModel alone:\n", flush=True)
    command = [sys.executable, __file__, "translate", str(exported)]
    subprocess.run(command, check=True)
    print(f"SavedModel         {exported}")
    print(f"Attention picture  {drawn}")


def draw(translation) -> str:
    """Draws the attention, if there is matplotlib."""
    from keras_luong.evaluation.plots import save_attention

    try:
        save_attention(
            PICTURE,
            translation.alignment,
            translation.source_tokens,
            translation.tokens,
        )
    except ImportError as error:
        return f"none: {error}"
    return str(PICTURE)


def translate(exported: str) -> None:
    """What a user of the SavedModel does; needs nothing of this library."""
    sys.modules["keras_luong"] = None  # an import of it would fail from here on
    import sacrebleu
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (SentencePiece's ops)

    test = json.loads(TEST.read_text(encoding="utf-8"))
    serve = tf.saved_model.load(exported).signatures["serving_default"]
    translations = []
    for start in range(0, len(test["sources"]), 50):
        texts = tf.constant(test["sources"][start : start + 50])
        outputs = serve(text=texts)["translation"].numpy()
        translations += [text.decode() for text in outputs]

    rows = zip(test["sources"], translations, test["references"], strict=True)
    for source, translation, reference in list(rows)[:SHOWN]:
        print(f"source       {source}")
        print(f"translation  {translation}")
        print(f"reference    {reference}\n")
    metric = sacrebleu.BLEU()
    score = metric.corpus_score(translations, [test["references"]]).score
    print(f"BLEU {score:.2f} on {len(translations)} test sentences")
    print(f"     {metric.get_signature()}\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["translate"]:
        translate(sys.argv[2])
    else:
        main()
