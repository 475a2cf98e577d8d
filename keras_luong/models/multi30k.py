"""Models for a small corpus of short sentences: 29,000 captions (Elliott et al. 2016).

They were found on the validation data of Multi30k, English to German:
`docs/multi30k_search.md`. How they are trained is in `keras_luong.cli.recipes`.
"""

PRESETS = {
    "multi30k": {"units": 512, "dropout": 0.4, "tie_embeddings": "all"},
    "multi30k-small": {"units": 256, "dropout": 0.3, "tie_embeddings": "all"},
}
