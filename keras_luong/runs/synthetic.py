"""Corpora whose training pairs a translator has made in part, as text files.

* Distillation: a corpus that also has what a teacher makes of its sources.
  Sequence-level knowledge distillation (Kim & Rush 2016, arXiv:1606.07947, section 3.2)
  teaches a student the best translations of a teacher's beam search. They are more
  regular than people's, and easier to learn; beside the references, which stay in the
  corpus, they are a second way to say each sentence. `train_distilled` trains teachers
  first, then their student.
* Back-translation: a corpus that also has text of its target language alone. A run of
  the other direction translates the text back, and the pairs of what it says and the
  text join the corpus (Sennrich, Haddow & Birch 2016, arXiv:1511.06709). The targets
  are what people wrote, however poor the sources are. A tag in front of these sources
  tells the model not to trust them as much (Caswell, Chelba & Grangier 2019,
  arXiv:1906.06442).
* `pooled`: a translator whose streams are the work of a pool of processes.

Shapes: N lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_file, check_size
from keras_luong.config.auto import AutoTraining, Training
from keras_luong.config.training import BACK_TRANSLATED, check_tag_name
from keras_luong.files import saved_directory_beside
from keras_luong.languages import standard_code
from keras_luong.progress import Progress
from keras_luong.runs.description import choose_by_corpus
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.opening import open_run
from keras_luong.runs.ray_engine import Pool, Work, check_ray, work_on
from keras_luong.runs.run import RunDirectory, lock_output, read_record
from keras_luong.runs.shards import CHANGED, Shards, shard_size, survey, unchanged
from keras_luong.runs.train import train
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import Corpus, count, new_digest, read_blocks
from keras_luong.text.hashes import HashReader, hashes_of
from keras_luong.text.pair_formats import read_sentences
from keras_luong.text.rows import is_parquet
from keras_luong.text.tags import add_tag, token
from keras_luong.translation.batching import warn_of_cut
from keras_luong.translation.graph import read_text
from keras_luong.translation.translator import Translator

TEACHERS = 3  # of a distilled training
_AT_ONCE = 64  # sentences that are translated in a batch
_WINDOW = 1024  # and those whose translations come at once, sorted by length
_LINES_AT_ONCE = 1024
_Item = TypeVar("_Item")


def train_distilled(
    training: Training,
    run_dir: str | Path,
    teachers: int = TEACHERS,
) -> dict[str, Any]:
    """Trains models that differ in their seed, and a student of their translations.

    Sequence-level knowledge distillation, see `keras_luong.runs.synthetic`. The
    student learns from the references and from what the teachers, as an ensemble, make
    of the training sources. What is finished is not done again, but it must be of the
    same text and the same settings.

    Args:
        training: What is trained. The student of an `AutoTraining` is as large as its
            corpus, of twice the pairs, suggests.
        run_dir: The student's run directory. Beside it, in `<run_dir>-teachers`, are
            the teachers' and the corpus that the student learns from.
        teachers: How many teachers there are.

    Returns:
        The student's results, as `keras_luong.runs.train.train` returns them.

    Raises:
        ValueError: If only a part of the corpus is to be trained on, or a teacher that
            is trained is of another text or other settings; and as of
            `keras_luong.runs.train.train`.

    Example:
        >>> from keras_luong.config.auto import AutoTraining
        >>> from keras_luong.runs.synthetic import train_distilled
        >>> tiny = {"units": 8, "epochs": 1, "tokenizer": "word"}
        >>> training = AutoTraining("my/corpus", "en", "de", given=tiny)
        >>> results = train_distilled(training, "runs/new", teachers=1)
        2 trainings: 1 teacher, then a student. Each tells how long it takes itself.
        <BLANKLINE>
        Teacher 1 of 1
        ...
        >>> sorted(results)
        ['test', 'validation']
    """
    is_auto = isinstance(training, AutoTraining)
    given = training.given if isinstance(training, AutoTraining) else vars(training)
    if limit := given.get("limit_examples"):
        raise ValueError(
            "Distillation is of a whole corpus; leave limit_examples out. Received: "
            f"limit_examples={limit}"
        )
    beside = Path(f"{run_dir}-teachers")
    runs = [beside / str(seed) for seed in range(1, teachers + 1)]
    taught = beside / "corpus"
    every = f"{teachers} teacher{'s' * (teachers > 1)}, then a student"
    print(f"{teachers + 1} trainings: {every}. Each tells how long it takes itself.")
    # 1. The teachers.
    for seed, run in enumerate(runs, 1):
        print(f"\nTeacher {seed} of {teachers}", flush=True)
        is_trained = RunDirectory(run).results.exists()
        if taught.exists() and not is_trained:
            raise ValueError(
                f"{taught} was written by other teachers: {run} is no finished run. "
                "Remove it, or give another run directory"
            )
        of_seed = {"given": {**given, "seed": seed}} if is_auto else {"seed": seed}
        teacher = dataclasses.replace(training, **of_seed)
        if is_trained:
            config, own = choose_by_corpus(teacher, run)
            with open_run(config, run, own):
                pass  # which refuses another text, and other settings
            print(f"is trained: {run}")
        else:
            keras.backend.clear_session()  # the one before need not stay in memory
            train(teacher, run)
    # 2. The corpus that they make.
    settings = read_record(runs[0])["settings"]
    source, target = settings["source"], settings["target"]
    if not taught.exists():
        corpus = load_corpus(training.data, source, target)
        print(f"\nThe teachers translate {corpus.name}", flush=True)
        # The student puts the tag in front of its sources itself.
        tag = settings.get("tag")
        write_distilled(corpus, load_ensemble(runs), taught, progress=True, tag=tag)
    # 3. The student.
    print("\nStudent", flush=True)
    student = dataclasses.replace(
        training, data=str(taught), source=source, target=target
    )
    return train(student, run_dir)


def write_distilled(
    corpus: Corpus,
    teacher: Translator,
    directory: str | Path,
    progress: bool = False,
    tag: str | None = None,
) -> Path:
    """Writes a corpus whose training split has every source twice.

    Once with its reference, and then with the teacher's translation of it. The other
    splits are written as they are, but line ends within a sentence become spaces. It
    takes bounded memory, and the directory appears when it is complete; what a killed
    process had begun is removed and begun anew.

    Args:
        corpus: What to learn from; its training split is translated.
        teacher: What translates it: best an `Ensemble` of models trained on it.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...
        progress: Whether to show progress on standard error.
        tag: Name of a tag that the teacher is to read in front of the sources, which
            are written without it.

    Returns:
        The directory.

    Raises:
        FileExistsError: If there is something of that name.
        ValueError: If the corpus has no split to train on, or its files are damaged.

    Example:
        >>> from keras_luong.runs.synthetic import write_distilled
        >>> from keras_luong.text import load_corpus
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> write_distilled(corpus, kl.load("runs/mine"), "distilled")
        PosixPath('distilled')
        >>> from keras_luong.files import count_lines
        >>> count_lines("distilled/train.de")  # two translations of three sentences
        6
    """
    directory = check_new(directory)
    train = corpus.pairs("train")
    bar = Progress(count(train), "text") if progress else None
    pairs = Rereadable(lambda: read_pairs(train))
    write_corpus(corpus, twice(pairs, teacher, bar, tag), directory)
    return directory


def twice(
    pairs: Iterable[tuple[str, str]],
    teacher: Translator,
    bar: Progress | None = None,
    tag: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields each pair, and then its source with the teacher's translation.

    Args:
        pairs: Sources and references, in any number.
        teacher: What translates the sources.
        bar: Counts the pairs.
        tag: Name of a tag that the teacher reads in front of the sources.

    Yields:
        Sources and targets, two for each pair.
    """

    def read(pair: tuple[str, str]) -> str:
        return pair[0] if tag is None else add_tag(pair[0].encode(), tag).decode()

    for pair, translation in with_translations(pairs, read, teacher, bar):
        yield pair
        yield pair[0], translation


