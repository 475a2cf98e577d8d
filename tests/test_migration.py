"""Checkpoints that TensorFlow Addons wrote, in our models: the same numbers.

`fixtures/tfa/make_fixtures.py` made them, with Addons itself.
"""

import json
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.layers import Dense, Embedding
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.migration import load_addons_checkpoint

pytestmark = pytest.mark.tensorflow

FIXTURES = Path(__file__).parent / "fixtures" / "tfa"
FILE = json.loads((FIXTURES / "cases.json").read_text("utf-8"))
CASES = {name: {**FILE["defaults"], **case} for name, case in FILE["cases"].items()}
SOURCE_WORDS, TARGET_WORDS, TARGET_WIDTH, UNITS = 12, 11, 3, 4
BEGIN, END, LONGEST = 1, 2, 20

#: Ours for what Addons calls it, without and with scale=True or normalize=True.
SCORES = {
    "Luong": ("general", "scaled_general"),
    "Bahdanau": ("concat", "normed_concat"),
}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def numbers(name):
    return np.load(FIXTURES / f"{name}.npz")


def attention(case):
    theirs = case["attention"].removesuffix("Attention")
    kind = kl.LuongAttention
    options = {}
    if theirs.endswith("Monotonic"):
        theirs, kind = theirs.removesuffix("Monotonic"), kl.MonotonicAttention
        options = {"mode": "parallel"}
    score = SCORES[theirs][bool(case["attention_options"])]
    if theirs == "Bahdanau":
        options["units"] = UNITS
    return kind(score, **options)


def options(case):
    """How h̃ is made."""
    has_layer = case["attention_layer"] is not None
    return {
        "attentional_units": case["attention_layer"],
        "attentional_activation": case["activation"],
        "attentional_bias": case["attention_bias"],
        "use_attentional_vector": has_layer,
        "output_attention": case["output_attention"],
    }


def wrapped(case):
    """A wrapper around cells of Keras."""
    cells = [getattr(keras.layers, f"{kind}Cell")(UNITS) for kind in case["cells"]]
    return kl.AttentionWrapper(cells, attention(case), **options(case))


def own_cell(case):
    """The library's own cell."""
    kinds = case["cells"]
    return kl.InputFeedingDecoderCell(
        UNITS,
        attention(case),
        num_layers=len(kinds),
        cell_type=kinds[0].lower(),
        residual=case["residual"],
        **options(case),
    )


class Translator(keras.Model):
    """What make_fixtures.py has, of our layers."""

    def __init__(self, case, cell):
        super().__init__()
        self.source_embedding = Embedding(SOURCE_WORDS, case["source_width"])
        self.encoder = encoder(case)
        self.target_embedding = Embedding(TARGET_WORDS, TARGET_WIDTH)
        output = Dense(TARGET_WORDS, use_bias=case["output_bias"])
        self.decoder = kl.InputFeedingDecoder(cell, output_layer=output)

    def read(self, source):
        mask = keras.ops.not_equal(source, 0)
        outputs, *states = self.encoder(self.source_embedding(source), mask=mask)
        return outputs, mask, keras.tree.flatten(states)

    def call(self, inputs):
        memory, mask, states = self.read(inputs["source"])
        words = self.target_embedding(inputs["target"])
        options = {"initial_state": states, "return_attention_scores": True}
        return self.decoder(words, memory, mask, **options)

    def encode(self, source):
        memory, mask, states = self.read(source)
        cell = self.decoder.cell
        prepared = cell.prepare(memory, mask)
        states = [keras.ops.expand_dims(x, 1) for x in states]
        return prepared, cell.initial_states((len(source), 1), states, prepared)

    def step(self, tokens, state, memory):
        words = self.target_embedding(tokens)
        h_tilde, state, weights = self.decoder.cell(words, state, memory)
        return self.decoder.output_layer(h_tilde), state, weights


def encoder(case):
    """The library's own where there is one of its kind, or else Keras's."""
    kinds = case["cells"]
    if len(set(kinds)) > 1:
        cells = [getattr(keras.layers, f"{kind}Cell")(UNITS) for kind in kinds]
        return keras.layers.RNN(cells, return_sequences=True, return_state=True)
    both = case["bidirectional"]
    return kl.RecurrentEncoder(
        UNITS // 2 if both else UNITS, len(kinds), both, kinds[0].lower()
    )


