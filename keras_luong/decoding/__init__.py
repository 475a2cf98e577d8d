"""Search for the most probable target sequence, given nothing but a model's step."""

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.decoding.penalties import GNMTLengthPenalty, LengthPenalty
from keras_luong.decoding.stepping import Hypotheses, StepModel

__all__ = [
    "BeamSearch",
    "GNMTLengthPenalty",
    "GreedySearch",
    "Hypotheses",
    "LengthPenalty",
    "StepModel",
]
