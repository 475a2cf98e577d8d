"""Tags that a text has already."""

from __future__ import annotations

import tensorflow as tf

from keras_luong.text.tags import count_tags, remove_tags, tags_in


def pairs(*sources):
    sides = {"source": list(sources), "target": ["x"] * len(sources)}
    return tf.data.Dataset.from_tensor_slices(sides)


def test_k2_tags_are_what_sources_begin_with():
    """Nothing within a text, without a space behind it, or that no tag can be called.

    `<s>` is a special token, and bytes that are no UTF-8 are of no tag.
    """
    others = ["a <b> c", "<c>d", "<D> e", "< f> g", "<s> h", " <i> j", "<k>", "</l> m"]
    found = tags_in(pairs(*others, "<bt> a\nb", "<a_1> \u2028", b"<n> \xff", ""))
    assert found == ["a_1", "bt"]
    assert tags_in(pairs("a").take(0)) == []


def test_k2_what_is_rarer_than_one_of_a_thousand_is_none():
    sources = ["<two> a"] * 2 + ["<one> b"] + ["c"] * 1997
    assert tags_in(pairs(*sources)) == ["two"]
    assert tags_in(pairs(*sources[:1000])) == ["one", "two"]


def test_k2_tags_are_removed_in_front_alone():
    changed = remove_tags(pairs("<bt> a <bt> b", "<i> c", "<bt> <bt> d"), ["bt", "x"])
    assert [pair["source"] for pair in changed.as_numpy_iterator()] == [
        *[b"a <bt> b", b"<i> c", b"<bt> d"]
    ]


def test_all_tags_are_removed_where_none_is_named():
    changed = remove_tags(pairs("<bt> a", "<i> <b> c", "<D> d"))
    texts = [pair["source"] for pair in changed.as_numpy_iterator()]
    assert texts == [b"a", b"<b> c", b"<D> d"]


def test_the_tag_of_back_translated_text_is_one_however_rare():
    some = pairs("<bt> a", "<one> b", *["c"] * 1998)
    assert tags_in(some) == ["bt"]
    assert count_tags(some) == ({"bt": 1, "one": 1}, 2000)