def built(name, make_cell=wrapped):
    """A model of a case, with weights of its own; and its inputs."""
    given = numbers(name)
    inputs = {"source": given["source"], "target": given["target"]}
    model = Translator(CASES[name], make_cell(CASES[name]))
    model(inputs)
    return model, inputs


WAYS = [(name, wrapped) for name in CASES if not CASES[name]["residual"]] + [
    (name, own_cell) for name, case in CASES.items() if len(set(case["cells"])) == 1
]
QUICK = {
    "bahdanau_monotonic_normed": wrapped,
    "mixed_stack": wrapped,
    "bahdanau_monotonic": own_cell,
    "bidirectional": own_cell,
    "residual": own_cell,
}


@pytest.mark.parametrize(
    ("name", "make_cell"),
    [
        pytest.param(*way, marks=[pytest.mark.slow] * (way not in QUICK.items()))
        for way in WAYS
    ],
)
def test_a_whole_model_gives_addons_numbers(name, make_cell):
    model, inputs = built(name, make_cell)
    loaded = load_addons_checkpoint(FIXTURES / name, model)
    assert loaded.complete and not loaded.hints
    logits, weights = model(inputs)
    expected = numbers(name)
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)
    np.testing.assert_allclose(weights[:, -1], expected["alignments"], atol=1e-5)


def test_a_seq2seq_model():
    given = numbers("luong_tanh")
    sizes = SOURCE_WORDS, TARGET_WORDS, UNITS, TARGET_WIDTH
    model = kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, bidirectional=False))
    assert load_addons_checkpoint(FIXTURES / "luong_tanh", model).complete
    inputs = {"source": given["source"], "target": given["target"]}
    np.testing.assert_allclose(model(inputs), given["logits"], atol=1e-5)


def test_a_model_of_opennmt_tf():
    """Its decoder is an `AttentionWrapper` of Addons (make_opennmt_tf.py)."""
    given, words = numbers("opennmt_tf"), 9
    embeddings = [Embedding(words, width) for width in (4, 3)]
    read = kl.RecurrentEncoder(2, bidirectional=True)
    cell = kl.InputFeedingDecoderCell(4, kl.LuongAttention(), num_layers=2)
    decoder = kl.InputFeedingDecoder(cell, output_layer=Dense(words))

    def logits():
        source, target = given["source"], given["target"]
        mask = source != 0
        memory, *_ = read(embeddings[0](source), mask=mask)
        return decoder(embeddings[1](target), memory, mask)

    logits()  # makes the weights
    layers = [*embeddings, read, decoder]
    assert load_addons_checkpoint(FIXTURES / "opennmt_tf", layers).complete
    np.testing.assert_allclose(logits(), given["logits"], atol=1e-5)


def ended(ids):
    """Ids up to the end, which is counted; None where there is none."""
    ids = np.asarray(ids).tolist()
    return ids[: ids.index(END) + 1] if END in ids else None


SEARCHED = [name for name, case in CASES.items() if case["search"]]
SPECIAL = {"bos_id": BEGIN, "eos_id": END, "max_length": LONGEST}


@pytest.mark.parametrize("name", slow_but(SEARCHED, "bahdanau"))
def test_greedy_searches_find_the_same(name):
    model, inputs = built(name)
    load_addons_checkpoint(FIXTURES / name, model)
    found = np.asarray(kl.GreedySearch(**SPECIAL)(model, inputs["source"]).ids)[:, 0]
    for ours, theirs in zip(found, numbers(name)["greedy"], strict=True):
        theirs = ended(theirs) or theirs.tolist()  # which goes on after the end
        assert ours[: len(theirs)].tolist() == theirs
        assert not ours[len(theirs) :].any()


