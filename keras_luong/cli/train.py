"""Trains a translator on a corpus.

It needs the corpus and its languages, as in: train my/corpus --source fr --target en.
The same command again goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cyclopts

from keras_luong.cli.command_line import signature, suggestion, with_dashes
from keras_luong.cli.options import Options, check_writable
from keras_luong.config.auto import CHOSEN, AutoTraining
from keras_luong.config.models import model_config_class
from keras_luong.config.presets import PAPERS, PRESETS, RECIPES
from keras_luong.config.training import (
    EMBEDDED,
    DataConfig,
    EvaluationConfig,
    GoingOnConfig,
    OptimizationConfig,
    TrainingConfig,
    defaults,
    fields_of_run,
)
from keras_luong.runs.run import read_record
from keras_luong.text.corpus_files import find_corpus_files

HELP = f"""
Presets: {", ".join(RECIPES)}. Presets of papers, in their sizes: {", ".join(PAPERS)}.
--preset NAME --help shows what NAME says; --help=all shows all options, also those that
only the reproduction of a paper needs."""

NEXT = """
Translate:  keras-luong translate {run_dir}{tag} < in.txt > out.txt
Export:     keras-luong export {run_dir} {models}
Look:       tensorboard --logdir {logs}"""

_BESIDE = "such text lies beside that to learn from"
_VALIDATION = ("val", "valid", "validation", "dev")
_DEVICES = (
    "all GPUs of this machine are used; CUDA_VISIBLE_DEVICES=0,1 before the command "
    "says which, and --strategy one is one of them"
)


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

    ELSEWHERE: ClassVar[dict[str, str]] = {
        **dict.fromkeys(_VALIDATION, f"{_BESIDE}, as val.fr and val.en"),
        **dict.fromkeys(("gpu", "gpus", "num_gpus", "device", "devices"), _DEVICES),
        "test": f"{_BESIDE}, as test.fr and test.en",
        "batch_size": "--batch_tokens 4096 is the size of a batch, in tokens",
        "lr": "--learning_rate 0.001 is the learning rate",
    }

    run_dir: Path | None = None
    preset: str = "auto"
    distill: bool = False


#: The other dataclasses whose fields are options.
TRAINING = {
    "Data": DataConfig,
    "Training": OptimizationConfig,
    "Going on from another run": GoingOnConfig,
    "Evaluation": EvaluationConfig,
}

#: Options that only --help=all shows, of `TRAINING` and of a `Seq2SeqConfig`.
RARE = frozenset(
    """
    character_coverage source_normalization target_normalization subword_sampling
    constant_epochs warmup_steps patience beta_2 weight_decay clip_norm
    gradient_accumulation_steps ema_momentum save_steps old_tag eval_sentences
    bleu_tokenize monitor embedding_dim encoder_units bridge window gaussian renormalize
    coverage coverage_loss hard_attention sigmoid_noise score_bias_init monotonic_mode
    attention_units max_source_length attentional_activation attentional_bias
    use_attentional_vector output_attention output_bias copy reverse_source residual
    recurrent_dropout memory_dropout attention_dropout output_dropout init_scale
    """.split()
)


class Training(NamedTuple):
    """A command line of `keras-luong train`, parsed: what to train, and where."""

    config: TrainingConfig | AutoTraining
    run_dir: Path
    distill: bool = False

    def check_places(self) -> None:
        """Checks the paths, before TensorFlow is imported."""
        if self.config.data != EMBEDDED:
            find_corpus_files(self.config.data, self.config.source, self.config.target)
        if self.run_dir.is_file():
            raise NotADirectoryError(
                f"--run_dir must be a directory. Received a file: {self.run_dir}"
            )
        check_writable(self.run_dir)


def run(options: Training) -> None:
    """Trains, and says what to do next."""
    from keras_luong.runs.synthetic import train_distilled
    from keras_luong.runs.train import train

    (train_distilled if options.distill else train)(options.config, options.run_dir)
    print(next_steps(options.run_dir))


def next_steps(run_dir: Path) -> str:
    """Commands that can be pasted as they are."""
    tag = read_record(run_dir)["settings"].get("tag")
    paths = {
        "run_dir": run_dir,
        "models": Path("models", run_dir.resolve().name),
        "logs": run_dir / "logs",
    }
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    return NEXT.format(**quoted, tag=f" --tag {tag}" if tag else "")


def signature_of(argv: Sequence[str]) -> inspect.Signature:
    """The options that there are: those of a preset's model among them.

    Args:
        argv: The words after "train", of which one may name the preset.

    Raises:
        CycloptsError: There is no such preset, or no such run to start from.
    """
    preset = _preset_of(argv)
    model = {"Model (what is not given is the preset's)": model_config_class(preset)}
    said = {**defaults(preset), **PRESETS[preset].fields}
    shown = {}
    if preset == "auto":
        said["data"] = ""  # without one it says what it needs
        shown = {
            **dict.fromkeys(CHOSEN, "by the size of the corpus"),
            **dict.fromkeys(("source", "target"), "found in the corpus"),
        }
    hidden = () if "--help=all" in argv else RARE
    made = signature({"Run": TrainOptions, **TRAINING, **model}, said, shown, hidden)
    sizes = ("source_vocab_size", "target_vocab_size")  # of the tokenizers
    rest = {name: x for name, x in made.parameters.items() if name not in sizes}
    by_place_too = inspect.Parameter.POSITIONAL_OR_KEYWORD
    data = rest.pop("data").replace(kind=by_place_too)
    return made.replace(parameters=[data, *rest.values()])


def _preset_of(argv: Sequence[str]) -> str:
    """The preset that the command line names, or that of the run to start from."""
    preset = _value_of("--preset", argv)
    if preset is None and (start := _value_of("--init_from", argv)) is not None:
        try:
            return str(fields_of_run(start)["preset"])
        except (OSError, ValueError) as error:
            message = with_dashes(str(error), argv)
            raise cyclopts.CycloptsError(msg=message) from error
    preset = TrainOptions.preset if preset is None else preset
    if preset not in PRESETS:
        hint = suggestion(preset, PRESETS)
        message = f"There is no preset {preset or '(none given)'}. {hint}"
        raise cyclopts.CycloptsError(msg=message)
    return preset


def _value_of(option: str, argv: Sequence[str]) -> str | None:
    """What the command line says of an option, the last time; None if nothing."""
    value, words = None, iter(argv)
    for word in words:
        if word == option or word.startswith(f"{option}="):
            value = word.partition("=")[2] or next(words, "")
    return value


def training(**given: Any) -> Training:
    """Makes a `Training` of the options on the command line."""
    distill = given.pop("distill", False)
    run_dir = given.pop("run_dir", None) or default_run_dir(given)
    if (start := given.pop("init_from", None)) is not None:
        if distill:
            raise ValueError(
                "--distill trains models from nothing, and --init_from starts from a "
                f"run: give one of them. Received: both, --init_from {start}"
            )
        return Training(TrainingConfig.from_run(start, **given), run_dir)
    if (preset := given.pop("preset", TrainOptions.preset)) != "auto":
        config = TrainingConfig.from_preset(preset, **given)
        return Training(config, run_dir, distill)
    corpus = given.pop("data", ""), given.pop("source", None), given.pop("target", None)
    chosen = AutoTraining(*corpus, given=given)
    if not chosen.data:
        raise ValueError(
            "DATA is missing: a folder with the text, as in keras-luong train "
            "my/corpus --source fr --target en"
        )
    return Training(chosen, run_dir, distill)


def default_run_dir(given: dict[str, Any]) -> Path:
    """Returns the default run directory: runs/CORPUS-SOURCE-TARGET.

    One that starts from another run, on the same corpus, goes to runs/RUN-more.

    Args:
        given: The options of `train` that were given.
    """
    data, start = given.get("data"), given.get("init_from")
    name = Path(data or start or given.get("preset", "auto")).resolve().name
    name += "-more" if start and not data else ""
    parts = name, given.get("source"), given.get("target")
    return Path("runs", re.sub(r"\s+", "_", "-".join(filter(None, parts))))
