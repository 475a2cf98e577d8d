"""Layers that are made of others, in their configuration."""

from __future__ import annotations

from typing import Any

import keras


class Nested:
    """A mixin, before `keras.layers.Layer`, for layers that are given others.

    `from_config` rebuilds the constructor's arguments that `_nested` names. What stands
    there in the configuration is from `compat.serialize_shared`.
    """

    #: The constructor's arguments that may be objects, or lists of them.
    _nested: tuple[str, ...] = ()

    @classmethod
    def from_config(cls: Any, config: dict[str, Any]) -> Any:
        """Rebuilds the layer, and what it was given."""
        objects = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in cls._nested
            if isinstance(config.get(name), (dict, list))  # and no name, such as "dot"
        }
        return cls(**{**config, **objects})
