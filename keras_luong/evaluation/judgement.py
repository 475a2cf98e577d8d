"""Scores of translations: differences of systems, lengths, worst sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_luong.evaluation.scores import (
    METRICS,
    LengthGroup,
    by_length,
    check_parallel,
    length_unit,
    metric,
)

#: Resamples of the paired bootstrap.
SAMPLES = 1000


class MetricScore(NamedTuple):
    """A corpus score of one system.

    Attributes:
        score: 0 to 100; of TER, in which 0 is best, possibly more.
        signature: sacrebleu's description of how it was computed.
        interval: Half the width of the 95% confidence interval; None if there is only
            one system, as it comes from the bootstrap.
        p_value: How probable a difference from the first system as large as this one
            would be by chance; None for the first system.

    Example:
        >>> from keras_luong.evaluation.judgement import MetricScore
        >>> MetricScore(33.7, "nrefs:1|...").p_value is None
        True
    """

    score: float
    signature: str
    interval: float | None = None
    p_value: float | None = None


class Judgement(NamedTuple):
    """Scores of the translations of a test set, of one system or several.

    Attributes:
        name: The test set's name.
        sources: The source sentences.
        references: Their references.
        systems: Name → translations, the system that is judged first.
        scores: Name → metric ("BLEU", "chrF", "TER") → score.
        groups: For each system, each group of lengths with its BLEU and chrF.
        unit: What lengths are counted in: "words" or "characters".
        sentence_chrf: The chrF of each sentence of the first system.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> judged = judge("test", ["x y"], ["a b c d"], {"mine": ["a b c d"]})
        >>> judged.scores["mine"]["TER"].score
        0.0
    """

    name: str
    sources: Sequence[str]
    references: Sequence[str]
    systems: Mapping[str, Sequence[str]]
    scores: dict[str, dict[str, MetricScore]]
    groups: list[list[tuple[LengthGroup, float, float]]]
    unit: str
    sentence_chrf: list[float]

    def worst(self, number: int) -> list[int]:
        """Returns the rows of the first system's worst sentences, the worst first.

        Args:
            number: The most rows to return. Sentences without a reference have none.
        """
        return self._ranked()[:number]

    def best(self, number: int) -> list[int]:
        """Returns the rows of the first system's best sentences, the best first.

        Of equally good ones the longest references are first, as they say the most.

        Args:
            number: The most rows to return. Sentences without a reference have none.
        """
        return self._ranked()[::-1][:number]

    def _ranked(self) -> list[int]:
        rows = [i for i, text in enumerate(self.references) if text.strip()]
        return sorted(
            rows, key=lambda i: (self.sentence_chrf[i], len(self.references[i]))
        )

    def as_json(self, sentences: int = 3) -> dict[str, Any]:
        """Returns all that was found as `json` can write it.

        Args:
            sentences: Number of worst sentences to tell, and of best ones.
        """

        def sentence(row: int) -> dict[str, Any]:
            return {
                "line": row + 1,
                "chrf": self.sentence_chrf[row],
                "source": self.sources[row],
                "reference": self.references[row],
                "translations": {name: x[row] for name, x in self.systems.items()},
            }

        return {
            "name": self.name,
            "sentences": len(self.sources),
            "length_unit": self.unit,
            "systems": [
                {
                    "name": name,
                    "scores": {k: x._asdict() for k, x in self.scores[name].items()},
                    "by_length": [
                        {
                            "lengths": group.label,
                            "sentences": len(group.rows),
                            "bleu": bleu,
                            "chrf": chrf,
                        }
                        for group, bleu, chrf in groups
                    ],
                }
                for name, groups in zip(self.systems, self.groups, strict=True)
            ],
            "worst": list(map(sentence, self.worst(sentences))),
            "best": list(map(sentence, self.best(sentences))),
        }


def judge(
    name: str,
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    tokenize: str = "13a",
) -> Judgement:
    """Scores the translations of a test set, and compares those of several systems.

    Args:
        name: The test set's name.
        sources: The source sentences.
        references: Their references.
        systems: Name → translations. The first system is judged by sentence and
            length, and the others are compared with it.
        tokenize: sacrebleu's tokenisation, as for `bleu`.

    Returns:
        All that was found.

    Raises:
        TypeError: If one string is given in place of a list of them.
        ValueError: If numbers of sentences differ, there are none, there is no system,
            or the tokenisation is unknown.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> systems = {"mine": ["a dog runs far"], "yours": ["dogs run far away"]}
        >>> judged = judge("test", ["ein Hund"], ["a dog runs far"], systems)
        >>> judged.scores["yours"]["BLEU"].p_value is not None
        True
    """
    check_parallel(sources, references)
    scores = score_systems(systems, references, tokenize)
    first = next(iter(systems.values()))
    return Judgement(
        name,
        sources,
        references,
        systems,
        scores,
        [by_length(x, references, sources, tokenize) for x in systems.values()],
        length_unit(sources),
        sentence_chrf(first, references),
    )


def score_systems(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    tokenize: str = "13a",
) -> dict[str, dict[str, MetricScore]]:
    """Computes BLEU, chrF and TER, and tests differences from the first system.

    The test is sacrebleu's paired bootstrap (Koehn 2004): how often do 1,000 samples of
    the sentences differ as much? It needs 70 kB of memory for each sentence.

    Args:
        systems: Name → translations.
        references: Their references.
        tokenize: sacrebleu's tokenisation, as for `bleu`.

    Returns:
        Name → metric → score.

    Raises:
        ValueError: If numbers of sentences differ, or there is no system.

    Example:
        >>> from keras_luong.evaluation.judgement import score_systems
        >>> scores = score_systems({"mine": ["a b c d"]}, ["a b c d"])
        >>> [(name, round(score.score)) for name, score in scores["mine"].items()]
        [('BLEU', 100), ('chrF', 100), ('TER', 0)]
    """
    if not systems:
        raise ValueError("There must be a system to score. Received: none")
    for hypotheses in systems.values():
        check_parallel(hypotheses, references)
    columns = {
        name: _scored(metric(name, tokenize), systems, [list(references)])
        for name in METRICS
    }
    return {
        system: {name: column[i] for name, column in columns.items()}
        for i, system in enumerate(systems)
    }


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Computes the chrF of each sentence by itself, by which sentences are ranked.

    Sentence BLEU is 0 or nearly so for many a good short translation; chrF is not.

    Args:
        hypotheses: The translations.
        references: Their references.

    Raises:
        ValueError: If they differ in number, or there are none.

    Example:
        >>> from keras_luong.evaluation.judgement import sentence_chrf
        >>> sentence_chrf(["abc", "x"], ["abc", "y"])
        [100.0, 0.0]
    """
    check_parallel(hypotheses, references)
    chrf, pairs = metric("chrF"), zip(hypotheses, references, strict=True)
    return [chrf.sentence_score(text, [right]).score for text, right in pairs]


def _scored(
    metric: Any, systems: Mapping[str, Sequence[str]], references: list[list[str]]
) -> list[MetricScore]:
    """Scores each system by one metric; a single one is not resampled."""
    from sacrebleu.significance import PairedTest

    named: Any = [(name, list(texts)) for name, texts in systems.items()]
    if len(named) == 1:
        score = metric.corpus_score(named[0][1], references).score
        return [MetricScore(score, str(metric.get_signature()))]
    test = PairedTest(named, {"": metric}, references, "bs", SAMPLES)
    signatures, results_by_name = test()
    [(name, signature)] = signatures.items()  # the metric's own name, such as chrF2
    results: Any = results_by_name[name]
    scores = []
    for (_, texts), x in zip(named, results, strict=True):
        # Where nothing ever differs, sacrebleu has the least p there is, as if it did.
        p_value = x.p_value
        if p_value is not None and (x.score == results[0].score or len(texts) == 1):
            p_value = 1.0
        scores.append(MetricScore(x.score, str(signature), float(x.ci), p_value))
    return scores
