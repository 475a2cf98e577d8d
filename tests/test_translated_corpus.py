"""Items and their translations belong together, however often they are read."""

from __future__ import annotations

import pytest
from small_corpus import Backwards

from keras_luong.runs.translated_corpus import with_translations


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
