"""`python -m keras_luong.cli` is `keras-luong`."""

from keras_luong.cli.main import main

main()
