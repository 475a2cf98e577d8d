import os
import subprocess
import sys

import pytest

from keras_luong.runs import run as lock
from keras_luong.runs.run import lock_run

HOLD = """
import sys, time
from keras_luong.runs.run import lock_run
with lock_run(sys.argv[1]):
    print("owned", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_one_process_at_a_time(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "owned\n"
            message = f"Another process, {other.pid}, trains in .*run"
            with pytest.raises(OSError, match=message), lock_run(tmp_path / "run"):
                pass
        finally:
            other.kill()
    with lock_run(tmp_path / "run"):  # a killed process owns nothing
        assert (tmp_path / "run").is_dir()
        with pytest.raises(OSError, match=f"Another process, {os.getpid()}, trains"):
            with lock_run(tmp_path / "run"):
                pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_what_was_half_written_is_removed(tmp_path):
    (tmp_path / "epochs").mkdir()
    kept = [tmp_path / "run.json", tmp_path / ".hidden", tmp_path / "epochs" / "a.h5"]
    litter = [tmp_path / ".123.run.json", tmp_path / "epochs" / ".7.a.weights.h5"]
    for path in (*kept, *litter):
        path.touch()
    litter.append(tmp_path / ".123-7.a-distilled")
    (litter[-1] / "tokenizer").mkdir(parents=True)
    with lock_run(tmp_path):
        assert all(path.exists() for path in kept)
        assert not any(path.exists() for path in litter)


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_what_cannot_be_written_to_is_named(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"run_dir must be .*Received: .*{name}"):
        with lock_run(tmp_path / name):
            pass


def test_it_is_free_again_though_litter_could_not_be_removed(tmp_path, monkeypatch):
    def fail(path):
        raise PermissionError("no")

    (tmp_path / ".123.run.json").touch()
    monkeypatch.setattr(lock, "remove", fail)
    with pytest.raises(PermissionError), lock_run(tmp_path):
        pass
    assert not (tmp_path / ".lock.owner").exists()
