"""Corpora that a translator has made in part: of teachers, or translated back."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import options, run, run_checked
from small_corpus import PAIRS, Backwards, Corpus, lines
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong import progress
from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.files import read_lines, write_json, write_lines
from keras_luong.runs import load_save, synthetic
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.opening import COUNTED
from keras_luong.runs.run import RunDirectory, read_record, write_record
from keras_luong.text import WordTokenizer, load_corpus
from keras_luong.text.survey import survey

ROOT = Path(__file__).parents[1]


class Reverse(Backwards):
    """Says every line backwards, and nothing to `?`; reads up to five words."""

    max_source_length = 5
    source_tokenizer = WordTokenizer(["a"])

    def stream(self, texts, batch_size, window):
        for t in super().stream(texts, batch_size, window):
            yield t if t.text != "?" else t._replace(text=" ")


def pairs_of(directory, sides=("xx", "yy")):
    """The training pairs, line by line."""
    sources, targets = (lines(Path(directory) / f"train.{side}") for side in sides)
    assert sources.pop() == targets.pop() == ""
    return list(zip(sources, targets, strict=True))


def made(pairs):
    return [(source, target) for source, target in pairs if source[:1] == "<"]


REAL = [("a b", "A"), ("", "nothing"), ("c d", "C\u2028D"), ("é", "É")]
TAUGHT = ["b a", "", "d c", "é"]


def test_every_source_stands_twice_and_other_splits_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", -1)  # it says how far it is at once
    litter = tmp_path / "new" / ".123-0123abcd.d"  # of a process that was killed
    litter.mkdir(parents=True)
    (litter / "train.zz").touch()
    new = tmp_path / "new" / "d"
    out = synthetic.write_distilled(Corpus(), Backwards(), new, progress=True)
    both = zip(REAL, TAUGHT, strict=True)
    assert pairs_of(out) == [x for pair, said in both for x in (pair, (pair[0], said))]
    assert lines(out / "test.yy") == ["T ", ""]
    assert [path.name for path in out.parent.iterdir()] == ["d"]
    names = {path.name for path in out.iterdir()}
    assert names == {f"{split}.{side}" for split in PAIRS for side in ("xx", "yy")}
    assert "4 of 4 texts" in capsys.readouterr().err
    assert load_corpus(out, "xx", "yy").splits == ("train", "validation", "test")


def test_reads_no_further_than_the_teacher():
    """A corpus may be larger than memory; what is left is told by whole windows."""

    def endless():
        yield from [("a", "A")] * 9
        pytest.fail("read to the end")

    teacher, told = Backwards(), []
    pairs = synthetic.twice(synthetic.Rereadable(endless), teacher)
    assert [next(pairs) for _ in range(4)] == [("a", "A"), ("a", "a")] * 2
    assert teacher.read == 2
    bar = SimpleNamespace(add=told.append)
    list(synthetic.twice([("a", "A")] * 2500, Backwards(), bar))
    assert told == [1024, 1024, 452]


class Pool(Backwards):
    """Reads all texts twice before it says anything; time goes by meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        super().__init__()
        self.meanwhile = meanwhile

    def stream(self, texts, batch_size, window):
        said = list(super().stream([*texts] and [*texts], batch_size, window))
        self.meanwhile()
        yield from said


def test_each_item_has_its_translation(tmp_path):
    """Read again they must be what they were; nothing is left where one has none."""
    items = [("a b", 1), ("", 2), ("é\nx", 3)]
    said = synthetic.with_translations(items, lambda item: item[0], Pool())
    assert [*said] == list(zip(items, ["b a", "", "x\né"], strict=True))
    items = ["ab", "cd", "ef"]
    with pytest.raises(OSError, match="was changed meanwhile"):
        list(synthetic.with_translations(items, str, Pool(items.reverse)))
    stream = Backwards().stream
    forgetful = SimpleNamespace(stream=lambda _, *sizes: stream("a", *sizes))
    with pytest.raises(ValueError, match="shorter"):
        synthetic.write_distilled(Corpus(), forgetful, tmp_path / "d")
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("d", "link"):
        out, error = tmp_path / name, f"{name} exists; give the name"
        with pytest.raises(FileExistsError, match=error):
            synthetic.write_distilled(Corpus(), Backwards(), out)
        with pytest.raises(FileExistsError, match=error):
            synthetic.write_backtranslated(Corpus(), Reverse(), "nowhere", out)


