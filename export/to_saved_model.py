"""Exports a trained run as a SavedModel for TensorFlow Serving: strings in and out.

The same as `keras-luong export`, see its `--help`.

    python export/to_saved_model.py runs/mine models/mine --version 1 --beam_width 5
    python export/to_saved_model.py runs/a models/ab --ensemble runs/b
"""

import sys

from keras_luong.cli.main import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
