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
PAGE = "index.html"
MARK = '<meta name="generator" content="keras_luong" />'  # in every page
SOURCE_LENGTH = 64
NPM = "Node.js 20.11 or later, which comes with npm (https://nodejs.org)"
# npm's own patience with a registry that does not answer is several minutes.
_NPM = (
    "--omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline --engine-strict "
    "--fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=30000"
).split()
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
        overwrite: Whether to replace the folder if it holds such a page. Any other
            folder is left alone, unless it is empty.
        metadata: Anything that JSON can represent, to be kept in the model's file. The
            page names the languages in `metadata["run"]["settings"]`, if there are.

    Returns:
        The folder's path.

    Raises:
        FileExistsError: If the folder holds something that may not be replaced.
        FileNotFoundError: If there is no npm.
        RuntimeError: If npm cannot build the page.
        TypeError, ValueError: As `export_tflite` does.

    Example:
        >>> from keras_luong.export import export_web
        >>> translator = kl.load("runs/mine")
        >>> path = export_web(translator, "site", quantize="int8")
        >>> # python -m http.server --directory site
        >>> (path / "index.html").exists()
        True
    """
    target = check_path("directory", directory)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        page = target / PAGE
        is_page = (target / MODEL).is_file() and page.is_file()
        if not is_page or MARK not in page.read_text("utf-8", errors="replace"):
            raise FileExistsError(
                f"{target} exists and is no page of keras_luong, so it is not "
                "replaced. Choose another folder."
            )
        if not overwrite:
            raise FileExistsError(
                f"{target} holds a page. Choose another folder, or replace it with "
                "overwrite=True (--overwrite)."
            )
    find_npm()
    with saved_directory_beside(target, overwrite) as beside:
        # It refuses what is wrong before npm is waited for.
        export_tflite(translator, beside / MODEL, quantize, source_length, metadata)
        build_page(beside)
    return target


def find_npm() -> str:
    """Returns where npm is.

    Raises:
        FileNotFoundError: If there is none.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            f"npm builds the page, and there is none. Install {NPM}."
        )
    return npm


def build_page(directory: Path) -> None:
    """Builds the page alone, without a model.

    Args:
        directory: The folder to put it in; made if it does not exist.

    Raises:
        FileNotFoundError: If there is no npm.
        RuntimeError: If npm cannot build it, with npm's reason.
    """
    npm = find_npm()
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made, "web")  # npm writes into its folder
        shutil.copytree(page_sources(), copy, ignore=_MADE)
        _run([npm, "ci", *_NPM], copy)
        _run([npm, "run", "build"], copy)
        shutil.copytree(copy / "dist", directory, dirs_exist_ok=True)


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
