"""Luong, Pham & Manning 2015 (arXiv:1508.04025): the systems of Tables 1 and 4.

Each is a `Seq2Seq` of the configuration below.
"""

from __future__ import annotations


def _paper(**changes):
    """Luong et al. 2015, section 4.1: 4 layers of 1000, U[-0.1, 0.1]; then Table 1."""
    base = {
        "units": 1000,
        "num_layers": 4,
        "bidirectional": False,
        "attention": None,
        "input_feeding": False,
        "dropout": 0.0,
        "init_scale": 0.1,
    }
    return {**base, **changes}


def _attentional(score_mode, **changes):
    base = {"reverse_source": True, "dropout": 0.2, "attention": "global"}
    return _paper(**{**base, "score_mode": score_mode, **changes})


def _local(attention, score_mode):
    return _attentional(score_mode, attention=attention, input_feeding=True)


_POSITIONS = {"max_source_length": 51}  # sentences of up to 50 words, and their end

PRESETS = {
    "luong2015-base": _paper(),
    "luong2015-reverse": _paper(reverse_source=True),
    "luong2015-dropout": _paper(reverse_source=True, dropout=0.2),
    "luong2015-global-location-nofeed": _attentional("location", **_POSITIONS),
    "luong2015-global-location": _attentional(
        "location", input_feeding=True, **_POSITIONS
    ),
    "luong2015-global-dot": _attentional("dot", input_feeding=True),
    "luong2015-global-general": _attentional("general", input_feeding=True),
    "luong2015-global-concat": _attentional("concat", input_feeding=True),
    "luong2015-local-m-dot": _local("local-m", "dot"),
    "luong2015-local-m-general": _local("local-m", "general"),
    "luong2015-local-p-dot": _local("local-p", "dot"),
    "luong2015-local-p-general": _local("local-p", "general"),
}
