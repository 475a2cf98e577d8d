"""Processes that take turns: what is compared is measured in the same minutes.

A worker says in a line of JSON that it is ready, and then answers each line of its
standard input by another.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


class Worker:
    """A process that answers.

    Args:
        command: Its words.
        environment: What it has beside what this process has.
    """

    def __init__(self, *command: object, **environment: str):
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **quiet, **environment},
        )
        self.ready = self.answer()

    def ask(self, question: object) -> dict:
        """Its answer; the question is written as JSON."""
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict:
        """What it says next."""
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker ended before it answered")
        return json.loads(line)


def memory(name: str, process: int | str = "self") -> int:
    """MB of a process: VmRSS now, VmHWM at most.

    (getrusage's figure would begin with the parent's.)
    """
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith(name)]
    return int(line.split()[1]) // 1024


def reset_peak(process: int | str = "self") -> int:
    """Lets the peak begin anew; MB now."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return memory("VmRSS", process)
