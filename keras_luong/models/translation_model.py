"""What all models have in common: configuration, words and their scores, saving.

Shapes: B batch, S source length, T target length, K beam, V target vocabulary, H units.

The weights of a model in mixed precision, cast once for a whole search.

A model that scores a part of its vocabulary only, and computes no more than that.

Shapes: B batch, K beam, V target vocabulary, M words of it, H units.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.compat import autocasting, flat_layers
from keras_luong.config.presets import PRESETS
from keras_luong.layers.projection import leading_axes, matmul, rows
from keras_luong.training.fused_model import FusedModel
from keras_luong.types import Tensor


def cast_weights(model: keras.Model) -> list[tuple[keras.Variable, Tensor]]:
    """Pairs of a weight and the tensor to read in its place.

    Matrices are cast to the dtype in which their layer reads them. Vectors are small,
    and stay as they are.

    Args:
        model: The model, whose weights are float32.

    Returns:
        The pairs; none where nothing is to be cast.
    """
    dtypes = {
        id(weight): _read_as(layer, weight)
        for layer in flat_layers(model)  # a layer comes after what it is a part of
        for weight in layer.weights
    }
    weights = [weight for weight in model.weights if "float" in weight.dtype]
    if all(weight.dtype == dtypes[id(weight)] for weight in weights):
        return []
    return [(weight, ops.cast(weight, dtypes[id(weight)])) for weight in weights]


def _read_as(layer, weight):
    """The dtype in which a layer reads a weight."""
    if len(weight.shape) < 2:
        return weight.dtype
    if isinstance(layer, keras.layers.Embedding):  # it casts the rows it has looked up
        return layer.compute_dtype
    with autocasting(layer):  # some weights, as a layer normalisation's, stay float32
        return weight.dtype


class Restricted:
    """A model that scores a part of its target vocabulary, for one batch.

    Args:
        model: A `TranslationModel`.
        ids: int [M], the words that are scored, in the order of the logits.
        allowed: bool [B, M], which of them each sentence may use; the logits of others
            are -inf.

    Example:
        >>> from keras_luong.models.translation_model import Restricted
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> few = Restricted(model, np.array([3, 6, 8]), np.ones([1, 3], bool))
        >>> memory, state = few.encode(np.array([[4, 5, 3]]))
        >>> logits, state, weights = few.step(np.array([[2]]), state, memory)
        >>> logits.shape[-1]
        3
    """

    def __init__(self, model: Any, ids: Tensor, allowed: Tensor) -> None:
        self.model, self.ids, self.allowed = model, ids, allowed
        # Gathered here and not in `step`, which runs in a loop.
        matrix, is_embedding = model.output_weights()
        kernel = ops.take(matrix, ids, axis=0 if is_embedding else 1)
        kernel = ops.transpose(kernel) if is_embedding else kernel
        layer = model.target_embedding if is_embedding else model.output_layer
        self.kernel = ops.cast(kernel, layer.compute_dtype)
        bias = model.output_bias()
        self.bias = None if bias is None else ops.take(bias, ids, axis=0)

    def encode(self, source: Tensor) -> tuple[Any, Any]:
        """As the model; a sentence's words are part of its memory."""
        memory, state = self.model.encode(source)
        places = [_places(source, self.ids)] if self.model.copies else []
        return (memory, self.allowed, *places), state

    def step(
        self, tokens: Tensor, state: Any, memory: Any
    ) -> tuple[Tensor, Any, Tensor]:
        """As the model, with logits [B, K, M]. The tokens are ids of all words."""
        memory, allowed, *places = memory
        features, state, weights = self.model.step_features(tokens, state, memory)
        features = ops.cast(features, self.kernel.dtype)
        scores = matmul(self.kernel, features, bias=self.bias)
        scores = _only(allowed, ops.cast(scores, "float32"))
        if self.model.copies:
            scores = self.model.with_copies(scores, features, tokens, weights, *places)
            scores = _only(allowed, scores)  # a copy too
        return scores, state, weights


def _only(allowed, scores):
    return ops.where(ops.expand_dims(allowed, 1), scores, float("-inf"))


def _places(source, ids):
    """Where among some ids [M] each source word [B, S] is: int [B, S], or -1."""
    same = ops.equal(ops.expand_dims(source, -1), ids)
    return ops.where(ops.any(same, -1), ops.argmax(same, -1), -1)


