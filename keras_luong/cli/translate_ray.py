"""`keras-luong translate --engine ray`: the same lines, translated by many workers."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_luong.checks import check_file
from keras_luong.cli.lines import (
    LineTranslator,
    check_as_many,
    lines_of,
    tell_missing,
)
from keras_luong.cli.options import TranslateOptions
from keras_luong.cli.translators import (
    check_runs,
    load_translator,
    of_workers,
    parts_of,
    plan_of,
    tell_damaged,
    tell_languages,
    tell_tags,
)
from keras_luong.files import read_lines, read_raw_lines, saved_stream
from keras_luong.runs.ray_engine import Pool, check_ray, work_on
from keras_luong.runs.run import remove_half_written
from keras_luong.runs.shards import (
    ParquetTexts,
    Shards,
    Survey,
    shard_size,
    survey,
    unchanged,
)
from keras_luong.text.rows import is_parquet
from keras_luong.translation.batching import warn_of_cut

#: Files with a line for each line of the input.
_SIDES = ("constraints", "prefixes")


def run(options: TranslateOptions) -> None:
    """Translates what the command line says, in shards beside the output.

    Args:
        options: The options, with an input and an output.

    Raises:
        ImportError: Ray is missing.
        OSError, ValueError: What `keras-luong translate` refuses; or the parts beside
            the output are of other work, or the input changes meanwhile.
        RuntimeError: A worker failed.
    """
    source, output = options.input, options.output
    assert source is not None and output is not None  # see `TranslateOptions`
    pool = Pool(options.address, options.workers)
    check_ray(pool)
    for path in filter(None, (source, options.constraints, options.prefixes)):
        if not path.is_file() and not path.is_dir():
            raise ValueError(
                f"--engine ray reads a text twice, and needs a file. Received: {path}"
            )
    texts = _texts(options, source, output)
    tell_languages(options.run_dir, source=texts.lines())
    translator = load_translator(options).with_search(n_best=options.n_best)
    LineTranslator(options, translator)  # refuses before any work what cannot be
    tell_tags(translator, options.tag)
    facts, plan = _plan(options, texts)
    size = shard_size(facts.lines, options.window)
    shards = Shards(parts_of(output), facts.lines, size)
    with shards.begun(plan) as todo:
        remove_half_written(output)
        if not texts.is_written(output, todo):
            sides = {"in": unchanged(texts.lines(), plan["input"]["digest"])}
            for name in _SIDES:
                if (path := getattr(options, name)) is not None:
                    # Names a line that is not UTF-8.
                    lines = map(str.encode, read_lines(path))
                    sides[name] = unchanged(lines, plan[name]["digest"])
            shards.cut(todo, **sides)
            # The lines of these files come with the shard's.
            nothing: dict[str, Any] = dict.fromkeys(_SIDES)
            theirs = dataclasses.replace(of_workers(options), **nothing)
            make = functools.partial(_Work, theirs, plan["run"])
            work_on(shards, todo, make, pool)
            texts.write(shards, output, facts.digest)
        cut: Counter[str] = Counter()
        for told in shards.told():  # what the local engine says
            for number, *phrases in told["unmet"]:
                tell_missing(phrases, number)
            cut["constraints"] += len(told["unmet"])
            if told["truncated"]:
                cut["texts"] += told["truncated"]
        limits = {"texts": ("max_source_length", translator.max_source_length)}
        warn_of_cut(limits, cut, facts.lines)
        tell_damaged(facts.damaged)
        shards.remove()


class _Lines:
    """A file of text, or one side of another form, and its translation."""

    def __init__(self, path: Path, options: TranslateOptions):
        self.path, self.options = path, options

    def lines(self) -> Iterator[bytes]:
        return lines_of(self.path, self.options)

    def is_written(self, output: Path, todo: list[int]) -> bool:
        return False  # what is there may be of before, and is replaced

    def write(self, shards: Shards, output: Path, digest: str) -> None:
        with saved_stream(output) as file:
            for number in shards.numbers:
                with open(shards.path(number, "out"), "rb") as part:
                    shutil.copyfileobj(part, file)


_MUST_BE_NEW = "--output must be new for a folder: {} exists"


class _Rows:
    """Texts in Parquet, and the same with a translation of each."""

    def __init__(self, source: Path, options: TranslateOptions):
        self.rows = ParquetTexts(source, options.column)
        self.types = {"translation": "string"}
        if options.scores:
            self.types["score"] = "float64"
        if options.alignments:
            self.types["alignment"] = "string"
        self.rows.check_new_columns([*self.types])

    def lines(self) -> Iterator[bytes]:
        return self.rows.lines()

    def is_written(self, output: Path, todo: list[int]) -> bool:
        """Whether a process was killed when only the parts were left to remove."""
        if not self.rows.path.is_dir() or not output.exists():
            return False
        if todo or not self.rows.is_written(output, [*self.types]):
            raise FileExistsError(_MUST_BE_NEW.format(output))
        return True

    def write(self, shards: Shards, output: Path, digest: str) -> None:
        values = map(self._values, shards.results())
        self.rows.write(output, values, self.types, digest)

    def _values(self, line: bytes) -> tuple[Any, ...]:
        fields = line.decode().rsplit(" ||| ", len(self.types) - 1)
        read: dict[str, Any] = {"string": str, "float64": float}
        kinds = self.types.values()
        return tuple(
            read[kind](field) for kind, field in zip(kinds, fields, strict=True)
        )


def _texts(options: TranslateOptions, source: Path, output: Path) -> _Lines | _Rows:
    """The input, and its kind, which is the output's."""
    if not is_parquet(source):
        check_file("file", source)
        if output.suffix == ".parquet":
            raise ValueError(
                f"--output must be text, as {source} is. Received: {output}"
            )
        return _Lines(source, options)
    if options.n_best > 1:
        raise ValueError("--n_best is for text: a row of Parquet has one translation")
    if source.is_dir():
        if output.exists() and not parts_of(output).exists():
            raise FileExistsError(_MUST_BE_NEW.format(output))
        if output.resolve().is_relative_to(source.resolve()):
            raise ValueError(f"--output must not be within the input, {source}")
    elif output.suffix != ".parquet":
        raise ValueError(
            f"--output must be Parquet, as {source} is, with a name that ends in "
            f".parquet. Received: {output}"
        )
    return _Rows(source, options)


