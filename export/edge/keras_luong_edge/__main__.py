"""`python -m keras_luong_edge` is the command `keras-luong-edge`."""

import sys

from keras_luong_edge.command import main

if __name__ == "__main__":
    sys.exit(main())
