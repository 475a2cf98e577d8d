"""The scores by name, and how an attention gets its own."""

from __future__ import annotations

import inspect
from typing import Any

from keras_luong.checks import check_choice, check_size
from keras_luong.layers.scores import (
    ConcatScore,
    CosineScore,
    DotScore,
    GeneralScore,
    LocationScore,
    NormedConcatScore,
    ReducedRankScore,
    ScaledDotScore,
    ScaledGeneralScore,
    Score,
)

SCORES: dict[str, type[Score]] = {
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "scaled_general": ScaledGeneralScore,
    "concat": ConcatScore,
    "normed_concat": NormedConcatScore,
    "location": LocationScore,
    "reduced_rank": ReducedRankScore,
    "cosine": CosineScore,
}


def make_score(
    score_mode: str | Score,
    units: int | None = None,
    max_source_length: int | None = None,
    kernel_initializer: Any = None,
    kernel_regularizer: Any = None,
    kernel_constraint: Any = None,
    dtype: Any = None,
) -> Score:
    """Returns the Score named by `score_mode`, or `score_mode` itself if it is one.

    Args:
        score_mode: A name from `SCORES`, or a `Score` layer.
        units: Width of "concat", "normed_concat" and "reduced_rank"; the others have
            none.
        max_source_length: Number of positions of "location", which needs it; the
            others don't.
        kernel_initializer: Initializer of the weights; Glorot uniform by default.
        kernel_regularizer: Regularizer of the matrices, and of v_a.
        kernel_constraint: Constraint on them.
        dtype: Dtype policy of the score.

    Raises:
        ValueError: An unknown name, or a size that is missing or not positive.
        TypeError: `score_mode` is neither a name nor a `Score`, or its `call` doesn't
            take `project`.
    """
    if isinstance(score_mode, Score):
        _check_takes_project(score_mode)
        return score_mode
    if not isinstance(score_mode, str):
        raise TypeError(
            f"score_mode must be one of {list(SCORES)} or a Score layer. "
            f"Received: {score_mode!r}"
        )
    check_choice("score_mode", score_mode, SCORES)
    options = {
        "units": check_size("units", units, optional=True),
        "max_source_length": check_size(
            "max_source_length", max_source_length, optional=True
        ),
        "kernel_initializer": kernel_initializer or "glorot_uniform",
        "kernel_regularizer": kernel_regularizer,
        "kernel_constraint": kernel_constraint,
    }
    score = SCORES[score_mode]
    return score(dtype=dtype, **{name: options[name] for name in score._options})


def another(score_mode: Any, number: int) -> Any:
    """What `make_score` takes for one more score of a kind, with weights of its own.

    That is the same name, or a numbered copy of a user's own score.
    """
    if not isinstance(score_mode, Score):
        return score_mode
    config = {**score_mode.get_config(), "name": f"{score_mode.name}_{number}"}
    return type(score_mode).from_config(config)


def _check_takes_project(score):
    parameters = inspect.signature(score.call).parameters.values()
    if not any(p.name == "project" or p.kind == p.VAR_KEYWORD for p in parameters):
        raise TypeError(
            f"{type(score).__name__}.call must take project, and multiply by matrices "
            "with it: def call(self, query, key, project=matmul). Received: "
            f"def call{inspect.signature(score.call)}"
        )
