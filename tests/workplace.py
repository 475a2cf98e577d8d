"""The directory in which the examples of docstrings, README and docs/ are run.

```
my/corpus/    train, validation and test, in `.en` and `.de`
runs/mine     a run, from English to German, that has kept the weights of two epochs
runs/yours    a run of the same corpus
runs/de-en    a run of the other direction
mine.tflite   the export of `runs/mine`
addons/       a checkpoint of TensorFlow Addons, `translator`
in.en, out.de, news.en, news.de, mono.de, ...    small text files, see `TEXTS`
```
"""

import gzip
import json
import shutil
from pathlib import Path

from small_translator import opinionated, word_translator, written_run

import keras_luong as kl
from keras_luong.config.training import TrainingConfig

ADDONS = Path(__file__).parent / "fixtures" / "tfa"
LINES = {
    "train": (["the dog", "the cat", "the red dog"], ["der Hund", "der", "der Hund"]),
    "validation": (["the dog is red", "the cat"], ["der Hund ist rot", "der"]),
    "test": (["the cat is the dog"], ["der ist der Hund"]),
}
TEXTS = {
    **{"in.en": "the red dog\nthe cat\n", "out.de": "der Hund\nder\n"},
    **{"news.en": "the dog is red\nthe cat\n", "news.de": "der Hund ist rot\nder\n"},
    **{"other.de": "der Hund ist\nder\n", "gold.talp": "1-1 2-2\n"},
    **{"terms.tsv": "dog\tHund\n", "must.tsv": "Hund\n\n"},
    "client.tmx": '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>the dog</seg>'
    '</tuv><tuv xml:lang="de"><seg>der Hund</seg></tuv></tu></body></tmx>',
    "mono.de": "der Hund ist der\n\nist der Hund\n",
}


def make_workplace(place):
    """Makes the directory, and returns it."""
    corpus = place / "my" / "corpus"
    corpus.mkdir(parents=True)
    for split, sides in LINES.items():
        for language, lines in zip(("en", "de"), sides, strict=True):
            (corpus / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    (place / "in.en.gz").write_bytes(gzip.compress(TEXTS["in.en"].encode()))
    translator = word_translator(kl.BeamSearch(5, max_length=6))
    paths = place / "runs" / "mine", place / "runs" / "yours"
    mine, _ = (written_run(x, translator, settings("en", "de")) for x in paths)
    reverse = reversed_translator(translator)
    written_run(place / "runs" / "de-en", reverse, settings("de", "en"))
    keep_epochs(mine)
    kl.Shortlist([4, 5], [[6]] * 9, 7).save(mine.path / "shortlist.npz")
    kl.export_tflite(translator, place / "mine.tflite")
    (place / "addons").mkdir()
    for file in ADDONS.glob("translator.*"):
        shutil.copy(file, place / "addons")
    return place


def settings(source, target):
    """As of a training of the preset "small" with word tokenizers."""
    config = TrainingConfig.from_preset(
        "small",
        **{"data": "my/corpus", "source": source, "target": target},
        **{"tokenizer": "word", "epochs": 3, "vocab_size": 9},
    )
    return {**config.settings(), "units": 4}


def reversed_translator(translator):
    """The other direction."""
    pair = translator.tokenizers
    sizes = pair.target.vocab_size, pair.source.vocab_size
    model = opinionated(kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, units=4)))
    pair = kl.TokenizerPair(pair.target, pair.source)
    return kl.Translator(model, pair, translator.search, max_source_length=10)


def keep_epochs(run):
    """The files that a training of two epochs leaves."""
    for epoch in (1, 2):
        path = run.epochs / f"epoch-{epoch:04d}.weights.h5"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(run.best_weights, path)
    shutil.copy(run.best_weights, run.last_weights)
    history = [{"epoch": epoch, "val_perplexity": 9.0 - epoch} for epoch in (1, 2)]
    run.history.write_text("".join(json.dumps(line) + "\n" for line in history))
