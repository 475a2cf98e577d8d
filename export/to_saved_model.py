"""Export a trained run as a SavedModel for TensorFlow Serving: strings in and out.

Example:
    python export/to_saved_model.py runs/m30k models/m30k --version 1 --beam_width 5
    python export/to_saved_model.py runs/a models/ab --ensemble runs/b
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import tensorflow as tf

import keras_luong
from keras_luong.cli.command_line import (
    add_check,
    add_options,
    add_precision,
    origin,
    translator_of,
)


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
    add_options(parser)
    add_precision(parser)
    add_check(parser)
    parser.add_argument("out_dir", type=Path, help="gets the directory VERSION/")
    parser.add_argument("--version", type=int, default=1, help="default: 1")
    parser.add_argument("--overwrite", action="store_true", help="replace the version")
    parser.add_argument(
        "--max_batch_size",
        type=int,
        default=256,
        help="more texts in one request are refused; default: %(default)s",
    )
    parser.add_argument(
        "--warmup",
        nargs="*",
        metavar="TEXT",
        help="what a server translates before it takes requests; default: the --check "
        "text, if tensorflow-serving-api is installed",
    )
    return parser.parse_args(args)


def warmup_texts(args: argparse.Namespace) -> list[str]:
    """What the warm-up file is to hold.

    Args:
        args: from `parse_args`.

    Returns:
        Texts; none if the file cannot be written and was not asked for.
    """
    if args.warmup is not None:
        return args.warmup
    if importlib.util.find_spec("tensorflow_serving") is None:
        print("No warm-up requests: pip install tensorflow-serving-api to have them.")
        return []
    return [args.check]


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
    translator = translator_of(args, args.precision)
    path = keras_luong.export_saved_model(
        translator,
        args.out_dir,
        version=args.version,
        overwrite=args.overwrite,
        max_batch_size=args.max_batch_size,
        warmup=warmup_texts(args),
        metadata=origin(args, args.precision),
    )
    translation = check(path, translator, args.check)
    print(f"{path}: {args.check!r} -> {translation!r}")
    print("\nTo use it, without keras_luong:")
    print("  import tensorflow as tf, tensorflow_text")
    print(f"  serve = tf.saved_model.load({str(path)!r}).signatures['serving_default']")
    print(f"  serve(text=tf.constant([{args.check!r}]))['translation']")


if __name__ == "__main__":
    main()
