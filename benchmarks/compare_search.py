"""Beam search against TensorFlow Addons', on the same weights, taking turns.

On a trained model and a whole test set, batches sorted by length and in the file's
order; at batch 1; and on random weights where every sentence runs to the end. Two
workers, a process each, answer in turn; what is printed are ratios of medians, and the
memory that a first batch takes beyond the loaded and traced model.

    python benchmarks/compare_search.py --peer PEER/bin/python --run_dir runs/m30k
        --sources test.en
    python benchmarks/compare_search.py --peer PEER/bin/python
        --shape 32,30,30,8000,512,512,2,5

The peer's environment: tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0
typing_extensions==4.5.0. To see in seconds that the benchmark itself works, ours alone:

    python benchmarks/compare_search.py --shape 2,5,4,40,8,8,1,2 --rounds 1
    python benchmarks/compare_search.py --run_dir RUN --sources FILE --rounds 1
        --max_length 5
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from workers import Worker, memory, reset_peak

PEER = Path(__file__).parent / "peers" / "tfa_beam.py"
EOS = 3
NEVER_GENERATED = {0, 2}  # padding and begin, which Addons generates like words


def main() -> None:
    """Measures and prints."""
    args = parse()
    if args.worker:
        work(Path(args.worker), args.shortlist)
        return
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        task = prepare(args, directory)
        ours = (sys.executable, __file__, "--worker", directory)
        workers = {"ours": Worker(*ours)}
        if args.shortlist:
            workers["short"] = Worker(*ours, "--shortlist", args.shortlist)
        if args.peer:
            workers["tfa"] = Worker(args.peer, PEER, directory)
        print(f"{task}\n")
        for name, worker in workers.items():
            before = reset_peak(worker.process.pid)
            worker.ask("longest")
            peak = memory("VmHWM", worker.process.pid)
            print(
                f"{name:5} a batch takes {peak - before} MB; the process holds "
                f"{before} MB before it, {peak} MB at its peak"
            )
        print()
        print(f"batches of {args.batch_size}, sorted by length:")
        ordered = compare(workers, "sorted", args.rounds, task["sentences"])
        if args.run_dir:
            if args.peer:
                explain(args, directory, ordered)
            if args.shortlist:
                same = np.mean(same_ids(ordered["ours"], ordered["short"]))
                print(f"with the shortlist {same:.1%} of the translations are the same")
            print(f"batches of {args.batch_size}, in the file's order:")
            found = compare(workers, "file", args.rounds, task["sentences"])
            if args.peer:
                ratio = found["tfa"]["median"] / ordered["ours"]["median"]
                print(f"ours sorted is {ratio:.2f} times as fast as tfa in file order")
            print("\nbatches of 1:")
            compare(workers, "one", args.rounds, task["singles"])


def compare(workers: dict, question: str, rounds: int, sentences: int) -> dict:
    """Lets the workers take turns; prints medians and their ratio."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    last = {}
    for _ in range(rounds):
        for name, worker in workers.items():
            last[name] = worker.ask(question)
            seconds[name].append(last[name]["seconds"])
    for name, times in seconds.items():
        median = last[name]["median"] = statistics.median(times)
        print(
            f"{name:5} median {median:7.2f} s ({min(times):.2f} to {max(times):.2f}), "
            f"{sentences / median:7.1f} sentences/s, "
            f"{1000 * median / sentences:7.1f} ms a sentence"
        )
    for name in workers:
        if "tfa" in workers and name != "tfa":
            ratio = last["tfa"]["median"] / last[name]["median"]
            print(f"{name} is {ratio:.2f} times as fast as tfa")
    print()
    return last


def prepare(args, directory: Path) -> dict:
    """Writes what both workers read: task, weights, batches."""
    if args.run_dir:
        model, sentences = trained(args)
    else:
        model, sentences = random(args)
    config = model.config
    task = {
        "config": dict(vars(config)),
        "units": config.units,
        "vocabulary": config.target_vocab_size,
        "encoder_units": config.encoder_units,
        "num_layers": config.num_layers,
        "bidirectional": config.bidirectional,
        "beam_width": args.beam_width,
        "length_penalty": args.length_penalty,
        "max_length": args.max_length,
        "ends": bool(args.run_dir),
        "sentences": len(sentences),
        "source_tokens": sum(map(len, sentences)),
        "embedding_dim": config.embedding_dim,
        "singles": min(50, len(sentences)),
    }
    (directory / "task.json").write_text(json.dumps(task))
    np.savez(directory / "weights.npz", **weights_of(model))
    model.save_weights(directory / "model.weights.h5")
    size = args.batch_size
    for name, rows in (("sorted", sorted(sentences, key=len)), ("file", sentences)):
        groups = [rows[i : i + size] for i in range(0, len(rows), size)]
        save(directory / f"{name}.npz", groups)
        if name == "sorted":
            save(directory / "longest.npz", groups[-1:])
    save(directory / "one.npz", [[x] for x in sentences[: task["singles"]]])
    del task["config"]
    return task


