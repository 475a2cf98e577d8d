"""The recipe "auto": how a corpus of some size is trained on, where nothing is said.

The rule is a table. Each of its rows was the best of those tried on real text of about
that size, chosen by validation BLEU: `docs/what_train_chooses.md` has the evidence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from keras_luong.checks import check_size
from keras_luong.config.training import TrainingConfig

#: Bytes of UTF-8 that a piece has at least, on average: German, Chinese and Hindi alike
#: have more with any vocabulary that is chosen here.
_BYTES_A_PIECE = 2.5


class CorpusFacts(NamedTuple):
    """How large a corpus is: what its settings depend on.

    Attributes:
        pairs: Number of different training pairs.
        content: Bytes of the targets' text, compressed by bzip2: what repeats itself
            teaches little, and a model learns it soon.
        long_line: Bytes of a long line: of 1,000, 995 are no longer, on either side.
        characters: How many different characters a vocabulary must have.
    """

    pairs: int
    content: int
    long_line: int
    characters: int


class Row(NamedTuple):
    """Settings for corpora up to some size.

    Attributes:
        content: It is for corpora with up to so much content.
        vocab_size: Most tokens in the vocabulary.
        units: Size of the model's layers.
        dropout: Rate of the model's dropout.
        word_dropout: Rate at which whole words are dropped.
        batch_tokens: Tokens in a batch.
        steps_per_epoch: Steps between two validations, about.
        save_steps: Steps between two checkpoints: what a killed training does again.
    """

    content: float
    vocab_size: int
    units: int
    dropout: float
    word_dropout: float
    batch_tokens: int
    steps_per_epoch: int
    save_steps: int

    @property
    def fields(self) -> dict[str, Any]:
        """The settings, by field."""
        return {name: x for name, x in self._asdict().items() if name != "content"}


#: The rule. 1,000 captions in German have a content of 19 kB, 3,000 of 49, 10,000 of
#: 140, 29,000 of 410, and the 160,000 short sentences of Tatoeba one of 1.4 MB.
ROWS = (
    # content, vocab_size, units, dropout, word_dropout, batch_tokens, steps_per_epoch,
    # save_steps
    Row(90e3, 1000, 256, 0.5, 0.1, 1000, 150, 100),
    Row(240e3, 2000, 384, 0.5, 0.1, 1500, 150, 100),
    Row(750e3, 4000, 512, 0.4, 0.0, 1500, 300, 100),
    Row(15e6, 8000, 512, 0.3, 0.0, 3000, 500, 100),
    Row(math.inf, 32_000, 1024, 0.2, 0.0, 8192, 2500, 500),
)

#: What the rule sets.
CHOSEN = (*ROWS[0].fields, "max_length")

#: What a training has that cannot be given to one that is chosen.
_NOT_GIVEN = frozenset(["data", "source", "target", "preset", "init_from", "model"])

#: Why a setting is as it is, in a few words; {monitor} is what judges the weights.
REASONS = {
    "tokenizer": "pieces of words, learned from the text",
    "vocab_size": "pieces, one vocabulary for both languages",
    "units": "size of the LSTMs",
    "dropout": "the less text and the more units, the more",
    "word_dropout": "whole words, where there is little text",
    "batch_tokens": "tokens of a batch",
    "max_length": "tokens; nearly every pair is shorter",
    "optimizer": "needs no search for its learning rate",
    "learning_rate": "of the first steps",
    "schedule": "the rate is halved where {monitor} gets no better",
    "steps_per_epoch": "steps between two validations, about",
    "save_steps": "steps between two checkpoints",
    "early_stopping": "validations without a better {monitor} end the training",
}


@dataclasses.dataclass(frozen=True)
class AutoTraining:
    """A training of which the corpus decides what is not given.

    Args:
        data: What `TrainingConfig` takes.
        source: Language to translate from; None finds it in the corpus.
        target: Language to translate into; None finds it in the corpus.
        given: Fields of `TrainingConfig` and hyperparameters of the model that are not
            to be chosen.

    Example:
        >>> from keras_luong.config.auto import AutoTraining, CorpusFacts
        >>> training = AutoTraining("my/corpus", "fr", "en", given={"units": 64})
        >>> facts = CorpusFacts(3000, content=49_000, long_line=140, characters=80)
        >>> config = training.choose(facts, "fr", "en")
        >>> config.model["units"], config.vocab_size
        (64, 1000)
    """

    data: str
    source: str | None = None
    target: str | None = None
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks what is given, before a long corpus is read."""
        for name in self.given.keys() & _NOT_GIVEN:
            raise ValueError(
                f"given cannot hold {name}, which is no setting that a corpus may "
                f"choose. Received: {self.given[name]!r}"
            )
        self.config(self._overrides, self.source or "en", self.target or "de")

    @property
    def strategy(self) -> str:
        """The devices to train on, see `TrainingConfig`."""
        return self.given.get("strategy", TrainingConfig.strategy)

    def choose(self, facts: CorpusFacts, source: str, target: str) -> TrainingConfig:
        """Returns the configuration for a corpus.

        Args:
            facts: What is known of it.
            source: The language to translate from.
            target: The language to translate into.

        Raises:
            TypeError, ValueError: If a given value cannot be.
        """
        settings = choose_settings(facts)
        share = min(self.given.get("units", math.inf) / settings["units"], 1)
        settings["dropout"] = round(settings["dropout"] * share, 2)  # of fewer units
        return self.config({**settings, **self._overrides}, source, target)

    def config(
        self, settings: Mapping[str, Any], source: str, target: str
    ) -> TrainingConfig:
        """Returns the configuration with settings that were chosen.

        Args:
            settings: The chosen settings.
            source: The language to translate from.
            target: The language to translate into.
        """
        own = {"data": self.data, "source": source, "target": target}
        return TrainingConfig.from_preset("auto", **{**settings, **self.given, **own})

    @property
    def _overrides(self) -> dict[str, Any]:
        """Settings that `shared=False` needs."""
        if self.given.get("shared", True):
            return {}
        return {"tie_embeddings": "target"}  # nothing else can be tied


#: What `keras_luong.runs.train.train` takes.
Training: TypeAlias = TrainingConfig | AutoTraining


def choose_settings(facts: CorpusFacts) -> dict[str, Any]:
    """Returns the settings for a corpus of some size.

    Args:
        facts: What is known of the corpus.

    Returns:
        Values by field, of `TrainingConfig` or of the model's configuration.
    """
    check_size("pairs", facts.pairs)
    row = next(row for row in ROWS if facts.content <= row.content)
    # Pieces begin with the characters; a vocabulary of nothing else splits no words.
    smallest = math.ceil(1.5 * facts.characters)
    longest = math.ceil(facts.long_line / _BYTES_A_PIECE / 10) * 10
    return {
        **row.fields,
        "vocab_size": max(row.vocab_size, smallest),
        "max_length": min(max(longest, 50), 250),
    }
