"""Corpora that a translator has made in part: of teachers, or translated back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_corpus import PAIRS, Backwards, Corpus, lines
from small_training import write_corpus
from small_translator import word_translator

import keras_luong as kl
from keras_luong import progress
from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.decoding import BeamSearch
from keras_luong.files import count_lines, read_lines, write_json, write_lines
from keras_luong.runs import synthetic
from keras_luong.runs.load_save import load
from keras_luong.runs.opening import describe_corpus
from keras_luong.runs.run import RunDirectory, read_record, write_record
from keras_luong.runs.start import training_corpus
from keras_luong.text import TokenizerPair, WordTokenizer, load_corpus
from keras_luong.text.growing import add_tokens
from keras_luong.text.tags import remove_tags, tags_in, tags_of


class Reverse(Backwards):
    """Says every line backwards, and nothing to `?`; reads up to five words."""

    max_source_length = 5
    source_tokenizer = WordTokenizer(["a"])

    def stream(self, texts, batch_size, window):
        for t in super().stream(texts, batch_size, window):
            yield t if t.text != "?" else t._replace(text=" ")


def pairs_of(directory):
    """The training pairs, line by line."""
    sources, targets = (lines(directory / f"train.{side}") for side in ("xx", "yy"))
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
    out = synthetic.write_distilled(
        Corpus(), Backwards(), tmp_path / "new" / "d", progress=True
    )
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
    list(
        synthetic.twice(
            [("a", "A")] * 2500, Backwards(), SimpleNamespace(add=told.append)
        )
    )
    assert told == [1024, 1024, 452]


def test_a_teacher_that_loses_a_sentence_is_found_out(tmp_path):
    stream = Backwards().stream
    forgetful = SimpleNamespace(stream=lambda _, *sizes: stream("a", *sizes))
    with pytest.raises(ValueError, match="shorter"):
        synthetic.write_distilled(Corpus(), forgetful, tmp_path / "d")
    assert not list(tmp_path.iterdir())  # and nothing is left


def test_what_is_there_stays(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("d", "link"):
        with pytest.raises(FileExistsError, match=f"{name} exists; give the name"):
            synthetic.write_distilled(Corpus(), Backwards(), tmp_path / name)
        with pytest.raises(FileExistsError, match=f"{name} exists; give the name"):
            synthetic.write_backtranslated(
                Corpus(), Reverse(), "nowhere", tmp_path / name
            )


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


@pytest.mark.slow
def test_a_student_learns_from_its_teachers(data, tmp_path, monkeypatch):
    training = AutoTraining(str(data), "xx", "yy", given={**TINY, "max_length": 12})
    results = synthetic.train_distilled(training, tmp_path / "run", teachers=2)
    assert results["validation"]["sentences"] == 5
    beside = tmp_path / "run-teachers"
    seeds = [read_record(beside / name)["settings"]["seed"] for name in "12"]
    assert seeds == [1, 2]
    assert count_lines(beside / "corpus" / "train.yy") == 40
    assert read_record(tmp_path / "run")["corpus"]["train"]["pairs"] == 40
    assert load(tmp_path / "run").translate(["a b"])[0].text is not None
    # The same again trains no teacher and translates nothing.
    trained = []
    monkeypatch.setattr(synthetic, "train", lambda _, run_dir: trained.append(run_dir))
    synthetic.train_distilled(training, tmp_path / "run", teachers=2)
    assert trained == [tmp_path / "run"]


def config_of(place, **changes):
    settings = {"data": str(place), "source": "xx", "target": "yy", **TINY, **changes}
    return TrainingConfig.from_preset("small", **settings)


def trained_teacher(run_dir, config):
    """A run as a finished training leaves it, with an untrained model."""
    texts = describe_corpus(training_corpus(config.settings()), config.limit_examples)
    model = kl.Seq2Seq(config.model_config(20, 20))
    search, settings = kl.BeamSearch(2), config.settings()
    write_record(run_dir, model, search, 50, settings, corpus=texts)
    write_json(RunDirectory(run_dir).results, {})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data": "other"}, "its train split had 20 pairs"),
        ({"source": "yy", "target": "xx"}, "They differ in source: 'xx' there"),
        ({"units": 10}, "They differ in .*units: 8 there, 10 now"),
        ({"limit_examples": 9}, "Received: limit_examples=9"),
    ],
)
def test_a_teacher_of_something_else_is_refused(
    data, tmp_path, changes, message, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    trained_teacher("run-teachers/1", config_of(data))
    (tmp_path / "other").mkdir()
    write_corpus(tmp_path / "other", train=21, val=5)
    with pytest.raises(ValueError, match=message):
        synthetic.train_distilled(config_of(data, **changes), "run", teachers=1)
    assert not (tmp_path / "run-teachers" / "corpus").exists()


def test_teachers_read_the_tag_and_their_student_adds_it(data, tmp_path, monkeypatch):
    training = config_of(data, tag="news")
    trained_teacher(tmp_path / "run-teachers" / "1", training)
    trained = []
    monkeypatch.setattr(synthetic, "load_ensemble", lambda runs: Backwards())
    monkeypatch.setattr(synthetic, "train", lambda config, _: trained.append(config))
    synthetic.train_distilled(training, tmp_path / "run", teachers=1)
    written = tmp_path / "run-teachers" / "corpus"
    sources = [line for line in read_lines(data / "train.xx") for _ in range(2)]
    assert list(read_lines(written / "train.xx")) == sources
    said = list(read_lines(written / "train.yy"))[1]
    assert said == f"<news> {sources[0]}"[::-1]  # by a teacher who has read the tag
    assert trained[0].tag == "news" and trained[0].data == str(written)


def test_a_part_of_a_corpus_and_former_teachers_are_refused(data, tmp_path):
    part = AutoTraining("x", given={"limit_examples": 9})
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
    written = synthetic.write_backtranslated(
        Corpus(), Reverse(), folder / "mono", folder / "d", **options
    )
    return written, pairs_of(folder / "d")


def test_k2_real_pairs_and_lines_with_tagged_sources(tmp_path):
    (tmp_path / ".123-0123abcd.d").mkdir()  # of a process that was killed
    made = {"one two": "owt eno", "three": "eerht", "four": "ruof", "5": "5"}
    written, pairs = backtranslated(tmp_path, made)
    assert written == (tmp_path / "d", 4, 4, 0)
    both = zip(REAL, made.items(), strict=True)
    assert pairs == [
        x for pair, (line, said) in both for x in (pair, (f"<bt> {said}", line))
    ]
    for split, text in (("validation", "V"), ("test", "T ")):
        assert lines(tmp_path / "d" / f"{split}.yy") == [text, ""]
    assert {x.name for x in tmp_path.iterdir()} == {"d", "mono"}
    # SentencePiece learns its pieces of the text without tags, and then gets them.
    pairs = load_corpus(tmp_path / "d", "xx", "yy").pairs("train")
    assert tags_in(pairs) == ["bt"]
    plain = TokenizerPair.train(remove_tags(pairs, ["bt"]), vocab_size=35)
    assert not any(x in piece for piece in plain.source.vocabulary[4:] for x in "<>")
    assert tags_of(add_tokens(plain, ["<bt>"], ["source"]).source) == ["bt"]


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
    chosen = synthetic.read_monolingual(mono, Corpus(), Reverse(), limit=3)
    assert list(chosen.lines()) == ["x", "1 2 3 4 5", "y"]
    assert chosen.left_out == {
        "empty": 2,
        "of over 5 tokens": 1,
        "that are held-out targets": 1,
        "that are training targets": 2,
        "that repeat others": 1,
        "beyond the limit of 3": 2,
    }
    # The limit of a real translator's tokens is that of lines.
    translator = word_translator(BeamSearch(2, max_length=4))
    write_lines(mono, ["the " * 11, "the dog", "the " * 10])
    found = synthetic.read_monolingual(mono, Corpus(), translator)
    assert list(found.lines()) == ["the dog", "the " * 10]
    assert found.left_out == {"of over 10 tokens": 1}


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


@pytest.mark.parametrize(
    "content, changes, message",
    [
        (b"a\n\xff\n", {}, "mono is not UTF-8: line 2"),
        (b"", {}, "nothing to translate: 0 of 0 lines of .*left out: none"),
        (b"\nA\n", {}, "0 of 2 lines of .*: 1 empty, 1 that are training targets"),
        (b"x\n", {"limit": 0}, "limit must be at least 1. Received: 0"),
        (b"x\n", {"repeat_real": 0}, "repeat_real must be at least 1"),
        (b"x\n", {"tag": "BT"}, "tag must be of small letters.*Received: 'BT'"),
    ],
)
def test_k2_mistakes_leave_nothing_behind(content, changes, message, tmp_path):
    mono, reverse = tmp_path / "mono", Reverse()
    mono.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        synthetic.write_backtranslated(
            Corpus(), reverse, mono, tmp_path / "d", **changes
        )
    assert reverse.read == 0 and [x.name for x in tmp_path.iterdir()] == ["mono"]
