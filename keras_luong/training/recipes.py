"""How presets are trained: what of `examples/train_wmt.py`'s flags they set.

A recipe is a preset whose training was searched for, or published, together with its
model. Any flag on the command line comes before it.
"""

from __future__ import annotations

# Wu et al. 2021 (arXiv:2105.14462), as their code trains it: two GPUs with 4,096 tokens
# each, at most 8,000 steps, the mean of the last 10 epochs.
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
    "epochs": 120,
    "early_stopping": 10,
    "keep_epochs": 10,
}

#: Preset → flag → value.
RECIPES = {"wu2021-tiny": _WU2021}
