"""Shards on Ray: a pool of workers on this machine, or on those of a cluster.

Ray Data hands the numbers of the shards to workers, each of which loads what it needs
once, reads its shards from a folder that all can see, and writes what it makes of them
there. A worker that dies is started again and gets its shard again, which Ray does.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from keras_luong.progress import Progress, quietly
from keras_luong.runs.shards import Shards
from keras_luong.signals import handlers_kept

#: What a worker is: it yields the lines that it makes of a shard's, and fills in what
#: is to be told of them.
Work = Callable[[Shards, int, dict[str, Any]], Iterator[bytes]]

_STORE = 100 * 2**20  # bytes: only numbers of shards go through Ray's store
_PATIENCE = 10  # seconds, to reach a cluster


@dataclasses.dataclass(frozen=True)
class Pool:
    """Where the workers are, and how many.

    Args:
        address: Address of a Ray cluster, as `ray.init` takes it; None for this
            machine.
        workers: Number of workers; by default one for each processor.

    Example:
        >>> from keras_luong.runs.ray_engine import Pool
        >>> Pool(workers=2)
        Pool(address=None, workers=2)
    """

    address: str | None = None
    workers: int | None = None


def check_ray(pool: Pool) -> None:
    """Refuses, before any work, what cannot be had.

    Args:
        pool: Where the workers are to be.

    Raises:
        ImportError: If Ray Data is missing; it says what to install.
        OSError: If there is no cluster at the pool's address.
    """
    _before_ray()
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "--engine ray needs Ray Data, which is not installed. Install the extra "
            "that has it: pip install 'keras_luong[ray]'"
        ) from error
    if pool.address is not None:
        _check_address(pool.address)


def _check_address(address: str) -> None:
    """Raises OSError if nobody is there: Ray tries for minutes, and then aborts."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # as in "[::1]:6379"
    if not colon or not port.isdigit():  # such as "auto", which Ray knows
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise OSError(
            f"--address must be that of a running Ray cluster. Received: {address} "
            f"({error})"
        ) from error


def work_on(
    shards: Shards, todo: Iterable[int], make: Callable[[], Work], pool: Pool
) -> None:
    """Works on shards until all are done.

    Args:
        shards: The shards, cut, in a folder that all workers can see.
        todo: The numbers of those that are not done.
        make: Makes a worker; it is called once in each process.
        pool: Where the workers are.

    Raises:
        RuntimeError: If a worker fails, in which case the message is the worker's, or
            Ray does. What is done stays done.
    """
    todo = list(todo)
    progress = Progress(shards.lines, "line")
    progress.add(shards.lines - sum(map(shards.length, todo)))
    if not todo:
        progress.close()
        return
    check_ray(pool)
    import ray
    from ray.exceptions import RayError

    ours = not ray.is_initialized()
    if ours:
        _start(pool)
    try:
        workers = pool.workers or int(ray.cluster_resources().get("CPU", 1))
        for number, error in _mapped(shards, todo, make, min(workers, len(todo))):
            if error:
                raise RuntimeError(f"A worker failed. {error}")
            progress.add(shards.length(number))
    except RayError as error:  # a cluster without room, or one that has ended
        raise RuntimeError(f"Ray failed: {error}") from error
    finally:
        if ours:
            ray.shutdown()
    progress.close()


def _start(pool: Pool) -> None:
    """Starts Ray on this machine, or joins a cluster."""
    import ray

    here: dict[str, Any] = {}
    if pool.address is None:
        processors = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):  # those that this process may use
            processors = len(os.sched_getaffinity(0))
        here = {"num_cpus": pool.workers or processors, "include_dashboard": False}
        here["object_store_memory"] = _STORE
    umask = os.umask(0o077)  # Ray writes an access token
    try:
        with quietly(), handlers_kept():
            ray.init(
                address=pool.address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": _environment()},
                **here,
            )
    finally:
        os.umask(umask)


def _environment() -> dict[str, str]:
    """Of a worker: one thread, as there is a worker for each processor; our code."""
    source = Path(__file__).parents[2]
    paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = ["TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"]
    # Workers compute as this process does: last digits would be others.
    same = {"TF_ENABLE_ONEDNN_OPTS"} & os.environ.keys()
    return {
        **{name: os.environ[name] for name in same},
        **dict.fromkeys(threads, "1"),
        "CUDA_VISIBLE_DEVICES": "-1",  # all workers of a machine would share its GPU
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"),
    }


def _before_ray() -> None:
    """Sets the environment variables that Ray reads while it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "ERROR")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it tells of what is tried
    # Of each worker that died, which is started again, there would be a paragraph on
    # standard output.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")


def _mapped(
    shards: Shards, todo: list[int], make: Callable[[], Work], workers: int
) -> Iterator[tuple[int, str]]:
    """Yields each shard once its worker is through with it, and an error or ""."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # A block of one row each: a block that a dead worker had is worked on anew.
    rows = ray.data.from_items(
        [{"shard": number} for number in todo], override_num_blocks=len(todo)
    )
    folder = shards.folder.resolve()
    absolute = Shards(folder, shards.lines, shards.size, shards.id)
    results = rows.map_batches(
        _Worker,
        fn_constructor_args=(make, absolute),
        batch_size=1,
        # No queue at a worker while another one has nothing to do.
        compute=ray.data.ActorPoolStrategy(
            size=workers, max_tasks_in_flight_per_actor=1
        ),
        num_cpus=1,
    )
    for batch in results.iter_batches(batch_size=None, prefetch_batches=0):
        for number, error in zip(batch["shard"], batch["error"], strict=True):
            yield int(number), error


class _Worker:
    """One process of the pool."""

    def __init__(self, make: Callable[[], Work], shards: Shards):
        self.make, self.shards = make, shards
        self.work: Work | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Works on the shards of a batch; an error is told, and not tried again."""
        errors = []
        for number in batch["shard"]:
            try:
                self._do(int(number))
                errors.append("")
            except Exception as error:  # noqa: BLE001 (people must read it, whatever it is)
                errors.append(f"{type(error).__name__}: {error}")
        return {"shard": batch["shard"], "error": errors}

    def _do(self, number: int) -> None:
        if not self.shards.folder.is_dir():
            raise FileNotFoundError(
                f"There is no {self.shards.folder} where the worker is: all machines "
                "must see the same files under the same names"
            )
        if self.shards.is_done(number):  # by a worker that died while it said so
            return
        self.shards.begin(number)
        if self.work is None:
            self.work = self.make()
        told: dict[str, Any] = {}
        try:
            self.shards.finish(number, self.work(self.shards, number, told), told)
        except OSError:
            # Ray may take a worker for dead that is only cut off, and give its shard to
            # another one, which may be the first to finish it.
            if not self.shards.is_done(number):
                raise
