"""Searches for target sequences that need nothing of a model but its `step`."""

from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.generate import SequenceGenerator, force, generate
from keras_luong.decoding.lexical import Constraints
from keras_luong.decoding.penalties import (
    AverageLengthPenalty,
    CoveragePenalty,
    GNMTCoveragePenalty,
    GNMTLengthPenalty,
    LengthPenalty,
    SummaryCoveragePenalty,
    WordReward,
)
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.decoding.step_model import Hypotheses, Search, SpecialTokens, StepModel

__all__ = [
    "AverageLengthPenalty",
    "BeamSearch",
    "Constraints",
    "CoveragePenalty",
    "Ensemble",
    "GNMTCoveragePenalty",
    "GNMTLengthPenalty",
    "GreedySearch",
    "Hypotheses",
    "LengthPenalty",
    "RandomSampling",
    "Search",
    "SequenceGenerator",
    "Shortlist",
    "SpecialTokens",
    "StepModel",
    "SummaryCoveragePenalty",
    "WordReward",
    "force",
    "generate",
]
