"""Made release_0_1.tar.xz, with commit 1176089 (PYTHONPATH=its checkout).

python make_release_0_1.py OUT && tar --sort=name -cJf release_0_1.tar.xz -C OUT .
"""

import json
import pathlib
import sys

import keras
import numpy as np

import keras_luong as kl
from keras_luong.text import corpora
from keras_luong.training import run_directory

out = pathlib.Path(sys.argv[1])
out.mkdir()
keras.utils.set_random_seed(1)
corpus = corpora.load("phrases", "en", "de")
tok = kl.TokenizerPair.train(
    corpus.pairs("train").take(400), vocab_size=150, shared=True
)
config = kl.Seq2SeqConfig(
    tok.source.vocab_size,
    tok.target.vocab_size,
    units=8,
    num_layers=2,
    attention="local-p",
    dropout=0.1,
    tie_embeddings="all",
    bidirectional=True,
)
model = kl.Seq2Seq(config)
rng = np.random.default_rng(0)
model.set_weights(
    [rng.normal(0, 0.7, w.shape).astype("float32") for w in model.get_weights()]
    if all(w.dtype.kind == "f" for w in model.get_weights())
    else [
        rng.normal(0, 0.7, w.shape).astype("float32") if w.dtype.kind == "f" else w
        for w in model.get_weights()
    ]
)
model.compile("adam", kl.SequenceCrossentropy(0.1), metrics=[kl.Perplexity()])
search = kl.BeamSearch(3, n_best=2, max_length=8, length_penalty=0.6)
translator = kl.Translator(model, tok, search, 20)
run = run_directory.RunDirectory(out / "run")
settings = {
    "preset": "small",
    "data": "phrases",
    "source": "en",
    "target": "de",
    "epochs": 2,
}
run_directory.write_record(run.path, model, search, 20, settings)
tok.save(run.tokenizer)
model.save_weights(run.best_weights)
model.save(out / "model.keras")
kl.export_saved_model(translator, out / "saved_model")
kl.export_tflite(translator, out / "model.tflite")
texts = ["at ten past five", "the third of May 1999", "", "it costs 12.50 euros", "x"]
said = translator.translate(texts, n_best=True)
(out / "expected.json").write_text(
    json.dumps(
        [
            {"source": s, "hypotheses": [[t.text, t.score, t.tokens] for t in h]}
            for s, h in zip(texts, said, strict=True)
        ],
        ensure_ascii=False,
        indent=1,
    )
)
ids = {"source": [[5, 6, 7, 3, 0], [9, 3, 0, 0, 0]], "target": [[2, 8, 9], [2, 4, 4]]}
logits = model({k: np.array(v, "int32") for k, v in ids.items()})
(out / "logits.json").write_text(
    json.dumps({**ids, "logits": np.asarray(logits)[:, :, :5].tolist()})
)