def test_two_processes_do_not_write_one_corpus(tmp_path):
    """The second one would take the first one's files for those of a killed one."""
    corpus, out = Corpus(), tmp_path / "out"

    def pairs():
        yield "a", "A"
        begun = sorted(tmp_path.glob(".*out"))
        with pytest.raises(OSError, match="Another process writes .*out: wait"):
            synthetic.write_corpus(corpus, [("b", "B")], out)
        assert begun and sorted(tmp_path.glob(".*out")) == begun
        yield "c", "C"

    synthetic.write_corpus(corpus, pairs(), out)
    assert (out / "train.xx").read_text() == "a\nc\n"
    assert not [*tmp_path.glob(".*")]


def test_spoilt_files_are_refused_before_anything_is_translated(tmp_path):
    for name in ("train.xx", "train.yy", "val.xx", "val.yy"):
        (tmp_path / name).write_bytes(b"\xff\n" if name == "val.xx" else b"a\n")
    corpus, teacher = load_corpus(tmp_path, "xx", "yy"), Backwards()
    with pytest.raises(ValueError, match="val.xx is not UTF-8"):
        synthetic.write_distilled(corpus, teacher, tmp_path / "d")
    assert teacher.read == 0 and not (tmp_path / "d").exists()


TINY = {"units": 8, "tokenizer": "word", "batch_tokens": 200, "epochs": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=20, val=5)
    return directory


def config_of(place, **changes):
    settings = {"data": str(place), "source": "xx", "target": "yy", **TINY, **changes}
    return TrainingConfig.from_preset("small", **settings)


def trained_teacher(run_dir, config):
    """A run as a finished training leaves it, with an untrained model."""
    corpus = load_corpus(config.data, config.source, config.target)
    texts = survey(corpus, config.limit_examples).texts
    texts["train"] |= dict.fromkeys(COUNTED)
    model = kl.Seq2Seq(config.model_config(20, 20))
    write_record(run_dir, model, kl.BeamSearch(2), 50, config.settings(), corpus=texts)
    write_json(RunDirectory(run_dir).results, {})


OTHER_TEACHERS = [
    ({"data": "other"}, "its train split had 20 pairs"),
    ({"source": "yy", "target": "xx"}, "They differ in source: 'xx' there"),
    ({"units": 10}, "They differ in .*units: 8 there, 10 now"),
]


