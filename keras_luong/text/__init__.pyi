from keras_luong.text.batches import evaluation_batches as evaluation_batches
from keras_luong.text.corpora import TextFiles as TextFiles
from keras_luong.text.corpora import TfdsCorpus as TfdsCorpus
from keras_luong.text.corpora import load_corpus as load_corpus
from keras_luong.text.corpus import Corpus as Corpus
from keras_luong.text.corpus import sentences as sentences
from keras_luong.text.epoch_batches import training_batches as training_batches
from keras_luong.text.phrases import PhraseCorpus as PhraseCorpus
from keras_luong.text.sentencepiece import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from keras_luong.text.terminology import Terminology as Terminology
from keras_luong.text.tokenizer import Tokenizer as Tokenizer
from keras_luong.text.tokenizer_pair import TokenizerPair as TokenizerPair
from keras_luong.text.words import WordTokenizer as WordTokenizer
