"""Trains the attentions of Luong et al. (2015) on one corpus and compares them.

The paper's Table 4 and Figures 5 and 6 (learning curves, BLEU by length), on any corpus
that `keras-luong train` takes; options that are not here are handed on to it. The same
command again goes on where it stopped, variant by variant. A finished variant is kept;
where the flags have changed, it goes on (more epochs) or is refused (other units). The
table's tokens/s are target tokens in the fastest epoch. Some commands:

    python benchmarks/compare_attention.py --out runs/compare --data my/corpus \
        --source en --target de --units 256 --num_layers 1 --tokenizer word \
        --vocab_size 8000 --optimizer adam --epochs 5
    python benchmarks/compare_attention.py --out runs/phrases --data phrases ...
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from curves import COLORS, MARKERS, bleu_by_length_figure, learning_curves_figure

from keras_luong import files
from keras_luong.checks import check_choice
from keras_luong.cli.command_line import parse
from keras_luong.config.presets import PRESETS
from keras_luong.evaluation.alignment import (
    aer,
    hard_alignment,
    merge_links,
    replace_unknowns,
)
from keras_luong.evaluation.scores import bleu, by_length
from keras_luong.runs.load_save import load
from keras_luong.runs.run import (
    check_config,
    check_settings,
    read_history,
    read_results,
)
from keras_luong.text import load_corpus
from keras_luong.text.corpus import Corpus, sentences

# Name → options of `keras-luong train`.
ATTENTIONS = {
    "global (location)": "--preset luong2015-global-location",
    "global (dot)": "--preset luong2015-global-dot",
    "global (general)": "--preset luong2015-global-general",
    "global (concat)": "--preset luong2015-global-concat",
    "local-m (general)": "--preset luong2015-local-m-general",
    "local-p (dot)": "--preset luong2015-local-p-dot",
    "local-p (general)": "--preset luong2015-local-p-general",
}
VARIANTS = {
    "none": "--preset luong2015-dropout",
    **{f"{name}, no feed": f"{f} --no-input_feeding" for name, f in ATTENTIONS.items()},
    **ATTENTIONS,
}
COLUMNS = "perplexity bleu bleu_unk aer parameters tokens_per_second".split()


def main(argv: list[str] | None = None) -> list[dict]:
    """Trains what is not trained yet; writes and returns the table."""
    args, rest = parse_words(argv)
    # What this process measures must leave the GPU's memory to those that train.
    tf.config.set_visible_devices([], "GPU")
    corpus = load_corpus(args.data, args.source, args.target)
    args.split = held_out(corpus, args.split)
    runs = {name: args.out / slug(name) for name in args.variants}
    shared = [*corpus_flags(args), *rest]
    flags = {
        name: [*VARIANTS.get(name, f"--preset {name}").split(), *shared]
        for name in runs
    }
    for name, run in runs.items():  # all of them before hours of training
        check(name, run, flags[name])
    rows = []
    for name, run in runs.items():
        train(name, run, flags[name])
        rows.append({"variant": name, **measured(run, corpus, args)})
        write(args.out, rows)
    print((args.out / "table.md").read_text())
    return rows


def held_out(corpus: Corpus, split: str | None) -> str:
    """The split to translate: the one asked for, or else the first test set."""
    splits = [name for name in corpus.splits if name != "train"]
    if split is None:
        split = next((name for name in splits if name.startswith("test")), None)
    return check_choice("--split", split, splits)


def check(name: str, run: Path, flags: list[str]) -> None:
    """Refuses a variant that was trained in another way, as training would."""
    if finished(run, flags):
        return
    _, (config, *_) = parse(["train", "--run_dir", str(run), *flags])
    try:
        model = config.model_config(*[config.vocab_size] * 2)
        free = config.free | vars(model).keys()
        if check_settings(run, config.settings(), free):
            check_config(run, model)
    except ValueError as error:
        raise ValueError(f"The variant {name!r} can't be trained: {error}") from error


def train(name: str, run: Path, flags: list[str]) -> None:
    """Trains one variant in a process of its own, which frees all that it held."""
    if finished(run, flags):
        return
    print(f"\n{name}: training in {run}", flush=True)
    for outdated in ("results.json", "comparison.json"):
        (run / outdated).unlink(missing_ok=True)
    run.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(flags_file(run), flags)
    command = [sys.executable, "-m", "keras_luong.cli", "train"]
    subprocess.run([*command, "--run_dir", str(run), *flags], check=True)


def finished(run: Path, flags: list[str]) -> bool:
    """Whether a variant was trained by these flags, or before flags were kept."""
    if not (run / "results.json").exists():
        return False
    kept = flags_file(run)
    return not kept.exists() or json.loads(kept.read_text(encoding="utf-8")) == flags


def flags_file(run: Path) -> Path:
    """Beside the run's directory, which must be empty when training begins."""
    return run.with_name(f"{run.name}.flags.json")


def measured(run: Path, corpus: Corpus, args) -> dict[str, Any]:
    """What is known of a trained variant; kept with it for the same split and BLEU."""
    path = run / "comparison.json"
    asked = {"split": args.split, "tokenize": args.bleu_tokenize}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if asked.items() <= known.items():
            return known
    known = asked | measure(run, corpus, **asked)
    files.write_json(path, known)
    return known


