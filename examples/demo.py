"""Trains a small model, exports it, and translates with the export alone.

What `make demo` runs: some minutes on two cores. The model learns dates, times, prices
and other phrases of the embedded corpus, English to German. Then a new process, which
cannot import keras_luong, loads the SavedModel and translates the test sentences from
raw strings (`export/evaluate.py`). `keras-luong train phrases --epochs 10` is all that
trains it; `--epochs` and `--limit_examples` make it shorter.

    python examples/demo.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from keras_luong.cli.main import main as keras_luong
from keras_luong.evaluation.plots import save_attention
from keras_luong.export.saved_model import export_saved_model
from keras_luong.files import write_text
from keras_luong.runs.load_save import load
from keras_luong.text import load_corpus
from keras_luong.text.corpus import sentences

RUN = Path("runs/demo")
EVALUATE = Path(__file__).parent.parent / "export" / "evaluate.py"
SHOWN = 6


def main() -> None:
    """Trains and exports here, then translates in a new process."""
    keras_luong(["train", "phrases", "--run_dir", str(RUN), *options()])
    translator = load(RUN)
    exported = export_saved_model(translator, RUN / "saved_model", overwrite=True)
    sources, references = sentences(load_corpus("phrases", "en", "de"), "test")
    source, reference = RUN / "test.en", RUN / "test.de"
    write_text(source, "\n".join(sources) + "\n")
    write_text(reference, "\n".join(references) + "\n")
    picture = draw(translator.translate(sources[:1])[0])

    print(f"\n{'-' * 79}\nIn a new process, from the SavedModel alone:\n", flush=True)
    command = [EVALUATE, exported, source, reference, "--show", SHOWN]
    subprocess.run([sys.executable, *map(str, command)], check=True)
    print(f"\nSavedModel         {exported}")
    print(f"Attention picture  {picture}")


def options() -> list[str]:
    """Options of the training: how long it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", default="10", help="most epochs")
    parser.add_argument("--limit_examples", help="first pairs alone")
    given = vars(parser.parse_args()).items()
    return [word for name, x in given if x for word in (f"--{name}", x)]


def draw(translation) -> str:
    """Draws the attention, if there is matplotlib; says where, or why not."""
    path = RUN / "attention.png"
    try:
        save_attention(
            path,
            translation.alignment,
            translation.source_tokens,
            translation.tokens,
            title=translation.text,
        )
    except ImportError as error:
        return f"none: {error}"
    return str(path)


if __name__ == "__main__":
    main()
