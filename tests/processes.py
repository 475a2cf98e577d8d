"""What tests of several processes share: free ports, children, and waiting."""

import contextlib
import socket
import time

import psutil


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
