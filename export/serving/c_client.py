"""Builds translate.c against the installed TensorFlow, and asks it for translations.

python export/serving/c_client.py models/mine/1 < in.txt > out.txt
"""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

SOURCE = Path(__file__).with_name("translate.c")


def compiler() -> str | None:
    """The C compiler's path, or None if there is none."""
    return shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")


def build(directory: str | Path) -> Path:
    """Compile the program.

    Args:
        directory: gets it.

    Returns:
        The program's path.

    Raises:
        FileNotFoundError: if there is no compiler, or TensorFlow's wheel no C library.
        subprocess.CalledProcessError: if it cannot be compiled.
    """
    if compiler() is None:
        raise FileNotFoundError("There is no C compiler (gcc or cc, or $CC).")
    library = _package("tensorflow")
    if not (library / "libtensorflow_cc.so.2").exists():
        raise FileNotFoundError(f"{library} holds no libtensorflow_cc.so.2.")
    program = Path(directory) / "translate"
    link = [f"-l:libtensorflow_{x}.so.2" for x in ("cc", "framework")]
    where = [f"-I{library / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    command = [compiler(), "-O2", "-Wall", "-pthread", SOURCE, *where, *link]
    subprocess.run([*command, "-o", program], check=True)
    return program


def command(program: Path, version: str | Path, *options: str) -> list[str]:
    """The command line that translates with a SavedModel.

    Args:
        program: what `build` made.
        version: the version's directory.
        *options: such as "--threads", "4".

    Returns:
        For `subprocess`.
    """
    names = tensor_names(version)
    ops = _package("tensorflow_text") / "python/ops/_sentencepiece_tokenizer.so"
    given = [program, version, ops, names["text"], names["translation"]]
    return [*map(str, given), "--truncated", names["truncated"], *options]


def tensor_names(
    version: str | Path, signature: str = "serving_default"
) -> dict[str, str]:
    """What a signature's inputs and outputs are called in the graph.

    Args:
        version: the version's directory.
        signature: its name.

    Returns:
        Input or output → tensor, such as {"text": "serving_default_text:0"}.
    """
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    content = (Path(version) / "saved_model.pb").read_bytes()
    (graph,) = SavedModel.FromString(content).meta_graphs
    found = graph.signature_def[signature]
    return {
        name: x.name
        for side in (found.inputs, found.outputs)
        for name, x in side.items()
    }


def translate(
    program: Path, version: str | Path, texts: Iterable[bytes], threads: int = 1
) -> tuple[list[bytes], str]:
    """Translate texts of any bytes, one a request.

    Args:
        program: what `build` made.
        version: the version's directory.
        texts: the texts.
        threads: how many ask at once.

    Returns:
        The translations, and what the program says of the time that it took.

    Raises:
        RuntimeError: if a request failed, or the program itself.
    """
    question = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    done = subprocess.run(
        command(program, version, "--framed", "--threads", str(threads)),
        input=question,
        capture_output=True,
    )
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise RuntimeError(f"translate ended with {done.returncode}: {said[-2000:]}")
    answers, at = [], 0
    while at < len(done.stdout):
        (size,) = struct.unpack_from("<I", done.stdout, at)
        answers.append(done.stdout[at + 4 : at + 4 + size])
        at += 4 + size
    return answers, next(x for x in said.splitlines() if " requests, " in x)


def _package(name: str) -> Path:
    """Where a package lies, without importing it."""
    try:
        files = metadata.files(name.replace("_", "-"))
    except metadata.PackageNotFoundError:
        sys.exit(f"{name} is not installed where {sys.executable} looks")
    (init,) = (x for x in files if str(x) == f"{name}/__init__.py")
    return Path(init.locate()).parent


def main() -> None:
    """Translates standard input."""
    from lines import read_input  # of this folder
    from saved_models import find_version

    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        version = find_version(sys.argv[1])
        line = command(build(directory), version, "--threads", str(os.cpu_count()))
        with subprocess.Popen(line, stdin=subprocess.PIPE, bufsize=0) as process:
            # What the program does not read any more, it says why.
            with contextlib.suppress(BrokenPipeError), process.stdin as questions:
                questions.write(codecs.BOM_UTF8)  # it drops this one, and none of ours
                for text in read_input():
                    questions.write(text + b"\n")
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
