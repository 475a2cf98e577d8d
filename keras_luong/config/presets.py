"""The presets: models of the papers in their sizes, and how some of them are trained.

A preset that has a `training` is a recipe: its training was searched for, or published,
together with its model.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """A model, and how it is trained.

    Attributes:
        fields: What differs from the defaults of the model's configuration.
        model: The model's class in `keras_luong.models`.
        training: What differs from the defaults of `TrainingConfig`.
    """

    fields: dict[str, Any]
    model: str = "Seq2Seq"
    training: dict[str, Any] = {}


def _luong2015(
    attention: str | None, score_mode: str = "general", **changes: Any
) -> Preset:
    """Section 4.1: 4 layers of 1000, U[-0.1, 0.1]; then what Tables 1 and 4 say."""
    fields = {
        "units": 1000,
        "num_layers": 4,
        "bidirectional": False,
        "reverse_source": True,
        "attention": attention,
        "score_mode": score_mode,
        "input_feeding": attention is not None,
        "dropout": 0.2,
        "init_scale": 0.1,
    }
    return Preset({**fields, **changes})


_POSITIONS = {"max_source_length": 51}  # sentences of up to 50 words, and their end

#: Luong, Pham & Manning 2015 (arXiv:1508.04025): the systems of Tables 1 and 4.
_LUONG = {
    "base": _luong2015(None, reverse_source=False, dropout=0.0),
    "reverse": _luong2015(None, dropout=0.0),
    "dropout": _luong2015(None),
    "global-location-nofeed": _luong2015(
        "global", "location", input_feeding=False, **_POSITIONS
    ),
    "global-location": _luong2015("global", "location", **_POSITIONS),
    "global-dot": _luong2015("global", "dot"),
    "global-general": _luong2015("global"),
    "global-concat": _luong2015("global", "concat"),
    "local-m-dot": _luong2015("local-m", "dot"),
    "local-m-general": _luong2015("local-m"),
    "local-p-dot": _luong2015("local-p", "dot"),
    "local-p-general": _luong2015("local-p"),
}

#: For a small corpus of short sentences: 29,000 captions (Elliott et al. 2016). Found
#: on the validation data of Multi30k, English to German: `docs/multi30k.md`.
_MULTI30K = {
    "vocab_size": 4000,
    "shared": True,
    "batch_tokens": 1500,
    "optimizer": "adam",
    "learning_rate": 0.0015,
    "constant_epochs": 14,
    "epochs": 20,
    "label_smoothing": 0.1,
    "clip_norm": 1.0,
    "monitor": "val_bleu",
    "eval_sentences": 1014,
    "length_penalty": 1.2,
}
_MULTI30K_SMALL = {"learning_rate": 0.002, "constant_epochs": 9, "epochs": 14}
#: The same for text with its distilled translations, twice as many pairs: greedily it
#: translates as well as the small one does with a beam (`docs/speed.md`).
_MULTI30K_STUDENT = {"constant_epochs": 7, "epochs": 11, "beam_width": 1}

#: Sutskever, Vinyals & Le 2014 (arXiv:1409.3215), section 3.4: deep LSTMs and a
#: reversed source. The decoder starts from the encoder's final states, and that is all
#: it knows.
_SUTSKEVER = {
    "units": 1000,
    "num_layers": 4,
    "bidirectional": False,
    "reverse_source": True,
    "attention": None,
    "input_feeding": False,
    "dropout": 0.0,
    "init_scale": 0.08,
}

#: Cho et al. 2014 (arXiv:1406.1078), section 4.
_CHO = {
    "units": 1000,
    "embedding_dim": 100,
    "cell_type": "gru",
    "bidirectional": False,
    "attention": None,
    "input_feeding": False,
    "dropout": 0.0,
}

#: Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473), appendix A.
_BAHDANAU = {
    "units": 1000,
    "embedding_dim": 620,
    "encoder_units": 1000,
    "cell_type": "gru",
    "bidirectional": True,
    "bridge": "dense",
    "attention": "global",
    "score_mode": "concat",
    "attention_units": 1000,
    "input_feeding": False,
    "dropout": 0.0,
}

#: Wu et al. 2016 (arXiv:1609.08144).
_GNMT = {
    "units": 1024,
    "num_layers": 4,
    "bidirectional": False,
    "attention": "global",
    "score_mode": "normed_concat",
    "input_feeding": False,
    "residual": True,
    "dropout": 0.2,
    "init_scale": 0.1,
}

#: Vaswani et al. 2017 (arXiv:1706.03762), Table 3. The paper has one vocabulary for
#: both languages and ties all embeddings; with one, set tie_embeddings="all".
_BASE = {
    "units": 512,
    "num_layers": 6,
    "num_heads": 8,
    "feedforward_units": 2048,
    "dropout": 0.1,
    "tie_embeddings": "target",
}
_BIG = {"units": 1024, "num_heads": 16, "feedforward_units": 4096, "dropout": 0.3}

#: Wu et al. 2021 (arXiv:2105.14462), for small corpora; theirs normalises after each
#: sub-layer.
_TINY = {
    "units": 128,
    "num_layers": 4,
    "num_heads": 4,
    "feedforward_units": 256,
    "dropout": 0.3,
    "tie_embeddings": "all",
}

#: Wu et al. 2021, as their code trains it: two GPUs with 4,096 tokens each, at most
#: 8,000 steps (110 epochs of Multi30k), the mean of the last 10 epochs. They divide
#: hypotheses' scores by their lengths; GNMT's penalty is nearest to that with an
#: exponent of 1.
_WU2021_TRAINING = {
    "vocab_size": 10_000,
    "shared": True,
    "batch_tokens": 8192,
    "optimizer": "adam",
    "learning_rate": 0.005,
    "beta_2": 0.98,
    "schedule": "inverse_sqrt",
    "warmup_steps": 2000,
    "label_smoothing": 0.1,
    "clip_norm": 25.0,
    "epochs": 110,
    "early_stopping": 10,
    "keep_epochs": 10,
    "length_penalty": 1.0,
}

#: What "auto" is for corpora of any size; `keras_luong.config.auto` has the rest.
_AUTO = {
    "shared": True,
    "optimizer": "adam",
    "learning_rate": 0.002,
    "schedule": "plateau",
    "patience": 2,
    "early_stopping": 5,
    "epochs": 100,
    "label_smoothing": 0.1,
    "clip_norm": 1.0,
    "monitor": "val_bleu",
    "eval_sentences": 1000,
    "length_penalty": 1.2,
}

PRESETS: dict[str, Preset] = {
    "auto": Preset({"tie_embeddings": "all"}, training=_AUTO),
    "small": Preset({}),
    "multi30k": Preset(
        {"units": 512, "dropout": 0.4, "tie_embeddings": "all"}, training=_MULTI30K
    ),
    "multi30k-small": Preset(
        {"units": 256, "dropout": 0.3, "tie_embeddings": "all"},
        training={**_MULTI30K, **_MULTI30K_SMALL},
    ),
    "multi30k-student": Preset(
        {"units": 256, "dropout": 0.3, "tie_embeddings": "all"},
        training={**_MULTI30K, **_MULTI30K_SMALL, **_MULTI30K_STUDENT},
    ),
    **{f"luong2015-{name}": preset for name, preset in _LUONG.items()},
    "sutskever2014": Preset(_SUTSKEVER),
    "cho2014": Preset(_CHO, "Cho2014"),
    "bahdanau2015": Preset(_BAHDANAU, "Bahdanau2015"),
    "gnmt": Preset(_GNMT, "GNMT"),
    "vaswani2017-base": Preset(_BASE, "Transformer"),
    "vaswani2017-big": Preset({**_BASE, **_BIG}, "Transformer"),
    "wu2021-tiny": Preset(_TINY, "Transformer", _WU2021_TRAINING),
}

#: Those for one's own text, and those of the papers.
RECIPES = ("auto", "small", "multi30k", "multi30k-small", "multi30k-student")
PAPERS = tuple(name for name in PRESETS if name not in RECIPES)
