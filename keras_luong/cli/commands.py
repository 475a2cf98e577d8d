"""The commands of `keras-luong` and their options, as data.

Nothing here imports Keras or TensorFlow, so that help appears at once. Each command is
implemented in the module of its name, which is imported when the command runs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from keras_luong.cli.places import (
    AnyFile,
    AnyPath,
    CorpusName,
    NewFile,
    NewFolder,
    NewPlace,
    OldFolder,
    OldPlace,
    RunDir,
    TextFile,
    check_new_file,
    check_places,
    check_text_file,
    check_writable,
)
from keras_luong.config.fields import (
    Count,
    NotNegative,
    Positive,
    Seed,
    check_fields,
)
from keras_luong.config.going_on import BACK_TRANSLATED, GoingOnConfig, Tag
from keras_luong.config.presets import PAPERS, RECIPES
from keras_luong.config.training import (
    DataConfig,
    EvaluationConfig,
    OptimizationConfig,
    Precision,
)

_PARQUET = ".parquet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command, checked against their types."""

    #: Options that are given by position.
    positional: ClassVar[tuple[str, ...]] = ("run_dir",)
    #: Options of which at most one can be given.
    exclusive: ClassVar[tuple[str, ...]] = ()
    #: Lists that take one value each time that they are given.
    repeated: ClassVar[tuple[str, ...]] = ("ensemble",)
    #: The option that further words are probably meant for.
    stray: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Checks all fields."""
        check_fields(self)

    def check_places(self) -> None:
        """Checks the paths, before a command imports TensorFlow.

        Raises:
            OSError, ValueError: Something is not there, or may not be written.
        """
        check_places(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Run.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it.
        ensemble: Another run with the same tokenizers, used together as an ensemble;
            may be given several times.
        precision: Precision that the models compute in; by default as in training.
    """

    run_dir: RunDir
    ensemble: tuple[RunDir, ...] = ()
    precision: Precision | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Search (by default as in the run).

    Args:
        beam_width: Hypotheses that the search keeps at each step; 1 is greedy search.
        length_penalty: Favours longer translations: GNMT's alpha (Wu et al. 2016),
            such as 1; 0 for none.
        average: Divides scores by length to this power, instead of --length_penalty.
        coverage_penalty: Penalizes source words with little attention: GNMT's beta,
            such as 0.2; 0 for none.
        max_length: Longest translation, in tokens.
        min_length: Shortest translation, in tokens.
        no_repeat_ngram: Lets no n-gram of this size occur twice in a translation.
        no_unknown: Whether `<unk>` is excluded from translations.
        shortlist: File from `keras-luong shortlist`, for a faster search; not for
            .tflite files.
        max_source_length: Most tokens that are read of a source sentence.
    """

    exclusive = ("length_penalty", "average")

    beam_width: int | None = None
    length_penalty: NotNegative | None = None
    average: NotNegative | None = None
    coverage_penalty: NotNegative | None = None
    max_length: int | None = None
    min_length: Count | None = None
    no_repeat_ngram: Count | None = None
    no_unknown: bool = False
    shortlist: AnyFile | None = None
    max_source_length: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Data (by default as in the run).

    Args:
        data: A folder of text files, a file of tab-separated columns, a name in
            tensorflow-datasets, or "phrases".
        source: Language to translate from.
        target: Language to translate into.
    """

    data: CorpusName | None = None
    source: str | None = None
    target: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Engine.

    Args:
        engine: What does the work: local is this process; ray is a pool of workers on
            this machine or a cluster, which can go on after it was killed.
        address: Address of a Ray cluster; by default Ray runs on this machine.
        workers: Number of Ray's workers; by default one for each processor.
    """

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that those of Ray are for Ray."""
        super().__post_init__()
        if self.engine != "ray":
            for name in ("address", "workers"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs --engine ray, which is missing.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """Run.

    Args:
        run_dir: Directory for all results; by default one in runs/ with the name of
            the corpus, or of the run to start from. An existing run is resumed.
        preset: What is not said otherwise: auto chooses it by the size of the corpus;
            others are a model of a fixed size, and some also how to train it.
        distill: Trains three models first, which differ in their seed, and then one
            that also learns from their translations: better, and several times longer.
    """

    positional = ()

    run_dir: Path | None = None
    preset: str = "auto"
    distill: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions(EngineOptions, SearchOptions, RunOptions):
    """Files and output.

    Args:
        input: File to translate, plain or gzip; standard input by default. With
            --engine ray also a .parquet file, or a folder of them.
        output: File to write, gzip if its name ends in .gz; standard output by default.
            Of Parquet it is Parquet, with a column "translation".
        column: Name of the column to translate, of Parquet; by default the only one of
            strings.
        constraints: File of what each line's translation must contain: phrases with
            tabs between them, or an empty line.
        prefixes: File of how each line's translation must begin; an empty line for any.
        terms: File of lines "source term TAB target term": where a line has the one,
            its translation must contain the other.
        tag: Name of a tag that the run was trained with, put in front of each line.
        n_best: Translations of each line; several are written as "number |||
            translation ||| score".
        scores: Whether scores are written too.
        alignments: Whether word alignments are written too.
        pictures: Folder for a picture of each line's attention, between words.
        pieces: Whether pictures show the pieces of words that the model sees.
        batch_size: Lines to translate at once.
        window: Lines to read ahead and sort by length.
    """

    stray = "--input"

    input: AnyPath | None = None
    output: AnyPath | None = None
    column: str | None = None
    constraints: TextFile | None = None
    prefixes: TextFile | None = None
    terms: TextFile | None = None
    tag: str | None = None
    n_best: int = 1
    scores: bool = False
    alignments: bool = False
    pictures: NewFolder | None = None
    pieces: bool = False
    batch_size: int = 32
    window: int = 1024

    def __post_init__(self) -> None:
        """Checks all fields, and what cannot be together with --engine ray."""
        super().__post_init__()
        if self.engine != "ray":
            if self.column is not None:
                raise ValueError("column needs --engine ray, which is missing.")
            if self.input is not None and self.input.suffix == _PARQUET:
                raise ValueError(f"Parquet needs --engine ray. Received: {self.input}")
            return
        if self.input is None or self.output is None:
            raise ValueError(
                "engine ray needs --input and --output, files that workers can share."
            )
        if self.pictures is not None:
            raise ValueError(
                "pictures are drawn by --engine local only: leave out one of both."
            )

    def check_places(self) -> None:
        """Checks the paths; only --engine ray takes Parquet, and folders of it."""
        super().check_places()
        text, out = self.input, self.output
        if self.engine == "ray" and text and (text.is_dir() or text.suffix == _PARQUET):
            return
        if text is not None:
            check_text_file("input", text)
        if out is not None:
            check_new_file("output", out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CorpusOptions, SearchOptions, RunOptions):
    """Evaluation.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it; not needed with
            --hypotheses.
        test: A source file and its reference, plain or gzip; by default the held-out
            splits of the run's data.
        tag: Name of a tag that the run was trained with, put in front of each source;
            by default the run's own one in front of its own data.
        against: Another run to compare the run with, by paired bootstrap.
        hypotheses: Files of translations of --test, to score without a run; or to
            compare with the run or with the first of them.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's, or without a run
            that of the language that the reference's name ends in.
        worst: Number of worst translations to print, by the chrF of the sentence.
        report: HTML file to write, with all figures, and the worst and the best
            translations with their attention.
        json: JSON file to write the same to.
        output: Folder to write the translations to.
        show: Number of translations to print, the first ones.
        batch_size: Sentences to translate at once.
    """

    stray = "--test"

    run_dir: RunDir | None = None  # type: ignore[assignment]  # hypotheses need none
    test: tuple[TextFile, TextFile] | None = None
    tag: str | None = None
    against: RunDir | None = None
    hypotheses: tuple[TextFile, ...] = ()
    bleu_tokenize: str = "auto"
    worst: Count = 3
    report: NewFile | None = None
    json: NewFile | None = None
    output: NewFolder | None = None
    show: Count = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        """Checks all fields, and that there is something to score."""
        super().__post_init__()
        if self.hypotheses and not self.test:
            raise ValueError("hypotheses needs --test, which they are translations of.")
        if self.test and self.data:
            raise ValueError("At most one of --test, --data can be given.")
        if self.run_dir is None:
            if not self.hypotheses:
                raise ValueError(
                    "RUN_DIR is missing: give a run, or --hypotheses FILE to score a "
                    "file of translations."
                )
            self._refuse_what_needs_a_run()

    def _refuse_what_needs_a_run(self) -> None:
        needy = [*dataclasses.fields(SearchOptions), *dataclasses.fields(RunOptions)]
        of_runs = ("against", "output", "data", "tag")
        names = {*(field.name for field in needy), *of_runs}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = [x for x in sorted(names) if getattr(self, x) != defaults[x]]
        if given:
            raise ValueError(f"{given[0]} needs RUN_DIR, which is missing.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions(RunOptions):
    """Files and output.

    Args:
        source: File of source sentences, plain or gzip.
        target: File of their translations.
        output: File to write; standard output by default.
        alignments: Whether word alignments are written too.
        batch_size: Pairs to score at once.
        window: Lines to read ahead and sort by length.
    """

    positional = ("run_dir", "source", "target")

    source: TextFile
    target: TextFile
    output: NewFile | None = None
    alignments: bool = False
    batch_size: int = 32
    window: int = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(SearchOptions, RunOptions):
    """Export.

    Args:
        out: The model's directory, in which the SavedModel is written to VERSION/; or a
            file whose name ends in .tflite.
        web: Folder for a page that translates in the browser, instead of OUT; npm
            builds it.
        check: Text to translate with the run and the export, to compare them; by
            default a sentence of the run's validation data.
        version: Version of the SavedModel, by default 1; servers load the highest.
        overwrite: Whether to replace an existing version, or the page in its folder.
        max_batch_size: Most texts in one request, by default 256; larger ones fail
            (SavedModel).
        warmup: Texts that a server translates before it takes requests; by default the
            check text, if tensorflow-serving-api is installed (SavedModel).
        quantize: Stores weights in 16 or 8 bits: half or a quarter of the size
            (.tflite, page).
        source_length: Fixed number of source tokens, for runtimes that need fixed
            shapes, such as LiteRT.js; by default any length (.tflite), or 64 (page).
        n_best: Translations to return for each text; by default as in the run
            (.tflite), or as many as the beam has (page).
    """

    positional = ("run_dir", "out")

    out: Path | None = None
    web: Path | None = None
    check: str | None = None
    version: int | None = None
    overwrite: bool = False
    max_batch_size: int | None = None
    warmup: tuple[str, ...] | None = None
    quantize: Literal["float16", "int8"] | None = None
    source_length: int | None = None
    n_best: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that there is one place to write to."""
        super().__post_init__()
        if (self.out is None) == (self.web is None):
            raise ValueError(
                "Give one of OUT, a directory or a file whose name ends in .tflite, "
                "and --web FOLDER."
            )

    def check_places(self) -> None:
        """Checks the paths, and that the version is a new one or may be replaced."""
        super().check_places()
        if self.out is None:
            return
        check_writable(self.out)
        if self.out.suffix.lower() == ".tflite":
            if self.out.is_dir():
                raise IsADirectoryError(f"OUT must be a file. Received: {self.out}/")
            return
        if self.out.is_file():
            raise NotADirectoryError(
                "OUT must be a directory, or a file whose name ends in .tflite. "
                f"Received: {self.out}"
            )
        version = 1 if self.version is None else self.version
        if (self.out / str(version)).exists() and not self.overwrite:
            names = [x.name for x in self.out.iterdir() if x.name.isdecimal()]
            raise FileExistsError(
                f"{self.out / str(version)} exists: give --overwrite to replace it, or "
                f"--version {max(map(int, names)) + 1} for a new one beside it."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(SearchOptions, RunOptions):
    """Verification.

    Args:
        source: File of source sentences, one a line.
        reference: File of their reference translations, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
        saved_model: Directory of an exported version, such as MODEL/1.
        tflite: Exported .tflite files; needs keras-luong-edge.
        batch_size: Sentences to translate at once (.tflite files take one).
        show: Differing lines to print for each export.
    """

    positional = ("run_dir", "source")

    source: TextFile
    reference: TextFile | None = None
    bleu_tokenize: str = "auto"
    saved_model: OldFolder | None = None
    tflite: tuple[AnyFile, ...] = ()
    batch_size: int = 32
    show: Count = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageOptions(Options):
    """Run.

    Args:
        run_dir: A run directory that kept the weights of its epochs.
        out: New run directory; by default RUN_DIR-average.
        last: Number of last epochs to average; by default up to 5.
        weights: Weight files to average instead.
    """

    exclusive = ("last", "weights")

    run_dir: RunDir
    out: Path | None = None
    last: int | None = None
    weights: tuple[AnyFile, ...] = ()

    @property
    def place(self) -> Path:
        """The new run directory."""
        path = self.run_dir.resolve()
        return self.out or path.with_name(f"{path.name}-average")

    def check_places(self) -> None:
        """Checks the paths, and that the new run directory is new or empty."""
        super().check_places()
        check_writable(self.place)
        if self.place.exists() and any(self.place.glob("*")):
            raise FileExistsError(
                f"{self.place} exists and is not empty: give another directory, as "
                f"--out {self.place}-2, or remove it."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(CorpusOptions):
    """Run and values to try.

    Args:
        run_dir: A run directory; the best values become its search settings.
        beam_widths: Beam widths to try; by default the run's.
        length_penalties: Length penalties to try (GNMT's alpha).
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
    """

    run_dir: RunDir
    beam_widths: tuple[int, ...] = ()
    length_penalties: tuple[NotNegative, ...] = (0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6)
    bleu_tokenize: str = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortlistOptions(CorpusOptions):
    """Run and shortlist.

    Args:
        run_dir: A run directory.
        out: File to write; by default RUN_DIR/shortlist.npz.
        per_word: Likely translations to keep for each source word.
        frequent: Number of most frequent target words that every sentence may use.
        limit_examples: Number of pairs to learn from; by default all.
    """

    run_dir: RunDir
    out: NewFile | None = None
    per_word: int = 50
    frequent: Count = 400
    limit_examples: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions(EngineOptions, CorpusOptions):
    """Runs and distillation.

    Args:
        run_dirs: Run directories with the same tokenizers, used together as an
            ensemble with the first run's search.
        out: New directory for the text files.
        precision: Precision that the models compute in.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[RunDir, ...]
    out: NewPlace
    precision: Precision = "float32"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BacktranslateOptions(EngineOptions, SearchOptions, RunOptions):
    """Back-translation.

    Args:
        data: The corpus to learn from, as `train` takes it.
        mono: File of text in the language that the run translates from, which is the
            corpus's target language; a sentence a line, plain or gzip.
        out: New directory for the text files.
        source: Language to translate from with the new corpus; by default what the run
            translates into.
        target: Language to translate into; by default what the run translates from.
        tag: Name of the tag in front of the sources that are made: bt becomes the
            token `<bt>`.
        limit: Most lines to translate, the first ones; by default all.
        repeat_real: How often each pair of the corpus is written.
        sampling: Draws the sources at random, by the probabilities of their words,
            instead of searching for the best.
        temperature: Below 1 such sources are more alike, above 1 more varied; by
            default 1.
        top_k: Number of most probable words to draw each from; by default all.
        seed: Seed of what is drawn; by default 1.
    """

    data: CorpusName
    mono: TextFile
    out: NewPlace
    source: str | None = None
    target: str | None = None
    tag: Tag = BACK_TRANSLATED
    limit: int | None = None
    repeat_real: int = 1
    sampling: bool = False
    temperature: Positive | None = None
    top_k: int | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that all are of one kind of search."""
        super().__post_init__()
        if not self.sampling:
            for name in ("temperature", "top_k", "seed"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs --sampling, which is missing.")
            return
        for field in dataclasses.fields(SearchOptions):
            given = getattr(self, field.name) != field.default
            if given and field.name not in ("max_length", "max_source_length"):
                raise ValueError(
                    f"{field.name} is for a beam search, and --sampling is none: give "
                    "one of them."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """Runs.

    Args:
        run_dirs: Run directories, one or more.
        flags: Settings to show; by default those that differ.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[OldPlace, ...]
    flags: tuple[str, ...] = ()


class Command(NamedTuple):
    """A command of `keras-luong`.

    Attributes:
        options: The dataclass of its options.
        about: What it does, in one sentence.
        more: Further sentences for its help.
    """

    options: type[Options]
    about: str
    more: str = ""


COMMANDS = {
    "train": Command(
        TrainOptions,
        "Trains a translator on a corpus.",
        "It needs the corpus and its languages, as in: train my/corpus --source fr "
        "--target en. The same command again goes on where it stopped. Presets: "
        f"{', '.join(RECIPES)}. Presets of papers, in their sizes: "
        f"{', '.join(PAPERS)}. --preset NAME --help shows what NAME says.",
    ),
    "translate": Command(TranslateOptions, "Translates lines of text."),
    "evaluate": Command(
        EvaluateOptions,
        "Scores translations by BLEU, chrF and TER, and compares those of two runs.",
    ),
    "score": Command(
        ScoreOptions, "Tells how probable given translations are, a line each."
    ),
    "export": Command(
        ExportOptions, "Writes a SavedModel, a .tflite file or a web page of a run."
    ),
    "verify": Command(
        VerifyOptions, "Compares what exports say with what their run says."
    ),
    "average": Command(
        AverageOptions, "Averages the weights of a run's last epochs, as a new run."
    ),
    "tune": Command(
        TuneOptions, "Chooses a run's beam width and length penalty by validation BLEU."
    ),
    "shortlist": Command(
        ShortlistOptions,
        "Learns which target words a source word becomes, for a faster search.",
    ),
    "distill": Command(
        DistillOptions,
        "Writes a corpus that also has what runs make of its training sources.",
    ),
    "backtranslate": Command(
        BacktranslateOptions,
        "Writes a corpus that also has target text alone, which a run translates back.",
        "The run translates the other way: from the corpus's target language.",
    ),
    "compare": Command(
        CompareOptions, "Prints a table of runs: settings that differ, and results."
    ),
}

#: The configurations whose fields are options of `train`, beside `TrainOptions`.
TRAINING = {
    "Data": DataConfig,
    "Training": OptimizationConfig,
    "Going on from another run": GoingOnConfig,
    "Evaluation": EvaluationConfig,
}