def save(path: Path, groups: list[list]) -> None:
    """Batches padded with 0, in order."""
    arrays = {}
    for i, rows in enumerate(groups):
        array = np.zeros([len(rows), max(map(len, rows))], "int32")
        for row, ids in zip(array, rows, strict=True):
            row[: len(ids)] = ids
        arrays[f"{i:06d}"] = array
    np.savez(path, **arrays)


def load(path: Path) -> list[np.ndarray]:
    """What `save` wrote."""
    return [x for _, x in sorted(np.load(path).items())]


def trained(args):
    """A run's model, and the ids of the sentences to translate."""
    import keras_luong as kl
    from keras_luong.files import read_lines
    from keras_luong.text.batches import ended_rows

    translator = kl.load(args.run_dir, dtype="float32")
    lines = read_lines(args.sources)
    ids = translator.source_tokenizer.encode([line for line in lines if line.strip()])
    rows, _ = ended_rows(ids, translator.max_source_length)
    model = untied(translator.model) if args.untied else translator.model
    return model, rows.to_list()


def untied(model):
    """The same model with copies of the weights that it has in several places."""
    import keras_luong as kl

    config = dataclasses.replace(model.config, tie_embeddings=None)
    copy = kl.Seq2Seq(config)
    copy.source_embedding.set_weights(model.source_embedding.get_weights())
    copy.target_embedding.set_weights(model.target_embedding.get_weights())
    copy.encoder.set_weights(model.encoder.get_weights())
    copy.decoder.set_weights(model.decoder.get_weights())
    embeddings = model.target_embedding.embeddings.numpy()
    copy.output_layer.kernel.assign(embeddings.T)
    return copy


def random(args):
    """A model of random weights, and sentences of random ids."""
    import keras_luong as kl

    B, S, T, V, E, H, L, K = map(int, args.shape.split(","))
    args.batch_size, args.max_length, args.beam_width = B, T, K
    config = kl.Seq2SeqConfig(
        V, V, units=H, embedding_dim=E, num_layers=L, bidirectional=False
    )
    ids = np.random.default_rng(0).integers(4, V, (B, S))
    return kl.Seq2Seq(config), ids.tolist()


def weights_of(model) -> dict[str, np.ndarray]:
    """The model's weights by names that the peer knows."""
    config, cell = model.config, model.decoder.cell
    if config.score_mode != "general" or not config.input_feeding:
        raise ValueError("The comparison is of general scores and input feeding.")
    layers = {f"decoder_{i}": layer for i, layer in enumerate(cell.recurrent.layers)}
    layers |= {f"forward_{i}": x for i, x in enumerate(model.encoder.forward_layers)}
    layers |= {f"backward_{i}": x for i, x in enumerate(model.encoder.backward_layers)}
    weights = {}
    for name, layer in layers.items():
        parts = ("kernel", "recurrent_kernel", "bias")
        names = ("kernel", "recurrent", "bias")
        for part, short in zip(parts, names, strict=True):
            weights[f"{name}_{short}"] = getattr(layer.cell, part).numpy()
    # In Addons the previous h̃ is a part of the input, in the same matrix.
    weights["decoder_0_kernel"] = np.concatenate(
        [weights["decoder_0_kernel"], cell.feeding_kernel.numpy()]
    )
    target = model.target_embedding.embeddings.numpy()
    output = target.T if model.output_layer is None else model.output_layer.kernel
    return weights | {
        "attention_kernel": cell.attention.score.kernel.numpy(),
        "vector_kernel": cell.attentional_vector.kernel.numpy(),
        "source_embedding": model.source_embedding.embeddings.numpy(),
        "target_embedding": target,
        "output": np.asarray(output),
    }