class BackTranslated(NamedTuple):
    """A corpus that `write_backtranslated` wrote, in numbers.

    Attributes:
        directory: Where.
        real: Number of training pairs of the corpus, as often as they are repeated.
        synthetic: Number of training pairs of which the source was made.
        untranslated: Number of lines that the translator had nothing to say to.
    """

    directory: Path
    real: int
    synthetic: int
    untranslated: int


def write_backtranslated(
    corpus: Corpus,
    reverse: Translator,
    monolingual: str | Path,
    directory: str | Path,
    tag: str = BACK_TRANSLATED,
    limit: int | None = None,
    repeat_real: int = 1,
    monolingual_tag: str | None = None,
    progress: bool = False,
) -> BackTranslated:
    """Writes a corpus that also has text of its target language, and made sources.

    The training pairs are the corpus's, and evenly between them the lines of a file as
    targets, each with a source that a translator makes of it. A training makes a piece
    of its vocabulary of the tag, which is in the text. The other splits are written as
    they are, but line ends within a sentence become spaces. It takes bounded memory,
    and the directory appears when it is complete; what a killed process had begun is
    removed and begun anew.

    Args:
        corpus: What to learn from.
        reverse: A translator from the corpus's target language into its source
            language. With a `RandomSampling` as its search the sources are drawn at
            random (Edunov et al. 2018, arXiv:1808.09381); those of a `BeamSearch` are
            more correct, and more alike.
        monolingual: A file of text in the target language, a sentence a line, plain or
            gzip; or that side of a form of `keras_luong.text.pair_formats`. Which lines
            are left out: see `read_monolingual`.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...
        tag: Name of the tag in front of the sources that are made.
        limit: Most lines to translate, the first ones; all by default.
        repeat_real: How often each training pair of the corpus is written, so that the
            others do not outweigh them.
        monolingual_tag: Name of a tag that the translator was trained with, for the
            lines that it reads.
        progress: Whether to print what is left out, and to show progress on standard
            error.

    Returns:
        What was written.

    Raises:
        FileExistsError: If there is something of the directory's name.
        FileNotFoundError: If there is no such file of text.
        TypeError: If a number is no integer.
        ValueError: If it is below 1, the tag cannot be one, the corpus has no split to
            train on, files are damaged, or no line is left to translate.

    Example:
        >>> from keras_luong.files import write_lines
        >>> from keras_luong.runs.synthetic import write_backtranslated
        >>> from keras_luong.text import load_corpus
        >>> corpus = load_corpus("my/corpus", "de", "en")
        >>> write_lines("more.en", ["the red dog is the cat", "", "the cat is red"])
        >>> written = write_backtranslated(
        ...     corpus, kl.load("runs/mine"), "more.en", "larger"
        ... )
        >>> written.real, written.synthetic + written.untranslated
        (3, 2)
    """
    directory = check_new(directory)
    check_size("limit", limit, optional=True)
    check_size("repeat_real", repeat_real)
    check_tag_name("tag", tag)
    train = corpus.pairs("train")
    # 1. The lines that are worth translating.
    chosen = read_monolingual(monolingual, corpus, reverse, limit)
    if progress:
        print(chosen, flush=True)
    number, real = int(chosen.kept.sum()), count(train) * repeat_real
    bar = Progress(number, "text") if progress else None
    # 2. Their sources.
    begin = "" if monolingual_tag is None else f"{token(monolingual_tag)} "
    lines = Rereadable(chosen.lines)
    said = with_translations(lines, lambda line: begin + line, reverse, bar)
    untranslated = 0

    def made() -> Iterator[tuple[str, str]]:
        nonlocal untranslated
        for line, translation in said:
            if translation.strip():
                yield f"{token(tag)} {translation}", line
            else:
                untranslated += 1

    # 3. The corpus.
    repeated = (read_pairs(train) for _ in range(repeat_real))
    pairs = spread_evenly(
        (itertools.chain.from_iterable(repeated), real), (made(), number)
    )
    write_corpus(corpus, pairs, directory)
    return BackTranslated(directory, real, number - untranslated, untranslated)


