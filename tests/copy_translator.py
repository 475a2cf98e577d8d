"""A translator that says each word of its source in the other language."""

import functools

import tensorflow as tf

import keras_luong as kl

SOURCE_WORDS = ["one", "two", "three", "four"]
TARGET_WORDS = ["eins", "zwei", "drei", "vier"]


class CopyModel(tf.Module):
    """Says the source's ids one by one, sure of each; attends to where it reads."""

    vocabulary = 8

    def encode(self, source_ids):
        return source_ids, tf.zeros([tf.shape(source_ids)[0], 1], tf.int32)

    def step(self, tokens, position, source_ids):
        next_ids = tf.gather(source_ids, position, batch_dims=1)
        logits = 20.0 * tf.one_hot(next_ids, self.vocabulary)
        weights = tf.one_hot(position, tf.shape(source_ids)[1])
        last = tf.shape(source_ids)[1] - 1
        return logits, tf.minimum(position + 1, last), weights


@functools.cache  # a trace takes longer than the tests
def make(search=None, **arguments):
    pair = kl.TokenizerPair(*map(kl.WordTokenizer, (SOURCE_WORDS, TARGET_WORDS)))
    return kl.Translator(CopyModel(), pair, search or kl.BeamSearch(3), **arguments)


def texts_of(translations):
    return [translation.text for translation in translations]