@pytest.mark.parametrize("changes, message", OTHER_TEACHERS)
def test_a_teacher_of_something_else(data, tmp_path, changes, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained_teacher("run-teachers/1", config_of(data))
    (tmp_path / "other").mkdir()
    write_corpus(tmp_path / "other", train=21, val=5)
    with pytest.raises(ValueError, match=message):
        synthetic.train_distilled(config_of(data, **changes), "run", teachers=1)
    assert not (tmp_path / "run-teachers" / "corpus").exists()


@pytest.mark.slow
def test_a_student_learns_from_its_teachers(data, tmp_path, monkeypatch):
    """They read the tag that the student adds itself. Nothing is done twice."""
    training, trained = config_of(data, tag="news"), []

    def train(config, run_dir):
        if run_dir.parent != tmp_path:
            trained_teacher(run_dir, config)
        trained.append((run_dir.name, config.seed, config.tag, config.data))
        return {"run": run_dir.name}

    monkeypatch.setattr(synthetic, "load_ensemble", lambda runs: Backwards())
    monkeypatch.setattr(synthetic, "train", train)
    corpus = tmp_path / "run-teachers" / "corpus"
    teachers = [(str(n), n, "news", str(data)) for n in (1, 2)]
    student = [("run", 1, "news", str(corpus))]
    for expected in (teachers + student, student):
        done = synthetic.train_distilled(training, tmp_path / "run", teachers=2)
        assert done == {"run": "run"} and trained == expected
        trained.clear()
    sources = [line for line in read_lines(data / "train.xx") for _ in range(2)]
    assert list(read_lines(corpus / "train.xx")) == sources
    said = list(read_lines(corpus / "train.yy"))[1]
    assert said == f"<news> {sources[0]}"[::-1]  # by a teacher who has read the tag


def test_a_part_of_a_corpus_and_former_teachers_are_refused(data, tmp_path):
    limit = {"limit_examples": 9}
    for part in (AutoTraining("x", given=limit), config_of(data, **limit)):
        with pytest.raises(ValueError, match="Received: limit_examples=9"):
            synthetic.train_distilled(part, tmp_path / "run")
    assert not list(tmp_path.iterdir())
    (tmp_path / "run-teachers" / "corpus").mkdir(parents=True)
    training = AutoTraining(str(data), "xx", "yy", given=TINY)
    with pytest.raises(ValueError, match="corpus was written by other teachers.*Remov"):
        synthetic.train_distilled(training, tmp_path / "run", teachers=1)


def backtranslated(folder, texts, **options):
    """What is written with these lines: its numbers, and the training pairs."""
    write_lines(folder / "mono", texts)
    places = folder / "mono", folder / "d"
    written = synthetic.write_backtranslated(Corpus(), Reverse(), *places, **options)
    return written, pairs_of(folder / "d")


def test_k2_real_pairs_and_lines_with_tagged_sources(tmp_path):
    (tmp_path / ".123-0123abcd.d").mkdir()  # of a process that was killed
    made = {"one two": "owt eno", "three": "eerht", "four": "ruof", "5": "5"}
    written, pairs = backtranslated(tmp_path, made)
    assert written == (tmp_path / "d", 4, 4, 0)
    back = [(f"<bt> {said}", line) for line, said in made.items()]
    assert pairs == [x for both in zip(REAL, back, strict=True) for x in both]
    for split, text in (("validation", "V"), ("test", "T ")):
        assert lines(tmp_path / "d" / f"{split}.yy") == [text, ""]
    assert {x.name for x in tmp_path.iterdir()} == {"d", "mono"}


def test_k2_one_line_is_one_pair_however_odd(tmp_path):
    odd = ["a\u2028b", "c\x85d\x0b", "\u200fe f", "\u00adg\u200d", "<bt> x", "e\u0301"]
    _, pairs = backtranslated(tmp_path, [x + "\r" for x in (*odd, "i\rj")])
    assert [target for _, target in made(pairs)] == [*odd, "i j"]
    assert made(pairs)[0][0] == "<bt> b\u2028a" and made(pairs)[-1][0] == "<bt> j i"


def test_k2_what_is_left_out_is_counted(tmp_path, capsys):
    """Of a line with several faults the first one counts."""
    texts = ["x", "", " \u00a0", "1 2 3 4 5", "1 2 3 4 5 6", "x", "A", "V", "y", "z"]
    written, pairs = backtranslated(tmp_path, [*texts, "A", "?"], progress=True)
    assert written[1:] == (4, 4, 1)  # nothing was said to the last one
    assert [x for _, x in made(pairs)] == ["x", "1 2 3 4 5", "y", "z"]
    mono, said = tmp_path / "mono", capsys.readouterr().out
    assert f"5 of 12 lines of {mono}; left out: 2 empty, 1 of over" in said
    write_lines(tmp_path / "mono.csv", ["yy,xx", *(f"{x},1" for x in texts)])
    rows = synthetic.read_monolingual(tmp_path / "mono.csv", Corpus(), Reverse())
    assert list(rows.lines()) == ["x", "1 2 3 4 5", "y", "z"]
    chosen = synthetic.read_monolingual(mono, Corpus(), Reverse(), limit=3)
    assert list(chosen.lines()) == ["x", "1 2 3 4 5", "y"]
    assert chosen.left_out == {
        **{"empty": 2, "of over 5 tokens": 1, "that are held-out targets": 1},
        **{"that are training targets": 2, "that repeat others": 1},
        "beyond the limit of 3": 2,
    }


def test_k2_real_pairs_may_be_repeated_and_tags_named(tmp_path):
    tags = {"tag": "made", "monolingual_tag": "in"}
    written, pairs = backtranslated(tmp_path, "abcdefgh", repeat_real=2, **tags)
    assert written.real == 8 and len(pairs) == 16
    assert pairs.count(("a b", "A")) == 2
    assert made(pairs)[0] == ("<made> a >ni<", "a")  # which Reverse read as "<in> a"


def test_parts_are_spread_over_the_whole():
    """Fewer than were promised is no harm, nor that there are none."""
    few, many = [(-i, -i) for i in range(10)], [(i, i) for i in range(90)]
    whole = list(synthetic.spread_evenly((few, 10), (many, 90)))
    assert sorted(whole) == sorted([*few, *many])
    places = [i for i, pair in enumerate(whole) if pair in few[1:]]
    assert {b - a for a, b in zip(places, places[1:], strict=False)} == {10}
    assert list(synthetic.spread_evenly((few[:2], 10), (iter(()), 0))) == few[:2]


def test_k2_reads_no_further_than_it_translates(tmp_path, monkeypatch):
    """A file may be larger than memory: when a pair is written, few are read."""
    write_lines(tmp_path / "mono", map(str, range(1000)))
    ahead, reverse = [], Reverse()

    def write_corpus(corpus, pairs, directory):
        for i, _ in enumerate(pairs):
            ahead.append(reverse.read - i)

    monkeypatch.setattr(synthetic, "write_corpus", write_corpus)
    synthetic.write_backtranslated(Corpus(), reverse, tmp_path / "mono", tmp_path / "d")
    assert len(ahead) == 1004 and max(ahead) <= 1


MISTAKES = [
    (b"a\n\xff\n", {}, "mono is not UTF-8: line 2"),
    (b"", {}, "nothing to translate: 0 of 0 lines of .*left out: none"),
    (b"\nA\n", {}, "0 of 2 lines of .*: 1 empty, 1 that are training targets"),
    (b"x\n", {"limit": 0}, "limit must be at least 1. Received: 0"),
    (b"x\n", {"tag": "BT"}, "tag must be of small letters.*Received: 'BT'"),
]


@pytest.mark.parametrize("content, changes, message", MISTAKES)
def test_k2_mistakes_leave_nothing_behind(content, changes, message, tmp_path):
    mono, reverse = tmp_path / "mono", Reverse()
    mono.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        out = tmp_path / "d"
        synthetic.write_backtranslated(Corpus(), reverse, mono, out, **changes)
    assert reverse.read == 0 and [x.name for x in tmp_path.iterdir()] == ["mono"]


MONO = ["the red cat", "the cat is the dog", "the red dog", "red", "the cat is red"]
GERMAN = "Ein Hund läuft mit seinem Ball am Strand entlang.\n" * 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two runs from en to de that say different things, and their corpus."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val"):
        write_lines(f"data/{split}.en", ["the red dog", "the red dog is"])
        write_lines(f"data/{split}.de", ["der Hund", "der Hund ist"])
    write_lines("mono.en", MONO)
    settings, rng = {"data": "data", "source": "en", "target": "de"}, None
    for name in ("run", "other"):
        translator = word_translator(kl.BeamSearch(2, max_length=6))
        for weight in translator.model.trainable_weights if rng else ():
            weight.assign(rng.normal(size=weight.shape))
        written_run(name, translator, settings)
        rng = np.random.default_rng(0)
    return tmp_path


