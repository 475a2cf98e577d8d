"""A corpus with text of its target language alone, translated back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small_corpus import Backwards, Corpus, lines
from small_translator import word_translator

import keras_luong as kl
from keras_luong.decoding import BeamSearch
from keras_luong.files import write_lines
from keras_luong.runs import synthetic as backtranslation
from keras_luong.runs.synthetic import (
    read_monolingual,
    spread_evenly,
    write_backtranslated,
)
from keras_luong.text import TokenizerPair, WordTokenizer, load_corpus
from keras_luong.text.growing import add_tokens
from keras_luong.text.tags import remove_tags, tags_in, tags_of


class Reverse(Backwards):
    """Says every line backwards, and nothing to `?`; reads up to five words."""

    max_source_length = 5
    source_tokenizer = WordTokenizer(["a"])

    def stream(self, texts, batch_size, window):
        for t in super().stream(texts, batch_size, window):
            yield t if t.text != "?" else t._replace(text=" ")


@pytest.fixture
def reverse():
    return Reverse()


def pairs_of(directory):
    """The training pairs, line by line."""
    sources, targets = (lines(directory / f"train.{side}") for side in ("xx", "yy"))
    assert sources.pop() == targets.pop() == ""
    return list(zip(sources, targets, strict=True))


def made(pairs):
    return [(source, target) for source, target in pairs if source[:1] == "<"]


def test_k2_real_pairs_and_lines_with_tagged_sources(reverse, tmp_path):
    write_lines(tmp_path / "mono.yy", ["one two", "three", "four", "5"])
    (tmp_path / ".123-0123abcd.d").mkdir()  # of a process that was killed
    written = write_backtranslated(
        Corpus(), reverse, tmp_path / "mono.yy", tmp_path / "d"
    )
    assert written == (tmp_path / "d", 4, 4, 0)
    pairs = pairs_of(tmp_path / "d")
    expected = [
        ("<bt> owt eno", "one two"),
        ("<bt> eerht", "three"),
        ("<bt> ruof", "four"),
        ("<bt> 5", "5"),
    ]
    assert pairs[1::2] == expected
    assert pairs[::2] == [
        ("a b", "A"),
        ("", "nothing"),
        ("c d", "C\u2028D"),
        ("é", "É"),
    ]
    for split, text in (("validation", "V"), ("test", "T ")):
        assert lines(tmp_path / "d" / f"{split}.yy") == [text, ""]
    assert {x.name for x in tmp_path.iterdir()} == {"d", "mono.yy"}
    assert load_corpus(tmp_path / "d", "xx", "yy").splits[:2] == ("train", "validation")


def test_k2_one_line_is_one_pair_however_odd(reverse, tmp_path):
    odd = ["a\u2028b", "c\x85d\x0b", "\u200fe f", "\u00adg\u200d", "<bt> x", "e\u0301"]
    (tmp_path / "mono").write_bytes("\r\n".join([*odd, "i\rj"]).encode())
    write_backtranslated(Corpus(), reverse, tmp_path / "mono", tmp_path / "d")
    pairs = made(pairs_of(tmp_path / "d"))
    assert [target for _, target in pairs] == [*odd, "i j"]
    assert pairs[0][0] == "<bt> b\u2028a" and pairs[-1][0] == "<bt> j i"


def test_k2_what_is_left_out_is_counted(reverse, tmp_path, capsys):
    """Of a line with several faults the first one counts."""
    texts = ["x", "", " \u00a0", "1 2 3 4 5", "1 2 3 4 5 6", "x", "A", "V", "y", "z"]
    write_lines(tmp_path / "mono", [*texts, "A", "?"])
    chosen = read_monolingual(tmp_path / "mono", Corpus(), reverse, limit=3)
    assert list(chosen.lines()) == ["x", "1 2 3 4 5", "y"]
    assert chosen.left_out == {
        "empty": 2,
        "of over 5 tokens": 1,
        "that are held-out targets": 1,
        "that are training targets": 2,
        "that repeat others": 1,
        "beyond the limit of 3": 2,
    }
    written = write_backtranslated(
        Corpus(), reverse, tmp_path / "mono", tmp_path / "d", progress=True
    )
    assert written[1:] == (4, 4, 1)  # nothing was said to the last one
    assert [target for _, target in made(pairs_of(tmp_path / "d"))] == [
        *["x", "1 2 3 4 5", "y", "z"]
    ]
    said = capsys.readouterr().out
    assert f"5 of 12 lines of {tmp_path / 'mono'}; left out: 2 empty, 1 of over" in said


def test_k2_real_pairs_may_be_repeated_and_tags_named(reverse, tmp_path):
    write_lines(tmp_path / "mono", "abcdefgh")
    tags = {"tag": "made", "monolingual_tag": "in"}
    written = write_backtranslated(
        Corpus(), reverse, tmp_path / "mono", tmp_path / "d", repeat_real=2, **tags
    )
    pairs = pairs_of(tmp_path / "d")
    assert written.real == 8 and len(pairs) == 16
    assert pairs.count(("a b", "A")) == 2
    assert made(pairs)[0] == ("<made> a >ni<", "a")  # which Reverse read as "<in> a"


def test_parts_are_spread_over_the_whole():
    """Fewer than were promised is no harm, nor that there are none."""
    few, many = [(-i, -i) for i in range(10)], [(i, i) for i in range(90)]
    whole = list(spread_evenly((few, 10), (many, 90)))
    assert sorted(whole) == sorted([*few, *many])
    places = [i for i, pair in enumerate(whole) if pair in few[1:]]
    assert {b - a for a, b in zip(places, places[1:], strict=False)} == {10}
    assert list(spread_evenly((few[:2], 10), (iter(()), 0))) == few[:2]


def test_k2_reads_no_further_than_it_translates(reverse, tmp_path, monkeypatch):
    """A file may be larger than memory: when a pair is written, few are read."""
    write_lines(tmp_path / "mono", map(str, range(1000)))
    ahead = []

    def write_corpus(corpus, pairs, directory):
        for i, _ in enumerate(pairs):
            ahead.append(reverse.read - i)

    monkeypatch.setattr(backtranslation, "write_corpus", write_corpus)
    write_backtranslated(Corpus(), reverse, tmp_path / "mono", tmp_path / "d")
    assert len(ahead) == 1004 and max(ahead) <= 1


KILLED = """
import os
from test_backtranslation import Corpus, Reverse, write_backtranslated

