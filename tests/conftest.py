"""What holds for every test: the same seeds, a quiet TensorFlow, and two seconds.

Keras is imported in functions: the process that only hands cases to others needs none.
"""

import gc
import os
import random
import zlib
from time import perf_counter, process_time  # tests may replace those of `time`
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

#: Seconds that a case may take, and its own setup, unless it is marked slow; on a
#: machine that counts as fast as the one where `_slowness` is 1.
BUDGET = 2.0
LEEWAY = 2.5  # of it a case fails: beside other work each second is another one


def pytest_addoption(parser):
    """`--tenth N`: every tenth case, others for each N; `--no-budget`: no clocks."""
    parser.addoption("--tenth", type=int, help="run a tenth of the cases: 0 to 9")
    parser.addoption("--no-budget", action="store_true", help="cases may take long")


TIMES = pytest.StashKey[dict[str, float]]()


class Budget:
    """Fails a case that takes too long.

    It is a plugin of its own: pytest asks no conftest.py about fixtures of a session.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        """Takes the time of a case's setup, without what the whole session shares."""
        start, self.shared = _now(), 0.0
        result = yield
        item.stash[TIMES] = {"setup": _since(start) - self.shared}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Takes the time of what the whole session shares."""
        start = _now()
        result = yield
        if fixturedef.scope == "session":
            self.shared += _since(start)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Takes the time of a case itself."""
        start = _now()
        result = yield
        item.stash[TIMES]["call"] = _since(start)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Compares them with the budget."""
        report = yield
        seconds = item.stash.get(TIMES, {}).get(report.when, 0.0)
        slow = item.get_closest_marker("slow") is not None
        most = LEEWAY * BUDGET
        if report.passed and not slow and seconds > most * _slowness(seconds):
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid}: its {report.when} took {seconds:.1f} s. A case has "
                f"{BUDGET:.0f} s: make it smaller, share what it makes with other "
                "tests in a session's fixture, or mark it slow."
            )
        return report


def pytest_configure(config):
    """Holds the budget, but on other backends, which compile each operation.

    Graphs run as they are made, but in slow tests: to optimize them takes longer.
    """
    if config.getoption("numprocesses", None):
        return  # its workers run the tests
    gc.disable()  # what is imported is there to stay
    import keras
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)  # machines are slow at times
    settings.load_profile("untimed")
    if keras.backend.backend() != "tensorflow":
        return
    if not config.getoption("no_budget"):
        config.pluginmanager.register(Budget())
    if config.getoption("markexpr") == "not slow":
        import tensorflow as tf

        off = {"disable_meta_optimizer": True}
        tf.config.optimizer.set_experimental_options(off)


def _now():
    return perf_counter(), sum(os.times()[:4])


def _since(start):
    """Seconds of the clock or of the processors, whichever are fewer.

    Other processes take of the first, and several threads of the second.
    """
    clock, processors = _now()
    return min(clock - start[0], processors - start[1])


def _slowness(seconds):
    """How many times as long this machine needs now, for what took 0.1 s on another."""
    if seconds <= LEEWAY * BUDGET:
        return 1.0
    start = process_time()
    for _ in range(3_000_000):
        pass
    return max(1.0, (process_time() - start) / 0.1)


def pytest_collection_finish():
    """Garbage is looked for in what the tests make alone."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Leaves out what is not of the tenth, and skips TensorFlow's on other backends."""
    import keras

    tenth = config.getoption("tenth")
    if tenth is not None:
        other = [x for x in items if zlib.crc32(x.nodeid.encode()) % 10 != tenth]
        config.hook.pytest_deselected(items=other)
        items[:] = [x for x in items if zlib.crc32(x.nodeid.encode()) % 10 == tenth]
    if keras.backend.backend() != "tensorflow":
        skip = pytest.mark.skip(reason="is about TensorFlow")
        for item in items:
            if item.get_closest_marker("tensorflow"):
                item.add_marker(skip)
    if keras.backend.backend() == "jax":  # which makes float32 of it, unless asked
        for item in items:
            given = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if any(isinstance(x, str) and x == "float64" for x in given):
                item.add_marker(pytest.mark.skip(reason="JAX has no float64"))


@pytest.fixture(autouse=True, scope="module")
def seeded_module():
    """Modules' own fixtures come before what each test starts from."""
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def seeded():
    """But TensorFlow's own, whose seeding forgets how every function was optimized."""
    import keras
    import numpy as np

    random.seed(0)
    np.random.seed(0)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def eagerly(request):
    """Traces nothing in a test, unless it is slow."""
    from small_translator import untraced

    with untraced(request.node.get_closest_marker("slow") is None):
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Makes a file or folder, in the first of xdist's workers that asks, for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def made(name, make):
        import fcntl

        path = folder / name
        with open(folder / f"{path.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            if not path.exists():
                make(path)
        return path

    return made


@pytest.fixture(scope="session")
def pieces():
    """A translator with SentencePiece, the best two of three hypotheses."""
    import keras
    from small_translator import sentencepiece_translator

    keras.utils.set_random_seed(0)  # the same one in every process
    return sentencepiece_translator().with_search(n_best=2)


@pytest.fixture(scope="session")
def pieces_said(pieces):
    """What it says, of `SENTENCES`: lists of hypotheses."""
    from small_translator import SENTENCES, untraced

    with untraced():
        return pieces.translate(SENTENCES, n_best=True)


ORIGIN = {"run": {"settings": {"source": "en", "target": "de", "größe": 3}}}


@pytest.fixture(scope="session")
def pieces_model(pieces, made_once):
    """A SavedModel of it, which takes at most 40 texts."""
    from keras_luong import export_saved_model

    def make(path):
        export_saved_model(pieces, path.parent, 7, max_batch_size=40, metadata=ORIGIN)

    return made_once("models/deep/pieces/7", make)


@pytest.fixture(scope="session")
def pieces_tflite(pieces, made_once):
    """A `.tflite` file of it."""
    from keras_luong import export_tflite

    return made_once(
        "pieces.tflite", lambda path: export_tflite(pieces, path, metadata=ORIGIN)
    )


@pytest.fixture(scope="session")
def pieces_site(pieces, made_once):
    """A web folder of it, for sources of 31 tokens; its page is an empty one."""
    from keras_luong.export import web

    def make(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(web, "find_npm", lambda: "npm")
            patch.setattr(web, "build_page", lambda x: (x / "index.html").touch())
            web.export_web(pieces, path, source_length=31)

    return made_once("site", make)


@pytest.fixture(scope="session")
def workplace(made_once):
    """What the examples of docstrings and pages find in their directory."""
    from workplace import make_workplace

    return made_once("workplace", make_workplace)


@pytest.fixture(scope="session")
def tiny_run(made_once):
    """A corpus (`data`), and a `run` that was trained on it; they are only read."""
    from commands import options
    from small_training import train_words, write_corpus
    from small_translator import untraced

    from keras_luong.runs.run import RunDirectory
    from keras_luong.runs.train import train

    def make(path):
        (path / "data").mkdir(parents=True)
        write_corpus(path / "data", train=40, val=8, test_2020=6)
        words = train_words(path / "data", path / "run", epochs=1, batch_tokens=400)
        with untraced():
            train(*options("train", *words)[:2])

    path = made_once("tiny", make)
    return SimpleNamespace(data=path / "data", run=RunDirectory(path / "run"))
