"""README and docs/ say what is so: their examples run, what they name is there.

Each page's blocks of Python run in order, in one namespace, in a directory with what
`workplace.py` makes. A line `print(...)  # text` prints that text, unless it begins
with a small letter. Commands of `keras-luong` are read by its parser.
"""

import ast
import contextlib
import inspect
import io
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import run
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from test_docstrings import PUBLIC

from keras_luong.cli.command_line import parse

ROOT = Path(__file__).parents[1]
EDGE = ROOT / "export" / "edge" / "README.md"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ENDS = re.compile(r"\s(?:#|\||<|>|&&|;|&)(?:\s|$).*|[;)].*$")

#: Pages whose examples take more than some seconds.
SLOW = set(
    "README alignments edge evaluation from_tfa_seq2seq going_on jax one_layer "
    "own-layers search serving terminology training translator".split()
)


def name_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def commands():
    """What follows `keras-luong` in blocks of shell commands, by page."""
    found = {}
    for path in DOCUMENTS:
        blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", path.read_text("utf-8"), re.S)
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            match = re.search(r"^[^#]*?(?:^|[\s/])keras-luong (.*)", line)
            if match:
                words = ENDS.sub("", match[1]).replace("--quantize $q", "").strip()
                words = re.sub(r"\$\w+", "1", words)  # of a loop
                found.setdefault(name_of(path), []).append(words)
    assert sum(map(len, found.values())) > 60
    return found


@pytest.mark.parametrize("page", list(commands()))
def test_commands_are_read(page, workplace, capsys):
    for words in commands()[page]:
        start = workplace / "runs" / "mine"
        given = re.sub(r"(--init_from) \S+", rf"\1 {start}", words)
        try:
            parsed = parse(shlex.split(given))
        except SystemExit:
            pytest.fail(f"{words}: {capsys.readouterr().err}")
        assert parsed is None or parsed[0] == words.split()[0]


class Printed(PythonEvaluator):
    """Runs a block of Python, and compares what it prints with its comments."""

    def __call__(self, example):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            super().__call__(example)
        lines = iter(said.getvalue().splitlines())
        for wanted in re.findall(r"^ *print\(.*\)  # (.*)$", example.parsed, re.M):
            if not wanted[0].islower():
                assert wanted in lines, f"line {example.line} does not print {wanted}"


def export_first(example):
    """Exports the model that a page's Python reads."""
    for line in example.parsed.splitlines():
        if line.startswith("keras-luong export runs/mine models/mine"):
            run(*shlex.split(line, comments=True)[1:])


PYTHON = CodeBlockParser(language="python", evaluator=Printed())
PAGES = Sybil([PYTHON, CodeBlockParser(language="bash", evaluator=export_first)])

#: Pages whose model has learned at their end.
LEARN = {"README", "one_layer"}


def pages():
    """The pages with examples."""
    for path in [*DOCUMENTS, EDGE]:
        if "```python" in path.read_text("utf-8"):
            name = name_of(path)
            slow = [pytest.mark.slow] * (name in SLOW or path == EDGE)
            yield pytest.param(path, id=name, marks=slow)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("path", list(pages()))
def test_examples_run(path, workplace, tmp_path, monkeypatch):
    shutil.copytree(workplace, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    document = PAGES.parse(path)
    document.namespace["__name__"] = "example"
    for example in document:
        example.evaluate()
    if name_of(path) in LEARN:
        history = document.namespace["model"].history.history
        assert history["accuracy"][-1] > 0.9


def test_what_is_linked_is_there():
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.S)
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
            path, _, heading = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            is_there = target.exists() and (not heading or heading in headings(target))
            assert is_there, f"{name_of(document)}: {link}"


def headings(document):
    """What links to a document's headings say."""
    titles = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def test_readme_is_short_and_pictures_are_small():
    assert (ROOT / "README.md").read_text("utf-8").count("\n") <= 150
    assert max(x.stat().st_size for x in (ROOT / "docs").rglob("*.png")) < 200_000


def test_the_reference_has_public_names_and_what_pages_import():
    """By the object: a name may have several paths; members are listed by name."""
    text = "".join(x.read_text("utf-8") for x in (ROOT / "docs/reference").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", text, re.M)
    assert len(listed) == len(set(listed))
    found = [pkgutil.resolve_name(path) for path in listed]
    line = re.compile(r"^from (keras_luong\.?\S*) import ([\w, ]+)$", re.M)
    of_pages = {}
    for document in DOCUMENTS:
        for module, names in line.findall(document.read_text("utf-8")):
            paths = [f"{module}.{name}" for name in names.split(", ")]
            of_pages |= {path: pkgutil.resolve_name(path) for path in paths}
    assert len(of_pages) > 10
    every = {**PUBLIC, **of_pages}.items()
    wanted = {x: y for x, y in every if not inspect.ismodule(y)}
    assert not [x for x, y in wanted.items() if not any(y is z for z in found)]
    members = re.findall(r"^::: (\S+)\n(?: .*\n)*? +members: \[(.*)\]$", text, re.M)
    for path, names in members:
        assert all(hasattr(pkgutil.resolve_name(path), x) for x in names.split(", "))


def test_the_page_of_the_commands_is_their_help():
    script = runpy.run_path(str(ROOT / "docs" / "site" / "command_line.py"))
    assert script["PAGE"].read_text("utf-8") == script["written"](), "make reference"


def test_the_messages_are_the_librarys():
    """Those of Troubleshooting are strings in its code, as they are put together."""
    said = " ".join(
        node.value
        for path in sorted((ROOT / "keras_luong").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    messages = blocks("troubleshooting", "text")
    assert len(messages) > 6
    assert not [x for x in messages if x.rstrip("\n") not in said]


def blocks(name, language):
    """The blocks of a page in a language."""
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def test_the_headers_are_the_pages():
    """What the page for browsers is built with."""
    node = shutil.which("node") or pytest.skip("there is no node")
    path = ROOT / "export" / "web" / "headers.js"
    ask = f'import("{path}").then((x) => console.log(JSON.stringify(x.HEADERS)))'
    said = subprocess.run([node, "-e", ask], check=True, stdout=subprocess.PIPE).stdout
    (block,) = blocks("web", "nginx")
    headers = re.findall(r'^add_header (\S+) "?(.*?)"?;$', block, re.M)
    assert dict(headers) == json.loads(said)
