"""What tests of several processes share: Python, free ports, children, and waiting."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
#: Where a process finds this checkout's code, whatever is installed.
PATHS = os.pathsep.join([f"{ROOT}", f"{ROOT / 'export' / 'edge'}"])


def start(*words, environment=None, **options):
    """A process of Python, and pipes to what it says."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**os.environ, "PYTHONPATH": PATHS, **(environment or {})}
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env=env, **{**pipes, **options})


def python(*words, check=True, timeout=None, **options):
    """What such a process has said when it has ended, well unless `check` is False."""
    process = start(*words, **options)
    out, err = process.communicate(timeout=timeout)
    assert not check or process.returncode == 0, (out + err)[-5000:]
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def free_ports(count):
    """Ports of this machine that nobody has yet."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for x in sockets:
            x.bind(("localhost", 0))
        return [x.getsockname()[1] for x in sockets]


def children(process, word):
    """Those that a process has started, or they have, by a word of their commands."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if word in " ".join(child.cmdline()):
                found.append(child)
    return found


def wait_for(condition, process=None, seconds=240):
    """Waits until it is true, while a process runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.02)
