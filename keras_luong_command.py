"""The command `keras-luong`, which answers `--help` before TensorFlow is imported.

To import anything of `keras_luong` runs the package's `__init__`, which imports all of
it, and with it TensorFlow: several seconds. So the package is known here before it is
run; what `keras_luong.cli` needs to read a command line is imported then, and the rest
when a command runs.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable


def main() -> None:
    """Runs the process's command line."""
    try:
        ready = _known() if "keras_luong" not in sys.modules else int
        from keras_luong.cli.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    main(ready=ready)


def _known() -> Callable[[], object]:
    """Makes the package known: -> what runs it."""
    spec = importlib.util.find_spec("keras_luong")
    package = importlib.util.module_from_spec(spec)
    sys.modules["keras_luong"] = package
    return functools.partial(spec.loader.exec_module, package)


if __name__ == "__main__":
    main()