def _plan(
    options: TranslateOptions, texts: _Lines | _Rows
) -> tuple[Survey, dict[str, Any]]:
    """What the input is, and all that the output depends on."""
    facts = survey(texts.lines())
    plan = plan_of(options, [options.run_dir, *options.ensemble])
    plan["input"] = facts._asdict()
    for name in _SIDES:
        if (path := getattr(options, name)) is not None:
            required = survey(read_raw_lines(path))
            check_as_many(options.input, facts.lines, path, required.lines)
            plan[name] = required._asdict()
    return facts, plan


class _Work:
    """Translates shards in a worker: a `keras_luong.runs.ray_engine.Work`."""

    def __init__(self, options: TranslateOptions, digests: list[str]):
        translator = load_translator(options).with_search(n_best=options.n_best)
        check_runs([options.run_dir, *options.ensemble], digests)
        self.translate = LineTranslator(options, translator)

    def __call__(
        self, shards: Shards, number: int, told: dict[str, Any]
    ) -> Iterator[bytes]:
        first = number * shards.size
        sides = {
            name: map(bytes.decode, shards.read(number, name))
            for name in _SIDES
            if shards.path(number, name).exists()
        }
        lines = self.translate(shards.read(number, "in"), first=first, **sides)
        told.update(truncated=0, unmet=[])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # as the driver tells it
            for place, done in enumerate(lines, first + 1):
                best = done.hypotheses[0]
                told["truncated"] += best.truncated
                if best.unmet:
                    told["unmet"].append([place, *best.unmet])
                yield from done.output
