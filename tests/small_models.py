"""The library's models, as a preset and what is changed of it, for tests of exports."""

MODELS = {
    "small": ("small", {}),
    "local-m": ("small", {"attention": "local-m", "window": 1}),
    "local-p": ("small", {"attention": "local-p", "window": 2}),
    "local variants": (
        "small",
        {"attention": "local-m", "window": 1, "gaussian": True, "renormalize": True},
    ),
    "monotonic": ("small", {"attention": "monotonic"}),
    "monotonic, parallel": (
        "small",
        {"attention": "monotonic", "monotonic_mode": "parallel"},
    ),
    "monotonic, hard": ("small", {"attention": "monotonic", "hard_attention": True}),
    "coverage": ("small", {"coverage": True, "input_feeding": False}),
    "hard": ("small", {"hard_attention": True}),
    "location": ("small", {"score_mode": "location", "max_source_length": 15}),
    "concat": ("small", {"score_mode": "concat", "num_layers": 2}),
    "cosine": ("small", {"score_mode": "cosine"}),
    "gru": ("small", {"cell_type": "gru"}),
    "simple_rnn": ("small", {"cell_type": "simple_rnn"}),
    "layer_norm": ("small", {"cell_type": "layer_norm_lstm"}),
    "sutskever": ("sutskever2014", {"num_layers": 2}),
    "cho": ("cho2014", {}),
    "bahdanau": ("bahdanau2015", {"encoder_units": 4}),
    "gnmt": ("gnmt", {"num_layers": 2}),
    "transformer": ("vaswani2017-base", {"num_heads": 2, "num_layers": 1}),
}
