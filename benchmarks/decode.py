"""How fast a run translates: every runtime, batch and beam, taking turns.

    python benchmarks/decode.py runs/m30k multi30k_tok/test_2016_flickr.en
    python benchmarks/decode.py runs/m30k test.en --shortlist shortlist.npz
        --ctranslate2 CT2/bin/python --size 4,128,256,4,10000

The run is exported as a SavedModel and as LiteRT files, for each beam. Prints sentences
a second, medians of the rounds, and the memory that each process held at most while it
translated. CTranslate2 runs on a Transformer of random weights with the lengths of the
run's translations.
(`compare_search.py` compares with TensorFlow Addons on the same weights.)

Keras and SavedModel have as many threads as TensorFlow gives them and the others one,
where the name does not say otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from workers import Worker, memory, reset_peak

RUNTIMES = Path(__file__).parent / "runtimes.py"
CTRANSLATE2 = Path(__file__).parent / "peers" / "ct2_transformer.py"
SIZE = "layers, units, feed-forward units, heads and words of CTranslate2's Transformer"


def main() -> None:
    """Exports, measures, prints."""
    args = parse()
    lines = Path(args.sources).read_text().splitlines()[: args.sentences]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.models or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "in.txt").write_text("\n".join(lines) + "\n")
        print(f"{len(lines)} sentences of {args.sources}, {args.rounds} rounds\n")
        for beam_width in args.beams:
            models = export(args, folder, beam_width)
            workers = started(args, folder, models, beam_width)
            print(f"beam {beam_width}, sentences/s:")
            compare(args, workers, len(lines))
            if args.references:
                judge(args, workers, len(lines))
            print()
            for worker in workers.values():
                worker.process.terminate()


def export(args, folder: Path, beam_width: int) -> dict[str, str]:
    """Writes what is not there yet; the paths by runtime."""
    import keras_luong as kl

    paths = {
        "SavedModel": folder / f"beam{beam_width}" / "1",
        "LiteRT": folder / f"beam{beam_width}.tflite",
        "LiteRT int8": folder / f"beam{beam_width}.int8.tflite",
    }
    if args.shortlist:
        paths["SavedModel, shortlist"] = folder / f"short{beam_width}" / "1"
    run = kl.load(args.run, dtype=args.precision)
    for name, path in paths.items():
        if path.exists():
            continue
        words = kl.Shortlist.load(args.shortlist) if "shortlist" in name else None
        translator = run.with_search(
            beam_width=beam_width,
            max_length_ratio=args.max_length_ratio,
            shortlist=words,
        )
        if path.suffix:
            kl.export_tflite(translator, path, "int8" if "int8" in name else None)
        else:
            kl.export_saved_model(translator, path.parent)
    return {name: str(path) for name, path in paths.items()}


def started(args, folder: Path, models: dict, beam_width: int) -> dict[str, Worker]:
    """A process for each runtime."""
    models = {"Keras": args.run, **models}
    if (cores := os.cpu_count() or 1) > 1:
        models["SavedModel, 1 thread"] = models["SavedModel"]
        models[f"LiteRT, {cores} threads"] = models["LiteRT"]
    options = {
        "beam_width": beam_width,
        "precision": args.precision,
        "max_length_ratio": args.max_length_ratio,
    }
    workers = {}
    for name, path in models.items():
        threads = {"threads": cores if "threads" in name else 1}
        kind = name.split(",")[0].split()[0]
        given = json.dumps({**options, **threads})
        command = sys.executable, RUNTIMES, kind, path, folder / "in.txt", given
        one = {"TF_NUM_INTRAOP_THREADS": "1"} if name.endswith(", 1 thread") else {}
        workers[name] = Worker(*command, **one)
    if args.ctranslate2:
        question = {"what": "lengths", "sentences": args.sentences, "batch_size": 32}
        lengths = folder / "lengths.json"
        lengths.write_text(json.dumps(workers["Keras"].ask(question)["found"]))
        workers |= of_ctranslate2(args, lengths, beam_width)
    for worker in workers.values():
        reset_peak(worker.process.pid)  # what loading took does not count
    return workers


def of_ctranslate2(args, lengths: Path, beam_width: int) -> dict[str, Worker]:
    """A process for each type of number, and for one thread and one for each core."""
    workers = {}
    for kind in ("float32", "int8"):
        for threads in sorted({1, os.cpu_count() or 1}):
            name = f"CTranslate2 {kind}"
            if threads > 1:
                name += f", {threads} threads"
            given = args.size, lengths, kind, threads, beam_width
            workers[name] = Worker(args.ctranslate2, CTRANSLATE2, *given)
    return workers


def compare(args, workers: dict[str, Worker], sentences: int) -> None:
    """Lets the workers take turns; prints a table."""
    print(f"| batch | {' | '.join(workers)} |")
    print(f"|---:|{'---:|' * len(workers)}")
    peaks: dict[str, int] = {}
    for batch_size in args.batch_sizes:
        number = min(sentences, args.ones) if batch_size == 1 else sentences
        question = {"sentences": number, "batch_size": batch_size}
        seconds = defaultdict(list)
        for _ in range(args.rounds):
            for name, worker in workers.items():
                if batch_size > 1 and name.startswith("LiteRT"):
                    continue  # which takes sentences in turn
                answer = worker.ask({"what": "translate", **question})
                seconds[name].append(answer["seconds"])
                peaks[name] = memory("VmHWM", worker.process.pid)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        cells = [cell(number, medians.get(name)) for name in workers]
        print(f"| {batch_size} | {' | '.join(cells)} |", flush=True)
    print(f"| MB | {' | '.join(str(peaks.get(x, '')) for x in workers)} |")


def judge(args, workers: dict[str, Worker], sentences: int) -> None:
    """Prints the BLEU of every runtime that translates."""
    from keras_luong.evaluation.scores import bleu

    references = Path(args.references).read_text().splitlines()[:sentences]
    question = {"what": "translate", "sentences": sentences, "batch_size": 32}
    scores = {
        name: bleu(worker.ask(question)["found"], references, args.tokenize)
        for name, worker in workers.items()
        if not name.startswith("CTranslate2")  # whose weights are random
    }
    print(f"| BLEU | {' | '.join(f'{x.score:.2f}' for x in scores.values())} |")
    print(scores["Keras"].signature)


def cell(sentences: int, seconds: float | None) -> str:
    """Sentences a second, and where few are translated, milliseconds for one."""
    if seconds is None:
        return ""
    rate, each = sentences / seconds, 1000 * seconds / sentences
    return f"{rate:.0f} ({each:.1f} ms)" if each > 1 else f"{rate:.0f}"


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run", help="a run directory")
    flag("sources", help="a file of sentences")
    flag("--shortlist", help="of `keras-luong shortlist`, to measure with it too")
    flag("--ctranslate2", metavar="PYTHON", help="a Python that has CTranslate2")
    flag("--size", default="4,128,256,4,10000", help=SIZE)
    flag("--precision", default="float32", help="of all but the LiteRT files")
    flag("--max_length_ratio", type=float, help="of the search, see BeamSearch")
    flag("--beams", type=int, nargs="+", default=[1, 5])
    flag("--batch_sizes", type=int, nargs="+", default=[1, 32, 128])
    flag("--sentences", type=int, default=1000, help="of the file's beginning")
    flag("--ones", type=int, default=200, help="of them, one at a time")
    flag("--rounds", type=int, default=5)
    flag("--references", help="the sentences' translations, for BLEU")
    flag("--tokenize", default="13a", help="sacrebleu's; none for tokenised text")
    flag("--models", help="folder that keeps the exports; default: a temporary one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