class Killed(Reverse):
    def stream(self, texts, batch_size, window):
        yield from list(super().stream([next(iter(texts))], batch_size, window))
        os.kill(os.getpid(), 9)

write_backtranslated(Corpus(), Killed(), "mono", "d")
"""


@pytest.mark.slow
def test_k2_what_a_killed_process_had_begun_is_begun_anew(tmp_path):
    write_lines(tmp_path / "mono", "abc")
    path = ":".join(sys.path)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env={"PYTHONPATH": path}
    )
    left = {x.name for x in tmp_path.iterdir()} - {"mono", ".d.lock"}
    assert killed.returncode == -9 and [*left][0].endswith(".d")
    write_backtranslated(Corpus(), Reverse(), tmp_path / "mono", tmp_path / "d")
    assert {x.name for x in tmp_path.iterdir()} == {"d", "mono"}
    assert len(made(pairs_of(tmp_path / "d"))) == 3


@pytest.mark.parametrize(
    "content, changes, message",
    [
        (b"a\n\xff\n", {}, "mono is not UTF-8: line 2"),
        (b"", {}, "nothing to translate: 0 of 0 lines of .*left out: none"),
        (b"\nA\n", {}, "0 of 2 lines of .*: 1 empty, 1 that are training targets"),
        (b"x\n", {"limit": 0}, "limit must be at least 1. Received: 0"),
        (b"x\n", {"repeat_real": 0}, "repeat_real must be at least 1"),
        (b"x\n", {"tag": "BT"}, "tag must be of small letters.*Received: 'BT'"),
    ],
)
def test_k2_mistakes_leave_nothing_behind(content, changes, message, reverse, tmp_path):
    mono = tmp_path / "mono"
    mono.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        write_backtranslated(Corpus(), reverse, mono, tmp_path / "d", **changes)
    assert reverse.read == 0 and [x.name for x in tmp_path.iterdir()] == ["mono"]


def test_k2_what_is_there_stays(reverse, tmp_path):
    with pytest.raises(FileExistsError, match="exists; give the name"):
        write_backtranslated(Corpus(), reverse, "nowhere", tmp_path)


def test_k2_a_translator_reads_what_it_is_said_to_read(tmp_path):
    """The limit of its tokens is that of lines, with a real model."""
    translator = word_translator(BeamSearch(2, max_length=4))
    write_lines(tmp_path / "mono", ["the " * 11, "the dog", "the cat is red"])
    found = read_monolingual(tmp_path / "mono", Corpus(), translator)
    assert list(found.lines()) == ["the dog", "the cat is red"]
    assert found.left_out == {"of over 10 tokens": 1}


@pytest.mark.slow
def test_k2_samples_follow_their_seed(tmp_path):
    """The same seed, the same text; what is drawn is not what is found."""
    texts = ["the dog", "the cat is red", "red", "the red dog is the cat"]
    write_lines(tmp_path / "mono", texts)
    translator = word_translator(BeamSearch(2, max_length=6))

    def sources(name, search):
        out = tmp_path / name
        write_backtranslated(
            Corpus(), translator.with_search(search), tmp_path / "mono", out
        )
        return made(pairs_of(out))

    drawn = [
        sources(f"{i}", kl.RandomSampling(temperature=2.0, seed=seed, max_length=6))
        for i, seed in enumerate((1, 1, 2))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] != sources("beam", BeamSearch(2, max_length=6))


def test_tokenizers_of_what_was_written_know_the_tag(reverse, tmp_path):
    """SentencePiece learns its pieces of the text without tags, and then gets them."""
    write_lines(tmp_path / "mono.yy", ["one two", "three four", "four one", "two ten"])
    write_backtranslated(Corpus(), reverse, tmp_path / "mono.yy", tmp_path / "d")
    pairs = load_corpus(tmp_path / "d", "xx", "yy").pairs("train")
    assert tags_in(pairs) == ["bt"]
    plain = TokenizerPair.train(remove_tags(pairs, ["bt"]), vocab_size=40)
    assert not any(x in piece for piece in plain.source.vocabulary[4:] for x in "<>")
    assert tags_of(add_tokens(plain, ["<bt>"], ["source"]).source) == ["bt"]
