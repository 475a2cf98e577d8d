"""README and docs/ say what is so: their examples run, what they name is there.

Each page's blocks of Python run in order, in one namespace, in a directory with what
`workplace.py` makes. A line `print(...)  # text` prints that text, unless it begins
with a small letter. Commands of `keras-luong` are read by its parser; those that find
their files there, and take seconds, are run.
"""

from __future__ import annotations

import ast
import contextlib
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
from commands import run
from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from test_docstrings import PUBLIC

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

#: How many files an option takes that are read.
READS = {"--input": 1, "--test": 2, "--against": 1, "--terms": 1, "--constraints": 1}


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
    """What follows `keras-luong` in blocks of shell commands, by page."""
    found = {}
    for path, line in shell_lines():
        if match := re.search(r"(?:^|[\s/])keras-luong (.*)", line):
            words = ENDS.sub("", match[1]).replace("--quantize $q", "").strip()
            words = re.sub(r"\$\w+", "1", words)  # of a loop
            found.setdefault(name_of(path), []).append(words)
    return found


@pytest.fixture
def here(path, request, tmp_path, monkeypatch):
    """Where a page's examples run: a copy of the workplace, if it speaks of it."""
    if re.search(r"addons/|runs/mine|my/corpus|mine\.tflite", path.read_text("utf-8")):
        workplace = request.getfixturevalue("workplace")
        shutil.copytree(workplace, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", commands())
def test_commands_are_read(page, workplace, capsys):
    for words in commands()[page]:
        start = workplace / "runs" / "mine"
        given = re.sub(r"(--init_from) \S+", rf"\1 {start}", words)
        try:
            parsed = parse(shlex.split(given))
        except SystemExit:
            pytest.fail(f"{words}: {capsys.readouterr().err}")
        assert parsed is None or parsed[0] == words.split()[0]


def test_scripts_have_the_flags():
    """They name them themselves, or hand what they are given to `keras-luong`."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for name in COMMANDS:
            parse([name, "--help=all"])
    ours = set(re.findall(r"--\w+", said.getvalue()))
    name, found = r"(?:examples|export|benchmarks)/\S+\.(?:py|sh)", 0
    for path, line in shell_lines():
        for script in re.finditer(rf"(?:^|\s)({name})", line):
            text = (ROOT / script[1]).read_text("utf-8")
            has = set(re.findall(r'"(--\w+)"', text))
            has |= ours if re.search("keras[_-]luong", text) else set()
            flags = set(re.findall(r"\s(--\w+)", ENDS.sub("", line[script.end() :])))
            assert not flags - has, f"{name_of(path)}: {script[1]}"
            found += 1
    assert found > 30 and sum(map(len, commands().values())) > 60


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
    streams = {"<": "/dev/null", ">": "/dev/null"}
    for sign in {*streams} & {*words}:
        at = words.index(sign)
        _, streams[sign] = words[at : at + 2]
        del words[at : at + 2]
    runs = [word for word in words if word.startswith("runs/") and "*" not in word]
    files = [*runs, streams["<"]]
    for option in {*READS} & {*words}:
        at = words.index(option) + 1
        files += words[at : at + READS[option]]
    is_quick = words[1] in QUICK and "--web" not in words
    if not (is_quick and runs and all(Path(x).exists() for x in files)):
        return 0
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(open(streams["<"]))
        stack.callback(setattr, sys, "stdin", sys.stdin)
        sys.stdin = stdin
        out = stack.enter_context(open(streams[">"], "w"))
        stack.enter_context(contextlib.redirect_stdout(out))
        run(*words[1:])
    return 1


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
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.count("\n") <= 150
    shown = [ROOT / x for x in re.findall(r"!\[[^\]]*\]\((docs/[^)]+)\)", readme)]
    assert shown and all(x.exists() for x in shown)
    pictures = [*shown, *(ROOT / "docs").rglob("*.png")]
    assert not [x for x in pictures if x.stat().st_size >= 200_000]


def test_the_reference_has_public_names_and_what_pages_import():
    """By the object: a name may have several paths.

    Not what Contributing imports, whose readers have the sources.
    """
    text = "".join(x.read_text("utf-8") for x in (ROOT / "docs/reference").glob("*.md"))
    listed = re.findall(r"^::: (\S+)$", text, re.M)
    assert len(listed) == len(set(listed))
    found = [named(path) for path in listed]
    line = re.compile(r"^from (keras_luong\.?\S*) import ([\w, ]+)$", re.M)
    imported = {
        f"{module}.{name.strip()}"
        for document in DOCUMENTS
        if document.name != "contributing.md"
        for module, names in line.findall(document.read_text("utf-8"))
        for name in names.split(",")
    }
    of_pages = {x: named(x) for x in imported if not inspect.ismodule(named(x))}
    assert len(of_pages) > 20
    wanted = {**PUBLIC, **of_pages}
    assert not [x for x, y in wanted.items() if not any(y is z for z in found)]


def named(path):
    """What a path of the reference leads to."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


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


def test_javascript_is_javascript(tmp_path):
    """It is run in browsers alone; whether it can be read, Node.js says."""
    node = shutil.which("node") or pytest.skip("there is no node")
    (block,) = blocks("edge", "js")
    (tmp_path / "page.mjs").write_text(block)
    subprocess.run([node, "--check", tmp_path / "page.mjs"], check=True)
