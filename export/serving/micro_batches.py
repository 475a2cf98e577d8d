"""Requests that are computed together: those that come while others are computed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

WAIT = 0.002  # seconds that the first one waits for others where nothing is computed


class Sized(Protocol):
    """A question of some rows."""

    @property
    def rows(self) -> int:
        """Their number."""


_Question = TypeVar("_Question", bound=Sized)
_Answer = TypeVar("_Answer")


class _Waiting(NamedTuple, Generic[_Question, _Answer]):
    question: _Question
    answer: asyncio.Future[_Answer]


class MicroBatches(Generic[_Question, _Answer]):
    """Answers one batch at a time, in a thread, so that more can come meanwhile.

    (Ray's own `serve.batch` makes a batch every few milliseconds whether the last one
    is computed or not, so that under load most batches have one request.)

    Args:
        answer: Answers several questions.
        most: Rows of a batch. A question of more is a batch of its own.
        tell: Is told the number of each batch's rows.
    """

    def __init__(
        self,
        answer: Callable[[list[_Question]], Sequence[_Answer]],
        most: int,
        tell: Callable[[int], None] = lambda rows: None,
    ):
        self.most = most
        self._answer, self._tell = answer, tell
        self._waiting: deque[_Waiting[_Question, _Answer]] = deque()
        self._work: asyncio.Task[None] | None = None

    async def ask(self, question: _Question) -> _Answer:
        """Returns the answer to a question.

        One that is cancelled before it is computed costs nothing.

        Args:
            question: The question.
        """
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(question, answer))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._answer_all())
        return await answer

    async def _answer_all(self) -> None:
        await asyncio.sleep(WAIT)
        while batch := self._next():
            questions = [x.question for x in batch]
            self._tell(sum(x.rows for x in questions))
            try:
                said = await asyncio.to_thread(self._answer, questions)
            except Exception as error:  # a fault of `answer`: nobody waits for ever
                for x in batch:
                    if not x.answer.done():
                        x.answer.set_exception(error)
            else:
                for x, answer in zip(batch, said, strict=True):
                    if not x.answer.done():  # cancelled
                        x.answer.set_result(answer)

    def _next(self) -> list[_Waiting[_Question, _Answer]]:
        """Takes the first ones, as many as fit."""
        batch, rows = [], 0
        while self._waiting:
            first = self._waiting[0]
            if not first.answer.done():
                rows += max(first.question.rows, 1)
                if batch and rows > self.most:
                    break
                batch.append(first)
            self._waiting.popleft()
        return batch