@pytest.mark.slow
def test_beams_find_the_same_where_the_best_has_ended():
    """A length penalty counts the end token at once.

    Addons does so from the next step on: those that end last lack it.
    """
    best = compared = late = 0
    for name in SEARCHED:
        model, inputs = built(name)
        load_addons_checkpoint(FIXTURES / name, model)
        expected = numbers(name)
        found = kl.BeamSearch(3, **SPECIAL)(model, inputs["source"])
        for i, ids in enumerate(np.asarray(found.ids)[:, 0]):
            theirs = ended(expected["beam"][i, :, 0])
            if theirs is not None:
                best += 1
                assert ended(ids) == theirs
                score, other = found.scores[i, 0], expected["scores"][i, 0]
                np.testing.assert_allclose(score, other, atol=1e-5)
        search = kl.BeamSearch(3, 3, length_penalty=1.0, **SPECIAL)
        found = search(model, inputs["source"])
        for i, own in enumerate(np.asarray(found.ids)):
            beam = [ended(ids) for ids in expected["penalized_beam"][i].T]
            for k, ids in enumerate(map(ended, own)):
                # At the same place: there scores and ids may be of different ones.
                if ids and beam[k] == ids:
                    log_prob, length = found.log_probs[i, k], len(ids)
                    score = expected["penalized_scores"][i, k]
                    at_once, too_late = log_prob * 6 / [5 + length, 4 + length]
                    np.testing.assert_allclose(found.scores[i, k], at_once, rtol=1e-5)
                    assert np.isclose(score, at_once) or np.isclose(score, too_late)
                    late += np.isclose(score, too_late)
                    compared += 1
    assert (best, compared, late) == (18, 42, 1)


def test_parts_of_a_model():
    """A decoder with its embedding; the encoder is left out, and it is said."""
    model, _ = built("luong")
    parts = {"decoder": model.decoder, "words": model.target_embedding}
    with pytest.warns(UserWarning, match="No place in the model for 4 weights") as said:
        loaded = load_addons_checkpoint(FIXTURES / "luong", parts)
    assert said[0].filename == __file__
    assert loaded.not_placed == {
        "model/source_embedding/embeddings": (12, 5),
        "model/encoder/cell/kernel": (5, 16),
        "model/encoder/cell/recurrent_kernel": (4, 16),
        "model/encoder/cell/bias": (16,),
    }
    assert not loaded.not_loaded and not loaded.complete
    places = {"model/encoder": None, "model/source_embedding": None}
    assert load_addons_checkpoint(FIXTURES / "luong", parts, places).complete
    assert len(loaded.placed) == 8


def test_a_bare_cell():
    model, _ = built("luong_tanh", own_cell)
    cell = model.decoder.cell
    with pytest.warns(UserWarning, match="model/decoder/output_layer/kernel"):
        loaded = load_addons_checkpoint(FIXTURES / "luong_tanh", cell)
    both = loaded.placed["model/cell/_cell/kernel"].split(", ")
    assert [path.rpartition("/")[2] for path in both] == ["kernel", "feeding_kernel"]
    assert not loaded.not_loaded


