"""How presets are trained: what of `examples/train_wmt.py`'s flags they set.

A recipe is a preset whose training was searched for, or published, together with its
model. Any flag on the command line comes before it.
"""

from __future__ import annotations

# Wu et al. 2021 (arXiv:2105.14462), as their code trains it: two GPUs with 4,096 tokens
# each, at most 8,000 steps (110 epochs of Multi30k), the mean of the last 10 epochs.
# They divide hypotheses' scores by their lengths; GNMT's penalty is nearest to that
# with an exponent of 1.
_WU2021 = {
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
_MULTI30K_SMALL = {
    **_MULTI30K,
    "learning_rate": 0.002,
    "constant_epochs": 9,
    "epochs": 14,
}

#: Preset → flag → value.
RECIPES = {
    "multi30k": _MULTI30K,
    "multi30k-small": _MULTI30K_SMALL,
    "wu2021-tiny": _WU2021,
}