@pytest.mark.slow
def test_runs_translate_their_corpus_together(place, capsys, monkeypatch):
    asked = []

    def loaded(run_dirs, dtype):
        asked.append(([Path(x).name for x in run_dirs], dtype))
        return load_ensemble(run_dirs, dtype)

    monkeypatch.setattr(load_save, "load_ensemble", loaded)
    run("distill", "run", "other", "--out", "d")
    assert asked == [(["run", "other"], "float32")]
    said = load_ensemble(["run", "other"]).translate(["the red dog", "the red dog is"])
    expected = ["der Hund", said[0].text, "der Hund ist", said[1].text, ""]
    assert lines(place / "d/train.de") == expected
    assert (place / "d/validation.de").read_text() == "der Hund\nder Hund ist\n"
    assert "2 model(s) translate data\n" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="--out must be new.*: d$"):
        run_checked("distill", "run", "--out", "d")


def translated_back(*words):
    """Runs the command; of an option that is given twice, the last one counts."""
    places = ["--data", "data", "--mono", "mono.en", "--out", "out"]
    run_checked("backtranslate", "run", *places, *words)


@pytest.mark.slow
def test_k2_a_corpus_for_the_other_direction(place, capsys):
    translated_back()
    texts = [line for line in MONO if line != "the red dog"]  # which is known
    said = [f"<bt> {t.text}" for t in kl.load("run").translate(texts)]
    assert made(pairs_of("out", ("de", "en"))) == list(zip(said, texts, strict=True))
    assert (place / "out/validation.de").read_text() == "der Hund\nder Hund ist\n"
    out = capsys.readouterr().out
    assert "4 of 5 lines of mono.en; left out: 1 that are held-out targets" in out
    assert "out: 2 pairs of data, and 4 with <bt>" in out and "for de into en" in out


MISFITS = [
    (
        ["--source", "en", "--target", "de"],
        "A run is needed that translates de into en, .*Received: run, which "
        "translates en into de",
    ),
    (["--target", "fr"], "no .fr file beside it"),
    (["--mono", "data/train.de"], "--mono must be text in en, .* ends in de"),
    (["--mono", "data/mono.txt"], "--mono must be text in en, .* read like de"),
]


@pytest.mark.parametrize("words, message", MISFITS)
def test_k2_what_does_not_fit_together_is_refused(words, message, place):
    (place / "data/mono.txt").write_text(GERMAN)
    with pytest.raises((ValueError, OSError), match=message):
        translated_back(*words)
    assert not (place / "out").exists()


