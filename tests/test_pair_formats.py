"""Parallel text in the forms that companies have: what is read, left out, refused."""

import csv
import gzip
import io
import json
import sys
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from translate.storage import pypo

from keras_luong.files import write_lines
from keras_luong.text.corpora import TextFiles, load_corpus
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.corpus_files import find_corpus_files
from keras_luong.text.pair_formats import find_side, form_of, read_sentences


def tmx(*units):
    """A TMX file of {language: segment} for each unit."""
    rows = (
        "".join(f'<tuv xml:lang="{x}"><seg>{unit[x]}</seg></tuv>' for x in unit)
        for unit in units
    )
    body = "\n".join(f"<tu><note>n</note>{row}</tu>" for row in rows)
    return (
        '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'
        f'<header srclang="en"/><body>\n{body}\n</body></tmx>\n'
    )


def xliff(*units, target=' target-language="de-DE"'):
    """An XLIFF 1.2 file of (source, target element) for each unit."""
    body = "".join(
        f"<group><trans-unit><source>{x}</source>{y}<alt-trans><source>no</source>"
        "<target>nein</target></alt-trans></trans-unit></group>\n"
        for x, y in units
    )
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n<file '
        f'source-language="en-GB"{target}><body>{body}</body></file></xliff>'
    )


XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"
srcLang="en-US" trgLang="de"><file id="f"><unit id="1"><segment state="final"><source>
  Press <pc id="1">OK</pc><ph id="2"/>. </source><target>OK.</target></segment>
<ignorable><source> </source></ignorable><segment><source>Two.</source>
<target>Zwei.</target></segment><segment state="initial"><source>Three.</source>
<target>Three.</target></segment><segment><source>Four.</source></segment>
</unit></file></xliff>"""
PO = r"""
#, fuzzy
msgid ""
msgstr "Language: de_DE\nContent-Type: text/plain; charset=UTF-8\n"

msgctxt "menu"
msgid "Open \"it\"\n"
msgstr "Öffne\nes "

#, fuzzy
msgid "close"
msgstr "offen"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "untranslated"
msgstr ""

