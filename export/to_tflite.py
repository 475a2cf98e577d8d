"""Exports a trained run as a `.tflite` file for the edge, search and tokenizers too.

The same as `keras-luong export` with a file's name, see its `--help`.

    python export/to_tflite.py runs/mine mine.tflite --quantize int8
    keras-luong-edge mine.tflite < in.txt > out.txt
"""

import sys

from keras_luong.cli.main import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
