"""Chooses a run's beam width and length penalty by validation BLEU.

The best search becomes the run's: `keras_luong.load`, the export and every command use
it from then on. (A training that goes on sets it back to what its options say.)
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

from keras_luong.cli.options import CorpusOptions, RunDir
from keras_luong.config.fields import NotNegative


@dataclasses.dataclass(frozen=True)
class TuneOptions(CorpusOptions):
    """Run and values to try.

    Args:
        run_dir: A run directory; the best values become its search settings.
        beam_widths: Beam widths to try; by default the run's.
        length_penalties: Length penalties to try (GNMT's alpha).
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
    """

    run_dir: RunDir
    _: KW_ONLY
    beam_widths: tuple[int, ...] = ()
    length_penalties: tuple[NotNegative, ...] = (0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6)
    bleu_tokenize: str = "auto"


class Trial(NamedTuple):
    """A search, and the scores that it reached."""

    beam_width: int
    length_penalty: float
    bleu: float
    chrf: float


def run(options: TuneOptions) -> Trial:
    """Tries the run's search and every pair, keeps the best, and returns it."""
    from keras_luong.cli.translators import bleu_tokenization, corpus_of
    from keras_luong.evaluation.scores import bleu, chrf
    from keras_luong.files import write_json
    from keras_luong.runs.description import FEWEST_FOR_BLEU
    from keras_luong.runs.load_save import load
    from keras_luong.runs.run import RunDirectory, read_record
    from keras_luong.text.corpus import sentences

    record = read_record(options.run_dir)
    tokenize = bleu_tokenization(options.bleu_tokenize, options.run_dir)
    corpus = corpus_of(options, options.run_dir)
    sources, references = sentences(corpus, "validation")
    translator = load(options.run_dir)
    search: Any = translator.search
    before = search.beam_width, search.length_penalty
    widths = options.beam_widths or [search.beam_width]
    pairs = itertools.product(widths, options.length_penalties)
    print(f"beam  penalty   BLEU   chrF   ({len(sources):,} sentences, {tokenize})")
    trials = []
    for width, penalty in [before, *(pair for pair in pairs if pair != before)]:
        other = translator.with_search(
            beam_width=width, length_penalty=penalty, n_best=1
        )
        texts = [t.text for t in other.translate(sources, progress=True)]
        scores = bleu(texts, references, tokenize), chrf(texts, references)
        trials.append(Trial(width, penalty, *(score.score for score in scores)))
        figures = f"{trials[-1].bleu:6.2f} {trials[-1].chrf:6.2f}"
        print(f"{width:4} {_in_words(penalty):>8} {figures}", flush=True)
    print(*(score.signature for score in scores), sep="\n")
    if len(sources) < FEWEST_FOR_BLEU:
        few = f"{len(sources)} sentences"
        print(f"note: differences in BLEU of {few} are mostly chance")
    first, best = trials[0], max(trials, key=lambda x: (x.bleu, -x.beam_width))
    was = f"beam {first.beam_width}, length penalty {_in_words(first.length_penalty)}"
    if best.bleu <= first.bleu:
        print(f"{options.run_dir} goes on translating with {was}: none is better")
        return first
    record["search"].update(
        beam_width=best.beam_width,
        length_penalty=best.length_penalty,
        n_best=min(search.n_best, best.beam_width),
    )
    write_json(RunDirectory(options.run_dir).record, record)
    print(
        f"{options.run_dir} translates with beam {best.beam_width}, length penalty "
        f"{best.length_penalty:g} (before: {was}; {best.bleu - first.bleu:+.2g} BLEU)"
    )
    return best


def _in_words(penalty: Any) -> str:
    """A length penalty: GNMT's alpha, or one of another kind."""
    return f"{penalty:g}" if isinstance(penalty, (int, float)) else str(penalty)