class Monolingual(NamedTuple):
    """A file of monolingual text, and which of its lines are translated.

    Attributes:
        path: The file.
        language: The language of the text.
        kept: Which lines are translated: bool [N].
        left_out: How many are not, by why.
    """

    path: Path
    language: str
    kept: np.ndarray
    left_out: dict[str, int]

    def __str__(self) -> str:
        """What is left out, in a sentence."""
        reasons = [f"{number:,} {why}" for why, number in self.left_out.items()]
        text = f"{self.kept.sum():,} of {len(self.kept):,} lines of {self.path}"
        return f"{text}; left out: {', '.join(reasons) or 'none'}"

    def lines(self) -> Iterator[str]:
        """Yields the lines that are translated."""
        lines = read_sentences(self.path, self.language, "target")
        return itertools.compress(lines, self.kept)


def read_monolingual(
    path: str | Path, corpus: Corpus, translator: Translator, limit: int | None = None
) -> Monolingual:
    """Reads a file, and chooses the lines that tell a corpus something new.

    Lines are left out that have no text, that the translator would read in part only,
    that are targets of the corpus already (of a split to be judged by, above all), or
    that were there before. Of each line 10 bytes are kept in memory, and of each pair
    of the corpus 24.

    Args:
        path: The file, plain or gzip.
        corpus: The corpus.
        translator: What will translate the lines.
        limit: Most lines to keep, the first ones; all by default.

    Returns:
        What is kept.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or no line is left.
    """
    path, language = Path(path), corpus.target_language
    if not is_parquet(path):
        check_file("file of text", path)
    # 1. Of each line a number that stands for it, and whether it is empty or too long.
    tokenizer, most = translator.source_tokenizer, translator.max_source_length
    lines = read_sentences(path, language, "target")
    blocks = [(np.zeros(0, np.uint64), np.zeros(0, bool), np.zeros(0, bool))]
    while some := list(itertools.islice(lines, _LINES_AT_ONCE)):
        texts = tf.constant(some)
        read = read_text(texts, tokenizer, most)
        blocks.append((hashes_of(some), read.empty.numpy(), read.truncated.numpy()))
    hashes, empty, too_long = map(np.concatenate, zip(*blocks, strict=True))
    # 2. What was there before: in the corpus, or in the file.
    sides = {
        split: HashReader(kept=1).read_all(read_blocks(corpus, split)).hashes.target
        for split in corpus.splits
    }
    train = sides.pop("train")
    held_out = np.concatenate([train[:0], *sides.values()])
    _, first = np.unique(hashes, return_index=True)
    repeats = np.ones(len(hashes), bool)
    repeats[first] = False
    # 3. Why lines are left out, one reason for each.
    reasons = {
        "empty": empty,
        f"of over {most} tokens": too_long,
        "that are held-out targets": np.isin(hashes, held_out),
        "that are training targets": np.isin(hashes, train),
        "that repeat others": repeats,
    }
    kept, left_out = np.ones(len(hashes), bool), {}
    for why, which in reasons.items():
        left_out[why] = int(np.sum(kept & which))
        kept &= ~which
    if limit is not None:
        beyond = np.cumsum(kept) > limit
        left_out[f"beyond the limit of {limit:,}"] = int(np.sum(kept & beyond))
        kept &= ~beyond
    left_out = {why: number for why, number in left_out.items() if number}
    chosen = Monolingual(path, language, kept, left_out)
    if not kept.any():
        raise ValueError(f"There is nothing to translate: {chosen}")
    return chosen


