"""Asks TensorFlow Serving by REST; needs Python alone.

python export/serving/rest_client.py http://localhost:8501 mine < in.txt > out.txt
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.error
import urllib.request
from itertools import islice
from typing import Any

from lines import one_line, read_input, say_truncated

BATCH = 32


def predict(
    server: str,
    model: str,
    inputs: dict[str, list],
    signature: str = "serving_default",
    timeout: float = 60.0,
) -> dict[str, list]:
    """Ask one signature.

    Args:
        server: such as "http://localhost:8501".
        model: its name there.
        inputs: input → values; bytes may be of any kind.
        signature: a name, such as "serving_default" or "score".
        timeout: seconds.

    Returns:
        Output → values. Scores of what is not there are -3.4e38.

    Raises:
        TypeError: if an input is a single string.
        RuntimeError: if the server refuses; it says why.
        OSError: if there is no such server.

    Example:
        >>> predict("http://localhost:8501", "mine", {"text": ["A dog runs."]})
        {'translation': ['Ein Hund rennt.'], 'score': [-0.9], 'truncated': [False]}
    """
    if strings := [x for x in inputs.values() if isinstance(x, (str, bytes))]:
        raise TypeError(f"Inputs must be lists. Received: {strings[0]!r:.60}")
    values = {name: [_json(value) for value in x] for name, x in inputs.items()}
    question = json.dumps({"signature_name": signature, "inputs": values}).encode()
    url = f"{server.rstrip('/')}/v1/models/{model}:predict"
    request = urllib.request.Request(
        url, question, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["outputs"]
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        raise RuntimeError(f"{url} answers {error.code}: {said}") from error


def _json(value: Any) -> Any:
    """JSON has no bytes: what may not be UTF-8 goes as base64, as Serving wants it."""
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value


def main() -> None:
    """Translates standard input, in batches of lines."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines, count, truncated = read_input(), 0, 0
    while some := [*islice(lines, BATCH)]:
        try:
            said = predict(*sys.argv[1:], {"text": some})
        except (RuntimeError, urllib.error.URLError) as error:  # refused; no server
            sys.exit(f"{sys.argv[1]}: {error}")
        for translation in said["translation"]:
            sys.stdout.buffer.write(one_line(translation))
        sys.stdout.buffer.flush()
        count, truncated = count + len(some), truncated + sum(said["truncated"])
    say_truncated(truncated, count)


if __name__ == "__main__":
    main()
