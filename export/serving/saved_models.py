"""SavedModels on disk: which version there is, what it says of itself, if it is whole.

The scripts of this folder load them without keras_luong, so they read by themselves
what its export wrote beside the graph:

```
assets.extra/keras_luong.json   the search, the limits, and the run
assets.extra/crc32.json         the CRC-32 of every other file of the version
```
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

ABOUT = Path("assets.extra", "keras_luong.json")
SUMS = Path("assets.extra", "crc32.json")


def find_version(path: str | Path) -> Path:
    """Finds a version, and reads all of it once.

    Args:
        path: The version's directory, or the model's, of which the highest is taken.

    Returns:
        The version's directory.

    Raises:
        SystemExit: If there is none, or a file of it is damaged or missing. (Of a
            SavedModel that is not keras_luong's nobody knows what it should be.)
    """
    path = Path(path)
    if not (path / "saved_model.pb").exists():
        versions = [x.parent for x in path.glob("*/saved_model.pb")]
        numbered = [x for x in versions if x.name.isdecimal()]
        if not numbered:
            sys.exit(f"{path} has no saved_model.pb, and no version that has one.")
        path = max(numbered, key=lambda x: int(x.name))
    path = path.resolve()
    for name, known in _read(path / SUMS).items():
        if not (path / name).is_file() or crc32(path / name) != known:
            sys.exit(f"{path / name} is damaged: it is not what was written.")
    return path


def most_rows(version: Path) -> int | None:
    """Returns how many sentences an export takes in a request, if it says so."""
    return _read(version / ABOUT).get("max_batch_size")


def _read(path: Path) -> dict[str, Any]:
    """What is said of a version; nothing of somebody else's."""
    try:
        said = json.loads(path.read_bytes()) if path.exists() else {}
        if not isinstance(said, dict):
            raise ValueError(f"it holds no names, but {said!r:.60}")
        return said
    except (ValueError, RecursionError) as error:
        sys.exit(f"{path} is damaged: {error}")


def crc32(path: Path) -> int:
    """Returns the CRC-32 of a file, which may be larger than memory."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 18):
            total = zlib.crc32(block, total)
    return total