#~ msgid "old"
#~ msgstr "alt"
"""
TMX = tmx(
    {"EN_us": 'Click <bpt i="1">&lt;b></bpt>it', "de-DE": "Klick <hi>es</hi>\n  an "},
    {"en-US": 'a<ph x="1">{0}<sub>x</sub></ph>b &amp; c', "fr": "d", "de-de": "e"},
    {"en-us": "no German", "fr": "f"},
    {"en-us": "blank", "de-de": ' <it pos="end">x</it>'},
)
XLIFF = xliff(
    (
        'Press <g id="1">O<x id="2"/>K</g> <bpt id="3">{b}</bpt>now',
        "<target>A</target>",
    ),
    ("two", '<target state="translated"><mrk mtype="seg">zwei</mrk></target>'),
    ("three", '<target state="needs-translation">three</target>'),
    ("four", ""),
)

#: Name, content → pairs of en and de, and what is left out.
READ = {
    "tmx": (
        "m.tmx",
        TMX,
        [("Click it", "Klick es an"), ("ab & c", "e")],
        "2 untranslated",
    ),
    "tmx, UTF-16, gzip": (
        "m.tmx.gz",
        gzip.compress(tmx({"en": "ä", "de": "ö"}).encode("utf-16")),
        [("ä", "ö")],
        None,
    ),
    "xliff 1.2": (
        "m.xlf",
        XLIFF,
        [("Press OK now", "A"), ("two", "zwei")],
        "1 needs-translation, 1 untranslated",
    ),
    "xliff without a target language": (
        "m.xliff",
        xliff(("a", "<target>b</target>"), target=""),
        [("a", "b")],
        None,
    ),
    "xliff 2.0": (
        "m.xliff",
        XLIFF_2,
        [("Press OK.", "OK."), ("Two.", "Zwei.")],
        "1 initial, 1 untranslated",
    ),
    "po": (
        "m.po",
        PO,
        [('Open "it"', "Öffne es")],
        "1 fuzzy, 1 obsolete, 1 untranslated, 1 with plural forms",
    ),
    "po without a header": ("m.po", 'msgid "a"\nmsgstr "b"\n', [("a", "b")], None),
    "jsonl": (
        "m.jsonl.gz",
        gzip.compress(
            b'{"id": 1, "de": "A\\n B", "en": "a"}\n\n{"en": null, "de": ""}'
        ),
        [("a", "A B"), ("", "")],
        None,
    ),
    "jsonl of Hugging Face": (
        "m.jsonl",
        '{"id": "1", "translation": {"en": "a", "de": "b"}}',
        [("a", "b")],
        None,
    ),
    "jsonl by roles": (
        "m.ndjson",
        '{"Target": "b", "Source": "a"}',
        [("a", "b")],
        None,
    ),
    "csv": (
        "m.CSV",
        '\ufeffid,de,en\r\n1,"A, ""B""\r\nC",a\r\n\r\n2,D,d',
        [("a", 'A, "B" C'), ("", ""), ("d", "D")],
        None,
    ),
    "csv of semicolons, regions": (
        "m.csv.gz",
        gzip.compress(b"en-GB;de-AT\na, b;c"),
        [("a, b", "c")],
        None,
    ),
    "csv without a header": ("m.csv", "a,b\nc,d\n", [("a", "b"), ("c", "d")], None),
}


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name, content, pairs, left_out", READ.values(), ids=READ)
def test_what_is_read_of_a_file_and_what_is_left_out(
    name, content, pairs, left_out, tmp_path
):
    corpus = TextFiles.from_table(written(tmp_path / name, content), "en", "de")
    assert corpus.splits == ("train",) and corpus.name == name
    assert list(zip(*sentences(corpus, "train"), strict=True)) == pairs
    said = {"left out": f"units of {name}: {left_out}"} if left_out else {}
    assert {k: v for k, v in notes(corpus).items() if k == "left out"} == said


def test_languages_and_what_is_left_out_are_found_in_one_reading(tmp_path, monkeypatch):
    path, read = written(tmp_path / "m.tmx", TMX), []
    iterparse = ElementTree.iterparse
    monkeypatch.setattr(
        ElementTree, "iterparse", lambda *x: (read.append(x), iterparse(*x))[1]
    )
    corpus = TextFiles.from_table(path, "en", "de")
    assert "left out" in corpus.notes and len(read) == 1
    assert [*corpus.files["train"].pairs()] and len(read) == 2
    written(path, tmx({"en": "another", "de": "file"}))
    assert not TextFiles.from_table(path, "en", "de").notes and len(read) == 3


@pytest.mark.parametrize("form", ["tmx", "xliff 1.2", "po", "csv"])
def test_the_other_direction(form, tmp_path):
    name, content, pairs, _ = READ[form]
    corpus = TextFiles.from_table(written(tmp_path / name, content), "de", "en")
    sources, targets = sentences(corpus, "train")
    assert list(zip(targets, sources, strict=True)) == pairs


def parquet(path, rows, nested=False):
    path.parent.mkdir(exist_ok=True)
    values = [{"en": en, "de": de} for en, de in rows]
    columns = [{"id": 1, "translation": x} for x in values] if nested else values
    pq.write_table(pa.Table.from_pylist(columns), path)


@pytest.mark.parametrize("nested", [False, True])
def test_parquet(nested, tmp_path):
    """A file, a folder as Spark writes it, and numbered parts, as of Hugging Face."""
    one, two = [("a", "b\nc"), (None, "d")], [("e", "f")]
    read = [("a", "b c"), ("", "d"), ("e", "f")]
    for folder in ("train.parquet", "news"):
        parquet(tmp_path / folder / "part-0.parquet", one, nested)
        parquet(tmp_path / folder / "part-1.parquet", two, nested)
        parquet(tmp_path / folder / "_temporary.parquet", two, nested)
        corpus = TextFiles(*find_corpus_files(tmp_path / folder, "en", "de"))
        assert list(zip(*sentences(corpus, "train"), strict=True)) == read
    for i, rows in enumerate((one, two)):
        parquet(tmp_path / "hf" / f"train-0000{i}-of-00002.parquet", rows, nested)
    parquet(tmp_path / "hf" / "test-00000-of-00001.parquet", two, nested)
    corpus = TextFiles.from_directory(tmp_path / "hf", "en", "de")
    assert list(zip(*sentences(corpus, "train"), strict=True)) == read
    assert corpus.splits == ("train", "test") and "not read" not in notes(corpus)
    corpus = TextFiles.from_directory(tmp_path, "en", "de")  # of which one is a folder
    assert len(sentences(corpus, "train")[0]) == 3 and corpus.splits == ("train",)
    parquet(tmp_path / "hf" / "train.parquet", two)
    with pytest.raises(ValueError, match="are both the train split; keep one"):
        load_corpus(tmp_path / "hf", "en", "de")


def test_a_folder_of_several_forms_is_the_corpus_that_text_files_are(tmp_path):
    pairs = [(f"{i} dogs", f"{i} Hunde") for i in range(3)]
    written(tmp_path / "train.tmx", tmx(*({"en-US": x, "de": y} for x, y in pairs)))
    lines = (json.dumps({"source": x, "target": y}) for x, y in pairs)
    write_lines(tmp_path / "val.jsonl", lines)
    write_lines(tmp_path / "test.csv", ["de,en", *(f"{y},{x}" for x, y in pairs)])
    write_lines(tmp_path / "test_b.tsv", ["en\tde", *map("\t".join, pairs)])
    written(tmp_path / "terms.po", PO)
    corpus = load_corpus(tmp_path, "en")  # the other language is the TMX file's
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert corpus.splits == ("train", "validation", "test", "test_b")
    assert len({fingerprint(corpus, split) for split in corpus.splits}) == 1
    assert notes(corpus)["not read"] == "['terms.po']"
    assert "test.csv: column 2 is en, column 1 is de" in notes(corpus)["columns"]
    with pytest.raises(ValueError, match="has de and en-US: which one.*--source de"):
        load_corpus(tmp_path / "train.tmx")


REGIONS = [
    ("en", "de EN_us", "EN_us"),
    ("en", "de en-US en", "en"),
    ("en-US", "en en_us", "en_us"),
    ("zh", "zh-Hant-TW", "zh-Hant-TW"),
    ("eng", "en-GB", "en-GB"),
    ("en-US", "en en-GB", None),
    ("en", "en_score english", None),
    ("en", "en-US fr en-GB", "m has en-GB and en-US: which one is en. Give one of"),
]


@pytest.mark.parametrize("language, names, found", REGIONS)
def test_regions_of_a_language(language, names, found):
    if found and found.startswith("m has"):
        with pytest.raises(ValueError, match=found):
            find_side(language, names.split(), "m", "source")
    else:
        assert find_side(language, names.split(), "m", "source") == found


BOMB = '<!DOCTYPE t [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {y} "{f"&{x};" * 20}">' for x, y in zip("abcdef", "bcdefg", strict=True)
)
DAMAGED = [
    ("a.tmx", TMX[:-20], "a.tmx is damaged: line 8, column 1.*: no element found"),
    ("a.tmx", TMX.replace("</seg>", "", 1), "damaged: line 4, .*: mismatched tag"),
    ("a.tmx", f"{BOMB}]><tmx>&g;</tmx>", "is damaged: line 1, .*amplification"),
    ("a.tmx.gz", gzip.compress(TMX.encode())[:-9], "a.tmx.gz is damaged gzip: "),
    ("a.tmx", tmx({"en": "a"}), r"must have texts in en and de.*It has \['en'\]"),
    ("a.tmx", TMX.replace("EN_us", "en-GB"), "has en-GB and en-US: which one"),
    ("a.xlf", b"<xliff>\n\xff</xliff>", "a.xlf is damaged: line 2, column 1: not well"),
    ("a.po", PO.replace('"close"', '"close'), "a.po is damaged: .* on line 11"),
    ("a.po", PO.encode("latin-1"), "Line 8 of .*a.po is not UTF-8. .*msgconv"),
    ("a.po", PO.replace("de_DE", "fr"), r"en and de, or .*It has \['fr', 'source'\]"),
    (
        "a.jsonl",
        '{"en": "a", "de": "b"}\n{"en": ',
        "Line 2 of .*a.jsonl is no JSON: Exp",
    ),
    ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "c"}', "Line 2 of .* has no 'de'"),
    ("a.jsonl", '["a", "b"]', r"Line 1 of .* must be an object, .*Received: .\"a\""),
    ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a", "de": 1}', "'de' must be text"),
    ("a.jsonl", '{"en": "\\ud800", "de": "b"}', "Line 1 .* 'en' must be text"),
    ("a.jsonl", '{"en": "a", "fr": "b"}', r"It has \['en', 'fr'\]"),
    ("a.jsonl", b'{"en": "a", "de": "b"}\n\xff', "a.jsonl is not UTF-8: line 2"),
    ("a.csv", 'en,de\na,b\n"c" d,e\n', "a.csv is damaged: the row of line 3: "),
    ("a.csv", 'en,de\na,"b\n', "the row of line 2: unexpected end of data"),
    ("a.csv", "en,de\na\n", "Line 2 of .* has 1 column and needs 2, with a comma betw"),
    ("a.csv", "en,de\na,b,c\n", "has 3 columns and the first one has 2.*a comma too"),
    ("a.csv", "a\nb\n", "Line 1 of .*a.csv has no comma between"),
    ("a.csv", "", "Line 1 of .*a.csv is empty"),
    ("a.parquet", "PAR1", "a.parquet is not Parquet, or damaged"),
]


@pytest.mark.parametrize("name, content, message", DAMAGED)
def test_damaged_files_are_told_in_a_sentence(name, content, message, tmp_path):
    path = written(tmp_path / name, content)
    with pytest.raises(ValueError, match=message) as said:
        TextFiles.from_table(path, "en", "de").pairs("train")
    assert name in str(said.value) and "\n" not in str(said.value)


@pytest.mark.parametrize(
    "name, module, extra",
    [
        ("a.po", "translate.storage.pypo", "localization"),
        ("a.parquet", "pyarrow.parquet", "parquet"),
    ],
)
def test_a_missing_package(name, module, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    message = rf'which is not installed: pip install "keras-luong\[{extra}\]"$'
    with pytest.raises(ImportError, match=message):
        load_corpus(written(tmp_path / name, ""), "en", "de")


ODD = st.text(
    st.one_of(
        st.sampled_from("\t\"'\n\r,;\\ \u2028\u200f\u05d0\x85😀<>&{}"),
        st.characters(exclude_categories=["Cs", "Cc", "Cn"]),
    ),
    min_size=1,
).filter(str.strip)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(ODD, ODD), min_size=1, max_size=4, unique_by=lambda x: x[0]))
def test_odd_text_is_read_as_it_was_written(tmp_path, pairs):
    """But for line ends, which become a space: a sentence is a line."""
    table = io.StringIO()
    csv.writer(table).writerows([("en", "de"), *pairs])
    lines = "".join(f"{json.dumps({'en': x, 'de': y})}\n" for x, y in pairs)
    memory = tmx(*({"en": escape(x), "de": escape(y)} for x, y in pairs))
    store = pypo.pofile()
    for x, y in pairs:
        store.addsourceunit(x).target = y

    def as_lines(text):
        parts = text.replace("\r", "\n").split("\n")
        kept = [parts[0], *filter(None, parts[1:-1]), *parts[1:][-1:]]
        return " ".join(x.strip(" \t") for x in kept) if len(parts) > 1 else text

    for name, content in {
        "a.jsonl": lines,
        "a.csv": table.getvalue(),
        "a.tmx": memory,
        "a.po": bytes(store),
    }.items():
        path = written(tmp_path / name, content)
        read = find_corpus_files(path, "en", "de").files["train"].pairs()
        clean = str.strip if name in ("a.tmx", "a.po") else str
        assert [*read] == [tuple(clean(as_lines(x)) for x in pair) for pair in pairs]


CSV = "id,text,en\n1,x,a\n2,y,b\n"
SIDES = [
    ("a.tmx", TMX, "en", "source", ["Click it", "ab & c", "no German", "blank"]),
    ("a.tmx", TMX, "fr", "target", ["d", "f"]),
    ("a.xlf", XLIFF, "en", "source", ["Press OK now", "two", "three", "four"]),
    ("a.xlf", XLIFF, "de", "target", ["A", "zwei"]),
    ("a.po", PO, "en", "source", ['Open "it"', "close", "%d file", "untranslated"]),
    ("a.po", PO, "de", "target", ["Öffne es"]),
    ("a.csv", CSV, "en", "source", ["a", "b"]),
    ("a.csv", "source,target\na,b", "en", "target", ["b"]),
    ("a.csv", "just\none\n\ncolumn", "en", "source", ["just", "one", "", "column"]),
    ("a.csv", "a,b\n\nc,d", "en", "target", ["b", "", "d"]),
    ("a.tsv", "a, x\tb\nc\td", "en", "source", ["a, x", "c"]),
    ("b.tsv", 'de\t"EN_us"\tid\na\tb\t1', "en", "source", ["b"]),
    ("b.tsv", "OK\tHut\na\tb", "en", "target", ["Hut", "b"]),
    ("a.tsv", 'one "line"\n\n', "en", "source", ['one "line"', ""]),
    ("a.jsonl", '{"id": 1, "text": "a"}\n{"text": null}', None, "source", ["a", ""]),
    ("a.txt", "a\r\nb", "en", "source", ["a", "b"]),
]


@pytest.mark.parametrize("name, content, language, role, expected", SIDES)
def test_one_side_of_a_file(name, content, language, role, expected, tmp_path):
    path = written(tmp_path / name, content)
    assert [*read_sentences(path, language, role)] == expected


def test_a_column_that_is_named(tmp_path):
    path = written(tmp_path / "a.csv", CSV)
    assert [*read_sentences(path, "en", "source", "text")] == ["x", "y"]
    for words, message in (
        (("en", "source", "de"), "must have a column 'de'. It has .'id', 'text', 'en'"),
        (("fr", "source"), "must have texts in fr"),
    ):
        with pytest.raises(ValueError, match=message):
            next(read_sentences(path, *words))
    for text in "fr\tde\na\tb", "a\tb\tc", "en\tde\ta\nen\tde\tc":
        message = f"texts in en. It has .*'{text[:2].strip()}'"
        with pytest.raises(ValueError, match=message):
            next(read_sentences(written(tmp_path / "a.tsv", text), "en", "source"))
    parquet(tmp_path / "a.parquet", [("a", "b"), (None, "c\rd")])
    assert [*read_sentences(tmp_path / "a.parquet", "de", "source")] == ["b", "c d"]
    assert form_of(tmp_path / "a.parquet.gz") is None
