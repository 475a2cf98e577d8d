"""The recipes, and the command line that follows them."""

import pytest

from keras_luong.cli import flags
from keras_luong.cli.recipes import RECIPES
from keras_luong.models.presets import PRESETS


def parse(*texts):
    return vars(flags.parse(["--run_dir", "r", *texts]))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_its_preset_trains_with(name):
    assert name in PRESETS
    plain, args = parse("--preset", "small"), parse("--preset", name)
    changed = {flag: args[flag] for flag in args if args[flag] != plain[flag]}
    assert changed == {
        "preset": name,
        **{flag: x for flag, x in RECIPES[name].items() if x != plain[flag]},
    }


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("multi30k", 7_557_120),
        ("multi30k-small", 2_402_304),
        ("wu2021-tiny", 2_599_424),
    ],
)
def test_recipes_have_the_sizes_of_the_published_results(name, parameters):
    args = flags.parse(["--run_dir", "r", "--preset", name])
    config = flags.make_config(args, args.vocab_size, args.vocab_size)
    assert PRESETS[name].model(config).count_params() == parameters


@pytest.mark.parametrize("name", RECIPES)
def test_flags_come_before_recipes(name):
    args = parse("--preset", name, "--epochs", "3", "--seed", "7", "--optimizer", "sgd")
    assert (args["epochs"], args["seed"], args["optimizer"]) == (3, 7, "sgd")
    # What belongs to the recipe's optimizer does not belong to another.
    assert (args["learning_rate"], args["beta_2"]) == (1.0, None)
    args = parse("--preset", name, "--optimizer", "sgd", "--learning_rate", "0.3")
    assert args["learning_rate"] == 0.3


def test_other_presets_have_none():
    for name in PRESETS.keys() - RECIPES.keys():
        assert parse("--preset", name) == {**parse(), "preset": name}
