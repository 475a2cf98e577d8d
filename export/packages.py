"""Builds the packages of what is committed: the same bytes each time.

A wheel and a source distribution of keras_luong, and of keras-luong-edge. All files
have the date of the last commit. Tools that build write that date into wheels, but not
into source distributions, which are packed anew.

    python export/packages.py dist
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = (".", "export/edge")


def main() -> None:
    """Builds all four files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write them")
    folder = parser.parse_args().folder.resolve()
    date = int(git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as source:
        with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as committed:
            committed.extractall(source, filter="data")
        for project in PROJECTS:
            build(Path(source, project), folder, date)
    for path in sorted(folder.glob("*.tar.gz")):
        pack_anew(path, date)
    print(*sorted(path.name for path in folder.iterdir()), sep="\n")


def git(*arguments: str) -> bytes:
    """What git says of this checkout."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout


def build(project: Path, folder: Path, date: int) -> None:
    """Builds a project's two packages; the wheel is made of the source distribution."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, project],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(date)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def pack_anew(path: Path, date: int) -> None:
    """Gives all in a source distribution one date and one owner."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid = date, 0, 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.pax_headers = {}
        return member

    packed = io.BytesIO()
    with (
        tarfile.open(path) as before,
        gzip.GzipFile("", "wb", fileobj=packed, mtime=date) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            content = before.extractfile(member) if member.isfile() else None
            after.addfile(plain(member), content)
    path.write_bytes(packed.getvalue())


if __name__ == "__main__":
    main()