def test_what_the_checkpoint_has_not_keeps_its_values():
    model, _ = built("luong")
    more = dense("more")
    before = more.get_weights()
    with pytest.warns(UserWarning, match="Not loaded, so as before: 2 weights") as said:
        loaded = load_addons_checkpoint(FIXTURES / "luong", [model, more])
    assert "more/kernel (2, 3)" in str(said[0].message)
    assert loaded.not_loaded == {"more/kernel": (2, 3), "more/bias": (3,)}
    for old, new in zip(before, more.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


# Checkpoints that are written here: object graphs as Addons makes them.


def module(**parts):
    """An object with these parts, of which shapes are variables of ones."""
    made = tf.Module()
    for name, x in parts.items():
        is_shape = isinstance(x, tuple)
        setattr(made, name, tf.Variable(tf.ones(x)) if is_shape else x)
    return made


def mechanism():
    return module(memory_layer=module(kernel=(2, 2)))


def stand_in(cell=None, **more):
    """As an `AttentionWrapper`, E = 3, A = H = 2."""
    weights = {"kernel": (5, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
    parts = {
        "_cell": module(**weights, **(cell or {})),
        "_attention_mechanisms": [mechanism()],
        "_attention_layers": [module(kernel=(4, 2))],
    }
    return module(**{**parts, **more})


def small_cell(**options):
    """A cell that fits it."""
    attention = options.pop("attention", kl.LuongAttention()) or None
    cell = kl.InputFeedingDecoderCell(options.pop("units", 2), attention, **options)
    cell.build((None, None, 3), (None, None, 2))
    return cell


def dense(name):
    layer = Dense(3, name=name)
    layer.build((None, 2))
    return layer


@pytest.fixture
def write(tmp_path):
    def write(**objects):
        return tf.train.Checkpoint(**objects).write(str(tmp_path / "model"))

    return write


def test_two_embeddings_of_one_shape_are_not_guessed(write):
    words = [module(embeddings=(7, 3)) for _ in range(2)]
    words[0].embeddings.assign(tf.zeros((7, 3)))
    path = write(decoder=stand_in(), source=words[0], target=words[1])
    ours = [Embedding(7, 3, name=name) for name in ("one", "other")]
    for embedding in ours:
        embedding.build((None, None))
    layers = [small_cell(), *ours]
    with pytest.warns(UserWarning, match="source, target .* could be one, other"):
        loaded = load_addons_checkpoint(path, layers)
    assert loaded.not_loaded == {f"{x}/embeddings": (7, 3) for x in ("one", "other")}
    # Of two, one says it all.
    assert load_addons_checkpoint(path, layers, {"target": ours[0]}).complete
    assert [x.embeddings[0, 0] for x in ours] == [1, 0]


def test_two_decoders_need_places(write):
    path = write(first=stand_in(), second=stand_in())
    cells = [small_cell(name="a"), small_cell(name="b")]
    with pytest.raises(ValueError, match="has first, second, and the model a, b"):
        load_addons_checkpoint(path, cells)
    places = {"first": cells[1], "second": cells[0]}
    assert load_addons_checkpoint(path, cells, places).complete


MISFITS = [
    ({"units": 3}, r"\(5, 8\), and the model would need \(3 \+ 3, 12\)"),
    ({"cell_type": "gru"}, r"\(5, 8\), and the model would need"),
    ({"num_layers": 2}, "has 1 recurrent layers, and the model's decoder 2"),
    ({"input_feeding": False}, r"would need \(3 \+ 0, 8\)"),
    (
        {"attention": kl.LuongAttention("dot")},
        r'LuongAttention\(units\), which is LuongAttention\("general"\) here. '
        r"Received: LuongAttention\('dot'\)",
    ),
    ({"attention": False}, "Received: no attention"),
    (
        {"attention": kl.MonotonicAttention()},
        r"Received: MonotonicAttention\('general'\)",
    ),
    ({"attentional_bias": True}, "no bias, which is attentional_bias=False"),
    (
        {"use_attentional_vector": False},
        "an attention layer, which is use_attentional_vector=True here",
    ),
]


@pytest.mark.parametrize("options, message", MISFITS)
def test_what_does_not_fit_is_said_and_nothing_is_loaded(options, message, write):
    cell = small_cell(**options)
    before = cell.get_weights()
    with pytest.raises(ValueError, match=message):
        load_addons_checkpoint(write(decoder=stand_in()), cell)
    for old, new in zip(before, cell.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def with_output(**weights):
    return {"decoder": module(cell=stand_in(), output_layer=module(**weights))}


def with_words():
    return {"decoder": stand_in(), "words": module(embeddings=(7, 3))}


def seq2seq(bias):
    config = kl.Seq2SeqConfig(7, 5, 2, 3, bidirectional=False, output_bias=bias)
    return kl.Seq2Seq(config)


def quantized():
    cell = small_cell()
    cell.attention.quantize("int8")
    return cell


def wrapper(**parts):
    return lambda: {"decoder": stand_in(**{x: make() for x, make in parts.items()})}


usual = wrapper()
BIASED = "output_layer of the checkpoint has {} bias.*output_bias={}"


@pytest.mark.parametrize(
    "objects, model, places, message",
    [
        (
            wrapper(_attention_layers=lambda: [module(kernel=(4, 3))]),
            *(small_cell, None),
            r"kernel of the checkpoint .* \(4, 3\)",
        ),
        (
            wrapper(_attention_mechanisms=lambda: [mechanism(), mechanism()]),
            *(small_cell, None, "decoder of the checkpoint has 2 attention"),
        ),
        (  # as the peephole LSTM of Addons, whose kernel has the same shape
            wrapper(cell=lambda: {"input_gate_peephole_weights": (2,)}),
            *(small_cell, None, "has {.*peephole.*, and .* of the model {"),
        ),
        (
            lambda: {"net": tf.Module(), "step": tf.Variable(3)},
            *(small_cell, None, "no tfa.seq2seq.Attention.* net, step"),
        ),
        (usual, lambda: dense("only"), None, "no decoder in the model.*only"),
        (
            lambda: with_output(kernel=(2, 5), bias=(5,)),
            *(lambda: seq2seq(False), None, BIASED.format("a", True)),
        ),
        (
            lambda: with_output(kernel=(2, 5)),
            *(lambda: seq2seq(True), None, BIASED.format("no", False)),
        ),
        (
            usual,
            lambda: kl.InputFeedingDecoderCell(2, kl.LuongAttention(), name="new"),
            *(None, "new has no weights yet"),
        ),
        pytest.param(
            *(usual, quantized, None),
            r"is quantized .int8.: load the checkpoint",
            marks=pytest.mark.slow,
        ),
        (usual, lambda: "no", None, "must be a Keras model .* Received: 'no'"),
        (usual, small_cell, ["decoder"], "places must be a dictionary"),
        (usual, small_cell, lambda x: {x: "decoder"}, "places must be a dictionary"),
        (
            *(usual, small_cell, lambda x: {"decoders": x}),
            "no 'decoders' in the checkpoint.* decoder,",
        ),
        (
            *(usual, small_cell, lambda x: {"decoder/_cell/kernel": x}),
            "Received a weight: 'decoder/_cell/kernel'",
        ),
        (
            *(usual, small_cell, lambda x: {"decoder": small_cell()}),
            "places must name layers of the model",
        ),
        (
            with_words,
            lambda: [small_cell(), dense("dense")],
            lambda x: {"words": x[1]},
            r"words of the checkpoint has .*\(7, 3\)",
        ),
        (
            with_words,
            lambda: [small_cell(), dense("dense")],
            lambda x: {"decoder": x[1]},
            "decoder of the checkpoint is an Attention",
        ),
    ],
)
def test_what_cannot_be_loaded_is_said(objects, model, places, message, write):
    layers = model()
    places = places(layers) if callable(places) else places
    with pytest.raises((TypeError, ValueError), match=message):
        load_addons_checkpoint(write(**objects()), layers, places)


def test_a_wrong_path_names_what_is_there(tmp_path, write):
    write(decoder=stand_in())
    cell = small_cell()

    def refuse(error, message, path):
        with pytest.raises(error, match=message):
            load_addons_checkpoint(path, cell)

    refuse(FileNotFoundError, r"no checkpoint .*mine.* is model", tmp_path / "mine")
    refuse(FileNotFoundError, "no file named checkpoint .* model", tmp_path)
    list_of_all = tmp_path / "checkpoint"
    list_of_all.write_text('model_checkpoint_path: "/moved/model"', "utf-8")
    refuse(FileNotFoundError, "the latest and where it is.* model", tmp_path)
    (tmp_path / "weights.h5").write_bytes(b"other")
    refuse(ValueError, "weights.h5 is no checkpoint", tmp_path / "weights.h5")
    refuse(TypeError, "path must be a path. Received: 3", 3)
    (tmp_path / "broken.index").write_bytes(b"other")
    refuse(ValueError, "broken cannot be read", tmp_path / "broken")
    old = str(tmp_path / "old")  # of TensorFlow 1
    names = {"tensor_names": ["w"], "shape_and_slices": [""]}
    tf.raw_ops.SaveV2(prefix=old, tensors=[tf.ones(2)], **names)
    refuse(ValueError, "holds variables by name and no objects", old)


def test_a_directory_gives_its_latest(tmp_path):
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(decoder=stand_in(), step=tf.Variable(1)), tmp_path, 2
    )
    path = manager.save()
    for given in (tmp_path, path, f"{path}.index"):
        places = {"step": None}
        assert load_addons_checkpoint(given, small_cell(), places).complete


def test_the_variables_of_a_saved_model(tmp_path):
    tf.saved_model.save(stand_in(), str(tmp_path))
    cell = small_cell()
    with pytest.raises(FileNotFoundError, match="there is variables/variables"):
        load_addons_checkpoint(tmp_path, cell)
    assert load_addons_checkpoint(tmp_path / "variables/variables", cell).complete
