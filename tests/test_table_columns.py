import gzip

import pytest

from keras_luong.files import write_lines
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.corpus_files import TextFiles, read_as
from keras_luong.text.find_corpus import load_corpus

ANKI = "CC-BY 2.0 (France) Attribution: tatoeba.org #2877272"


def columns(path, *languages):
    table, told, _ = read_as(path, *languages)
    return (table.source + 1, table.target + 1, table.has_header), told


@pytest.mark.parametrize(
    ("first", "languages", "expected", "by"),
    [
        ("Go.\tGeh.", ("en", "de"), (1, 2, False), "no header"),
        ("Go.\tGeh.", ("de", "en"), (1, 2, False), "no header"),
        (f"Go.\tGeh.\t{ANKI}", ("en", "de"), (1, 2, False), "no header"),
        ("en\tde", ("en", "de"), (1, 2, True), "header"),
        ("en\tde", ("de", "en"), (2, 1, True), "header"),
        ("id\tDE\tattribution\t EN ", ("en", "de"), (4, 2, True), "header"),
        ("English\tGerman", ("de", "en"), (2, 1, True), "header"),
        ("Portuguese\tzh_Hans", ("zh-hans", "pt-BR"), (2, 1, True), "header"),
        ("Target\tSource", ("en", "de"), (2, 1, True), "header"),
        ("src\ttgt\tscore", ("de", "en"), (1, 2, True), "header"),
        ("deu\teng", ("en", "de"), (2, 1, True), "header"),
        ("de\ten", ("eng", "ger"), (2, 1, True), "header"),
        ("it\tthe", ("it", "en"), (1, 2, False), "no header"),  # one is no language
    ],
)
def test_which_column_is_which(first, languages, expected, by, tmp_path):
    path = tmp_path / "train.tsv"
    write_lines(path, [first, "a\tb\tc\td"])
    found, told = columns(path, *languages)
    assert found == expected and by in told
    assert f"column {expected[0]} is {languages[0]}" in told


EN, DE = "A dog is running along the beach.", "Ein Hund läuft am Strand entlang."
#: A table that has them: an export of Tatoeba's, Anki's, ParaCrawl's and CCMatrix's.
WORLD = {
    "tatoeba": f"1276\t{EN}\t2481\t{DE}",
    "anki": f"{EN}\t{DE}\t{ANKI}",
    "paracrawl": f"https://a.de/index\thttps://a.com/start\t{DE}\t{EN}\t0.8",
    "ccmatrix": f"1.0812\t{EN}\t{DE}",
    "pairs": f"{DE}\t{EN}",
}


@pytest.mark.parametrize("number", [1, 60])
@pytest.mark.parametrize("direction", [("en", "de"), ("de", "en")])
@pytest.mark.parametrize("line", WORLD.values(), ids=WORLD)
def test_the_text_tells_the_columns(line, direction, number, tmp_path):
    """Numbers are no sentences. Of 60 lines the languages are sure, of one not."""
    write_lines(tmp_path / "a.tsv", [line] * number)
    (source, target, _), told = columns(tmp_path / "a.tsv", *direction)
    cells = line.split("\t")
    found = cells[source - 1], cells[target - 1]
    if number == 60:
        assert found == ((EN, DE) if direction[0] == "en" else (DE, EN))
        assert told.endswith("as the text says")
    elif line != WORLD["paracrawl"]:  # whose first columns have letters
        assert {*found} == {EN, DE} and "no header" in told


def test_small_tables_are_read_as_the_training_text(tmp_path):
    write_lines(tmp_path / "train.tsv", [f"{DE}\t{EN}"] * 60)
    write_lines(tmp_path / "valid.tsv", ["Hallo.\tHello."])
    write_lines(tmp_path / "test.tsv", ["1\tHallo.\tHello."])
    corpus = load_corpus(tmp_path, "en", "de")
    assert sentences(corpus, "validation") == (["Hello."], ["Hallo."])
    assert sentences(corpus, "test") == (["Hallo."], ["Hello."])  # of other columns


