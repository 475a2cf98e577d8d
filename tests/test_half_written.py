"""What killed processes had begun to write is removed, and nothing else."""

from __future__ import annotations

import os

from keras_luong.files import saved_beside, saved_directory_beside
from keras_luong.runs.run import remove_half_written


def test_what_was_begun_for_a_name_is_removed(tmp_path):
    with saved_beside(tmp_path / "d.[x]") as file:
        file.touch()
    with saved_directory_beside(tmp_path / "e.[x]") as folder:
        pass
    file.touch()  # as if both had been killed
    (folder / "a").mkdir(parents=True)
    remove_half_written(tmp_path / "d.[x]")
    remove_half_written(tmp_path / "e.[x]")
    assert {x.name for x in tmp_path.iterdir()} == {"d.[x]", "e.[x]"}
    remove_half_written(tmp_path / "none" / "d")


def test_what_others_write_stays(tmp_path):
    names = ["d", ".d", ".lock.d", f".{os.getpid()}-0123abcd.news.d", ".1-2-0123abcd.d"]
    for name in names:
        (tmp_path / name).touch()
    remove_half_written(tmp_path / "d")
    assert {x.name for x in tmp_path.iterdir()} == {*names}
