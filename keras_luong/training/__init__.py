"""Losses, metrics, optimizers, schedules and devices for `fit`."""
