"""Export a trained run as a SavedModel for TensorFlow Serving: strings in and out.

Example:
    python export/to_saved_model.py runs/m30k models/m30k --version 1 --beam_width 5
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import tensorflow as tf

import keras_luong
from keras_luong.decoding import BeamSearch, GreedySearch, Shortlist


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        args: the arguments, by default the process's.

    Returns:
        What they say; a search option that is not given is None.
    """
    parser = argparse.ArgumentParser(
        description="Export a trained run as a SavedModel: strings in, strings out."
    )
    run = "default: as the run was validated with"
    parser.add_argument("run_dir", type=Path, help="what training wrote")
    parser.add_argument("out_dir", type=Path, help="gets the directory VERSION/")
    parser.add_argument("--version", type=int, default=1, help="default: 1")
    parser.add_argument("--overwrite", action="store_true", help="replace the version")
    parser.add_argument("--beam_width", type=int, help=f"1 is greedy; {run}")
    parser.add_argument("--length_penalty", type=float, help=f"GNMT's alpha; {run}")
    parser.add_argument("--max_length", type=int, help=f"in target tokens; {run}")
    parser.add_argument(
        "--shortlist", type=Path, help="what make_shortlist.py wrote: faster"
    )
    parser.add_argument(
        "--max_source_length", type=int, help="longer texts are cut; default: the run's"
    )
    parser.add_argument(
        "--check", default="A dog runs.", metavar="TEXT", help="default: %(default)r"
    )
    return parser.parse_args(args)


def with_options(
    translator: keras_luong.Translator, args: argparse.Namespace
) -> keras_luong.Translator:
    """Change what the command line changes of a translator.

    Args:
        translator: as the run has it.
        args: from `parse_args`.

    Returns:
        A translator of the same model.
    """
    search = translator.search
    options = {
        name: getattr(args, name)
        for name in ("beam_width", "length_penalty", "max_length")
        if getattr(args, name) is not None
    }
    if args.shortlist is not None:
        options["shortlist"] = Shortlist.load(args.shortlist)
    if isinstance(search, GreedySearch):
        search = BeamSearch(beam_width=1, max_length=search.max_length)
    if "beam_width" in options:
        options["n_best"] = min(search.n_best, options["beam_width"])
    return keras_luong.Translator(
        translator.model,
        translator.tokenizers,
        dataclasses.replace(search, **options),
        max_source_length=args.max_source_length or translator.max_source_length,
    )


def check(path: Path, translator: keras_luong.Translator, text: str) -> str:
    """Load the export again and compare it with its origin on one text.

    Args:
        path: the version's directory.
        translator: what was exported.
        text: what to translate.

    Returns:
        The translation.

    Raises:
        RuntimeError: if the two differ.
    """
    serve = tf.saved_model.load(path).signatures["serving_default"]
    exported = serve(text=tf.constant([text]))["translation"].numpy()[0].decode()
    expected = translator.translate([text])[0].text
    if exported != expected:
        raise RuntimeError(
            f"{path} translates {text!r} as {exported!r}, the run as {expected!r}."
        )
    return exported


def main() -> None:
    """Export, check, and say how to use the result."""
    args = parse_args()
    translator = with_options(keras_luong.load(args.run_dir), args)
    path = keras_luong.export_saved_model(
        translator, args.out_dir, version=args.version, overwrite=args.overwrite
    )
    translation = check(path, translator, args.check)
    print(f"{path}: {args.check!r} -> {translation!r}")
    print("\nTo use it, without keras_luong:")
    print("  import tensorflow as tf, tensorflow_text")
    print(f"  serve = tf.saved_model.load({str(path)!r}).signatures['serving_default']")
    print(f"  serve(text=tf.constant([{args.check!r}]))['translation']")


if __name__ == "__main__":
    main()
