"""Odd text, wherever text is read: one line in is one line out, the same everywhere.

Each cell of the table in docs/odd_text.md is a test, for each of the rows and programs
that share it; what it says is what was seen.
"""

import re
from pathlib import Path

import pytest
from export_scripts import export_script
from odd_rows import MISREAD, ROWS
from odd_text import COLUMNS, EXPECTED, EXPORTED, IN_C, READERS, Runtimes

PAGE = Path(__file__).parents[1] / "docs" / "odd_text.md"
LITERT = "ai_edge_litert.interpreter"
NEEDS = {"`EdgeTranslator.translate`": LITERT, "`keras-luong-edge`": "keras_luong_edge"}
NEEDS["gRPC client"] = "tensorflow_serving.apis"

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")


def table(text):
    """The page's table: (row, column) → word, of all that share a cell."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    ((_, *columns), *rows), programs = map(cells_of, tables)
    members = {name: listed.split("; ") for name, listed in programs}
    found = [
        ((row, column), word)
        for names, *words in rows
        for together, word in zip(columns, words, strict=True)
        for row in names.split("; ")
        for column in members.get(together, [together])
    ]
    assert len(found) == len(dict(found)), "a cell is there twice"
    return dict(found)


def cells_of(block):
    """The cells of a table's lines."""
    rows = [x[1:-1].split("|") for x in block.splitlines() if x.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


@pytest.fixture(scope="module")
def page():
    """What the page says of each cell."""
    return table(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Runtimes(tmp_path_factory.mktemp("runtimes"), patch)


def expected(runtimes, column, lines):
    """What the column should answer."""
    if column in READERS or not lines:
        return lines
    return EXPECTED.get(column, Runtimes.expected)(runtimes, lines)


def seen(runtimes, column, row, path):
    """The word for what happens; an answer that is wrong is a failure."""
    try:
        answer = COLUMNS[column](runtimes, path)
    except ValueError as error:
        message = str(error)
        if "line 2" in message:
            return "refused: names the line"
        assert str(path.parent) in message or "the input" in message
        return "refused: says why"
    assert row.lines is not None, "what should be refused was read"
    assert answer.lines == expected(runtimes, column, row.lines)
    if not row.lines:
        return "no line"
    if column in READERS:
        in_file = row.content.removesuffix(b"\n").split(b"\n")
        return "kept" if row.lines == in_file else "read without"
    too_long = any(len(line) > 1000 for line in row.lines)
    assert answer.said == too_long, "what was left out is said, and nothing else"
    if too_long:
        return "read to the limit, said"
    return "one line each"


#: One row a kind, for each reader in the default run; the other ones are slow.
QUICK = [
    *("byte order mark", "CR LF", "CR alone", "U+2028", "other bytes"),
    *("UTF-16", "1 MB", "empty file", "gzip", "gzip cut short"),
]
BY_CORPUS = "`keras-luong evaluate`", "`export/evaluate.py`", "`keras-luong tune`"


def cells():
    for column in COLUMNS:
        for row in ROWS:
            takes_long = column in EXPORTED or row == "1 MB" and column in BY_CORPUS
            marks = [pytest.mark.slow] * (takes_long or row not in QUICK)
            yield pytest.param(row, column, marks=marks, id=f"{row}-{column}")


@pytest.mark.parametrize("row, column", list(cells()))
def test_cell(row, column, runtimes, page, tmp_path):
    if column in NEEDS:
        pytest.importorskip(NEEDS[column])
    if column in IN_C and export_script("serving.c_client").compiler() is None:
        pytest.skip("there is no C compiler")
    path = tmp_path / "odd.txt"
    path.write_bytes(ROWS[row].content)
    assert seen(runtimes, column, ROWS[row], path) == page[row, column]


def test_what_is_read_otherwise_is_translated_otherwise(runtimes):
    """Else no cell of a program could fail; and some say what ends lines elsewhere."""
    lines = [line for row in ROWS.values() for line in row.lines or []]
    texts = [x.decode(errors="replace") for x in lines if len(x) < 1000] + MISREAD
    texts = {" ".join(text.split()) for text in texts}
    said = {t.text for t in runtimes.keras.translate(sorted(texts))}
    assert len(said) == len(texts)
    assert {"\u2028", "\x85"} <= {letter for text in said for letter in text}


def test_the_page_has_all_cells_and_no_others(page):
    assert page.keys() == {(row, column) for row in ROWS for column in COLUMNS}
