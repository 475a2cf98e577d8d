r"""Translates a file with Keras and with every export, and compares line by line.

The same as `keras-luong verify`, see its `--help`; and where there is a C compiler, the
SavedModel also runs in a C program on TensorFlow's C API, which loads it as TensorFlow
Serving does.

    python export/verify.py runs/mine test.en --reference test.de --bleu_tokenize none \
        --saved_model models/mine/1 --tflite mine.tflite mine.int8.tflite
"""

import functools
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from serving import c_client  # noqa: E402

from keras_luong.cli import verify  # noqa: E402
from keras_luong.cli.main import main  # noqa: E402


def by_c(version: Path, texts: list[str]) -> list[str]:
    """The SavedModel in C, a text at a time from as many threads as cores."""
    with tempfile.TemporaryDirectory() as directory:
        program = c_client.build(directory)
        lines = [text.encode() for text in texts]
        said, report = c_client.translate(program, version, lines, os.cpu_count())
    print(report)
    return [text.decode() for text in said]


def run(options: verify.VerifyOptions) -> None:
    """Translates, compares, and says by its exit code whether all agree."""
    more = {}
    if options.saved_model and c_client.compiler():
        more["SavedModel, C"] = functools.partial(by_c, options.saved_model)
    verify.run(options, more)


if __name__ == "__main__":
    main(["verify", *sys.argv[1:]], run=run)
