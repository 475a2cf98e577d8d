"""What all models have in common: a configuration, presets, saving."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_luong.compat import flat_layers
from keras_luong.models.restricted import Restricted, logits
from keras_luong.training.fused_model import FusedModel


class TranslationModel(FusedModel):
    """A functional model from {"source": ids, "target": ids} to logits that can step.

    A subclass sets `config_class`, builds itself from such a configuration in
    `__init__(config, dtype=None, **kwargs)`, keeps it as `self.config`, and has
    `encode` as `keras_luong.decoding.StepModel` says, and `advance`: `step` up to what
    the words are scored by.
    """

    #: The class of `config`; the fields of it that the model gives no choice of, and
    #: those that it cannot do without.
    config_class: type
    fixed: dict[str, Any] = {}
    required: tuple[str, ...] = ()

    @classmethod
    def check(cls, config):
        """Raises unless `config` is one that this model can have."""
        if not isinstance(config, cls.config_class):
            raise TypeError(
                f"config must be a {cls.config_class.__name__}. Received: {config!r}"
            )
        for name, value in cls.fixed.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"{cls.__name__} needs {name}={value!r}. Received: {name}="
                    f"{getattr(config, name)!r}"
                )
        for name in cls.required:
            if getattr(config, name) is None:
                raise ValueError(f"{cls.__name__} needs {name}. Received: {name}=None")

    @classmethod
    def from_preset(cls, name, source_vocab_size, target_vocab_size, **changes):
        """The model of a preset; see `keras_luong.models.presets.build`."""
        from keras_luong.models.presets import build

        return build(name, source_vocab_size, target_vocab_size, **changes)

    def step(self, tokens, state, memory):
        """Reads one target word per hypothesis and predicts the next.

        Args:
            tokens: int [B, K], the last word of each hypothesis.
            state: List of tensors [B, K, ...], from `encode` or an earlier `step`.
            memory: From `encode`; the same for all K hypotheses, never tiled.

        Returns:
            Logits, float32 [B, K, V]; the new state; and the alignment weights,
            float32 [B, K, S].
        """
        features, state, weights = self.advance(tokens, state, memory)
        return ops.cast(logits(self, features), "float32"), state, weights

    def restricted(self, ids, allowed):
        """This model with a part of its target vocabulary, as a shortlist asks for.

        Args:
            ids: int [M], the words that are scored.
            allowed: bool [B, M], which of them each sentence may use.

        Returns:
            A `Restricted`, whose `step` returns logits [B, K, M].
        """
        return Restricted(self, ids, allowed)

    def output_weights(self):
        """The output layer's matrix, and whether it is an embedding [V, H]."""
        if self.output_layer is None:
            return self.target_embedding.embeddings, True
        return self.output_layer.kernel, False

    def cast_weights(self):
        """Pairs of a weight and what to read in its place, under mixed precision.

        See `keras_luong.decoding.cast_once`. Matrices are cast to the dtype in which
        their layer computes. Vectors are small, and some of them, such as those of
        layer normalisation, stay in float32.
        """
        dtypes = {}
        for layer in flat_layers(self):  # a layer comes after what it is a part of
            for weight in layer.weights:
                # An embedding casts the rows that it has looked up.
                casts = layer.autocast or isinstance(layer, keras.layers.Embedding)
                cast = casts and len(weight.shape) > 1
                dtypes[id(weight)] = layer.compute_dtype if cast else weight.dtype
        weights = [weight for weight in self.weights if "float" in weight.dtype]
        if all(weight.dtype == dtypes[id(weight)] for weight in weights):
            return []
        return [(weight, ops.cast(weight, dtypes[id(weight)])) for weight in weights]

    def get_config(self):
        """The constructor's arguments, and which of the layers are frozen."""
        layers = enumerate(flat_layers(self))
        return {
            "config": dataclasses.asdict(self.config),
            "dtype": self.dtype_policy.name,
            "name": self.name,
            "frozen": [i for i, layer in layers if not layer.trainable],
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuilds the model from `get_config`."""
        del custom_objects
        config = dict(config)
        frozen = config.pop("frozen", [])
        model = cls(cls.config_class(**config.pop("config")), **config)
        layers = list(flat_layers(model))
        for i in frozen:
            layers[i].trainable = False
        return model
