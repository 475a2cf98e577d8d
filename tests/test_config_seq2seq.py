import dataclasses

import pytest

from keras_luong import Seq2SeqConfig


def test_sizes_follow_from_units():
    config = Seq2SeqConfig(10, 20, units=8)
    assert (config.embedding_dim, config.encoder_units) == (8, 4)
    config = Seq2SeqConfig(10, 20, units=8, bidirectional=False)
    assert config.encoder_units == 8


def test_special_ids_are_fixed():
    config = Seq2SeqConfig(10, 20)
    ids = (config.pad_id, config.unk_id, config.bos_id, config.eos_id)
    assert ids == (0, 1, 2, 3)


def test_a_config_is_frozen_and_survives_a_dict():
    config = Seq2SeqConfig(10, 10, units=8, tie_embeddings="all", score_mode="dot")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.units = 3
    assert Seq2SeqConfig(**dataclasses.asdict(config)) == config


def test_the_papers_presets_are_the_papers():
    config = Seq2SeqConfig.preset("luong2015-global-dot", 50_000, 50_000)
    assert (config.num_layers, config.units, config.embedding_dim) == (4, 1000, 1000)
    assert (config.dropout, config.init_scale) == (0.2, 0.1)
    assert config.reverse_source and config.input_feeding
    base = Seq2SeqConfig.preset("luong2015-base", 50_000, 50_000)
    assert base.attention is None and not base.reverse_source and not base.dropout


@pytest.mark.parametrize(
    "fields, error, message",
    [
        ({"source_vocab_size": 4}, ValueError, "source_vocab_size.*4"),
        ({"units": 0}, ValueError, "units.*0"),
        ({"units": 2.5}, TypeError, "units.*2.5"),
        ({"cell_type": "tcn"}, ValueError, "cell_type.*tcn"),
        ({"attention": "hard"}, ValueError, "attention.*hard"),
        ({"score_mode": "mlp"}, ValueError, "score_mode.*mlp"),
        ({"dropout": 1.5}, ValueError, "dropout.*1.5"),
        ({"word_dropout": 1}, ValueError, "word_dropout.*1"),
        ({"memory_dropout": -1}, ValueError, "memory_dropout.*-1"),
        ({"output_dropout": "a"}, TypeError, "output_dropout.*'a'"),
        ({"bridge": "linear"}, ValueError, "bridge.*linear"),
        ({"tie_embeddings": True}, ValueError, "tie_embeddings.*True"),
        ({"init_scale": 0.0}, ValueError, "init_scale.*0"),
        ({"reverse_source": True}, ValueError, "bidirectional=False"),
        ({"encoder_units": 3}, ValueError, 'bridge="dense"'),
        ({"units": 7}, ValueError, "14 units and the decoder's 7"),
        (
            {"tie_embeddings": "target", "embedding_dim": 5},
            ValueError,
            "embedding_dim=5",
        ),
        ({"tie_embeddings": "all"}, ValueError, "one vocabulary.*10.*20"),
        ({"score_mode": "location"}, ValueError, "max_source_length"),
        ({"bidirectional": "no"}, TypeError, "bidirectional.*'no'"),
        ({"init_scale": "a"}, TypeError, "init_scale.*'a'"),
        ({"init_scale": float("inf")}, ValueError, "init_scale.*inf"),
        ({"score_mode": ["dot"]}, ValueError, "score_mode.*dot"),
        ({"window": 0}, ValueError, "window.*0"),
        ({"coverage": True, "attention": None}, ValueError, "coverage.*None"),
        ({"coverage": True, "attention": "monotonic"}, ValueError, "'monotonic'"),
        (
            {"attention": "local-p", "score_mode": "location", "max_source_length": 9},
            ValueError,
            "compares with the source",
        ),
        ({"sigmoid_noise": -1}, ValueError, "sigmoid_noise.*-1"),
        ({"hard_attention": 1}, TypeError, "hard_attention.*1"),
    ],
)
def test_wrong_fields_are_named(fields, error, message):
    fields = {
        "source_vocab_size": 10,
        "target_vocab_size": 20,
        "units": 8,
        **fields,
    }
    with pytest.raises(error, match=message):
        Seq2SeqConfig(**fields)


def test_unknown_presets_are_named():
    with pytest.raises(ValueError, match="luong2015-base.*'gpt'"):
        Seq2SeqConfig.preset("gpt", 10, 10)
