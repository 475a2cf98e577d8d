"""Requests that are computed together: those that come while others are computed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

WAIT = 0.002  # seconds that the first one waits for others where nothing is computed
FEW = 4  # rows of a request that is computed in one piece, before parts of larger ones
LATELY = 10.0  # seconds since a request of few rows, in which more may come
LONGEST = 1.75  # how long a part may take meanwhile, in batches of those


class Sized(Protocol):
    """A question of some rows, which can be asked in parts."""

    @property
    def rows(self) -> int:
        """Their number."""

    def part(self: _Question, start: int, stop: int) -> _Question:
        """The question for some of its rows."""


_Question = TypeVar("_Question", bound=Sized)
_Answer = TypeVar("_Answer")


class _Waiting(Generic[_Question, _Answer]):
    """A question, and what was answered of it so far."""

    def __init__(self, question: _Question):
        self.question, self.asked, self.said = question, 0, list[_Answer]()
        self.whole: asyncio.Future[list[_Answer]]
        self.whole = asyncio.get_running_loop().create_future()

    def next_part(self, most: int) -> _Question:
        """The next rows, at most so many."""
        start = self.asked
        self.asked = min(start + most, self.question.rows)
        return self.question.part(start, self.asked)

    @property
    def left(self) -> int:
        """The rows still to be asked; a question of no rows counts as one row."""
        return max(self.question.rows, 1) - self.asked


class MicroBatches(Generic[_Question, _Answer]):
    """Answers one batch at a time, in a thread, so that more can come meanwhile.

    A question of many rows is asked in parts, and those of few rows come between them.
    While there are any, a part is so small that it takes hardly longer than a batch of
    those, so that none of them waits for all that others want.

    (Ray's own `serve.batch` makes a batch every few milliseconds whether the last one
    is computed or not, so that under load most batches have one request.)

    Args:
        answer: Answers several questions. If it answers a part by an exception, the
            others are not asked.
        most: Rows of a batch.
        join: Makes one answer of a question's parts'.
        tell: Is told the number of each batch's rows.
    """

    def __init__(
        self,
        answer: Callable[[list[_Question]], Sequence[_Answer]],
        most: int,
        join: Callable[[list[_Answer]], _Answer],
        tell: Callable[[int], None] = lambda rows: None,
    ):
        self.most, self.few = most, min(FEW, most)
        self._answer, self._join, self._tell = answer, join, tell
        self._small: deque[_Waiting[_Question, _Answer]] = deque()
        self._large: deque[_Waiting[_Question, _Answer]] = deque()
        self._part = self.few  # rows of a part while there are small ones
        self._small_seconds = 0.0  # that a batch of small ones takes
        self._small_until = 0.0  # when there will have been none lately
        self._work: asyncio.Task[None] | None = None

    async def ask(self, question: _Question) -> _Answer:
        """Returns the answer to a question.

        One that is cancelled before it is computed costs nothing.

        Args:
            question: The question.
        """
        asked: _Waiting[_Question, _Answer] = _Waiting(question)
        (self._large if question.rows > self.few else self._small).append(asked)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        said = await asked.whole
        return said[0] if len(said) == 1 else self._join(said)

    async def _answer_all(self) -> None:
        await asyncio.sleep(WAIT)
        is_small = False
        while self._small or self._large:
            is_small = bool(self._small) and not (is_small and self._large)
            batch = self._next_small() if is_small else self._next_parts()
            if not batch:  # all were cancelled
                continue
            parts = [part for _, part in batch]
            self._tell(sum(x.rows for x in parts))
            start = time.monotonic()
            try:
                said = await asyncio.to_thread(self._answer, parts)
            except Exception as error:  # a fault of `answer`: nobody waits for ever
                for x, _ in batch:
                    if not x.whole.done():
                        x.whole.set_exception(error)
                continue
            self._learn(is_small, time.monotonic() - start)
            for (x, _), answer in zip(batch, said, strict=True):
                x.said.append(answer)
                is_last = x.asked >= x.question.rows or isinstance(answer, Exception)
                if is_last and not x.whole.done():  # or cancelled
                    x.whole.set_result(x.said)

    def _next_small(self) -> list[tuple[_Waiting[_Question, _Answer], _Question]]:
        """Takes the first ones of few rows, as many as fit."""
        self._small_until = time.monotonic() + LATELY
        batch, left = [], self.most
        while self._small and self._small[0].left <= left:
            first = self._small.popleft()
            if not first.whole.done():  # cancelled
                left -= first.left
                batch.append((first, first.next_part(self.most)))
        return batch

    def _next_parts(self) -> list[tuple[_Waiting[_Question, _Answer], _Question]]:
        """Takes parts of those of many rows, one after the other in turn."""
        is_alone = time.monotonic() > self._small_until
        batch, left = [], self.most if is_alone else self._part
        for _ in range(len(self._large)):
            first = self._large.popleft() if left else None
            if first is None or first.whole.done():  # cancelled
                continue
            part = first.next_part(left)
            left -= part.rows
            batch.append((first, part))
            if first.left:
                self._large.append(first)
        return batch

    def _learn(self, is_small: bool, seconds: float) -> None:
        """Makes parts smaller that take too long for small ones, or larger."""
        if is_small:
            mean = self._small_seconds or seconds
            self._small_seconds = 0.9 * mean + 0.1 * seconds
        elif time.monotonic() <= self._small_until and self._small_seconds:
            if seconds > LONGEST * self._small_seconds:
                self._part = max(1, self._part // 2)
            elif seconds < 1.2 * self._small_seconds:
                self._part = min(self.most, 2 * self._part)
