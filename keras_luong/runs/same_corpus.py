"""A run is of one text, wherever that lies: what a run's record knows of its corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_luong.progress import telling
from keras_luong.runs.record import read_record
from keras_luong.text.corpus import Corpus, fingerprint
from keras_luong.text.held_out import HeldOut

#: The splits that shape a run; others are only evaluated on.
SPLITS = ("train", "validation")


@telling("Reading the corpus")
def describe_corpus(corpus: Corpus, limit: int | None) -> dict[str, dict[str, Any]]:
    """Returns what a record knows of a corpus.

    Args:
        corpus: The corpus.
        limit: Number of pairs to train on, the first ones; None for all.

    Returns:
        Split → the number of its pairs, and a digest of their text; with "train" the
        same of the "whole" text, where the validation split is held out of it.
    """
    limits = {"train": limit}
    known: dict[str, dict[str, Any]] = {
        split: fingerprint(corpus, split, limits.get(split))._asdict()
        for split in SPLITS
    }
    if isinstance(corpus, HeldOut):
        known["train"]["whole"] = fingerprint(corpus.whole, "train")._asdict()
    return known


def check_corpus(
    run_dir: str | Path,
    data: str,
    texts: Mapping[str, Mapping[str, Any]],
    corpus: Corpus,
) -> None:
    """Refuses to go on with another text than the run's.

    Of a run that was begun before there were digests, only the name is compared, and
    that is said; from then on its text is known.

    Args:
        run_dir: A run directory.
        data: The corpus's name or folder; the same text may have another one.
        texts: What `describe_corpus` returned.
        corpus: The corpus.

    Raises:
        ValueError: If the text is another one; it says what differs and what to do.
    """
    record = read_record(run_dir)
    before, known = record["settings"].get("data"), record.get("corpus")
    if known is None:
        if before is not None and not _same_place(before, data):
            raise ValueError(
                f"{run_dir} holds a run with other data, {before!r}. Give another run "
                f"directory, or the same data to go on with it. Received: {data!r}"
            )
        print(
            f"{run_dir} was begun before a run knew its text: whether that of {data!r} "
            "has changed since is not known. From here on it must not."
        )
        return
    for split, now in texts.items():
        if now["digest"] != known[split]["digest"]:
            of_before = f" of {before!r}" * (before != data)
            raise ValueError(
                f"{run_dir} holds a run on another text: its {split} split had "
                f"{known[split]['pairs']:,} pairs{of_before}, and that of {data!r} has "
                f"{now['pairs']:,}{_changes(corpus, split, known[split], now)}. Give "
                "another run directory to train on this text, where --init_from "
                f"{run_dir} starts from what this run has learned; or the former text "
                "to go on"
            )


def _changes(
    corpus: Corpus, split: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> str:
    """What has become of a text, besides the number of its pairs."""
    if ("whole" in before) != ("whole" in now) and split == "train":
        was, held = ("no longer", "was") if "whole" in before else ("now", "was not")
        return f": validation text {was} held out of it"
    if isinstance(corpus, HeldOut) and "whole" in before:
        # Of a text that has grown, other pairs are held out than before.
        corpus, before, now = corpus.whole, before["whole"], now["whole"]
    if before["pairs"] == now["pairs"]:
        return ", of which some differ"
    if before["pairs"] > now["pairs"]:
        return ""
    same = fingerprint(corpus, split, before["pairs"]).digest == before["digest"]
    return ": pairs were added at its end" if same else ""


def _same_place(one: str, other: str) -> bool:
    """Whether two names are of one corpus; a folder's can be written variously."""
    return one == other or Path(one).resolve() == Path(other).resolve()
