"""Sutskever, Vinyals & Le 2014 (arXiv:1409.3215): deep LSTMs and a reversed source.

No attention: the decoder starts from the encoder's final states, and that is all it
knows. It is a `Seq2Seq` of this configuration (section 3.4: 4 layers of 1000, U[-0.08,
0.08]).
"""

PRESETS = {
    "sutskever2014": {
        "units": 1000,
        "num_layers": 4,
        "bidirectional": False,
        "reverse_source": True,
        "attention": None,
        "input_feeding": False,
        "dropout": 0.0,
        "init_scale": 0.08,
    }
}
