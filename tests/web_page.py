"""What the tests of the page need: node, npm, a browser, and a server of files."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WEB = Path(__file__).parents[1] / "export" / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def node():
    """Node.js, or the test is skipped."""
    return found("node")


def browser():
    """Chromium, or the test is skipped."""
    return found(*BROWSERS)


def found(*names):
    for name in names:
        if path := shutil.which(name):
            return path
    pytest.skip(f"there is no {names[0]}")


def ask(what, question):
    """What the page's modules answer in Node.js, without a browser."""
    done = subprocess.run(
        [node(), WEB / "tests" / "answer.js", what],
        input=json.dumps(question).encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def packed(content):
    return base64.b64encode(content).decode()


def built_page(folder):
    """A copy of the sources with npm's packages, built; or the test is skipped."""
    npm = found("npm")
    copy = folder / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    options = "--ignore-scripts --no-audit --no-fund --prefer-offline".split()
    if subprocess.run([npm, "ci", *options], cwd=copy, capture_output=True).returncode:
        pytest.skip("npm reaches no registry")
    done = subprocess.run([npm, "run", "build"], cwd=copy, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return copy


class Quiet(SimpleHTTPRequestHandler):
    """`python -m http.server`, which tells the server's list what it was asked for."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()


@contextlib.contextmanager
def served(folder, port=0):
    """Serves a folder as `python -m http.server` does."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def address(server):
    return f"http://127.0.0.1:{server.server_port}/"
