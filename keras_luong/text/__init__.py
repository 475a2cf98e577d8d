"""Tokenizers, corpora and batches."""

from keras_luong.text.batches import evaluation_batches, training_batches
from keras_luong.text.corpus import Corpus
from keras_luong.text.corpus_files import TextFiles
from keras_luong.text.find_corpus import TfdsCorpus, load_corpus
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.sentencepiece import SentencePieceTokenizer
from keras_luong.text.terminology import Terminology
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.text.words import WordTokenizer

__all__ = [
    "Corpus",
    "PhraseCorpus",
    "SentencePieceTokenizer",
    "Terminology",
    "TextFiles",
    "TfdsCorpus",
    "Tokenizer",
    "TokenizerPair",
    "WordTokenizer",
    "evaluation_batches",
    "load_corpus",
    "training_batches",
]
