"""Items and their translations belong together, however often they are read."""

from __future__ import annotations

import pytest
from small_corpus import Backwards
from small_training import write_corpus

from keras_luong.runs.synthetic import with_translations
from keras_luong.runs.synthetic import write_corpus as write_translated
from keras_luong.text.corpora import load_corpus


class Pool(Backwards):
    """Reads all texts twice before it says anything; time goes by meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        super().__init__()
        self.meanwhile = meanwhile

    def stream(self, texts, batch_size, window):
        said = list(super().stream([*texts] and [*texts], batch_size, window))
        self.meanwhile()
        yield from said


def test_each_item_has_its_translation():
    items = [("a b", 1), ("", 2), ("é\nx", 3)]
    said = with_translations(items, lambda item: item[0], Pool())
    assert [*said] == list(zip(items, ["b a", "", "x\né"], strict=True))


def test_items_that_are_others_when_they_are_read_again_are_refused():
    items = ["ab", "cd", "ef"]
    with pytest.raises(OSError, match="was changed meanwhile"):
        list(with_translations(items, str, Pool(items.reverse)))


def test_two_processes_do_not_write_one_corpus(tmp_path):
    """The second one would take the first one's files for those of a killed one."""
    write_corpus(tmp_path, train=3, val=2)
    corpus, out = load_corpus(tmp_path, "xx", "yy"), tmp_path / "out"

    def pairs():
        yield "a", "A"
        begun = sorted(tmp_path.glob(".*out"))
        with pytest.raises(OSError, match="Another process writes .*out: wait"):
            write_translated(corpus, [("b", "B")], out)
        assert begun and sorted(tmp_path.glob(".*out")) == begun
        yield "c", "C"

    write_translated(corpus, pairs(), out)
    assert (out / "train.xx").read_text() == "a\nc\n"
    assert not [*tmp_path.glob(".*")]
    with pytest.raises(FileExistsError, match="exists; give the name of a new"):
        write_translated(corpus, [("b", "B")], out)
    assert not [*tmp_path.glob(".*")]
