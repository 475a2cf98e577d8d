"""Export for browsers: a folder with a page that translates, ready to be served.

```
index.html, page.js, worker.js, …   the page, built of `export/web` by npm
litert-2.5.3/                       LiteRT.js, which runs the model
model.tflite                        model, search and tokenizers
```

Everything happens in the browser; nothing is sent anywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_luong.checks import check_path
from keras_luong.export.tflite import export_tflite
from keras_luong.files import saved_directory_beside
from keras_luong.translation.translator import Translator

MODEL = "model.tflite"  # the page looks for it
SOURCE_LENGTH = 64
NPM = "Node.js 20.11 or later, which comes with npm (https://nodejs.org)"
# What is no source, where the page has been built in the checkout.
_MADE = shutil.ignore_patterns("node_modules", "dist", "tests")


def export_web(
    translator: Translator,
    directory: str | os.PathLike[str],
    quantize: str | None = None,
    source_length: int = SOURCE_LENGTH,
    overwrite: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a folder with a page that translates in the browser.

    Any file server will do, such as `python -m http.server`; after its first visit the
    page works without one. npm builds it on the spot, from what this package brings
    with it and two packages of npm's registry, LiteRT.js and esbuild.

    Args:
        translator: What `keras_luong.export_tflite` takes.
        directory: The folder; made if it does not exist.
        quantize: As for `export_tflite`; "int8" is the smallest.
        source_length: The tokens that the model computes for every text, the end token
            and padding included.
        overwrite: Whether to replace the folder if there is one.
        metadata: Anything that JSON can represent, to be kept in the model's file. The
            page names the languages in `metadata["run"]["settings"]`, if there are.

    Returns:
        The folder's path.

    Raises:
        FileExistsError: If the folder exists and is not empty, unless `overwrite`.
        FileNotFoundError: If there is no npm.
        RuntimeError: If npm cannot build the page.
        TypeError, ValueError: As `export_tflite` does.

    Example:
        >>> export_web(translator, "site", quantize="int8")
        >>> # python -m http.server --directory site
    """
    target = check_path("directory", directory)
    if target.is_file() or (
        target.exists() and any(target.iterdir()) and not overwrite
    ):
        raise FileExistsError(
            f"{target} exists. Choose another folder, or overwrite it (--overwrite)."
        )
    with saved_directory_beside(target, overwrite) as beside:
        build_page(beside)  # takes seconds, and says at once that there is no npm
        export_tflite(translator, beside / MODEL, quantize, source_length, metadata)
    return target


def build_page(directory: Path) -> None:
    """Builds the page alone, without a model.

    Args:
        directory: An empty folder, or one to be made.

    Raises:
        FileNotFoundError: If there is no npm.
        RuntimeError: If npm cannot build it, with npm's reason.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            f"npm builds the page, and there is none. Install {NPM}."
        )
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made, "web")  # npm writes into its folder
        shutil.copytree(page_sources(), copy, ignore=_MADE)
        options = "--omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline"
        _run([npm, "ci", "--engine-strict", *options.split()], copy)
        _run([npm, "run", "build", "--", str(directory.resolve())], copy)


def page_sources() -> Path:
    """Returns where the page's sources are: in the package, or in the checkout."""
    here = Path(__file__).parent
    installed = here / "page"  # setup.py puts it there
    return installed if installed.exists() else here.parents[1] / "export" / "web"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = [
            line for line in (done.stderr or done.stdout).splitlines() if line.strip()
        ]
        raise RuntimeError(
            f"npm could not build the page, for which it needs {NPM}, and its registry "
            f"once: {' '.join(said[:6])}"
        )
