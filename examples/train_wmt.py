"""A translator from layers to a server, trained as by Luong, Pham & Manning (2015).

python examples/train_wmt.py                   # WMT'14, English to German: days
python examples/train_wmt.py --data phrases    # the embedded corpus: minutes
python examples/train_wmt.py --data my/corpus  # files: train.en, train.de, ...
"""

import argparse

import keras
import sacrebleu
import tensorflow as tf

import keras_luong as kl

PHRASES = dict(units=128, depth=1, batch_tokens=1024, method="adam", rate=0.004)


class LuongModel:
    """The paper's layers, for `fit` and, with `encode` and `step`, for a search."""

    def __init__(self, source_size, target_size, units, depth):
        uniform = keras.initializers.RandomUniform(-0.1, 0.1)
        drawn = {"kernel_initializer": uniform}
        lstms = {**drawn, "recurrent_initializer": uniform, "dropout": 0.2}
        self.source = keras.layers.Embedding(source_size, units, uniform)
        self.target = keras.layers.Embedding(target_size, units, uniform.clone())
        self.encoder = kl.RecurrentEncoder(units, depth, go_backwards=True, **lstms)
        local_p = kl.LocalAttention(10, "predictive", **drawn)  # Eq. 7 to 10
        self.cell = kl.InputFeedingDecoderCell(units, local_p, depth, **lstms)
        self.decoder = kl.InputFeedingDecoder(self.cell)  # Eq. 5, word after word
        self.logits = keras.layers.Dense(target_size, use_bias=False, **drawn)  # Eq. 6

    def read(self, source):
        """Ids [B, S] to the encoder's states [B, S, H], their mask, the last states."""
        mask = keras.ops.not_equal(source, 0)
        memory, *last = self.encoder(self.source(source), mask=mask)
        return memory, mask, last

    def teacher_forced(self):
        """For `fit`: reads a reference's words, and predicts each from those before."""
        source = keras.Input([None], dtype="int32", name="source")
        target = keras.Input([None], dtype="int32", name="target")
        memory, mask, last = self.read(source)
        h = self.decoder(self.target(target), memory, mask, initial_state=last)
        return keras.Model({"source": source, "target": target}, self.logits(h))

    def encode(self, source):
        """For a search: what all steps attend to, and the states before the first."""
        return self.cell.start(*self.read(source))

    def step(self, words, states, memory):
        """For a search: the logits of the next word, the new states, the attention."""
        h, states, weights = self.cell(self.target(words), states, memory)
        return self.logits(h), states, weights


def main(
    data, out, units=1000, depth=4, batch_tokens=4096, method="sgd", rate=1.0, epochs=12
):
    """From pairs of sentences to a translation by the exported model."""
    corpus = kl.text.load_corpus(data, "en", "de")
    pairs = corpus.pairs("train")
    tokenizers = kl.TokenizerPair.train(pairs, "word", vocab_size=50_000)
    # Batches of similar lengths, up to 50 words; 4,096 tokens are about 128 pairs.
    train = kl.text.training_batches(pairs, tokenizers, batch_tokens, max_length=50)
    validation = kl.text.evaluation_batches(corpus.pairs("validation"), tokenizers)

    with kl.training.make_strategy().scope():  # all GPUs that there are
        sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
        luong = LuongModel(*sizes, units, depth)
        model = luong.teacher_forced()
        optimizer = kl.training.make_optimizer(method, rate, clip_norm=5)
        # (XLA would compile a step for every length that a batch has.)
        model.compile(optimizer, kl.SequenceCrossentropy(), jit_compile=False)
    callbacks = [
        # Eight epochs of one rate; from then on each has half of the one before.
        keras.callbacks.LearningRateScheduler(lambda i: rate * 0.5 ** max(0, i - 7)),
        keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
        keras.callbacks.BackupAndRestore(f"{out}/backup"),  # goes on if it was killed
    ]
    model.fit(train, validation_data=validation, epochs=epochs, callbacks=callbacks)

    translator = kl.Translator(luong, tokenizers, kl.BeamSearch(beam_width=10))
    texts, references = kl.text.sentences(corpus, corpus.splits[-1])
    translations = [x.text for x in translator.translate(texts)]
    print(sacrebleu.corpus_bleu(translations, [references]))

    exported = kl.export_saved_model(translator, f"{out}/saved_model", overwrite=True)
    serve = tf.saved_model.load(exported).signatures["serving_default"]
    answer = serve(text=tf.constant(texts[:1]))  # strings in, strings out
    print(texts[0], "→", answer["translation"].numpy()[0].decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="wmt14_translate/de-en")
    parser.add_argument("--out", default="runs/wmt")
    args = parser.parse_args()
    main(**vars(args), **(PHRASES if args.data == "phrases" else {}))
