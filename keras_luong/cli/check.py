"""Says what is in a corpus and what is wrong with it; writes a clean one.

It needs the corpus and its languages, as in: check my/corpus --source fr --target en.
Nothing is trained, and the corpus stays as it is.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from keras_luong.cli.options import NewPlace, Options
from keras_luong.config.training import EMBEDDED
from keras_luong.text.corpus_files import find_corpus_files, unit_of

if TYPE_CHECKING:
    from keras_luong.text.corpus import Corpus
    from keras_luong.text.survey import SplitSurvey, Survey

HELP = """
Faults: empty (a side), mojibake (Ã¼ for ü), control (characters), markup (of HTML),
address (of the web), copy (the same sentence on both sides), length (a side much too
short), language (another one), misaligned (no translation), repeat (of another pair).
"""

_JUDGED = 30_000  # pairs whose lengths, languages and alignments are looked at


@dataclasses.dataclass(frozen=True)
class CheckOptions(Options):
    """Corpus and report.

    Args:
        data: A folder of text files, a file of both sides (.tsv, .csv, .jsonl,
            .parquet, .tmx, .xliff, .po), two files with a comma between them, a name in
            tensorflow-datasets, or "phrases".
        source: The language to translate from.
        target: The language to translate into.
        json: Whether the report is written as JSON.
        write: New folder for the corpus without the training pairs that have faults;
            what can be mended is mended.
        keep: Faults that --write keeps.
    """

    data: str
    _: KW_ONLY
    source: str | None = None
    target: str | None = None
    json: bool = False
    write: NewPlace | None = None
    keep: tuple[
        Literal[
            "empty",
            "mojibake",
            "control",
            "markup",
            "address",
            "copy",
            "length",
            "language",
            "misaligned",
            "repeat",
        ],
        ...,
    ] = ()

    def check_places(self) -> None:
        """Checks the paths, before TensorFlow is imported."""
        super().check_places()
        if self.keep and self.write is None:
            raise ValueError(f"keep is for --write. Received: keep={list(self.keep)}")
        if self.data != EMBEDDED:
            find_corpus_files(self.data, self.source, self.target)


def run(options: CheckOptions) -> None:
    """Reads the corpus once, and prints a report; once more to write a clean one."""
    from keras_luong.progress import telling
    from keras_luong.text.corpora import load_corpus
    from keras_luong.text.corpus import check_split
    from keras_luong.text.survey import survey

    # 1. The corpus itself: what a training would hold out is checked too.
    corpus: Any = load_corpus(options.data, options.source, options.target)
    corpus = getattr(corpus, "whole", corpus)
    if options.write is not None:
        check_split(corpus, "train")
    with telling("Reading the corpus"):
        found = survey(corpus, judged=dict.fromkeys(corpus.splits, _JUDGED))
    # 2. The report, and what is left of the corpus.
    if not options.json:
        print("\n".join(report(corpus, found)), flush=True)
    written = None
    if options.write is not None:
        train = found.splits["train"]
        written = write_clean(corpus, train, options.write, options.keep)
    if options.json:
        about = {**as_json(corpus, found), "written": written}
        print(json.dumps(about, ensure_ascii=False, indent=2))
    elif written:
        left, mended = written.pop("left"), written.pop("mended")
        of = f"of {train.fingerprint.pairs:,} training pairs"
        print(f"\n{options.write}: {left:,} {of}, {mended:,} of them mended")
        for name, number in written.items():
            print(f"  - {number:,} left out: {name}")


def report(corpus: Corpus, found: Survey) -> Iterator[str]:
    """Yields the lines of a report, of each split the worst first.

    Args:
        corpus: The corpus.
        found: Its survey, with faults of all splits.
    """
    from keras_luong.text.faults import fault_notes
    from keras_luong.text.language_guess import language_doubts
    from keras_luong.text.misalignment import FEWEST_PAIRS, FEWEST_WORDS
    from keras_luong.text.tags import token

    languages = corpus.source_language, corpus.target_language
    yield f"{corpus.name}, {' → '.join(languages)}"
    overlaps = found.overlaps()
    for split, seen in found.splits.items():
        pairs, sample = seen.fingerprint.pairs, seen.sample
        yield f"\n{split}: {pairs:,} pair{'s' * (pairs != 1)}"
        sides = {"source": sample.sources, "target": sample.targets}
        texts = {side: [x.encode() for x in some] for side, some in sides.items()}
        declared = dict(zip(sides, languages, strict=True))
        doubts = [f"{doubt}." for doubt in language_doubts(texts, declared)]
        if seen.tags:
            tags = [f"{token(tag)} {number:,}" for tag, number in seen.tags.items()]
            yield f"  tags: {', '.join(tags[:10])}{', ...' * (len(tags) > 10)}"
        if known := overlaps.get(split):
            doubts += [
                f"{number:,} of its {what} {'are' if number > 1 else 'is'} in the "
                f"{where} text too."
                for number, what, where in (
                    (known.pairs, "pairs", "training"),
                    (known.sources, "sources", "training"),
                    (known.validated, "pairs", "validation"),
                )
                if number
            ]
        unit = unit_of(corpus, split)
        notes = fault_notes(seen.faults, split, unit, all_of_them=True)
        found_here = doubts + [f"{note}." for note in notes] or ["nothing was found."]
        if not seen.faults["misaligned"].of:
            found_here.append(
                "whether pairs are misaligned, or lines have shifted, cannot be told: "
                f"it takes {FEWEST_PAIRS} different pairs with {FEWEST_WORDS} words or "
                "more on both sides."
            )
        yield from (f"  - {line}" for line in found_here)


def as_json(corpus: Corpus, found: Survey) -> dict[str, Any]:
    """Returns the report as a dict for JSON.

    Args:
        corpus: The corpus.
        found: Its survey, with faults of all splits.
    """
    overlaps = found.overlaps()
    return {
        "name": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        "splits": {
            split: {
                **seen.fingerprint._asdict(),
                "tags": dict(seen.tags),
                "overlap": overlaps[split]._asdict() if split in overlaps else None,
                "faults": {name: x._asdict() for name, x in seen.faults.items()},
            }
            for split, seen in found.splits.items()
        },
    }


def write_clean(
    corpus: Corpus, train: SplitSurvey, folder: Path, keep: tuple[str, ...] = ()
) -> dict[str, int]:
    """Writes a corpus without the training pairs that have faults.

    Args:
        corpus: The corpus; its other splits are written as they are.
        train: The survey of its training split.
        folder: A new folder.
        keep: Faults that are kept.

    Returns:
        How many pairs are `left` and `mended`, and were left out for each fault.

    Raises:
        ValueError: If none would be left.
    """
    from keras_luong.progress import Progress
    from keras_luong.runs.synthetic import write_corpus
    from keras_luong.text.cleaning import clean
    from keras_luong.text.corpus import read_blocks
    from keras_luong.text.faults import learn_faults
    from keras_luong.text.tags import remove_tag

    languages = corpus.source_language, corpus.target_language
    sources = [*map(remove_tag, train.sample.sources)]
    finder = learn_faults(sources, train.sample.targets, *languages)
    progress = Progress(train.fingerprint.pairs, "pair")
    counts = Counter[str]()

    def pairs_left() -> Iterator[tuple[str, str]]:
        for block in clean(read_blocks(corpus, "train"), finder, keep):
            counts.update(block.dropped)
            counts.update(left=len(block.rows), mended=block.mended)
            yield from zip(block.sources, block.targets, strict=True)
            progress.add(len(block.rows) + sum(block.dropped.values()))
        if not counts["left"]:
            raise ValueError(f"No pair would be left of {corpus.name}: {dict(counts)}")

    write_corpus(corpus, pairs_left(), folder)
    progress.close()
    found = {name: counts.pop(name) for name in ("left", "mended")}
    return {**found, **{name: n for name, n in counts.most_common() if n}}
