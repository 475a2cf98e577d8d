"""Texts in batches: all are counted, and what is no text is refused."""

from __future__ import annotations

import warnings

import pytest
from copy_translator import make


@pytest.mark.slow
def test_what_a_stream_cut_is_counted_over_all_its_windows():
    translator = make(max_source_length=3)
    sources = ["one", "two " * 5] * 4
    with pytest.warns(UserWarning) as said:
        found = list(translator.stream(sources, window=2))
    assert sum(t.truncated for t in found) == 4
    message = "4 of 8 texts have more than max_source_length=3 tokens"
    assert [str(x.message)[: len(message)] for x in said] == [message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(translator.stream(sources[::2], window=2))


def test_the_progress_bar_counts_texts(monkeypatch, capsys):
    monkeypatch.setattr("keras_luong.progress._is_terminal", lambda stream: True)
    make().translate(["one"] * 5, batch_size=2, progress=True)
    assert "5/5" in capsys.readouterr().err
    make().translate(["one"] * 5, batch_size=2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a dog", r"Received: the single 'a dog'; write \[text\]"),
        (b"a dog", "Received: the single b'a dog'"),
        (["one", 2], "must hold str or bytes. Received: int 2 at place 1"),
        ([["one"]], r"Received: list \['one'\] at place 0"),
        (None, "`texts` must be a list of strings.*Received: None"),
    ],
)
def test_wrong_texts(texts, message):
    with pytest.raises(TypeError, match=message):
        make().translate(texts)


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), ("8", TypeError)])
def test_wrong_batch_size(size, error):
    with pytest.raises(error, match="batch_size"):
        make().translate(["one"], batch_size=size)
