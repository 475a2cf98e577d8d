"""Requests that come while others are computed are computed together."""

from __future__ import annotations

import asyncio
import threading
from typing import NamedTuple

import pytest
from export_scripts import export_script

MicroBatches = export_script("micro_batches").MicroBatches


class Question(NamedTuple):
    name: int
    rows: int = 1


class Model:
    """Answers when it is let, and notes what it was asked at once."""

    def __init__(self):
        self.let, self.asked = threading.Event(), []

    def answer(self, questions):
        self.asked.append([question.name for question in questions])
        assert self.let.wait(60)
        return [-question.name for question in questions]

    async def is_asked(self, times):
        while len(self.asked) < times:
            await asyncio.sleep(0.01)


def test_what_comes_meanwhile_is_one_batch():
    async def run():
        model, told = Model(), []
        batches = MicroBatches(model.answer, 32, told.append)
        first = asyncio.ensure_future(batches.ask(Question(0)))
        await model.is_asked(1)
        others = [asyncio.ensure_future(batches.ask(Question(i))) for i in range(1, 17)]
        await asyncio.sleep(0.1)
        assert model.asked == [[0]]  # one batch at a time
        model.let.set()
        assert await asyncio.gather(first, *others) == [-i for i in range(17)]
        assert model.asked == [[0], [*range(1, 17)]] and told == [1, 16]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([1, 1, 1, 1, 1], [[0, 1, 2, 3], [4]]),
        ([2, 2, 1], [[0, 1], [2]]),
        ([1, 9, 1, 1], [[0], [1], [2, 3]]),  # too large: alone
        ([0, 0, 0, 0, 0], [[0, 1, 2, 3], [4]]),  # of no row, but they cost something
    ],
)
def test_no_batch_is_larger_than_it_may_be(rows, expected):
    async def run():
        model = Model()
        model.let.set()
        batches = MicroBatches(model.answer, 4)
        questions = [Question(i, n) for i, n in enumerate(rows)]
        said = await asyncio.gather(*map(batches.ask, questions))
        assert said == [-i for i in range(len(rows))] and model.asked == expected

    asyncio.run(run())


def test_what_is_cancelled_is_not_computed():
    async def run():
        model = Model()
        batches = MicroBatches(model.answer, 4)
        first, gone, other = (
            asyncio.ensure_future(batches.ask(Question(i, 4))) for i in range(3)
        )
        await model.is_asked(1)
        gone.cancel()
        first.cancel()  # it is computed already
        await asyncio.sleep(0)
        model.let.set()
        assert await other == -2 and model.asked == [[0], [2]]

    asyncio.run(run())


def test_a_failure_is_told_to_those_of_the_batch_alone():
    def answer(questions):
        if questions[0].name == 0:
            raise RuntimeError("no memory")
        return [x.name for x in questions]

    async def run():
        batches = MicroBatches(answer, 2)
        said = await asyncio.gather(
            *(batches.ask(Question(i)) for i in range(3)), return_exceptions=True
        )
        assert [str(x) for x in said] == ["no memory", "no memory", "2"]
        assert await batches.ask(Question(5)) == 5  # and it goes on

    asyncio.run(run())