def measure(run: Path, corpus: Corpus, split: str, tokenize: str) -> dict[str, Any]:
    """Translates a split, and aligns it where the corpus knows the alignments.

    The tokens per second are those of the fastest epoch, which other work on the
    machine disturbed least.
    """
    translator = load(run)
    sources, references = sentences(corpus, split)
    translations = translator.translate(sources, progress=sys.stdout.isatty())
    texts = [t.text for t in translations]
    replaced = [
        with_unknowns_replaced(translation, source)
        for translation, source in zip(translations, sources, strict=True)
    ]
    results = read_results(run)[split]
    history = read_history(run)
    score = bleu(texts, references, tokenize)
    groups = by_length(texts, references, sources, tokenize)
    return {
        "perplexity": results["perplexity"],
        "bleu": score.score,
        "bleu_unk": bleu(replaced, references, tokenize).score,
        "signature": score.signature,
        "aer": alignment_error(translator, corpus, split, sources, references),
        "parameters": translator.model.count_params(),
        "tokens_per_second": max(e["target_tokens_per_second"] for e in history),
        "by_length": {str(group.end): score for group, score, _ in groups},
        "sentences": {str(group.end): len(group.rows) for group, *_ in groups},
        "learning_curve": [epoch["val_perplexity"] for epoch in history],
    }


def with_unknowns_replaced(translation, source: str) -> str:
    """The text with every "<unk>" replaced by the source word that it attends to."""
    words = [*source.split(), "</s>"]
    pieces = any("▁" in token for token in translation.tokens)
    whole = len(words) == len(translation.source_tokens) and not pieces
    if not whole or "<unk>" not in translation.tokens:
        return translation.text
    tokens = replace_unknowns(translation.tokens, words, translation.alignment)
    return " ".join(token for token in tokens if token != "</s>")


def alignment_error(translator, corpus, split, sources, references) -> float | None:
    """AER of the references' attention, if corpus and model have any alignments."""
    if not hasattr(corpus, "examples"):
        return None
    gold = [set(example.alignment) for example in corpus.examples(split)]
    scored = translator.score(sources, references)
    if not any(t.alignment.any() for t in scored):  # a model without attention
        return None
    found = []
    for t in scored:
        links = hard_alignment(t.alignment, source_end=True, target_end=True)
        found.append(merge_links(links, t.source_tokens, t.tokens))
    return aer(found, gold).aer


def write(out: Path, rows: list[dict]) -> None:
    """The table as Markdown and JSON, and the pictures."""
    files.write_json(out / "table.json", rows)
    files.write_text(out / "table.md", "\n".join(table(rows)) + "\n")
    curves = {row["variant"]: row["learning_curve"] for row in rows}
    learning_curves_figure(curves).savefig(out / "learning_curves.png", dpi=100)
    lengths = {row["variant"]: row["by_length"] for row in rows}
    sentences = rows[0].get("sentences")  # not known of variants of long ago
    by_source = bleu_by_length_figure(lengths, sentences)
    by_source.savefig(out / "bleu_by_length.png", dpi=100)
    scores = {row["variant"]: row["bleu"] for row in rows}
    bleu_figure(scores).savefig(out / "bleu.png", dpi=100)


def bleu_figure(scores: dict[str, float]) -> Any:
    """BLEU of each variant; those that differ in input feeding alone share a line."""
    from matplotlib.figure import Figure

    lines = list(dict.fromkeys(name.removesuffix(", no feed") for name in scores))
    figure = Figure(figsize=(7, 1.2 + 0.32 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for suffix, color, marker in zip(("", ", no feed"), COLORS, MARKERS, strict=False):
        known = [name for name in lines if name + suffix in scores]
        label = f"as named{suffix}"
        values = [scores[name + suffix] for name in known]
        axes.plot(values, known, marker, color=color, label=label, alpha=0.8)
    axes.set_yticks(range(len(lines)), lines)
    axes.invert_yaxis()
    axes.grid(axis="both", color="0.9")
    axes.set(xlabel="BLEU", title="BLEU by attention")
    axes.legend(loc="lower left")
    return figure


def table(rows: list[dict]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| attention | perplexity | BLEU | after unk | AER | parameters | tokens/s |"
    yield "|---|---|---|---|---|---|---|"
    formats = ("{:.2f}", "{:.2f}", "{:.2f}", "{:.1f}", "{:,}", "{:,.0f}")
    for row in rows:
        cells = (
            "–" if row[column] is None else form.format(row[column])
            for column, form in zip(COLUMNS, formats, strict=True)
        )
        yield f"| {row['variant']} | {' | '.join(cells)} |"


def slug(name: str) -> str:
    """A variant's name as a directory's."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).split())


def corpus_flags(args) -> list[str]:
    """The flags that both scripts need."""
    names = ("data", "source", "target", "bleu_tokenize")
    return [word for name in names for word in (f"--{name}", getattr(args, name))]


def parse_words(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """Reads the command line: ours, and what `keras-luong train` gets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # Recipes are trained in ways of their own, and so not to be compared.
    presets = [name for name, preset in PRESETS.items() if not preset.training]
    flag = parser.add_argument
    flag("--out", type=Path, required=True, help="where everything is written")
    flag("--data", default="wmt14_translate/de-en", help="tfds name, folder, phrases")
    flag("--source", default="en", help="source language")
    flag("--target", default="de", help="target language")
    flag("--bleu_tokenize", default="13a", help="none for text that is tokenised")
    flag("--split", help="what is translated; default: the first test set")
    flag(
        "--variants",
        nargs="+",
        choices=[*VARIANTS, *presets],
        default=list(VARIANTS),
        metavar="VARIANT",
        help=f"some of: {', '.join(VARIANTS)}; or presets: {', '.join(presets)}",
    )
    return parser.parse_known_args(argv)


if __name__ == "__main__":
    main()
