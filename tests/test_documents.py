"""The commands that the documents give are there, and their examples run."""

import re
import shlex
from pathlib import Path

import pytest
from small_translator import word_translator, written_run

from keras_luong.cli.main import parse
from keras_luong.config.training import TrainingConfig

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ENDS = re.compile(r"\s(?:#|\||<|>|&&|;|&)(?:\s|$).*|[;)].*$")


def commands():
    """What follows `keras-luong` in blocks of shell commands."""
    for path in DOCUMENTS:
        blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", path.read_text("utf-8"), re.S)
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[\s/])keras-luong (.*)", line)
            if found and not line.lstrip().startswith("#"):
                words = ENDS.sub("", found[1]).replace("--quantize $q", "").strip()
                words = re.sub(r"\$\w+", "1", words)  # of a loop
                yield pytest.param(words, id=f"{path.stem}: {words[:60]}")


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    """What stands for the run that a training starts from: its record is read."""
    config = TrainingConfig.from_preset("small")
    path = tmp_path_factory.mktemp("runs") / "run"
    return written_run(path, word_translator(), config.settings()).path


@pytest.mark.parametrize("words", commands())
def test_a_command(words, capsys, request):
    if "--init_from" in words:
        start = request.getfixturevalue("a_run")
        words = re.sub(r"(--init_from) \S+", rf"\1 {start}", words)
    try:
        parsed = parse(shlex.split(words))
    except SystemExit:
        pytest.fail(capsys.readouterr().err)
    assert parsed is None or parsed[0] == words.split()[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
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


def test_there_are_many():
    assert len(list(commands())) > 20


def examples(name):
    """The blocks of Python of a document."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize(
    "example", [*examples("own-layers.md"), *examples("layers.md")]
)
def test_an_example_prints_what_it_says(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "example", "exec"), {"__name__": "example"})
    said = re.findall(r"^print\(.*\)  # (.*)$", example, re.M)
    assert said and capsys.readouterr().out.splitlines() == said
