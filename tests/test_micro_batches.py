"""Requests that come while others are computed are computed together."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from export_scripts import export_script

MicroBatches = export_script("micro_batches").MicroBatches


class Question(NamedTuple):
    name: int
    rows: int = 1
    start: int = 0

    def part(self, start, stop):
        return Question(self.name, stop - start, start)


def join(parts):
    return sum(parts, [])


def rows_of(question):
    return [(question.name, question.start + i) for i in range(question.rows)]


class Model:
    """Answers when it is let, and notes what it was asked at once."""

    def __init__(self):
        self.let, self.asked = threading.Event(), []

    def answer(self, questions):
        self.asked.append([(x.name, x.rows) for x in questions])
        assert self.let.wait(60)
        return list(map(rows_of, questions))

    async def is_asked(self, times):
        while len(self.asked) < times:
            await asyncio.sleep(0.01)


def test_what_comes_meanwhile_is_one_batch():
    async def run():
        model, told = Model(), []
        batches = MicroBatches(model.answer, 32, join, told.append)
        first = asyncio.ensure_future(batches.ask(Question(0)))
        await model.is_asked(1)
        others = [asyncio.ensure_future(batches.ask(Question(i))) for i in range(1, 17)]
        await asyncio.sleep(0.1)
        assert model.asked == [[(0, 1)]]  # one batch at a time
        model.let.set()
        assert await asyncio.gather(first, *others) == [[(i, 0)] for i in range(17)]
        together = [(i, 1) for i in range(1, 17)]
        assert model.asked == [[(0, 1)], together] and told == [1, 16]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([1, 1, 1, 1, 1], [[(0, 1), (1, 1), (2, 1), (3, 1)], [(4, 1)]]),
        ([2, 2, 1], [[(0, 2), (1, 2)], [(2, 1)]]),
        # Of no row, but they cost something.
        ([0, 0, 0, 0, 0], [[(0, 0), (1, 0), (2, 0), (3, 0)], [(4, 0)]]),
        ([9], [[(0, 4)], [(0, 4)], [(0, 1)]]),  # in parts
        ([6, 6], [[(0, 4)], [(1, 4)], [(0, 2), (1, 2)]]),  # in turn
        ([9, 1], [[(1, 1)], [(0, 4)], [(0, 4)], [(0, 1)]]),  # few before many
    ],
)
def test_no_batch_is_larger_than_it_may_be(rows, expected):
    async def run():
        model = Model()
        model.let.set()
        batches = MicroBatches(model.answer, 4, join)
        questions = [Question(i, n) for i, n in enumerate(rows)]
        said = await asyncio.gather(*map(batches.ask, questions))
        assert said == list(map(rows_of, questions)) and model.asked == expected

    asyncio.run(run())


def test_s3_few_come_between_the_parts_of_many_and_neither_waits_for_ever():
    async def run():
        model = Model()
        batches = MicroBatches(model.answer, 8, join)
        many = asyncio.ensure_future(batches.ask(Question(0, 20)))
        await model.is_asked(1)
        few = [asyncio.ensure_future(batches.ask(Question(i))) for i in range(1, 25)]
        await asyncio.sleep(0)
        model.let.set()
        await asyncio.gather(many, *few)
        names = [{name for name, _ in batch} for batch in model.asked]
        assert [0 in x for x in names[:5]] == [True, False, True, False, True]
        assert model.asked[2][0][1] < 8  # a smaller part than where it is alone

    asyncio.run(run())


def test_s3_a_part_takes_about_as_long_as_those_that_it_lets_wait(monkeypatch):
    """Seconds by a clock of the test's own: a row more takes a second more."""
    module, now = export_script("micro_batches"), [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])  # asyncio keeps its own
    monkeypatch.setattr(module, "time", clock)
    sizes = []

    def answer(parts):
        rows = sum(x.rows for x in parts)
        sizes.append((rows, parts[0].name))
        now[0] += 0.01 * (1 + cost * rows)
        return list(map(rows_of, parts))

    async def run():
        sizes.clear()
        batches = MicroBatches(answer, 32, join)
        many = asyncio.ensure_future(batches.ask(Question(0, 320)))
        while not many.done():
            await batches.ask(Question(1))
        parts = [rows for rows, name in sizes if name == 0]
        assert sum(parts) == 320
        return parts[len(parts) // 2]

    cost = 1.0  # of a row: as on a CPU
    assert asyncio.run(run()) in (2, 3)
    cost = 0.001  # as on a GPU
    assert asyncio.run(run()) == 32


def test_what_is_cancelled_is_not_computed():
    async def run():
        model = Model()
        batches = MicroBatches(model.answer, 4, join)
        first, gone, other = (
            asyncio.ensure_future(batches.ask(Question(i, 4))) for i in range(3)
        )
        await model.is_asked(1)
        gone.cancel()
        first.cancel()  # it is computed already
        await asyncio.sleep(0)
        model.let.set()
        assert await other == rows_of(Question(2, 4))
        assert model.asked == [[(0, 4)], [(2, 4)]]

    asyncio.run(run())


def test_a_failure_is_told_to_those_of_the_batch_alone():
    def answer(questions):
        if questions[0].name == 0:
            raise RuntimeError("no memory")
        return [[x.name] for x in questions]

    async def run():
        batches = MicroBatches(answer, 2, join)
        said = await asyncio.gather(
            *(batches.ask(Question(i)) for i in range(3)), return_exceptions=True
        )
        assert [str(x) for x in said] == ["no memory", "no memory", "[2]"]
        assert await batches.ask(Question(5)) == [5]  # and it goes on

    asyncio.run(run())


def test_s3_what_is_refused_in_part_is_not_computed_further():
    asked = []

    def answer(parts):
        asked.extend((x.name, x.start) for x in parts)
        return [ValueError("no") if x.start == 8 else rows_of(x) for x in parts]

    async def run():
        batches = MicroBatches(answer, 8, lambda parts: parts[-1])
        no = await batches.ask(Question(0, 40))
        assert str(no) == "no"
        assert await batches.ask(Question(1)) == [(1, 0)]

    asyncio.run(run())
    assert asked == [(0, 0), (0, 8), (1, 0)]
