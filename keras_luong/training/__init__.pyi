from keras_luong.training.losses import SequenceCrossentropy as SequenceCrossentropy
from keras_luong.training.metrics import Perplexity as Perplexity
from keras_luong.training.metrics import TokenAccuracy as TokenAccuracy
from keras_luong.training.optimizers import MovingAverage as MovingAverage
from keras_luong.training.optimizers import make_optimizer as make_optimizer
from keras_luong.training.schedules import halving as halving
from keras_luong.training.schedules import make_schedule as make_schedule
from keras_luong.training.strategies import make_strategy as make_strategy
