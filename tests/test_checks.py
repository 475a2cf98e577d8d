import math

import numpy as np
import pytest

from keras_luong import checks


@pytest.mark.parametrize(
    "check, arguments, expected",
    [
        (checks.check_size, (np.int64(3),), 3),
        (checks.check_size, (None, True), None),
        (checks.check_size, (0, False, 0, 0), 0),
        (checks.check_rate, (np.float32(0.5),), 0.5),
        (checks.check_coverage, (1,), 1.0),
        (checks.check_above, (1, 0), 1.0),
        (checks.check_not_negative, (0,), 0.0),
        (checks.check_flag, (True,), True),
        (checks.check_choice, ("a", {"a": 1, "b": 2}), "a"),
        (checks.check_choice, (None, ("a", None)), None),
    ],
)
def test_takes_what_is_right(check, arguments, expected):
    value = check("x", *arguments)
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(
    "check, arguments, error, message",
    [
        (checks.check_size, (1.0,), TypeError, r"x must be an integer\. Received: 1.0"),
        (checks.check_size, (True, True), TypeError, "an integer or None. .*True"),
        (checks.check_size, (0,), ValueError, "at least 1. Received: 0"),
        (checks.check_size, (9, False, 1, 8), ValueError, "at most 8. Received: 9"),
        (checks.check_rate, ("1",), TypeError, r"a number in \[0, 1\). Received: '1'"),
        (checks.check_rate, (1,), ValueError, r"in \[0, 1\). Received: 1"),
        (checks.check_coverage, (0.9,), ValueError, r"in \[0.98, 1\]. Received: 0.9"),
        (checks.check_coverage, ("1",), TypeError, "a number in .* Received: '1'"),
        (checks.check_above, (None, 0), TypeError, "a number. Received: None"),
        (checks.check_above, (math.nan, 0), ValueError, "above 0. Received: nan"),
        (checks.check_not_negative, (math.inf,), ValueError, "finite .* inf"),
        (checks.check_not_negative, (10**400,), ValueError, "finite and not negative"),
        (checks.check_flag, (1,), TypeError, "True or False. Received: 1"),
        (checks.check_path, (1,), TypeError, "x must be a path. Received: 1"),
        (checks.check_file, ("no/such",), FileNotFoundError, "There is no x no/such"),
    ],
)
def test_names_what_is_wrong(check, arguments, error, message):
    with pytest.raises(error, match=message):
        check("x", *arguments)


@pytest.mark.parametrize(
    "value, end",
    [
        ("genral", "'genral'. Did you mean 'general'?"),
        ("xyz", "'xyz'"),
        (["dot"], "['dot']"),
        (2, "2"),
    ],
)
def test_guesses_what_was_meant(value, end):
    with pytest.raises(ValueError) as error:
        checks.check_choice("mode", value, ("dot", "general", None))
    assert str(error.value) == (
        f"mode must be one of ['dot', 'general', None]. Received: {end}"
    )
