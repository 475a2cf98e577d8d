"""All that one can say to `keras-luong`, as data: its commands and their options.

Nothing here imports Keras or TensorFlow: help must not wait for them. What a command
does is in the module of its name, which is imported when it runs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from keras_luong.config.fields import Count, NotNegative, check_fields
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import (
    DataConfig,
    EvaluationConfig,
    OptimizationConfig,
    Precision,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command; they are checked by their types."""

    #: Options that are given by their place.
    positional: ClassVar[tuple[str, ...]] = ("run_dir",)
    #: Options of which one at most can be given.
    exclusive: ClassVar[tuple[str, ...]] = ()
    #: Lists that take one value each time that they are given.
    repeated: ClassVar[tuple[str, ...]] = ("ensemble",)

    def __post_init__(self) -> None:
        """Checks all fields."""
        check_fields(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Run.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it.
        ensemble: Another run with the same tokenizers, to translate together with; may
            be given several times.
        precision: What the models compute in; by default what they were trained in.
    """

    run_dir: Path
    ensemble: tuple[Path, ...] = ()
    precision: Precision | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Search (what is not given is the run's).

    Args:
        beam_width: Hypotheses that are followed at once; 1 is greedy search.
        length_penalty: Alpha of GNMT's (Wu et al. 2016).
        average: Or divide the log-probability by length ** ALPHA.
        coverage_penalty: Beta of GNMT's.
        max_length: Longest translation, in tokens.
        min_length: Shortest translation, in tokens.
        no_repeat_ngram: No n-gram of this size comes twice.
        no_unknown: Whether `<unk>` is never said.
        shortlist: What `keras-luong shortlist` wrote: faster; not in .tflite files.
        max_source_length: Longest source that is read, in tokens.
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
    shortlist: Path | None = None
    max_source_length: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Data (what is not given is the run's).

    Args:
        data: A folder of text files, a name in tensorflow-datasets, or "phrases".
        source: Source language.
        target: Target language.
    """

    data: str | None = None
    source: str | None = None
    target: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """Run.

    Args:
        run_dir: Where everything is written; a run that is there already goes on.
        preset: The model, and for a recipe (multi30k, multi30k-small, wu2021-tiny) how
            it is trained: what is not given on the command line.
    """

    positional = ()

    run_dir: Path
    preset: str = "luong2015-global-general"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions, RunOptions):
    """Files and what is written.

    Args:
        input: File to translate, plain or gzip; standard input by default.
        output: File to write, gzip if its name ends in .gz; standard output by default.
        n_best: Hypotheses of each line, as "number ||| translation ||| score".
        scores: Whether scores are written too.
        alignments: Whether word alignments are written too.
        pictures: Folder for a picture of each line's attention.
        batch_size: Lines that are translated at once.
        window: Lines that are read ahead, to be sorted by length.
    """

    input: Path | None = None
    output: Path | None = None
    n_best: int = 1
    scores: bool = False
    alignments: bool = False
    pictures: Path | None = None
    batch_size: int = 32
    window: int = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CorpusOptions, SearchOptions, RunOptions):
    """Evaluation.

    Args:
        test: A source file and its reference; by default the held-out splits of the
            run's data.
        bleu_tokenize: sacrebleu's tokenisation; by default the run's.
        output: Folder for the translations.
        show: Sentences to print.
        batch_size: Sentences that are translated at once.
    """

    test: tuple[Path, Path] | None = None
    bleu_tokenize: str | None = None
    output: Path | None = None
    show: Count = 0
    batch_size: int = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions(RunOptions):
    """Files and what is written.

    Args:
        source: File of source sentences, plain or gzip.
        target: File of their translations.
        output: File to write; standard output by default.
        alignments: Whether word alignments are written too.
        batch_size: Pairs that are scored at once.
        window: Lines that are read ahead, to be sorted by length.
    """

    positional = ("run_dir", "source", "target")

    source: Path
    target: Path
    output: Path | None = None
    alignments: bool = False
    batch_size: int = 32
    window: int = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(SearchOptions, RunOptions):
    """Export.

    Args:
        out: A model's directory, which gets a SavedModel as its directory VERSION/; or
            a file whose name ends in .tflite.
        check: A text that run and export translate, to be compared; by default a
            sentence of the run's validation data.
        version: Of a SavedModel, 1 by default; servers load the highest.
        overwrite: Whether to replace a version that is there.
        max_batch_size: More texts in one request are refused; by default 256
            (SavedModel).
        warmup: Texts that a server translates before it takes requests; by default the
            check text, if tensorflow-serving-api is installed (SavedModel).
        quantize: A half or a quarter of the size (.tflite).
        source_length: Source tokens, where every shape must be known, as in LiteRT.js;
            by default any (.tflite).
        n_best: Hypotheses that are found for a text; the run's by default (.tflite; a
            SavedModel has a signature for all).
    """

    positional = ("run_dir", "out")

    out: Path
    check: str | None = None
    version: int | None = None
    overwrite: bool = False
    max_batch_size: int | None = None
    warmup: tuple[str, ...] | None = None
    quantize: Literal["float16", "int8"] | None = None
    source_length: int | None = None
    n_best: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(SearchOptions, RunOptions):
    """Verification.

    Args:
        source: Sentences, one a line.
        reference: Their translations, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation.
        saved_model: The directory of an exported version.
        tflite: Exported .tflite files; needs keras-luong-edge.
        batch_size: Sentences that are translated at once, where they can be.
        show: Differing lines to print, of each export.
    """

    positional = ("run_dir", "source")

    source: Path
    reference: Path | None = None
    bleu_tokenize: str = "13a"
    saved_model: Path | None = None
    tflite: tuple[Path, ...] = ()
    batch_size: int = 32
    show: Count = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageOptions(Options):
    """Run.

    Args:
        run_dir: A run directory that has kept the weights of its epochs.
        out: A new run directory; by default RUN_DIR-average.
        last: Epochs to average, from the end; by default up to 5.
        weights: Files of weights to average instead.
    """

    exclusive = ("last", "weights")

    run_dir: Path
    out: Path | None = None
    last: int | None = None
    weights: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(CorpusOptions):
    """Run and what is tried.

    Args:
        run_dir: A run directory; the best becomes its search.
        beam_widths: Beam widths to try; by default the run's.
        length_penalties: Length penalties to try, GNMT's alpha.
        bleu_tokenize: sacrebleu's tokenisation; by default the run's.
    """

    run_dir: Path
    beam_widths: tuple[int, ...] = ()
    length_penalties: tuple[NotNegative, ...] = (0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6)
    bleu_tokenize: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortlistOptions(CorpusOptions):
    """Run and shortlist.

    Args:
        run_dir: A run directory.
        out: File to write; by default RUN_DIR/shortlist.npz.
        per_word: Target words that are kept of a source word.
        frequent: Words that every sentence may use.
        limit_examples: Pairs to learn from; by default all.
    """

    run_dir: Path
    out: Path | None = None
    per_word: int = 50
    frequent: Count = 400
    limit_examples: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions(CorpusOptions):
    """Runs and distillation.

    Args:
        run_dirs: Run directories with the same tokenizers, which translate together;
            the first one's search translates.
        out: A new directory, for text files.
        precision: What the models compute in.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[Path, ...]
    out: Path
    precision: Precision = "float32"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """Runs.

    Args:
        run_dirs: Run directories, one or more.
        flags: Settings to show; by default those that differ.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[Path, ...]
    flags: tuple[str, ...] = ()


class Command(NamedTuple):
    """A command.

    Attributes:
        options: The dataclass of its options.
        about: What it does, in one sentence.
        more: What else its help says.
    """

    options: type[Options]
    about: str
    more: str = ""


COMMANDS = {
    "train": Command(
        TrainOptions,
        "Trains a translator on a corpus.",
        "The same command again goes on where it stopped. The presets are "
        f"{', '.join(PRESETS)}; --preset NAME --help shows what NAME says.",
    ),
    "translate": Command(TranslateOptions, "Translates lines of text."),
    "evaluate": Command(EvaluateOptions, "Scores a run's translations by BLEU."),
    "score": Command(
        ScoreOptions, "Tells how probable given translations are, a line each."
    ),
    "export": Command(ExportOptions, "Writes a SavedModel or a .tflite file of a run."),
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
    "compare": Command(
        CompareOptions, "Prints a table of runs: settings that differ, and results."
    ),
}

#: The configurations that `train` has options for, beside `TrainOptions`.
TRAINING = {
    "Data": DataConfig,
    "Training": OptimizationConfig,
    "Evaluation": EvaluationConfig,
}