@pytest.mark.parametrize("splits", [("train", "val"), ("val", "train")])
@pytest.mark.parametrize(
    ("name", "header", "line"),
    [
        ("", "English\tGerman", "Go.\tGeh."),
        ("", "id\ten\tde", "1\tGo.\tGeh."),
        ("", "target\tnote\tsource", "Go.\tx\tGeh."),
        (".en-de", "Hello.\tHallo.", "Go.\tGeh."),
    ],
)
def test_little_text_is_read_as_a_table_that_tells(
    name, header, line, splits, tmp_path
):
    told, other = splits
    write_lines(tmp_path / f"{told}{name}.tsv", [header, line])
    write_lines(tmp_path / f"{other}.tsv", [line])
    write_lines(tmp_path / "test.tsv", ["de\ten", "Geh.\tGo."])  # tells by itself
    corpus = TextFiles.from_directory(tmp_path, "de", "en")
    for split in ("train", "validation", "test"):
        assert sentences(corpus, split)[0][-1:] == ["Geh."]
        assert sentences(corpus, split)[1][-1:] == ["Go."]
    assert f"{other}.tsv: " in notes(corpus)["columns"]
    assert f"as in {told}{name}.tsv" in notes(corpus)["columns"]


@pytest.mark.parametrize(
    ("first", "others"),
    [("en\tde", "en\tde"), ("en\tfr", "en\tde"), ("source\ttarget",) * 2],
)
@pytest.mark.parametrize("direction", [("en", "de"), ("de", "en")])
def test_what_most_lines_have_is_no_header(first, others, direction, tmp_path):
    """As in WikiMatrix: a score, sentences, and what languages they seem to be in."""
    path = tmp_path / "WikiMatrix.v1.en-de.langid.tsv"
    line = f"{EN}\t{DE}"
    write_lines(path, [f"1.2\t{line}\t{first}"] + [f"1.1\t{line}\t{others}"] * 60)
    found, told = columns(path, *direction)
    assert found == ((2, 3, False) if direction[0] == "en" else (3, 2, False))
    assert told.endswith("as the text says")


def test_what_is_in_one_language_is_read_in_its_order(tmp_path):
    for line in (f"{EN}\t{EN}", f"{DE}\t{DE}"):
        write_lines(tmp_path / "a.tsv", [line] * 60)
        assert columns(tmp_path / "a.tsv", "de", "en")[0] == (1, 2, False)


@pytest.mark.parametrize(
    ("name", "line", "languages", "expected"),
    [
        ("corpus.en-de.tsv", "a\tb", ("en", "de"), (1, 2)),
        ("corpus.en-de.tsv.gz", "a\tb", ("de", "en"), (2, 1)),
        ("en-pt_BR.tab", "a\tb", ("pt-BR", "en"), (2, 1)),
        ("en-de.tsv", "1\t2", ("de", "en"), (2, 1)),
        ("WikiMatrix.en-de.tsv.gz", WORLD["ccmatrix"], ("de", "en"), (3, 2)),
        ("en-de.tsv", WORLD["tatoeba"], ("en", "de"), (2, 4)),
        ("de-en.tsv", WORLD["pairs"], ("en", "de"), (2, 1)),
    ],
)
def test_a_name_tells_the_columns(name, line, languages, expected, tmp_path):
    """In its order, those that have words; of little text."""
    text = f"{line}\n".encode()
    content = gzip.compress(text) if name.endswith(".gz") else text
    (tmp_path / name).write_bytes(content)
    found, told = columns(tmp_path / name, *languages)
    assert found == (*expected, False) and told.endswith("as the name says")


