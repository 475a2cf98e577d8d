"""Export a trained run as a `.tflite` file for edge devices: search and tokenizers too.

Example:
    python export/to_tflite.py runs/m30k m30k.tflite --quantize int8
    python -m keras_luong.edge m30k.tflite < in.txt > out.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras_luong
from keras_luong.cli.command_line import (
    add_check,
    add_options,
    origin,
    translator_of,
)
from keras_luong.export.edge import EdgeTranslator


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        args: the arguments, by default the process's.

    Returns:
        What they say; a search option that is not given is None.
    """
    parser = argparse.ArgumentParser(
        description="Export a trained run as a .tflite file for edge devices."
    )
    add_options(parser)
    add_check(parser)
    parser.add_argument("out_file", type=Path, help="replaced if it exists")
    parser.add_argument(
        "--quantize",
        choices=["float16", "int8"],
        help="half or a quarter of the size; default: float32",
    )
    parser.add_argument(
        "--source_length",
        type=int,
        help="source tokens, where every shape must be known (LiteRT.js); default: any",
    )
    return parser.parse_args(args)


def main(argv: list[str] | None = None) -> None:
    """Export, try it out, and say how to use the result.

    Args:
        argv: the arguments, by default the process's.
    """
    args = parse_args(argv)
    translator = translator_of(args, "float32")  # as the file computes
    path = keras_luong.export_tflite(
        translator,
        args.out_file,
        quantize=args.quantize,
        source_length=args.source_length,
        metadata=origin(args, "float32"),
    )
    exported = EdgeTranslator(path).translate([args.check])[0].text
    expected = translator.translate([args.check])[0].text
    if exported != expected:
        note = f"{path} translates {args.check!r} as {exported!r}, the run as"
        if args.quantize is None:
            raise RuntimeError(f"{note} {expected!r}.")
        print(f"Note: {note} {expected!r}.")
    print(f"{path}, {path.stat().st_size / 1e6:.1f} MB: {args.check!r} -> {exported!r}")
    print("\nTo use it, with ai-edge-litert, sentencepiece and NumPy alone:")
    print(f"  python -m keras_luong.edge {path} < in.txt > out.txt")


if __name__ == "__main__":
    main()