def work(directory: Path, shortlist: str | None) -> None:
    """Our worker: answers until standard input ends."""
    import tensorflow as tf

    import keras_luong as kl

    task = json.loads((directory / "task.json").read_text())
    model = kl.Seq2Seq(kl.Seq2SeqConfig(**task["config"]))
    model.load_weights(directory / "model.weights.h5")
    search = kl.BeamSearch(
        task["beam_width"],
        max_length=task["max_length"],
        length_penalty=task["length_penalty"],
        shortlist=kl.Shortlist.load(shortlist) if shortlist else None,
        # Where nothing is to end, as with the peer's end id outside the vocabulary.
        min_length=0 if task["ends"] else task["max_length"] + 1,
    )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def translate(ids):
        return search(model, ids).ids[:, 0]

    translate(tf.constant([[EOS]]))
    print(json.dumps({"ready": True}), flush=True)
    for name in map(json.loads, sys.stdin):
        batches = [tf.constant(x) for x in load(directory / f"{name}.npz")]
        start = time.perf_counter()
        found = [translate(x).numpy() for x in batches]
        answer = {"seconds": time.perf_counter() - start}
        answer["ids"] = [row.tolist() for ids in found for row in ids]
        print(json.dumps(answer), flush=True)


def explain(args, directory: Path, last: dict) -> None:
    """Says how many best hypotheses agree, and which are better where they do not."""
    import tensorflow as tf

    import keras_luong as kl

    model = kl.load(args.run_dir, dtype="float32").model
    sources = [row for x in load(directory / "sorted.npz") for row in x]
    signature = [tf.TensorSpec([None, None], tf.int32)] * 2

    @tf.function(input_signature=signature)
    def force(source, target):
        return kl.decoding.force(model, source, target).log_probs

    penalty = kl.decoding.penalties.GNMTLengthPenalty(args.length_penalty)
    scores = {}
    for name in ("ours", "tfa"):
        answer = last[name]
        targets = [ended(ids) for ids in answer["ids"]]
        scores[name] = []
        for i in range(0, len(targets), args.batch_size):
            ids = tf.ragged.constant(targets[i : i + args.batch_size], tf.int32)
            source = tf.ragged.stack(sources[i : i + args.batch_size]).to_tensor()
            found = force(source, ids.to_tensor())
            lengths = tf.cast(ids.row_lengths(), tf.int32)
            scores[name] += penalty.score(found[:, 0], lengths).numpy().tolist()
    same = np.array(same_ids(last["ours"], last["tfa"]))
    gain = np.array(scores["ours"]) - np.array(scores["tfa"])
    print(
        f"best hypotheses: {same.sum()} of {len(same)} the same; of the others ours "
        f"scores higher in {(gain[~same] > 1e-4).sum()}, lower in "
        f"{(gain[~same] < -1e-4).sum()}; mean score {np.mean(scores['ours']):.4f} "
        f"against {np.mean(scores['tfa']):.4f}"
    )
    odd = sum(bool(NEVER_GENERATED & {*ended(ids)}) for ids in last["tfa"]["ids"])
    print(f"tfa's hold padding or the begin id in {odd} sentences\n")


def same_ids(one: dict, other: dict) -> list[bool]:
    """Which translations of two workers are the same."""
    pairs = zip(map(ended, one["ids"]), map(ended, other["ids"]), strict=True)
    return [x == y for x, y in pairs]


def ended(ids: list[int]) -> list[int]:
    """Up to the end token."""
    ids = [token for token in ids if token >= 0]
    return ids[: ids.index(EOS) + 1] if EOS in ids else [t for t in ids if t]


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("--peer", help="the peer's Python; without it only ours is measured")
    flag("--run_dir", help="a trained run: general score, input feeding")
    flag("--sources", help="file to translate")
    flag("--untied", action="store_true", help="with copies of weights that are tied")
    flag("--shortlist", help="of `keras-luong shortlist`, to measure with it too")
    flag("--shape", default="32,30,30,8000,512,512,2,5", help="B,S,T,V,E,H,L,K")
    flag("--beam_width", type=int, default=5)
    flag("--batch_size", type=int, default=32)
    flag("--max_length", type=int, default=60)
    flag("--length_penalty", type=float, default=0.0)
    flag("--rounds", type=int, default=5)
    flag("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