@pytest.mark.parametrize("line", WORLD.values(), ids=WORLD)
def test_the_text_is_believed_before_a_name(line, tmp_path):
    """Names are of both languages in the order of letters, whatever the columns'."""
    write_lines(tmp_path / "a.tsv", [line] * 60)
    write_lines(tmp_path / "de-en.tsv", [line] * 60)
    for direction in (("en", "de"), ("de", "en")):
        expected = columns(tmp_path / "a.tsv", *direction)
        assert columns(tmp_path / "de-en.tsv", *direction) == expected


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.tsv", ["fr\tit", "a\tb"], "fr and it, which are not en and de. Give --sou"),
        ("fr-it.tsv", ["a\tb"], "fr-it.tsv names its columns fr and it"),
        ("a.tsv", ["a b"], "Line 1 of .*a.tsv has no tab"),
        ("a.tsv", [], "Line 1 of .*a.tsv is empty"),
        ("a.tsv", ["", "a\tb"], "Line 1 of .*a.tsv is empty: it should be two sent"),
        ("a.tsv", ["fr\ten_text\tde_text", "x\ta\tb"], "en and de. Correct its first"),
        ("a.tsv", ["id\tfr\tit", "1\ta\tb"], "columns fr and it, which are not en and"),
    ],
)
def test_k1_a_table_of_something_else(name, lines, message, tmp_path):
    write_lines(tmp_path / name, lines)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_table(tmp_path / name, "en", "de")


def test_languages_follow_from_a_header(tmp_path):
    write_lines(tmp_path / "a.tsv", ["fr\ten", "a\tb"])
    corpus = TextFiles.from_table(tmp_path / "a.tsv", "en")
    assert sentences(corpus, "train") == (["b"], ["a"])
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    write_lines(tmp_path / "c.tsv", ["id\tno.\t\"fr\"\t'en'", "1\t7\ta\tb"])
    corpus = TextFiles.from_table(tmp_path / "c.tsv", "en")  # numbers are no Indonesian
    assert sentences(corpus, "train") == (["b"], ["a"])
    assert "line 1" not in notes(corpus)["columns"]
    with pytest.raises(ValueError, match="has fr and en: which one.*--source fr --tar"):
        load_corpus(tmp_path / "a.tsv")
    write_lines(tmp_path / "b.tsv", [f"Englisch\t{'Deutsch' * 9}", "a\tb"])
    begins = f"line 1 of b.tsv is a pair: Englisch | {('Deutsch' * 9)[:40]} ..."
    corpus = TextFiles.from_table(tmp_path / "b.tsv", "en", "de")
    assert notes(corpus)["columns"].endswith(f"; {begins}")
    with pytest.raises(ValueError, match="names no languages: give both --source and"):
        load_corpus(tmp_path / "b.tsv")


def test_the_text_of_a_table_is_that_of_two_files(tmp_path):
    """Packed in whatever way, it is the same corpus to a run."""
    write_lines(tmp_path / "two" / "test.en", ["a", "", '"b"', "c\u2028d"])
    write_lines(tmp_path / "two" / "test.de", ["A", "", "B\\t", "C"])
    lines = ["\ufeffde\ten\tnote", "A\ta\tx", "", 'B\\t\t"b"', "C\tc\u2028d\t"]
    text = "".join(f"{line}\r\n" for line in lines)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "test.tsv.gz").write_bytes(gzip.compress(text.encode()))
    two, one = (load_corpus(tmp_path / x, "en", "de") for x in ("two", "one"))
    assert sentences(one, "test") == sentences(two, "test")
    assert fingerprint(one, "test") == fingerprint(two, "test")
    said = "test.tsv.gz: column 2 is en, column 1 is de, as the header says"
    assert notes(one)["columns"] == said and "columns" not in notes(two)


def test_splits_of_tables(tmp_path):
    for split in ("train", "valid", "test"):
        write_lines(tmp_path / f"{split}.tsv", [f"{split}\tb"])
    corpus = TextFiles.from_directory(tmp_path, "en", "de")
    assert corpus.splits == ("train", "validation", "test")
    assert notes(corpus)["columns"].startswith("train.tsv, valid.tsv, test.tsv: column")
    one = TextFiles.from_table(tmp_path / "valid.tsv", "en", "de")
    assert sentences(one, "validation") == (["valid"], ["b"])
