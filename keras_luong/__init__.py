"""Luong attention for Keras 3: layers, translation models, beam search and export."""

from keras_luong import migration
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.generate import SequenceGenerator, generate
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.decoding.step_model import Hypotheses, SpecialTokens, StepModel
from keras_luong.export.saved_model import export_saved_model
from keras_luong.export.tflite import export_tflite
from keras_luong.layers import (
    AttentionalVector,
    AttentionWrapper,
    CoverageLoss,
    CustomFeeding,
    Feeding,
    FreeRunning,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LocalAttention,
    LocationAwareAttention,
    LuongAttention,
    Memory,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiHeadLuongAttention,
    MultiSourceAttention,
    PointerGenerator,
    PointerNetwork,
    RecurrentEncoder,
    ScheduledEmbedding,
    ScheduledOutput,
    Score,
    StateBridge,
    entmax15,
    masked_softmax,
    sparsemax,
)
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs.load_save import load, save_run
from keras_luong.text.sentencepiece import SentencePieceTokenizer
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.text.words import WordTokenizer
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.translation.batching import Translation
from keras_luong.translation.translator import Translator

__version__ = "0.1.0"

__all__ = [
    "AttentionWrapper",
    "AttentionalVector",
    "BeamSearch",
    "CoverageLoss",
    "CustomFeeding",
    "Ensemble",
    "Feeding",
    "FreeRunning",
    "GreedySearch",
    "Hypotheses",
    "InputFeedingDecoder",
    "InputFeedingDecoderCell",
    "LocalAttention",
    "LocationAwareAttention",
    "LuongAttention",
    "Memory",
    "MonotonicAttention",
    "MonotonicChunkwiseAttention",
    "MultiHeadLuongAttention",
    "MultiSourceAttention",
    "Perplexity",
    "PointerGenerator",
    "PointerNetwork",
    "RandomSampling",
    "RecurrentEncoder",
    "ScheduledEmbedding",
    "ScheduledOutput",
    "Score",
    "SentencePieceTokenizer",
    "Seq2Seq",
    "Seq2SeqConfig",
    "SequenceCrossentropy",
    "SequenceGenerator",
    "Shortlist",
    "SpecialTokens",
    "StateBridge",
    "StepModel",
    "TokenAccuracy",
    "TokenizerPair",
    "Translation",
    "Translator",
    "WordTokenizer",
    "entmax15",
    "export_saved_model",
    "export_tflite",
    "generate",
    "load",
    "masked_softmax",
    "migration",
    "save_run",
    "sparsemax",
]
