"""README and docs/ say what is so: their examples run, what they name is there.

Each page's blocks of Python run in order, in one namespace, in a directory with what
`workplace.py` makes. A line `print(...)  # text` prints that text, unless it begins
with a small letter. Commands of `keras-luong` are read by its parser; those that find
their files there, and take seconds, are run.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import options
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from test_docstrings import PUBLIC
from workplace import all_settings, make_workplace

from keras_luong.cli.command_line import COMMANDS, parse

ROOT = Path(__file__).parents[1]
EDGE = ROOT / "export" / "edge" / "README.md"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ENDS = re.compile(r"\s(?:#|\||<|>|&&|;|&)(?:\s|$).*|[;)].*$")

#: Pages whose examples take more than some seconds.
SLOW = set(
    "alignments edge evaluation from_tfa_seq2seq going_on jax one_layer search serving "
    "terminology training translator".split()
)

#: Commands that are run where their files are there.
QUICK = set("translate evaluate score average compare export".split())


def name_of(path):
    return path.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def shell_lines():
    """The lines of all blocks of shell commands, and their documents."""
    for path in DOCUMENTS:
        blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", path.read_text("utf-8"), re.S)
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            if not line.lstrip().startswith("#"):
                yield path, line


def commands():
    """What follows `keras-luong` in blocks of shell commands."""
    for path, line in shell_lines():
        if found := re.search(r"(?:^|[\s/])keras-luong (.*)", line):
            words = ENDS.sub("", found[1]).replace("--quantize $q", "").strip()
            words = re.sub(r"\$\w+", "1", words)  # of a loop
            yield pytest.param(words, id=f"{name_of(path)}: {words[:60]}")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    return make_workplace(tmp_path_factory.mktemp("workplace"), all_settings)


@pytest.fixture
def here(path, request, tmp_path, monkeypatch):
    """Where a page's examples run: a copy of the workplace, if it speaks of it."""
    if re.search(r"addons/|runs/mine|my/corpus|mine\.tflite", path.read_text("utf-8")):
        workplace = request.getfixturevalue("workplace")
        shutil.copytree(workplace, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", commands())
def test_a_command(words, capsys, request):
    if "--init_from" in words:
        start = request.getfixturevalue("workplace") / "runs" / "mine"
        words = re.sub(r"(--init_from) \S+", rf"\1 {start}", words)
    try:
        parsed = parse(shlex.split(words))
    except SystemExit:
        pytest.fail(capsys.readouterr().err)
    assert parsed is None or parsed[0] == words.split()[0]


def test_there_are_many():
    assert len(list(commands())) > 60


def scripts():
    """(script, flags) of the lines that run a file of the repository."""
    for path, line in shell_lines():
        found = re.search(
            r"(?:^|\s)((?:examples|export|benchmarks)/\S+\.(?:py|sh))", line
        )
        if found:
            rest = ENDS.sub("", line[found.end() :])
            flags = tuple(re.findall(r"\s(--\w+)", rest))
            yield pytest.param(found[1], flags, id=f"{name_of(path)}: {found[1]}")


@pytest.mark.parametrize("script, flags", scripts())
def test_a_script_has_the_flags(script, flags):
    """It names them itself, or hands what it is given to `keras-luong`."""
    text = (ROOT / script).read_text("utf-8")
    is_ours = "keras_luong" in text or "keras-luong" in text
    handed_on = flags_of_commands() if is_ours else set()
    for flag in flags:
        assert f'"{flag}"' in text or flag in handed_on, f"{script} has no {flag}"


@functools.cache
def flags_of_commands():
    """All that the commands' help names."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for name in COMMANDS:
            parse([name, "--help=all"])
    return set(re.findall(r"--\w+", said.getvalue()))


class Printed(PythonEvaluator):
    """Runs a block of Python, and compares what it prints with its comments."""

    def __call__(self, example):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            super().__call__(example)
        lines = iter(said.getvalue().splitlines())
        for wanted in re.findall(r"^ *print\(.*\)  # (.*)$", example.parsed, re.M):
            if not wanted[0].islower():
                assert wanted in lines, f"line {example.line} does not print {wanted}"


def run_commands(example):
    """Runs those of a block's commands that are quick, and have their files."""
    for line in example.parsed.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if line[:1] == "k" else []
        if words[:1] == ["keras-luong"] and not {"|", "$q"} & {*words}:
            example.namespace["commands"] += run_command(words)


def run_command(words):
    """How many were run: one or none."""
    streams = {}
    for sign in "<>":
        if sign in words:
            at = words.index(sign)
            streams[sign] = words[at + 1]
            del words[at : at + 2]
    runs = [word for word in words if word.startswith("runs/") and "*" not in word]
    files = [*runs, streams.get("<", "."), *given_files(words)]
    if (
        words[1] not in QUICK
        or "--web" in words
        or not runs
        or not all(Path(x).exists() for x in files)
    ):
        return 0
    module = importlib.import_module(f"keras_luong.cli.{words[1]}")
    with open(streams.get("<", "/dev/null")) as stdin, contextlib.ExitStack() as stack:
        out = stack.enter_context(open(streams.get(">", "/dev/null"), "w"))
        before, sys.stdin = sys.stdin, stdin
        stack.callback(setattr, sys, "stdin", before)
        stack.enter_context(contextlib.redirect_stdout(out))
        module.run(options(*words[1:]))
    return 1


def given_files(words):
    """The files that a command is to read."""
    reads = {
        "--input": 1,
        "--test": 2,
        "--against": 1,
        "--terms": 1,
        "--constraints": 1,
    }
    for at, word in enumerate(words):
        yield from words[at + 1 : at + 1 + reads.get(word, 0)]


PAGES = Sybil(
    [
        CodeBlockParser(language="python", evaluator=Printed()),
        CodeBlockParser(language="bash", evaluator=run_commands),
    ]
)

#: Pages whose model has learned at their end.
LEARN = {"README", "one_layer"}

#: How many commands each page runs at least.
RUN = {"translator": 3, "search": 3, "alignments": 2, "evaluation": 3, "serving": 1}


def pages():
    """The pages with examples."""
    for path in [*DOCUMENTS, EDGE]:
        if "```python" in path.read_text("utf-8"):
            name = name_of(path)
            slow = [pytest.mark.slow] * (name in SLOW or path == EDGE)
            yield pytest.param(path, id=name, marks=slow)


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", pages())
def test_examples_run(path):
    document = PAGES.parse(path)
    document.namespace |= {"__name__": "example", "commands": 0}
    for example in document:
        example.evaluate()
    assert document.namespace["commands"] >= RUN.get(name_of(path), 0)
    if name_of(path) in LEARN:
        history = document.namespace["model"].history.history
        assert history["accuracy"][-1] > 0.9


def test_all_blocks_have_a_language():
    """Python is run, shell is read; `text` and data are neither."""
    known = {*"bash python text math yaml ini nginx js bibtex".split(), "{"}
    for path in DOCUMENTS:
        fences = re.findall(r"^```(.*)$", path.read_text("utf-8"), re.M)
        for start in fences[::2]:
            assert start.split(" ")[0] in known, f"{name_of(path)}: ```{start}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_what_is_linked_is_there(document):
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in (x for x in links if not re.match("https?:|mailto:", x)):
        path, _, heading = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        if heading:
            assert heading in headings(target), link


def headings(document):
    """What links to a document's headings say."""
    titles = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def test_readme_is_short():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 150
    shown = re.findall(r"!\[[^\]]*\]\((docs/[^)]+)\)", "\n".join(lines))
    assert shown and all((ROOT / x).stat().st_size < 200_000 for x in shown)


def test_pictures_are_small():
    pictures = list((ROOT / "docs").rglob("*.png"))
    assert pictures and all(x.stat().st_size < 200_000 for x in pictures)


def test_every_public_name_is_in_the_reference():
    """By the object: a name may have several paths."""
    text = "".join(x.read_text("utf-8") for x in (ROOT / "docs/reference").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", text, re.M)
    assert len(listed) == len(set(listed))
    found = [named(path) for path in listed]
    missing = [name for name, x in PUBLIC.items() if not any(x is y for y in found)]
    assert not missing


def test_what_pages_import_is_in_the_reference():
    """But for Contributing, whose readers have the sources."""
    text = "".join(x.read_text("utf-8") for x in (ROOT / "docs/reference").glob("*.md"))
    found = [named(path) for path in re.findall(r"^::: (\S+)$", text, re.M)]
    imported = [
        (document.name, name)
        for document in DOCUMENTS
        if document.name != "contributing.md"
        for module, names in re.findall(
            r"^from (keras_luong\.?\S*) import ([\w, ]+)$",
            document.read_text("utf-8"),
            re.M,
        )
        for name in (f"{module}.{x.strip()}" for x in names.split(","))
        if not inspect.ismodule(named(name))
    ]
    assert len(imported) > 20
    missing = [x for x in imported if not any(named(x[1]) is y for y in found)]
    assert not missing


def named(path):
    """What a path of the reference leads to."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_the_messages_are_the_librarys():
    """Those of Troubleshooting are strings of the library."""
    said = " ".join(strings())
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    messages = re.findall(r"```text\n(.*?)\n```", page, re.S)
    assert len(messages) > 6
    for message in messages:
        assert message in said, message


def strings():
    """All strings in the library's code, as they are put together."""
    for path in sorted((ROOT / "keras_luong").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


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


def test_javascript_is_javascript(tmp_path):
    """It is run in browsers alone; whether it can be read, Node.js says."""
    node = shutil.which("node") or pytest.skip("there is no node")
    (block,) = blocks("edge", "js")
    (tmp_path / "page.mjs").write_text(block)
    subprocess.run([node, "--check", tmp_path / "page.mjs"], check=True)
