"""`keras-luong shortlist`: for each source word, the target words that it becomes.

Learned from the training data and the attention of the trained model. With it a search
scores some hundred words a sentence in place of the whole vocabulary, which makes it
faster and changes some translations: compare BLEU on validation data.
"""

from __future__ import annotations

from keras_luong.cli.options import ShortlistOptions
from keras_luong.cli.translators import corpus_of
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.runs.load_save import load
from keras_luong.text.batches import evaluation_batches


def run(options: ShortlistOptions) -> None:
    """Learns, and writes the file."""
    pairs = corpus_of(options, options.run_dir).pairs("train")
    translator = load(options.run_dir)
    batches = evaluation_batches(
        pairs.take(options.limit_examples or -1),
        translator.tokenizers,
        max_length=translator.max_source_length,
    )
    shortlist = Shortlist.learn(
        translator.model,
        batches,
        per_word=options.per_word,
        frequent=options.frequent,
        progress=True,
    )
    out = options.out or options.run_dir / "shortlist.npz"
    shortlist.save(out)
    print(f"{out}: {shortlist}")
