"""What SECURITY.md says of loading: data is read, and nothing is executed."""

import json
import pickle
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from processes import python
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.files import write_json
from keras_luong.runs.run import read_json

ADDONS = Path(__file__).parent / "fixtures" / "tfa" / "luong_tanh"

#: What executes, or leaves the machine.
EVENTS = (
    "os.exec os.fork os.posix_spawn os.system pickle.find_class socket.connect "
    "socket.getaddrinfo subprocess.Popen urllib.Request"
).split()

WATCHED = """
import sys
import keras_luong as kl
kl.load("warm").translate(["the"])  # what TensorFlow does when it is first used
config = kl.Seq2SeqConfig(12, 11, 4, 3, bidirectional=False)
model = kl.Seq2Seq(config)
seen = []
place = sys.argv[1]
def watch(event, arguments):
    code = event == "exec" and place in getattr(arguments[0], "co_filename", "")
    module = event == "import" and place in str(arguments[1])
    if event in {events} or code or module:
        seen.append(event)
sys.addaudithook(watch)
print(kl.load("run").translate(["the red dog"])[0].text)
assert kl.migration.load_addons_checkpoint(sys.argv[2], model).complete
sys.exit(str(seen) if seen else 0)
"""


class Evil:
    """Calls `print` when it is unpickled."""

    def __reduce__(self):
        return print, ("executed",)


@pytest.fixture
def run(tmp_path):
    translator = word_translator(kl.BeamSearch(2, max_length=5))
    return written_run(tmp_path / "run", translator)


@pytest.mark.slow
def test_loading_a_run_executes_nothing(run, tmp_path):
    """Python that lies in it is not imported, and pickles are not read.

    Nor does loading a checkpoint of TensorFlow Addons.
    """
    written_run(tmp_path / "warm", word_translator(kl.BeamSearch(2, max_length=5)))
    for name in ("__init__", "keras_luong", "tokenizers", "conftest"):
        (run.path / f"{name}.py").write_text("raise SystemExit('executed')")
    (run.path / "model.pkl").write_bytes(pickle.dumps(Evil()))
    watched = WATCHED.replace("{events}", repr(EVENTS))
    done = python("-c", watched, run.path, ADDONS, cwd=tmp_path)
    assert "executed" not in done.stdout + done.stderr


def changed(run, change):
    record = read_json(run.record)
    change(record["model"])
    write_json(run.record, record)


@pytest.mark.parametrize("name", ["os>system", "Lambda"])
def test_a_run_names_no_class_but_those_that_are_registered(run, name):
    changed(run, lambda model: model.update({"class": name}))
    with pytest.raises(ValueError, match="no model class is registered"):
        kl.load(run.path)


def test_a_run_holds_no_code_in_its_configuration(run):
    changed(run, lambda model: model["config"]["config"].update(score_mode=code()))
    with pytest.raises(ValueError, match="is damaged"):
        kl.load(run.path)


def test_a_shortlist_holds_no_objects(tmp_path, capsys):
    path = tmp_path / "shortlist.npz"
    kl.Shortlist(np.array([4]), np.full((6, 1), 5), 6).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    assert arrays.keys() >= {"frequent", "lexicon", "vocab_size", "eos_id"}
    for name in arrays:
        np.savez(path, **{**arrays, name: np.array([Evil()], dtype=object)})
        with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
            kl.Shortlist.load(path)
    assert "executed" not in capsys.readouterr().out


def code():
    """A layer that is code, as Keras would read it."""
    return keras.saving.serialize_keras_object(keras.layers.Lambda(lambda x: x))


@pytest.mark.parametrize("nested", [False, True])
def test_code_in_a_keras_file_is_refused(tmp_path, nested):
    """As Keras does; also where it hides in an argument of one of our layers."""
    states, source = keras.Input((4, 6)), keras.Input((9, 6))
    outputs = kl.LuongAttention("dot")(states, source)
    if not nested:
        outputs = keras.layers.Lambda(lambda x: x)(outputs)
    keras.Model([states, source], outputs).save(tmp_path / "model.keras")
    if nested:
        put_code_into(tmp_path / "model.keras")
    with pytest.raises(Exception, match="(?i)lambda|unsafe|safe_mode"):
        keras.models.load_model(tmp_path / "model.keras")


def put_code_into(path):
    """Makes the score of a model's attention a layer that is code."""
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    config, score = parts["config.json"].decode(), '"score_mode": "dot"'
    assert score in config
    evil = f'"score_mode": {json.dumps(code())}'
    parts["config.json"] = config.replace(score, evil).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
