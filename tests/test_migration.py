"""Checkpoints that TensorFlow Addons wrote, in our models: the same numbers.

`fixtures/tfa/make_fixtures.py` made them, with Addons itself. And the page about it.
"""

import hashlib
import json
import re
import shutil
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.layers import Dense, Embedding
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.cli.command_line import parse
from keras_luong.migration import load_addons_checkpoint

pytestmark = pytest.mark.tensorflow

FIXTURES = Path(__file__).parent / "fixtures" / "tfa"
DOCS = Path(__file__).parents[1] / "docs"
FILE = json.loads((FIXTURES / "cases.json").read_text("utf-8"))
CASES = {name: {**FILE["defaults"], **case} for name, case in FILE["cases"].items()}
SOURCE_WORDS, TARGET_WORDS, TARGET_WIDTH, UNITS = 12, 11, 3, 4
BEGIN, END, LONGEST = 1, 2, 20

#: Ours for what Addons calls it, without and with scale=True or normalize=True.
SCORES = {"Luong": ("general", "scaled_general")}
SCORES |= {"Bahdanau": ("concat", "normed_concat")}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def numbers(name):
    return np.load(FIXTURES / f"{name}.npz")


def attention(case):
    theirs = case["attention"].removesuffix("Attention")
    kind = theirs.removesuffix("Monotonic")
    score = SCORES[kind][bool(case["attention_options"])]
    options = {"units": UNITS} if kind == "Bahdanau" else {}
    if kind != theirs:
        return kl.MonotonicAttention(score, mode="parallel", **options)
    return kl.LuongAttention(score, **options)


def options(case):
    """How h̃ is made."""
    return {
        "attentional_units": case["attention_layer"],
        "attentional_activation": case["activation"],
        "attentional_bias": case["attention_bias"],
        "use_attentional_vector": case["attention_layer"] is not None,
        "output_attention": case["output_attention"],
    }


def wrapped(case):
    """A wrapper around cells of Keras."""
    cells = [getattr(keras.layers, f"{kind}Cell")(UNITS) for kind in case["cells"]]
    return kl.AttentionWrapper(cells, attention(case), **options(case))


def own_cell(case):
    """The library's own cell."""
    kinds, more = case["cells"], {"residual": case["residual"], **options(case)}
    more |= {"num_layers": len(kinds), "cell_type": kinds[0].lower()}
    return kl.InputFeedingDecoderCell(UNITS, attention(case), **more)


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
    units = UNITS // 2 if both else UNITS
    return kl.RecurrentEncoder(units, len(kinds), both, kinds[0].lower())


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
QUICK = {"bahdanau_monotonic_normed": wrapped, "mixed_stack": wrapped}
QUICK |= {"bidirectional": own_cell}


MARKED = [(*way, [pytest.mark.slow] * (way not in QUICK.items())) for way in WAYS]
MARKED = [pytest.param(*way, marks=marks) for *way, marks in MARKED]


@pytest.mark.parametrize("name, make_cell", MARKED)
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
    compared = 0
    for name in SEARCHED:
        model, inputs = built(name)
        load_addons_checkpoint(FIXTURES / name, model)
        expected = numbers(name)
        found = kl.BeamSearch(3, **SPECIAL)(model, inputs["source"])
        for i, ids in enumerate(np.asarray(found.ids)[:, 0]):
            theirs = ended(expected["beam"][i, :, 0])
            if theirs is not None:
                compared += 1
                assert ended(ids) == theirs
                score, other = found.scores[i, 0], expected["scores"][i, 0]
                np.testing.assert_allclose(score, other, atol=1e-5)
    assert compared == 18


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


def test_what_the_checkpoint_has_not_keeps_its_values():
    model, _ = built("luong")
    more = dense("more")
    before = more.get_weights()
    with pytest.warns(UserWarning, match="Not loaded, so as before: 2 weights") as said:
        loaded = load_addons_checkpoint(FIXTURES / "luong", [model, more])
    assert "more/kernel (2, 3)" in str(said[0].message)
    assert loaded.not_loaded == {"more/kernel": (2, 3), "more/bias": (3,)}
    keras.tree.map_structure(np.testing.assert_array_equal, before, more.get_weights())


# Checkpoints that are written here: object graphs as Addons makes them.