def model_class(name: str) -> Any:
    """The class of a preset's model; ValueError if there is no such preset."""
    preset = PRESETS[check_choice("preset", name, PRESETS)]
    return keras.saving.get_registered_object(f"keras_luong>{preset.model}")


class TranslationModel(FusedModel):
    """A functional model from {"source": ids, "target": ids} to logits that can step.

    A subclass sets `config_class` and says

    * which layers are between the embeddings and the output layer: `make_stacks`; and
      the initial values of those two: `word_initializer`, `output_initializer`;
    * how the layers make features [B, T, H] of whole sentences, which the output layer
      turns into logits: `teacher_forced`;
    * how they do so word by word: `encode`, see `keras_luong.decoding.StepModel`, and
      `step_features`, which is `step` up to the output layer.

    Args:
        config: A configuration of `config_class`.
        dtype: Dtype policy of all layers, such as "mixed_bfloat16"; Keras's global
            policy by default.
        **kwargs: `name` and other arguments of `keras.Model`.
    """

    #: The class of `config`; the fields of it that the model gives no choice of, and
    #: those that it cannot do without.
    config_class: type
    fixed: dict[str, Any] = {}
    required: tuple[str, ...] = ()

    def __init__(self, config: Any, dtype: Any = None, **kwargs: Any) -> None:
        self.check(config)
        layers = self.make_layers(config, dtype)
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        features, outputs = self.teacher_forced_outputs(layers, config, source, target)
        super().__init__(
            inputs={"source": source, "target": target},
            features=features,
            outputs=outputs,
            **kwargs,
        )
        self.config = config
        # So that `compile` scales the loss where the layers compute in float16.
        self.dtype_policy = layers.target_embedding.dtype_policy
        # Named only now, so that Keras knows the layers in the graph's order, as in a
        # `clone_model`, and `set_weights` fits both.
        for name, layer in vars(layers).items():
            setattr(self, name, layer)

    @classmethod
    def make_layers(cls, config: Any, dtype: Any) -> SimpleNamespace:
        """The model's layers by name; a model has them as attributes."""
        layers = SimpleNamespace()
        layers.target_embedding = cls._embedding(config, "target", dtype)
        layers.source_embedding = layers.target_embedding
        if config.tie_embeddings != "all":
            layers.source_embedding = cls._embedding(config, "source", dtype)
        vars(layers).update(cls.make_stacks(config, dtype))
        layers.output_layer = None
        if config.tie_embeddings is None:
            layers.output_layer = keras.layers.Dense(
                config.target_vocab_size,
                use_bias=getattr(config, "output_bias", False),
                kernel_initializer=cls.output_initializer(config),
                dtype=dtype,
                name="output",
            )
        return layers

    @classmethod
    def _embedding(cls, config, side, dtype):
        tied = side == "target" and config.tie_embeddings
        layer = keras.layers.ReversibleEmbedding if tied else keras.layers.Embedding
        return layer(
            getattr(config, f"{side}_vocab_size"),
            getattr(config, "embedding_dim", config.units),
            embeddings_initializer=cls.word_initializer(config),
            dtype=dtype,
            name="embedding" if config.tie_embeddings == "all" else f"{side}_embedding",
        )

    @classmethod
    def check(cls, config: Any) -> None:
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
            A model of this class, or of the subclass that the preset names.

        Raises:
            ValueError, TypeError: An unknown preset, one of another kind of model, or
                values that cannot be.

        Example:
            >>> model = kl.Seq2Seq.from_preset(
            ...     "bahdanau2015", 9, 9, units=4, encoder_units=4
            ... )
            >>> type(model).__name__
            'Bahdanau2015'
        """
        model: Any = model_class(name)
        model = cls if issubclass(cls, model) else model
        if not issubclass(model, cls):
            raise ValueError(
                f"The preset {name} is a {model.__name__}, and no {cls.__name__}: use "
                f"{model.__name__}.from_preset"
            )
        sizes = source_vocab_size, target_vocab_size
        return model(model.config_class.preset(name, *sizes, **changes), dtype=dtype)

    @classmethod
    def teacher_forced_outputs(
        cls, layers: Any, config: Any, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features [B, T, H] and logits [B, T, V] of source and target ids."""
        features = cls.teacher_forced(layers, config, source, target)
        return features, logits(layers, features)

    @property
    def copies(self) -> bool:
        """Whether source words may be copied, as their ids are target ids."""
        return getattr(self.config, "copy", False)

    def step(
        self, tokens: Tensor, state: Any, memory: Any
    ) -> tuple[Tensor, Any, Tensor]:
        """Reads one target word per hypothesis and predicts the next.

        Args:
            tokens: int [B, K], the last word of each hypothesis.
            state: List of tensors [B, K, ...], from `encode` or an earlier `step`.
            memory: From `encode`; the same for all K hypotheses, never tiled.

        Returns:
            Logits, float32 [B, K, V]; the new state; and the alignment weights,
            float32 [B, K, S].
        """
        features, state, weights = self.step_features(tokens, state, memory)
        # As rows: Keras would compute the shape of the product at every step.
        scores = logits(self, rows(features))
        scores = ops.reshape(scores, (*leading_axes(features), ops.shape(scores)[-1]))
        if self.copies:
            scores = self.with_copies(scores, features, tokens, weights, memory.source)
        return ops.cast(scores, "float32"), state, weights

    def with_copies(
        self,
        scores: Tensor,
        features: Tensor,
        tokens: Tensor,
        weights: Tensor,
        source: Tensor,
    ) -> Tensor:
        """Log-probabilities of generating or copying each word, where `copies`.

        Args:
            scores: Logits of the words that can be generated, [B, K, V].
            features: What they were made of, [B, K, H].
            tokens: The words before, int [B, K].
            weights: The alignment weights, [B, K, S].
            source: Which of the V words each source position is, int [B, S].

        Returns:
            [B, K, V].
        """
        read = [features, self.target_embedding(tokens)]
        return self.pointer_generator(read, scores, weights, source)

    def restricted(self, ids: Tensor, allowed: Tensor) -> Restricted:
        """This model with a part of its target vocabulary, as a shortlist asks for.

        Args:
            ids: int [M], the words that are scored.
            allowed: bool [B, M], which of them each sentence may use.

        Returns:
            A `Restricted`, whose `step` returns logits [B, K, M].
        """
        return Restricted(self, ids, allowed)

    def output_weights(self) -> tuple[Tensor, bool]:
        """The output layer's matrix, and whether it is an embedding [V, H]."""
        if self.output_layer is None:
            return self.target_embedding.embeddings, True
        return self.output_layer.kernel, False

    def output_bias(self) -> Tensor | None:
        """The output layer's bias [V], if it has one."""
        return None if self.output_layer is None else self.output_layer.bias

    def cast_weights(self) -> list[tuple[keras.Variable, Tensor]]:
        """Pairs of a weight and the tensor to read in its place, in mixed precision.

        See `keras_luong.decoding.hoisting`.
        """
        return cast_weights(self)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and which layers are frozen or quantized."""
        layers = list(enumerate(flat_layers(self)))
        return {
            "config": dataclasses.asdict(self.config),
            "dtype": self.dtype_policy.name,
            "name": self.name,
            "frozen": [i for i, layer in layers if not layer.trainable],
            "quantized": {str(i): m for i, x in layers if (m := x.quantization_mode)},
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> TranslationModel:
        """Rebuilds the model from `get_config`."""
        config = dict(config)
        frozen = config.pop("frozen", [])
        quantized = config.pop("quantized", {})
        model = cls(cls.config_class(**config.pop("config")), **config)
        layers = list(flat_layers(model))
        for i, mode in quantized.items():
            if layers[int(i)].quantization_mode is None:  # a part takes its owner along
                layers[int(i)].quantize(mode)
        for i in frozen:
            layers[i].trainable = False
        return model


def logits(layers: Any, features: Tensor) -> Tensor:
    """The scores of all words, by the output layer or, where tied, the embedding.

    Args:
        layers: A model, or a namespace with its `output_layer` and `target_embedding`.
        features: [..., H], such as Luong's attentional vectors.

    Returns:
        [..., V]; the softmax is taken of them.
    """
    if layers.output_layer is None:
        return layers.target_embedding(features, reverse=True)
    return layers.output_layer(features)
