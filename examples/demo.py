"""Trains a small model, exports it, and translates with the export alone.

What `make demo` runs: some minutes on two cores. `keras-luong train phrases` learns
dates, times, prices and other phrases of the embedded corpus, English to German. Then a
new process, which cannot import keras_luong, loads the SavedModel and translates the
test sentences from raw strings (`export/evaluate.py`).

    python examples/demo.py
    python examples/demo.py --epochs 2    # or other options of `keras-luong train`
"""

import subprocess
import sys
from pathlib import Path

import keras_luong as kl
from keras_luong.evaluation.plots import save_attention

RUN = Path("runs/demo")
EVALUATE = Path(__file__).parent.parent / "export" / "evaluate.py"


def main() -> None:
    """Trains in one process, exports in this one, and translates in a third."""
    options = sys.argv[1:] or ["--epochs", "10"]
    train = [sys.executable, "-m", "keras_luong.cli", "train", "phrases"]
    subprocess.run([*train, "--run_dir", RUN, *options], check=True)

    translator = kl.load(RUN)
    exported = kl.export_saved_model(translator, RUN / "saved_model", overwrite=True)
    sides = kl.text.sentences(kl.text.load_corpus("phrases"), "test")
    files = RUN / "test.en", RUN / "test.de"
    for path, lines in zip(files, sides, strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    picture = draw(translator.translate(sides[0][:1])[0])

    print(f"\n{'-' * 79}\nIn a new process, from the SavedModel alone:\n", flush=True)
    evaluate = [sys.executable, EVALUATE, exported, *files, "--show", "6"]
    subprocess.run(evaluate, check=True)
    print(f"\nSavedModel         {exported}")
    print(f"Attention picture  {picture}")


def draw(found: kl.Translation) -> Path | str:
    """Draws the attention, if there is matplotlib; says where, or why not."""
    path = RUN / "attention.png"
    tokens = found.source_tokens, found.tokens
    try:
        save_attention(path, found.alignment, *tokens, title=found.text)
    except ImportError as error:
        return f"none: {error}"
    return path


if __name__ == "__main__":
    main()
