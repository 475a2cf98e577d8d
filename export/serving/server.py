r"""Serves a SavedModel on Ray Serve, as TensorFlow Serving does: REST and gRPC.

Needs tensorflow, tensorflow-text, tensorflow-serving-api and ray[serve].

python export/serving/server.py models/mine/1 --rest 8501 --grpc 8500 --metrics 8502

A client is answered by this chain:

    Front (REST, gRPC, limits, retries) -> Model (replicas, each a process of Ray's)

Ray's own proxies are not used: they have no limit on a request's headers, nor on those
that are still being read, and gRPC's would listen on all networks.

It says "ready" when every replica has loaded the model and warmed it up. At SIGTERM it
answers what it has accepted, refuses what is new, and ends; at a second one it ends at
once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Before Ray is imported: nothing is sent to its makers.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Ray's own ports run what they are sent. So they are on 127.0.0.1, as it has them on
# Windows and macOS; on Linux it would take the machine's address on the network. The
# replicas' are on all networks even so, and want the token in ~/.ray.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")

import grpc.aio  # noqa: E402
import numpy as np  # noqa: E402
import ray  # noqa: E402
from connections import SETTLE, http_server  # noqa: E402
from micro_batches import MicroBatches  # noqa: E402
from predict_requests import (  # noqa: E402
    MOST_AXES,
    MOST_BYTES,
    ONLY,
    Arrays,
    Refused,
    Takes,
    array_like,
    as_json,
    as_message,
    columns,
    count_rows,
    failed,
    gone,
    ndarray,
    not_found,
    read_body,
    read_json,
    read_message,
    unavailable,
    wrong,
)
from ray import serve  # noqa: E402
from ray.exceptions import RayActorError  # noqa: E402
from ray.serve.schema import LoggingConfig  # noqa: E402
from ray.util.metrics import Counter  # noqa: E402
from saved_models import find_version, most_rows  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import JSONResponse, Response  # noqa: E402

BATCH = 32  # sentences that are computed at once, unless the export takes fewer
TRIES = 3  # of a request whose replica dies: it may be what killed it
FILES = 1 << 16  # that may be open, as far as the system allows it
STATE = 1.0  # seconds that what is known of the replicas is told again
ALIVE = 5.0  # seconds in which a replica says that it is there
SERVICE = "tensorflow.serving.PredictionService"
GRPC = [  # options of its server
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_concurrent_streams", 128),  # of a connection
    ("grpc.max_connection_age_ms", 300_000),  # what never ends, ends with it
    ("grpc.max_connection_idle_ms", 65_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
]
# The messages of grpc.health.v1, which are as short as this: a request has the name of
# a service (field 1), or none for the whole server; an answer a number (field 1).
HEALTH = "grpc.health.v1.Health"
ASKED_FOR = (b"", b"\x0a%c%s" % (len(SERVICE), SERVICE.encode()))
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
LOG = logging.getLogger("server")


class Question(NamedTuple):
    """A request to the model: the inputs of one signature, as many rows of each."""

    signature: str
    inputs: Arrays
    rows: int

    def part(self, start: int, stop: int) -> Question:
        """The question for some of its rows."""
        inputs = {key: x[start:stop] for key, x in self.inputs.items()}
        return Question(self.signature, inputs, stop - start)


def join(parts: list[Arrays | Refused]) -> Arrays | Refused:
    """Makes one answer of those for parts of the rows.

    Axes of other lengths, as of tokens, are filled up.
    """
    for said in parts:
        if isinstance(said, Refused):
            return said
    return {key: _joined([said[key] for said in parts]) for key in parts[0]}


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    shape = np.max([x.shape for x in arrays], axis=0)
    shape[0] = sum(map(len, arrays))
    joined = np.full(shape, b"" if arrays[0].dtype == object else 0, arrays[0].dtype)
    start = 0
    for x in arrays:
        joined[(slice(start, start + len(x)), *map(slice, x.shape[1:]))] = x
        start += len(x)
    return joined


@serve.deployment(
    ray_actor_options={"num_cpus": 0},  # as many as are wanted, on however few cores
    max_ongoing_requests=100_000,  # they wait here, where batches are made
    health_check_period_s=1,  # so soon a dead one is started again
    graceful_shutdown_timeout_s=2,  # when it ends, all is answered or given up
)
class Model:
    """A SavedModel in a process of its own."""

    def __init__(self, version_dir: str):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (SentencePiece's ops)

        most = min(BATCH, most_rows(Path(version_dir)) or BATCH)
        self.batches = MicroBatches(self.answer, most, join, self._count)
        self.counters = {
            kind: Counter(f"translation_{kind}", description="Of what was computed.")
            for kind in ("batches", "sentences")
        }
        self.loaded = tf.saved_model.load(version_dir)
        self.signatures = self.loaded.signatures
        # Of one request or of the server: each is asked alone to find out.
        self.failure = (tf.errors.OpError, TypeError, ValueError)
        # Not the client's: it may ask again.
        self.own_failure = (tf.errors.ResourceExhaustedError, tf.errors.InternalError)
        for name, function in self.signatures.items():
            _, specs = function.structured_input_signature
            for rows in range(1, 1 + min(2, most)):
                made_up = {key: _made_up(x, rows) for key, x in specs.items()}
                self.answer([Question(name, made_up, rows)])

    async def predict(
        self, signature: str, given: Mapping[str, Any]
    ) -> Arrays | Refused:
        """Answers one request, together with others that come at the same time.

        Args:
            signature: Its name.
            given: Input → values, as lists or arrays.

        Returns:
            Output → array; or why the model does not take them. (Of what is raised Ray
            logs a traceback.)
        """
        try:
            question = self.read(signature or "serving_default", given)
        except Refused as no:
            return no
        return await self.batches.ask(question)

    def _count(self, rows: int) -> None:
        self.counters["batches"].inc()
        if rows:  # Ray counts no 0
            self.counters["sentences"].inc(rows)

    async def takes(self) -> Takes:
        """Returns what none of the signatures has more of."""
        found = [x.structured_input_signature[1] for x in self.signatures.values()]
        shapes = [spec.shape for specs in found for spec in specs.values()]
        axes = [MOST_AXES if x.rank is None else x.rank for x in shapes]
        return Takes(max(axes), max(map(len, found)))

    async def alive(self) -> None:
        """Returns, which shows that there is a replica that answers."""

    def read(self, signature: str, given: Mapping[str, Any]) -> Question:
        """Makes arrays of what the signature takes."""
        if signature not in self.signatures:
            raise wrong(f"There is no signature {signature!r}: {[*self.signatures]}")
        _, specs = self.signatures[signature].structured_input_signature
        if given.keys() == {ONLY} and (len(specs) == 1 or given[ONLY] == []):
            given = dict.fromkeys(specs, given[ONLY])
        if given.keys() != specs.keys():
            raise wrong(f"{signature} takes {[*specs]}, and not {[*given]}")
        inputs = {key: array_like(key, x, specs[key]) for key, x in given.items()}
        rows = {len(x) for x in inputs.values()}
        if len(rows) > 1:
            raise wrong("The inputs differ in number")
        return Question(signature, inputs, rows.pop())

    def answer(self, questions: list[Question]) -> list[Arrays | Refused]:
        """Asks for those of one signature and shape at once; one by one if it fails."""
        kinds: dict[Any, list[int]] = {}
        for place, (signature, inputs, _) in enumerate(questions):
            shapes = tuple(x.shape[1:] for x in inputs.values())
            kinds.setdefault((signature, shapes), []).append(place)
        said: dict[int, Arrays | Refused] = {}
        for places in kinds.values():
            some = [questions[place] for place in places]
            said.update(zip(places, self._joined(some), strict=True))
        return [said[place] for place in range(len(questions))]

    def _joined(self, some: list[Question]) -> list[Arrays | Refused]:
        joined = {
            key: np.concatenate([x.inputs[key] for x in some]) for key in some[0].inputs
        }
        try:
            said = self._call(some[0].signature, joined)
        except self.failure as error:
            if len(some) > 1:  # whose fault it is
                return [self._joined([question])[0] for question in some]
            if isinstance(error, self.own_failure):
                return [failed(str(error))]
            # A failed check says what it found after what is wrong.
            found = re.search(r"assertion failed: \[(.*?)\]", str(error))
            return [wrong(found[1] if found else str(error))]
        ends = np.cumsum([x.rows for x in some])[:-1]
        parts = {key: np.split(x, ends) for key, x in said.items()}
        return [{key: x[i] for key, x in parts.items()} for i in range(len(some))]

    def _call(self, signature: str, inputs: Arrays) -> Arrays:
        import tensorflow as tf

        function = self.signatures[signature]
        _, specs = function.structured_input_signature
        tensors = {key: tf.constant(x, specs[key].dtype) for key, x in inputs.items()}
        return {key: x.numpy() for key, x in function(**tensors).items()}


def _made_up(spec: Any, rows: int) -> np.ndarray:
    """Something short that a signature takes: the letter a, or ones."""
    shape = [rows, *(8 if axis is None else axis for axis in spec.shape[1:])]
    kind = spec.dtype.as_numpy_dtype
    return np.full(shape, b"a" if kind is object else 1, kind)


class Front:
    """Reads requests, refuses what is too much, asks the model, again if one dies.

    Args:
        model: Ray's handle of the replicas.
        name: The model's name.
        version: Its version.
        most_rows: Sentences that a request may have.
        most_waiting: Sentences that may wait or be computed.
        timeout: Seconds in which there must be an answer.
        takes: What the model takes at most.
    """

    def __init__(
        self,
        model: Any,
        name: str,
        version: str,
        most_rows: int,
        most_waiting: int,
        timeout: float,
        takes: Takes,
    ):
        self.model, self.name, self.version = model, name, version
        self.most_rows, self.most_waiting = most_rows, most_waiting
        self.timeout, self.takes = timeout, takes
        self.under_way, self.draining = 0, False
        self.state: asyncio.Task[str]
        self.state_until = 0.0
        tags = {"description": "Requests.", "tag_keys": ("model",)}
        self.counters = {
            kind: Counter(f"translation_requests_{kind}", **tags)
            for kind in ("answered", "refused", "asked_again")
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """REST, as ASGI has it."""
        request = Request(scope, receive)
        model = f"/v1/models/{self.name}"
        paths = [model, f"{model}/versions/{self.version}"]
        said: Any
        if request.method == "GET" and request.url.path in paths:
            said = await self._state()
        else:
            said = await self._counted(self._by_rest(request, paths))
        if isinstance(said, Refused):
            headers = {"Retry-After": "1"} if said.status == 503 else {}
            if said.status == 411:  # a proxy may see another end of it
                headers["Connection"] = "close"
            said = JSONResponse({"error": said.why}, said.status, headers)
        await said(scope, receive, send)

    async def _by_rest(self, request: Request, paths: list[str]) -> Response:
        if request.method != "POST" or request.url.path not in [
            f"{x}:predict" for x in paths
        ]:
            raise not_found(f"Not found: {request.url.path!r}")
        # In a thread, so that others go on meanwhile.
        question = await asyncio.to_thread(read_json, await read_body(request))
        given = await asyncio.to_thread(columns, question, self.takes)
        asked = self.ask(question.get("signature_name", ""), given)
        said = await _unless_gone(request, asked)
        content = await asyncio.to_thread(as_json, question, said)
        return Response(content, media_type="application/json")

    async def predict(self, request: bytes, context: Any) -> Any:
        """gRPC: the method `Predict` of TensorFlow Serving's PredictionService."""
        from tensorflow_serving.apis import predict_pb2

        said = await self._counted(self._by_grpc(request))
        if isinstance(said, Refused):
            context.set_code(said.code)
            context.set_details(said.why)
            return predict_pb2.PredictResponse()
        return said

    async def _by_grpc(self, request: bytes) -> Any:
        question = read_message(request)
        self._check_spec(question.model_spec)
        self.takes.check_inputs(len(question.inputs))
        arrays = {
            key: asyncio.to_thread(ndarray, key, x)
            for key, x in question.inputs.items()
        }
        given = dict(zip(arrays, await asyncio.gather(*arrays.values()), strict=True))
        said = await self.ask(question.model_spec.signature_name, given)
        return await asyncio.to_thread(as_message, question, said)

    def _check_spec(self, spec: Any) -> None:
        if spec.version_label:
            raise not_found(f"No version has the label {spec.version_label!r}")
        version = str(spec.version.value) if spec.HasField("version") else self.version
        if (spec.name, version) != (self.name, self.version):
            raise not_found(f"There is no model {spec.name!r} of version {version}")

    async def _counted(self, answer: Awaitable[Any]) -> Any:
        """Answers, or says why not: to the client, and in a line of the log."""
        try:
            said, kind = await answer, "answered"
        except Refused as no:
            said, kind = no, "refused"
            LOG.warning("refused (%s): %s", no.status, " ".join(no.why.split()))
        self.counters[kind].inc(tags={"model": self.name})
        return said

    async def ask(self, signature: str, given: Mapping[str, Any]) -> Arrays:
        """Has a replica answer, unless there is too much to do or it takes too long.

        Args:
            signature: Its name.
            given: Input → values.

        Raises:
            Refused: If there is no answer.
        """
        rows = count_rows(given)
        if rows > self.most_rows:
            raise wrong(f"{rows} are too many sentences: at most {self.most_rows}")
        if self.draining:
            raise unavailable("The server is shutting down")
        if self.under_way + rows > self.most_waiting:
            why = f"The server is busy: {self.under_way} sentences are waiting"
            raise unavailable(why)
        self.under_way += rows
        try:
            said = await asyncio.wait_for(self._tried(signature, given), self.timeout)
        except asyncio.TimeoutError as error:
            why = f"There was no answer in {self.timeout} seconds"
            raise Refused(504, grpc.StatusCode.DEADLINE_EXCEEDED, why) from error
        finally:
            self.under_way -= rows
        if isinstance(said, Refused):
            raise said
        return said

    async def _tried(self, signature: str, given: Mapping[str, Any]) -> Any:
        """Asks a replica, and another one if it dies meanwhile."""
        for _ in range(TRIES):
            answer = self.model.predict.remote(signature, given)
            try:
                return await answer
            except asyncio.CancelledError:  # nobody waits for it any more
                answer.cancel()
                raise
            except RayActorError:  # it does no harm to translate something twice
                self.counters["asked_again"].inc(tags={"model": self.name})
        # Not 503: a client shall not send it again and again.
        raise failed(f"{TRIES} replicas died while they had this request")

    async def _state(self) -> JSONResponse:
        state = "UNLOADING" if self.draining else await self.state_of_model()
        status = {"error_code": "OK", "error_message": ""}
        found = {"version": self.version, "state": state, "status": status}
        return JSONResponse(
            {"model_version_status": [found]}, 200 if state == "AVAILABLE" else 503
        )

    async def state_of_model(self) -> str:
        """Says AVAILABLE if a replica answers, else LOADING.

        Whoever asks within a second gets the same answer.
        """
        if time.monotonic() >= self.state_until:
            self.state_until = time.monotonic() + STATE
            self.state = asyncio.create_task(self._asked_state())
        return await asyncio.shield(self.state)

    async def _asked_state(self) -> str:
        try:
            await asyncio.wait_for(self.model.alive.remote(), ALIVE)
        except (asyncio.TimeoutError, RayActorError):  # they are being started again
            return "LOADING"
        return "AVAILABLE"

    async def check(self, request: bytes, context: Any) -> bytes:
        """gRPC: the method `Check` of grpc.health.v1, whether the model answers."""
        if request not in ASKED_FOR:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return SERVICE_UNKNOWN
        if self.draining or await self.state_of_model() != "AVAILABLE":
            return NOT_SERVING
        return SERVING

    async def watch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """gRPC: its method `Watch`, the same each time that it changes."""
        said = b""
        while True:
            now = SERVICE_UNKNOWN
            if request in ASKED_FOR:
                now = await self.check(request, context)
            if now != said:
                yield now
            said = now
            await asyncio.sleep(STATE)

    async def drain(self) -> None:
        """Takes no more requests, and returns when all are answered."""
        self.draining = True
        while self.under_way:
            await asyncio.sleep(0.05)


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Any]) -> Any:
    """Awaits an answer, unless the client of a request that was read leaves before."""
    asked = asyncio.create_task(answer)
    left = asyncio.create_task(request.receive())
    try:
        await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise gone()
    finally:
        asked.cancel()
        left.cancel()


