import os

import pytest

from keras_luong.progress import quietly


def test_nothing_is_told(capfd):
    with quietly():
        os.write(2, b"noise")
    assert capfd.readouterr().err == ""


def test_all_is_told_if_it_fails(capfd):
    with pytest.raises(ValueError), quietly():
        os.write(2, b"noise")
        raise ValueError
    assert capfd.readouterr().err == "noise"


def test_there_may_be_no_standard_error(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with quietly():
        pass
