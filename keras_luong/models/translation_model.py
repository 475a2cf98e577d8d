"""What all models have in common: a configuration, presets, saving."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.compat import flat_layers
from keras_luong.config.presets import PRESETS
from keras_luong.models.restricted import Restricted, logits
from keras_luong.training.fused_model import FusedModel


def model_class(name: str) -> Any:
    """The class of a preset's model; ValueError if there is no such preset."""
    preset = PRESETS[check_choice("preset", name, PRESETS)]
    return keras.saving.get_registered_object(f"keras_luong>{preset.model}")


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
    def from_preset(
        cls,
        name: str,
        source_vocab_size: int,
        target_vocab_size: int,
        dtype: str | None = None,
        **changes: Any,
    ) -> Any:
        """The model of a preset, with random weights.

        Args:
            name: A name in `keras_luong.config.presets.PRESETS`.
            source_vocab_size: Number of source ids, the four special ones included.
            target_vocab_size: Number of target ids, likewise.
            dtype: Dtype policy.
            **changes: Fields of the configuration that are to differ from the preset's.

        Returns:
            A model of this class, or of the class below it that the preset names.

        Raises:
            ValueError, TypeError: An unknown preset, one of another kind of model, or
                values that cannot be.

        Example:
            >>> model = kl.Seq2Seq.from_preset("bahdanau2015", 8000, 8000, units=512,
            ...                                encoder_units=512)
        """
        model = model_class(name)
        if not issubclass(model, cls):
            raise ValueError(
                f"The preset {name} is a {model.__name__}, and no {cls.__name__}: use "
                f"{model.__name__}.from_preset"
            )
        sizes = source_vocab_size, target_vocab_size
        return model(model.config_class.preset(name, *sizes, **changes), dtype=dtype)

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
