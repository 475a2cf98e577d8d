"""The command `keras-luong`, which answers `--help` before TensorFlow is imported.

To import anything of `keras_luong` runs the package's `__init__`, which imports all of
it, and with it TensorFlow: several seconds; so does that of `keras_luong.text`. So both
are known here before they are run; what `keras_luong.cli` needs to read a command line
and to look for its files is imported then, and the rest when a command runs.
"""

from __future__ import annotations

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
    """Makes the packages known: -> what runs them."""
    packages = []
    for name in ("keras_luong", "keras_luong.text"):
        package = importlib.util.module_from_spec(importlib.util.find_spec(name))
        sys.modules[name] = package
        packages.append(package)
    packages[0].text = packages[1]

    def run() -> None:
        for package in packages:
            package.__spec__.loader.exec_module(package)

    return run


if __name__ == "__main__":
    main()