def spread_evenly(
    *parts: tuple[Iterable[tuple[str, str]], int],
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of several parts, each spread over the whole.

    A training shuffles pairs that are near each other only, if there are many.

    Args:
        *parts: Pairs and their number, or the most that there may be.

    Example:
        >>> from keras_luong.runs.synthetic import spread_evenly
        >>> list(spread_evenly((["a", "b"], 2), ([1, 2, 3, 4], 4)))
        [1, 'a', 2, 3, 'b', 4]
    """

    def placed(pairs, number):
        return (((i + 0.5) / number, pair) for i, pair in enumerate(pairs))

    merged = heapq.merge(*(placed(*part) for part in parts), key=itemgetter(0))
    return map(itemgetter(1), merged)


def check_reverse(run_dir: str | Path, corpus: Corpus) -> None:
    """Refuses a run of the wrong direction.

    Args:
        run_dir: A run, to translate targets of the corpus into sources.
        corpus: The corpus.

    Raises:
        ValueError: If the run is of other languages, or of the corpus's own direction.
    """
    settings = read_record(run_dir)["settings"]
    languages = [settings.get(side) for side in ("source", "target")]
    needed = [corpus.target_language, corpus.source_language]
    known = [standard_code(str(x or y)) for x, y in zip(languages, needed, strict=True)]
    if known != [standard_code(x) for x in needed]:
        raise ValueError(
            f"A run is needed that translates {needed[0]} into {needed[1]}, as "
            f"{corpus.name} is for {needed[1]} into {needed[0]}. Received: {run_dir}, "
            f"which translates {languages[0]} into {languages[1]}"
        )


def check_new(directory: str | Path) -> Path:
    """Returns the path of a directory to be.

    Args:
        directory: The directory.

    Raises:
        FileExistsError: If there is something of that name.
    """
    directory = Path(directory)
    if directory.exists() or directory.is_symlink():
        raise FileExistsError(f"{directory} exists; give the name of a new directory")
    return directory


def write_corpus(
    corpus: Corpus, training_pairs: Iterable[tuple[str, str]], directory: Path
) -> None:
    """Writes a corpus with other training pairs.

    The other splits are written as they are, but line ends within a sentence become
    spaces. It takes bounded memory, and the directory appears when it is complete; what
    a killed process had begun is removed and begun anew.

    Args:
        corpus: The corpus.
        training_pairs: Sources and targets; the first one is asked for only once the
            other splits are found to be sound.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...

    Raises:
        FileExistsError: If there is something of that name.
        OSError: If another process writes it.
        ValueError: If files of the corpus are damaged.
    """
    languages = corpus.source_language, corpus.target_language
    others = {split: corpus.pairs(split) for split in corpus.splits if split != "train"}
    splits = {"train": training_pairs}
    splits |= {split: read_pairs(pairs) for split, pairs in others.items()}
    with lock_output(directory):
        check_new(directory)
        with saved_directory_beside(directory) as beside:
            for split, pairs in splits.items():
                with contextlib.ExitStack() as stack:
                    files = [
                        stack.enter_context((beside / f"{split}.{x}").open("wb"))
                        for x in languages
                    ]
                    for pair in pairs:
                        for file, text in zip(files, pair, strict=True):
                            file.write(_line(text) + b"\n")


def _line(text: str) -> bytes:
    """A text as `TextFiles` will read it: U+2028 and its like are kept as they are."""
    return re.sub(r"[\r\n]+", " ", text).encode("utf-8", "surrogatepass")


class Rereadable(Generic[_Item]):
    """What can be read several times.

    Args:
        make: Returns an iterator from the beginning.

    Example:
        >>> from keras_luong.runs.synthetic import Rereadable
        >>> letters = Rereadable(lambda: map(str.upper, "ab"))
        >>> list(letters), list(letters)
        (['A', 'B'], ['A', 'B'])
    """

    def __init__(self, make: Callable[[], Iterator[_Item]]):
        self._make = make

    def __iter__(self) -> Iterator[_Item]:
        """Returns an iterator from the beginning."""
        return self._make()


def read_pairs(pairs: tf.data.Dataset) -> Iterator[tuple[str, str]]:
    """Yields the sources and targets of a dataset.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
    """
    for pair in pairs.as_numpy_iterator():
        yield pair["source"].decode(), pair["target"].decode()


def with_translations(
    items: Iterable[_Item],
    text_of: Callable[[_Item], str],
    translator: Translator,
    bar: Progress | None = None,
) -> Iterator[tuple[_Item, str]]:
    """Yields each item with the translation of its text.

    Args:
        items: What has texts, in any number; it is read several times.
        text_of: Returns an item's text.
        translator: What translates it.
        bar: Counts the items.

    Yields:
        The items in their order, and their translations.

    Raises:
        OSError: If the items are others when they are read again.
    """
    then, now = new_digest(), new_digest()

    def texts() -> Iterator[str]:
        nonlocal then
        then = new_digest()  # of what the translator reads, the last time
        for text in map(text_of, items):
            then.update(_line(text) + b"\n")
            yield text

    translations = translator.stream(Rereadable(texts), _AT_ONCE, _WINDOW)
    done = 0
    for item, translation in zip(items, translations, strict=True):
        now.update(_line(text_of(item)) + b"\n")
        yield item, translation.text
        done += 1
        # The first of a window has waited for all: what it took tells nothing.
        if bar is not None and done % _WINDOW == 0:
            bar.add(_WINDOW)
    if now.digest() != then.digest():
        raise OSError(CHANGED)
    if bar is not None:
        bar.add(done % _WINDOW)


@contextlib.contextmanager
def pooled(
    translator: Translator,
    load: Callable[[], Translator],
    folder: str | Path,
    plan: Mapping[str, Any],
    pool: Pool,
) -> Iterator[PooledTranslator]:
    """Lets a pool of workers do what a translator's `stream` does.

    What they have done outlives a killed process: the same again goes on. Where the
    body ends without an error the folder is removed.

    Args:
        translator: A translator.
        load: Makes the same one in a worker's process.
        folder: The folder of the parts, which all workers can see.
        plan: All that the translations depend on beside their texts, as JSON can hold
            it.
        pool: Where the workers are.

    Yields:
        A translator of which `stream` can be called once.

    Raises:
        ImportError, OSError: If Ray or its cluster is missing.
    """
    check_ray(pool)
    with contextlib.ExitStack() as stack:
        yield PooledTranslator(translator, load, Path(folder), plan, pool, stack)
        Shards(folder, 0, 1).remove()


class TextOnly(NamedTuple):
    """A translation that only says its text.

    Attributes:
        text: The text.
    """

    text: str


@dataclasses.dataclass
class PooledTranslator:
    """A translator whose `stream` a pool of workers does; see `pooled`."""

    _translator: Translator
    _load: Callable[[], Translator]
    _folder: Path
    _plan: Mapping[str, Any]
    _pool: Pool
    _stack: contextlib.ExitStack

    def __getattr__(self, name: str) -> Any:
        """Returns what the translator has of that name."""
        return getattr(self._translator, name)

    def stream(
        self, texts: Iterable[str], batch_size: int = 32, window: int = 1024
    ) -> Iterator[TextOnly]:
        """Yields the translation of each text, once all are done.

        Args:
            texts: The texts, which are read up to three times.
            batch_size: How many are translated at once.
            window: How many are sorted by length.

        Raises:
            OSError: If they are other texts when they are read again.
        """
        text = survey(map(_line, texts))
        shards = Shards(self._folder, text.lines, shard_size(text.lines, window))
        sizes = {"batch_size": batch_size, "window": window}
        plan = {**self._plan, "texts": text._asdict(), **sizes}
        todo = self._stack.enter_context(shards.begun(plan))
        shards.cut(todo, **{"in": unchanged(map(_line, texts), text.digest)})
        make = functools.partial(_make_worker, self._load, batch_size, window)
        work_on(shards, todo, make, self._pool)
        for line in shards.results():
            yield TextOnly(line.decode())
        cut = sum(told["truncated"] for told in shards.told())
        limits = {"texts": ("max_source_length", self._translator.max_source_length)}
        warn_of_cut(limits, Counter(texts=cut) if cut else Counter(), text.lines)


def _make_worker(load: Callable[[], Translator], batch_size: int, window: int) -> Work:
    """What a worker does: see `keras_luong.runs.ray_engine.Work`."""
    translator = load()

    def work(shards: Shards, number: int, told: dict[str, Any]) -> Iterator[bytes]:
        told["truncated"] = 0
        texts = shards.read(number, "in")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # as the driver tells it
            for said in translator.stream(texts, batch_size, window):
                told["truncated"] += said.truncated
                yield _line(said.text)

    return work