async def serve_until(stop: threading.Event, front: Front, given: Any) -> None:
    """Answers by REST and gRPC until it shall stop, then what it has accepted.

    Args:
        stop: Says so.
        front: What answers.
        given: The command line.
    """
    rest = http_server(front, given.host, given.rest, given.timeout + SETTLE)
    by_rest = asyncio.create_task(rest.serve())
    host = f"[{given.host}]" if ":" in given.host else given.host
    grace = "grpc.max_connection_age_grace_ms", int(1000 * (given.timeout + SETTLE))
    by_grpc = grpc.aio.server(options=[*GRPC, grace])
    by_grpc.add_insecure_port(f"{host}:{given.grpc}")
    predict = grpc.unary_unary_rpc_method_handler(
        front.predict, response_serializer=lambda said: said.SerializeToString()
    )
    check = grpc.unary_unary_rpc_method_handler(front.check)
    watch = grpc.unary_stream_rpc_method_handler(front.watch)
    services = {
        SERVICE: {"Predict": predict},
        HEALTH: {"Check": check, "Watch": watch},
    }
    for service, methods in services.items():
        handler = grpc.method_handlers_generic_handler(service, methods)
        by_grpc.add_generic_rpc_handlers((handler,))
    await by_grpc.start()
    while not rest.started:
        await asyncio.sleep(0.01)
    print(
        f"ready: {front.name} {front.version}, REST {given.rest}, gRPC {given.grpc}, "
        f"on {given.host}",
        flush=True,
    )
    await asyncio.to_thread(stop.wait)
    print("shutting down", flush=True)
    try:
        await asyncio.wait_for(front.drain(), given.grace)
    except asyncio.TimeoutError:
        print(f"not all was answered in {given.grace} seconds", flush=True)
    rest.should_exit = True
    await asyncio.gather(by_rest, by_grpc.stop(SETTLE))


