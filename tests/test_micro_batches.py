"""Requests that come while others are computed are computed together."""

import asyncio
import functools
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


def all_rows_of(questions):
    return list(map(rows_of, questions))


class Model(MicroBatches):
    """Answers when it is let, and notes what it was asked at once."""

    def __init__(self, most, tell=lambda rows: None):
        super().__init__(self.answer, most, join, tell)
        self.let, self.asked = threading.Event(), []

    def answer(self, questions):
        self.asked.append([(x.name, x.rows) for x in questions])
        assert self.let.wait(60)
        return all_rows_of(questions)

    async def begin(self, *questions):
        """Asks, until the first batch is being computed."""
        asked = [self.soon(question) for question in questions]
        while not self.asked:
            await asyncio.sleep(0.002)
        return asked

    def soon(self, question):
        return asyncio.ensure_future(self.ask(question))


def asynchronous(test):
    """A test that is a coroutine function."""
    return functools.wraps(test)(lambda **given: asyncio.run(test(**given)))


@asynchronous
async def test_what_comes_meanwhile_is_one_batch():
    told = []
    model = Model(32, told.append)
    asked = await model.begin(Question(0))
    asked += [model.soon(Question(i)) for i in range(1, 17)]
    await asyncio.sleep(0.05)
    assert model.asked == [[(0, 1)]]  # one batch at a time
    model.let.set()
    assert await asyncio.gather(*asked) == [[(i, 0)] for i in range(17)]
    together = [(i, 1) for i in range(1, 17)]
    assert model.asked == [[(0, 1)], together] and told == [1, 16]


BATCHES = [
    ([1, 1, 1, 1, 1], [[(0, 1), (1, 1), (2, 1), (3, 1)], [(4, 1)]]),
    ([2, 2, 1], [[(0, 2), (1, 2)], [(2, 1)]]),
    # Of no row, but they cost something.
    ([0, 0, 0, 0, 0], [[(0, 0), (1, 0), (2, 0), (3, 0)], [(4, 0)]]),
    ([9], [[(0, 4)], [(0, 4)], [(0, 1)]]),  # in parts
    ([6, 6], [[(0, 4)], [(1, 4)], [(0, 2), (1, 2)]]),  # in turn
    ([9, 1], [[(1, 1)], [(0, 4)], [(0, 4)], [(0, 1)]]),  # few before many
]


@pytest.mark.parametrize("rows, expected", BATCHES)
@asynchronous
async def test_no_batch_is_larger_than_it_may_be(rows, expected):
    model = Model(4)
    model.let.set()
    questions = [Question(i, n) for i, n in enumerate(rows)]
    said = await asyncio.gather(*map(model.ask, questions))
    assert said == all_rows_of(questions) and model.asked == expected


@asynchronous
async def test_s3_few_come_between_the_parts_of_many_and_neither_waits_for_ever():
    model = Model(8)
    asked = await model.begin(Question(0, 20))
    asked += [model.soon(Question(i)) for i in range(1, 25)]
    await asyncio.sleep(0)
    model.let.set()
    await asyncio.gather(*asked)
    names = [{name for name, _ in batch} for batch in model.asked]
    assert [0 in x for x in names[:5]] == [True, False, True, False, True]
    assert model.asked[2][0][1] < 8  # a smaller part than where it is alone


COSTS = [(1.0, (2, 3)), (0.001, (32,))]  # of a row, as on a CPU and as on a GPU


@pytest.mark.parametrize("cost, expected", COSTS)
@asynchronous
async def test_s3_a_part_takes_as_long_as_it_lets_wait(cost, expected, monkeypatch):
    """Seconds by a clock of the test's own: a row more takes a second more."""
    now, sizes = [100.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0])  # asyncio keeps its own
    monkeypatch.setattr(export_script("micro_batches"), "time", clock)

    def answer(parts):
        rows = sum(x.rows for x in parts)
        sizes.append((rows, parts[0].name))
        now[0] += 0.01 * (1 + cost * rows)
        return all_rows_of(parts)

    batches = MicroBatches(answer, 32, join)
    many = asyncio.ensure_future(batches.ask(Question(0, 320)))
    while not many.done():
        await batches.ask(Question(1))
    parts = [rows for rows, name in sizes if name == 0]
    assert sum(parts) == 320 and parts[len(parts) // 2] in expected


@asynchronous
async def test_what_is_cancelled_is_not_computed():
    model = Model(4)
    first, gone, other = await model.begin(*(Question(i, 4) for i in range(3)))
    gone.cancel()
    first.cancel()  # it is computed already
    await asyncio.sleep(0)
    model.let.set()
    assert await other == rows_of(Question(2, 4))
    assert model.asked == [[(0, 4)], [(2, 4)]]


@asynchronous
async def test_s3_a_failure_is_told_to_those_of_the_batch_alone():
    """And what is refused in part is not computed further."""
    asked = []

    def answer(parts):
        asked.extend((x.name, x.start) for x in parts)
        if parts[0].name == 0:
            raise RuntimeError("no memory")
        return [ValueError("no") if x.start == 8 else rows_of(x) for x in parts]

    batches = MicroBatches(answer, 2, join)
    answers = (batches.ask(Question(i)) for i in range(3))
    said = await asyncio.gather(*answers, return_exceptions=True)
    assert [str(x) for x in said] == ["no memory", "no memory", "[(2, 0)]"]
    asked.clear()
    batches = MicroBatches(answer, 8, lambda parts: parts[-1])
    assert str(await batches.ask(Question(3, 40))) == "no"
    assert await batches.ask(Question(1)) == [(1, 0)]  # and it goes on
    assert asked == [(3, 0), (3, 8), (1, 0)]