CELL = {"kernel": (5, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
LUONG, LAYER = {"memory_layer": {"kernel": (2, 2)}}, {"kernel": (4, 2)}
#: As an `AttentionWrapper`, E = 3, A = H = 2.
PARTS = {"_attention_mechanisms": [LUONG], "_attention_layers": [LAYER]}
WRAPPER = {"_cell": CELL, **PARTS}
WORDS = {"embeddings": (7, 3)}


def made(x):
    """An object of its parts: tuples are shapes of variables, of ones."""
    if isinstance(x, tuple):
        return tf.Variable(tf.ones(x))
    if isinstance(x, list):
        return [*map(made, x)]
    whole = tf.Module()
    for name, part in x.items():
        setattr(whole, name, made(part))
    return whole


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


def with_dense():
    return [small_cell(), dense("dense")]


@pytest.fixture
def write(tmp_path):
    def write(**objects):
        parts = {name: made(x) for name, x in objects.items()}
        return tf.train.Checkpoint(**parts).write(str(tmp_path / "model"))

    return write


def test_two_embeddings_of_one_shape_are_not_guessed(write):
    path = write(decoder=WRAPPER, source=WORDS, target=WORDS)
    ours = [Embedding(7, 3, name=name) for name in ("one", "other")]
    for embedding in ours:
        embedding.build((None, None))
    layers = [small_cell(), *ours]
    with pytest.warns(UserWarning, match="source, target .* could be one, other"):
        loaded = load_addons_checkpoint(path, layers)
    assert loaded.not_loaded == {f"{x}/embeddings": (7, 3) for x in ("one", "other")}
    loaded = load_addons_checkpoint(path, layers, {"target": ours[0]})
    assert loaded.complete  # of two, one says it all
    assert loaded.placed["target/embeddings"] == "one/embeddings"
    assert loaded.placed["source/embeddings"] == "other/embeddings"


def test_two_decoders_need_places(write):
    path = write(first=WRAPPER, second=WRAPPER)
    cells = [small_cell(name="a"), small_cell(name="b")]
    with pytest.raises(ValueError, match="has first, second, and the model a, b"):
        load_addons_checkpoint(path, cells)
    places = {"first": cells[1], "second": cells[0]}
    assert load_addons_checkpoint(path, cells, places).complete


def seq2seq(bias):
    config = kl.Seq2SeqConfig(7, 5, 2, 3, bidirectional=False, output_bias=bias)
    return kl.Seq2Seq(config)


def quantized():
    cell = small_cell()
    cell.attention.quantize("int8")
    return cell


def case(message, model=small_cell, places=None, **objects):
    """Why something cannot be loaded: the model, `places` and the checkpoint."""
    return message, model, places, objects or {"decoder": WRAPPER}


def misfit(message, **options):
    """The cell is not as the checkpoint's."""
    return case(message, lambda: small_cell(**options))


def odd(message, **parts):
    """The wrapper has a part that no cell has."""
    return case(message, decoder={**WRAPPER, **parts})


def biased(has_bias, message, **weights):
    """The output layer has a bias on one side alone."""
    parts = {"cell": WRAPPER, "output_layer": weights}
    return case(message, lambda: seq2seq(has_bias), decoder=parts)


IS_OURS = r'\(units\), which is LuongAttention\("general"\) here. Received: '
PEEPHOLES = {"input_gate_peephole_weights": (2,)}


MISFITS = [
    misfit(r"\(5, 8\), and the model would need \(3 \+ 3, 12\)", units=3),
    misfit("has 1 recurrent layers, and the model's decoder 2", num_layers=2),
    misfit(r"would need \(3 \+ 0, 8\)", input_feeding=False),
    misfit(IS_OURS + r"Luon.*'dot'", attention=kl.LuongAttention("dot")),
    misfit(IS_OURS + "Monotonic", attention=kl.MonotonicAttention()),
    misfit("Received: no attention", attention=False),
    misfit("no bias, which is attentional_bias=False", attentional_bias=True),
    misfit("which is use_attentional_vector=True", use_attentional_vector=False),
    odd(r"kernel of .* \(4, 3\)", _attention_layers=[{"kernel": (4, 3)}]),
    odd("decoder of .* has 2 attention", _attention_mechanisms=[LUONG, LUONG]),
    # As the peephole LSTM of Addons, whose kernel has the same shape.
    odd("has {.*peephole.*, and .* of the model {", _cell={**CELL, **PEEPHOLES}),
    biased(False, "has a bias.*output_bias=True", kernel=(2, 5), bias=(5,)),
    biased(True, "has no bias.*output_bias=False", kernel=(2, 5)),
    case("no tfa.seq2seq.Attention.* net, step", net={}, step=()),
    case("no decoder in the model.*only", lambda: dense("only")),
    case("new has no weights yet", lambda: Dense(3, name="new")),
    case("is quantized .int8.: load the checkpoint", quantized),
    case("must be a Keras model .* Received: 'no'", lambda: "no"),
    case("places must be a dictionary", places=lambda x: ["decoder"]),
    case("no 'decoders' in .* decoder,", places=lambda x: {"decoders": x}),
    case("a weight: .*cell/bias", places=lambda x: {"decoder/_cell/bias": x}),
    case("must name layers of the", places=lambda x: {"decoder": small_cell()}),
    case("is an Attention", with_dense, lambda x: {"decoder": x[1]}),
    case(
        r"words of the checkpoint has .*\(7, 3\)",
        *(with_dense, lambda x: {"words": x[1]}),
        decoder=WRAPPER,
        words=WORDS,
    ),
]


@pytest.mark.parametrize("message, model, places, objects", MISFITS)
def test_what_cannot_be_loaded_is_said(message, model, places, objects, write):
    """And nothing is loaded."""
    layers = model()
    parts = [x for x in keras.tree.flatten(layers) if not isinstance(x, str)]
    before = [w for x in parts for w in x.get_weights()]
    with pytest.raises((TypeError, ValueError), match=message):
        load_addons_checkpoint(write(**objects), layers, places and places(layers))
    after = [w for x in parts for w in x.get_weights()]
    keras.tree.map_structure(np.testing.assert_array_equal, before, after)


def test_a_wrong_path_names_what_is_there(tmp_path, write):
    write(decoder=WRAPPER)
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
    checkpoint = tf.train.Checkpoint(decoder=made(WRAPPER), step=tf.Variable(1))
    path = tf.train.CheckpointManager(checkpoint, tmp_path, 2).save()
    for given in (tmp_path, path, f"{path}.index"):
        places = {"step": None}
        assert load_addons_checkpoint(given, small_cell(), places).complete


def test_the_variables_of_a_saved_model(tmp_path):
    tf.saved_model.save(made(WRAPPER), str(tmp_path))
    cell = small_cell()
    with pytest.raises(FileNotFoundError, match="there is variables/variables"):
        load_addons_checkpoint(tmp_path, cell)
    assert load_addons_checkpoint(tmp_path / "variables/variables", cell).complete


# docs/from_tfa_seq2seq.md. The blocks in `fixtures/tfa/guide.md` ran in an environment
# with TensorFlow Addons (`fixtures/tfa/run_guide.py`); ours run on their checkpoint.

GUIDE = (DOCS / "from_tfa_seq2seq.md").read_text("utf-8")
BLOCK = r"```python\n(.*?)```"
THEIRS = re.findall(BLOCK, (FIXTURES / "guide.md").read_text("utf-8"), re.S)
OURS = re.findall(BLOCK, GUIDE, re.S)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.M)


@pytest.mark.slow
def test_our_blocks_print_what_they_say(tmp_path, monkeypatch, capsys):
    (tmp_path / "addons").mkdir()
    for file in FIXTURES.glob("translator.*"):
        shutil.copy(file, tmp_path / "addons")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "guide"}
    for block in OURS:
        exec(compile(block, "block", "exec"), namespace)
        lines = capsys.readouterr().out.splitlines()
        assert [x for x in PRINTED.findall(block) if x not in lines] == [], lines


