"""The command line of training."""

import dataclasses
import re

import pytest

from keras_luong.cli.flags import ZERO_IS_NONE, make_config, parse, settings_of
from keras_luong.models.config import Seq2SeqConfig


def test_every_hyperparameter_is_a_flag_with_help(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for field in dataclasses.fields(Seq2SeqConfig):
        if not field.name.endswith("_vocab_size"):
            assert f"--{field.name}" in text
    assert "Size of every decoder layer" in text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", {"units": 1000, "num_layers": 4, "input_feeding": True}),
        ("--units 12 --dropout 0.5", {"units": 12, "dropout": 0.5, "num_layers": 4}),
        ("--no-input_feeding", {"input_feeding": False}),
        ("--attention none --init_scale None", {"attention": None, "init_scale": None}),
        ("--preset small --tie_embeddings all --shared", {"tie_embeddings": "all"}),
        ("--preset small --bidirectional", {"bidirectional": True}),
    ],
)
def test_flags_change_the_preset(text, expected):
    args = parse(["--run_dir", "r", *text.split()])
    config = make_config(args, 50, 50)
    assert {name: getattr(config, name) for name in expected} == expected


def test_the_default_is_the_papers():
    args = parse(["--run_dir", "r"])
    assert (args.data, args.source, args.target) == (
        "wmt14_translate/de-en",
        "en",
        "de",
    )
    assert (args.optimizer, args.learning_rate, args.schedule) == (
        "sgd",
        1.0,
        "halving",
    )
    assert (args.epochs, args.constant_epochs, args.clip_norm) == (12, 8, 5.0)
    assert parse(["--run_dir", "r", "--optimizer", "adam"]).learning_rate < 0.01


@pytest.mark.parametrize(
    "text, message",
    [
        ("--r_drop -1", "--r_drop.*-1"),
        ("--weight_decay -3", "--weight_decay.*-3"),
        ("--r_drop 5 --jit_compile", "--r_drop needs --no-jit_compile.*5"),
        ("--preset cho2014 --r_drop 1", "--r_drop compares.*needs some.*1.0.*cho"),
        ("--label_smoothing 2", "--label_smoothing.*2"),
        ("--ema_momentum 1", "--ema_momentum.*1"),
        ("--learning_rate 0", "--learning_rate.*0"),
        ("--beta_2 0.98", "--beta_2 needs --optimizer adam.*sgd"),
        ("--subword_sampling -0.1", "--subword_sampling.*-0.1"),
        ("--subword_sampling 0.1 --tokenizer word", "--subword_sampling needs.*word"),
        ("--dropout 1.5", "dropout.*1.5"),
        ("--cell_type elman", "cell_type.*elman"),
        ("--preset gnmt --num_heads 2", "gnmt has no num_heads"),
        ("--preset small --tie_embeddings all", "--tie_embeddings all.*--shared"),
        ("--epochs 0", "--epochs.*0"),
        ("--vocab_size 3", "vocab_size.*3"),
        ("--patience 0", "--patience.*0"),
        ("--warmup_steps 0", "--warmup_steps.*0"),
        ("--constant_epochs -1", "--constant_epochs.*-1"),
        ("--gradient_accumulation_steps 0", "--gradient_accumulation_steps.*0"),
        ("--keep_epochs -1", "--keep_epochs.*-1"),
        ("--early_stopping -1", "--early_stopping.*-1"),
        ("--length_penalty nan", "--length_penalty.*nan"),
        ("--learning_rate inf", "--learning_rate.*inf"),
        ("--bleu_tokenize foo", "--bleu_tokenize.*13a.*foo"),
        ("--attention none --attention_dropout 0.1", "attention_dropout needs.*0.1"),
        ("--preset cho2014 --memory_dropout 0.5", "memory_dropout needs.*0.5"),
        ("--preset gnmt --bidirectional", "GNMT needs bidirectional=False.*True"),
        ("--preset bahdanau2015 --attention none", "needs attention.*None"),
    ],
)
def test_refuses_bad_values_before_any_work(text, message, capsys):
    with pytest.raises(SystemExit):
        parse(["--run_dir", "r", *text.split()])
    assert re.search(f"error: .*{message}", capsys.readouterr().err)


@pytest.mark.parametrize("name", ZERO_IS_NONE)
def test_zero_is_what_is_not_given(name):
    args = [parse(["--run_dir", "r", *more]) for more in ([], [f"--{name}", "0"])]
    assert settings_of(args[0]) == settings_of(args[1])


@pytest.mark.parametrize("text", ["--units x", "--optimizer rmsprop", "--unit 5 --x"])
def test_refuses_bad_flags(text, capsys):
    with pytest.raises(SystemExit):
        parse(["--run_dir", "r", *text.split()])
    assert "error" in capsys.readouterr().err
