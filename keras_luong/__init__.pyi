from keras_luong import config as config
from keras_luong import decoding as decoding
from keras_luong import evaluation as evaluation
from keras_luong import export as export
from keras_luong import layers as layers
from keras_luong import migration as migration
from keras_luong import models as models
from keras_luong import runs as runs
from keras_luong import text as text
from keras_luong import training as training
from keras_luong import translation as translation
from keras_luong.decoding.beam import BeamSearch as BeamSearch
from keras_luong.decoding.beam import GreedySearch as GreedySearch
from keras_luong.decoding.ensemble import Ensemble as Ensemble
from keras_luong.decoding.generate import SequenceGenerator as SequenceGenerator
from keras_luong.decoding.generate import generate as generate
from keras_luong.decoding.sampling import RandomSampling as RandomSampling
from keras_luong.decoding.shortlist import Shortlist as Shortlist
from keras_luong.decoding.step_model import Hypotheses as Hypotheses
from keras_luong.decoding.step_model import SpecialTokens as SpecialTokens
from keras_luong.decoding.step_model import StepModel as StepModel
from keras_luong.export.saved_model import export_saved_model as export_saved_model
from keras_luong.export.tflite import export_tflite as export_tflite
from keras_luong.layers import AttentionalVector as AttentionalVector
from keras_luong.layers import AttentionWrapper as AttentionWrapper
from keras_luong.layers import CoverageLoss as CoverageLoss
from keras_luong.layers import CustomFeeding as CustomFeeding
from keras_luong.layers import Feeding as Feeding
from keras_luong.layers import FreeRunning as FreeRunning
from keras_luong.layers import InputFeedingDecoder as InputFeedingDecoder
from keras_luong.layers import InputFeedingDecoderCell as InputFeedingDecoderCell
from keras_luong.layers import LocalAttention as LocalAttention
from keras_luong.layers import LocationAwareAttention as LocationAwareAttention
from keras_luong.layers import LuongAttention as LuongAttention
from keras_luong.layers import Memory as Memory
from keras_luong.layers import MonotonicAttention as MonotonicAttention
from keras_luong.layers import (
    MonotonicChunkwiseAttention as MonotonicChunkwiseAttention,
)
from keras_luong.layers import MultiHeadLuongAttention as MultiHeadLuongAttention
from keras_luong.layers import MultiSourceAttention as MultiSourceAttention
from keras_luong.layers import PointerGenerator as PointerGenerator
from keras_luong.layers import PointerNetwork as PointerNetwork
from keras_luong.layers import RecurrentEncoder as RecurrentEncoder
from keras_luong.layers import ScheduledEmbedding as ScheduledEmbedding
from keras_luong.layers import ScheduledOutput as ScheduledOutput
from keras_luong.layers import Score as Score
from keras_luong.layers import StateBridge as StateBridge
from keras_luong.layers import entmax15 as entmax15
from keras_luong.layers import masked_softmax as masked_softmax
from keras_luong.layers import sparsemax as sparsemax
from keras_luong.models import Seq2Seq as Seq2Seq
from keras_luong.models import Seq2SeqConfig as Seq2SeqConfig
from keras_luong.runs.load_save import load as load
from keras_luong.runs.load_save import save_run as save_run
from keras_luong.text.sentencepiece import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from keras_luong.text.tokenizer_pair import TokenizerPair as TokenizerPair
from keras_luong.text.words import WordTokenizer as WordTokenizer
from keras_luong.training.losses import SequenceCrossentropy as SequenceCrossentropy
from keras_luong.training.metrics import Perplexity as Perplexity
from keras_luong.training.metrics import TokenAccuracy as TokenAccuracy
from keras_luong.translation.batching import Translation as Translation
from keras_luong.translation.translator import Translator as Translator

__version__: str