class _Help(
    argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter
):
    """The description as it is, and the options' defaults."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Help)
    option = parser.add_argument
    option("path", type=Path, help="models/mine/1, or models/mine")
    option("--model", help="its name; by default the directory's")
    option("--host", default="127.0.0.1", help="0.0.0.0 for all networks")
    option("--rest", type=int, default=8501, metavar="PORT", help="of REST")
    option("--grpc", type=int, default=8500, metavar="PORT", help="of gRPC")
    option("--metrics", type=int, default=8502, metavar="PORT", help="on 127.0.0.1")
    option("--replicas", type=int, default=2, help="of the model")
    option("--most_waiting", type=int, default=1024, help="sentences; more are refused")
    option("--timeout", type=float, default=120, help="seconds, of a request")
    option("--grace", type=float, default=60, help="seconds, to answer after SIGTERM")
    return parser


def main(args: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = _parser()
    given = parser.parse_args(args)
    try:
        version = find_version(given.path)
        most = most_rows(version) or given.most_waiting
    except SystemExit as error:  # exit code 2: starting again would not mend it
        parser.error(str(error))
    name = given.model or version.parent.name
    if most > given.most_waiting:
        parser.error(f"--most_waiting must be at least {most}, as a request may have")

    check_ports(given, parser.error)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < files:  # a connection is a file
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    os.umask(0o077)  # Ray's token, which it writes in ~/.ray, is nobody else's
    ray.init("local", include_dashboard=False, _metrics_export_port=given.metrics)
    stop = _until_signalled()  # now, as Ray has set handlers of its own
    serve.start(proxy_location="Disabled")
    model = serve.run(
        Model.options(num_replicas=given.replicas).bind(str(version)),
        route_prefix=None,
        logging_config=LoggingConfig(log_level="WARNING", enable_access_log=False),
    )
    limits = most, given.most_waiting, given.timeout, model.takes.remote().result()
    asyncio.run(serve_until(stop, Front(model, name, version.name, *limits), given))
    serve.shutdown()
    ray.shutdown()


def check_ports(given: argparse.Namespace, refuse: Callable[[str], Any]) -> None:
    """Refuses ports that are in use: Ray would share them with who has them."""
    hosts = {"rest": given.host, "grpc": given.host, "metrics": "127.0.0.1"}
    for name, host in hosts.items():
        port = getattr(given, name)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            refuse(f"--{name} {port} cannot be had: {error.strerror}")


def _until_signalled() -> threading.Event:
    """Returns what the first signal sets; the second one ends the process."""
    stop = threading.Event()

    def signalled(*_: Any) -> None:
        if stop.is_set():
            raise SystemExit("ended at once")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signalled)
    return stop


if __name__ == "__main__":
    main()
