"""The command `keras-luong`, which answers `--help` before TensorFlow is imported.

To import anything of `keras_luong` runs the package's `__init__`, which imports all of
it, and with it TensorFlow: several seconds. So the package is known here before it is
run; what `keras_luong.cli` needs to read a command line is imported then, and the rest
when a command runs.
"""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Runs the process's command line."""
    spec = importlib.util.find_spec("keras_luong")
    package = importlib.util.module_from_spec(spec)
    sys.modules["keras_luong"] = package
    from keras_luong.cli.main import main

    main(ready=lambda: spec.loader.exec_module(package))


if __name__ == "__main__":
    main()