def test_the_blocks_of_addons_are_those_that_ran():
    """Where they have changed: run fixtures/tfa/run_guide.py again."""
    ran = json.loads((FIXTURES / "guide_blocks.json").read_text("utf-8"))
    assert [hashlib.sha256(block.encode()).hexdigest() for block in THEIRS] == ran


def test_every_name_of_the_table_is_in_code():
    names, code = {*re.findall(r"^\| `(\w+)` \| ", GUIDE, re.M)}, "".join(THEIRS)
    assert len(names) == 20
    for name in names:
        # Nobody makes a state by its name: a decoder does.
        is_state = name == "AttentionWrapperState"
        assert (f"# {name}" if is_state else f"tfa.seq2seq.{name}(") in code


def test_both_sides_print_the_same():
    """States, logits, what searches find, and losses."""
    same = {"6.959 449.0", "[3 4 5 2] [4 3]", "0.0041", "(2, 4, 10) 2"}
    for side in (THEIRS, OURS):
        assert same <= {y for x in side for y in PRINTED.findall(x)}


def test_options_of_ours_are_there(capsys):
    """In docs/coming_from_others.md."""
    page = (DOCS / "coming_from_others.md").read_text("utf-8")
    for command in ("train", "translate"):
        parse([command, "--help=all"])
    known = set(re.findall(r"--\w+", capsys.readouterr().out))
    named = set(re.findall(r"`(--\w+)", page)) | set(re.findall(r" (--\w+)", page))
    assert len(named) > 30
    assert named <= known