def test_k2_what_the_command_asks_for(place, monkeypatch):
    """A run that names no languages is told them; the tag that it reads it knows.

    A file's name that tells the language is believed: lines of loanwords, or of
    another text's product names, may look otherwise.
    """
    (place / "mono.en").write_text(GERMAN)
    check_reverse = synthetic.check_reverse
    check_reverse("run", load_corpus("data", "DE", "EN"))  # or spells them otherwise
    write_json("run/run.json", {**read_record("run"), "settings": {"tag": "news"}})
    with pytest.raises(ValueError, match="give --source and --target"):
        translated_back()
    asked = []

    def write_backtranslated(corpus, reverse, mono, out, **given):
        languages = corpus.source_language, corpus.target_language
        asked.append((*languages, str(mono), str(out), reverse.search, given))
        return synthetic.BackTranslated(place, 2, 4, 0)

    monkeypatch.setattr(synthetic, "write_backtranslated", write_backtranslated)
    words = ["--source", "de", "--target", "en", "--tag", "made", "--limit", 3]
    translated_back(*words, "--repeat_real", 2, "--beam_width", 3)
    drawn = {"temperature": 3.0, "top_k": 5, "max_length": 7, "seed": 4}
    words = [x for name, value in drawn.items() for x in (f"--{name}", value)]
    languages = ["--source", "de", "--target", "en", "--sampling"]
    translated_back(*languages, *words)
    translated_back(*languages)
    given = {"monolingual_tag": "news", "progress": True}
    first = {**given, "tag": "made", "limit": 3, "repeat_real": 2}
    usual = {**given, "tag": "bt", "limit": None, "repeat_real": 1}
    files = "de", "en", "mono.en", "out"
    assert asked == [
        (*files, kl.BeamSearch(3, max_length=6), first),
        (*files, kl.RandomSampling(**drawn), usual),
        (*files, kl.RandomSampling(seed=1, max_length=None), usual),
    ]


def test_k2_options_that_cannot_be(capsys):
    for words, message in {
        "--seed 0": "--seed needs --sampling",
        "--sampling --beam_width 3": "--beam_width is for a beam search",
        "--sampling --no_unknown": "--no_unknown is for a beam search",
        "--sampling --temperature 0": "temperature must be",
    }.items():
        with pytest.raises(SystemExit):
            needed = ["--data", "x", "--mono", "y", "--out", "z"]
            options("backtranslate", "r", *needed, *words.split())
        assert message in capsys.readouterr().err


@pytest.fixture
def recipe(tmp_path):
    """Runs the shell script that does it all, with this in place of the command."""

    def recipe(*arguments, does=""):
        command = tmp_path / "keras-luong"
        command.write_text(f'#!/bin/sh\necho "$*"\n{does}\n')
        command.chmod(0o755)
        words = ["bash", ROOT / "examples" / "train_distilled.sh", *arguments]
        given = {"cwd": tmp_path, "capture_output": True, "text": True}
        env = os.environ | {"KERAS_LUONG": str(command)}
        return subprocess.run(words, env=env, **given)

    return recipe


TEACHER = "train --preset multi30k-small --data x --seed 7 --run_dir"
STUDENT = "train --preset multi30k --constant_epochs 8 --epochs 12 --data x --seed 7"


def test_the_whole_recipe(recipe, tmp_path):
    """Of an option that is given twice, the last one counts."""
    words = ["--data", "x", "--seed", "7"]
    corpus = "distill {0}/teacher1 {0}/teacher2 {0}/teacher3 --out {0}/corpus"
    expected = [
        *(f"{TEACHER} my out/teacher{seed} --seed {seed}" for seed in (1, 2, 3)),
        corpus.format("my out"),
        f"{STUDENT} --run_dir my out/student --data my out/corpus",
    ]
    assert recipe("my out/", *words).stdout.splitlines() == expected
    (tmp_path / "my out" / "corpus").mkdir(parents=True)  # which then stays
    assert recipe("my out", *words).stdout.splitlines() == expected[:3] + expected[4:]
    done = recipe("out", *words, does="exit 3")
    assert done.returncode == 3 and len(done.stdout.splitlines()) == 1
    for words, message in {
        "--data x": "OUT must come first. Received: --data",
        "out": "There must be --data",
        "out --data=x --preset=y": "Not for these trainings: --preset=y",
    }.items():
        done = recipe(*words.split())
        assert done.returncode == 2 and not done.stdout
        assert message in done.stderr and "usage: " in done.stderr
