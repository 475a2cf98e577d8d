"""What the tests of the page need: node, npm, a browser, and a server of files."""

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
    command = [node(), WEB / "tests" / "answer.js", what]
    given = json.dumps(question).encode()
    done = subprocess.run(command, input=given, capture_output=True)
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


def drive(page, scenario, server, meanwhile=None, **question):
    """What a scenario of `export/web/tests/browser.js` finds.

    Args:
        page: Where `built_page` is.
        scenario: Its name.
        server: What serves the page.
        meanwhile: What to do when the scenario says that it is ready.
        **question: What it needs.
    """
    question |= {"chromium": browser(), "url": address(server)}
    command = [node(), page / "tests" / "browser.js", scenario]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(json.dumps(question).encode())
        process.stdin.close()
        if meanwhile is not None:
            assert process.stdout.readline() == b"ready\n"
            meanwhile()
        answer = process.stdout.read()
    assert process.returncode == 0
    return json.loads(answer)


class Quiet(SimpleHTTPRequestHandler):
    """`python -m http.server`, which tells the server's list what it was asked for."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()


@contextlib.contextmanager
def served(folder, handler=Quiet):
    """Serves a folder as `python -m http.server` does."""
    handler = functools.partial(handler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def close():
        server.shutdown()
        thread.join()
        server.server_close()

    server.close = close
    try:
        yield server
    finally:
        close()


def address(server):
    return f"http://127.0.0.1:{server.server_port}/"
