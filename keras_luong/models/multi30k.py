"""Models for a small corpus of short sentences: 29,000 captions (Elliott et al. 2016).

They were found on the validation data of Multi30k, English to German; how, and how they
are trained, is in `docs/multi30k.md` and `keras_luong.training.recipes`.
"""

PRESETS = {
    "multi30k": {"units": 512, "dropout": 0.5, "tie_embeddings": "all"},
    "multi30k-small": {"units": 256, "dropout": 0.3, "tie_embeddings": "all"},
}
