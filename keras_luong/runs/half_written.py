"""What killed processes had begun to write, and nobody will finish."""

from __future__ import annotations

import re
from pathlib import Path

from keras_luong.files import remove


def remove_half_written(path: str | Path) -> None:
    """Removes what was begun for a file or directory, by processes that were killed.

    What others write meanwhile beside it, under other names, stays.

    Args:
        path: The file or directory, which no process may be writing now.

    Example:
        >>> from keras_luong.runs.half_written import remove_half_written
        >>> remove_half_written("out.de")
    """
    path = Path(path)
    # As `keras_luong.files` names it; "*" would also match other names' ends.
    begun = re.compile(rf"\.\d+-[0-9a-f]{{8}}\.{re.escape(path.name)}")
    for beside in list(path.parent.iterdir()) if path.parent.is_dir() else []:
        if begun.fullmatch(beside.name):
            remove(beside)
