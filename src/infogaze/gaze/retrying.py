"""A sensor that is asked again when a look fails or takes too long."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import torch
from jaxtyping import Num
from torch import Tensor

from infogaze.errors import InfogazeError
from infogaze.gaze.answers import gathered
from infogaze.gaze.sensor import GlimpseFunction, LookFailed, Seen, Sensor


class Retrying:
    """A sensor whose failing looks are tried again, `attempts` times in all, each for at most `timeout` seconds; then they have failed.

    A look fails by `LookFailed`, for some scenes of a batch by `Seen.failed`, or by an exception of `errors`: other exceptions are
    mistakes, and end the episode. What has not returned in time is left alone, and the sensor is not asked again before it did: an
    instrument gets one order at a time.
    """

    def __init__(
        self,
        sensor: Sensor | GlimpseFunction,
        *,
        attempts: int = 3,
        timeout: float | None = None,
        errors: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        if attempts < 1:
            raise InfogazeError(f"attempts is {attempts}; it must be at least 1")
        if timeout is not None and not 0.0 < timeout <= threading.TIMEOUT_MAX:
            raise InfogazeError(f"timeout is {timeout}; a number of seconds above 0 is needed, or None")
        self._look: GlimpseFunction = sensor.look if isinstance(sensor, Sensor) else sensor
        self._attempts, self._timeout = attempts, timeout
        self._errors: tuple[type[Exception], ...] = (LookFailed, *errors)
        self._busy = threading.Lock()

    def look(self, where: Num[Tensor, "B 2"]) -> Num[Tensor, "B C g g"] | Seen:
        """The sensor's own answer, of a batch put together from several; LookFailed, caused by the last failure, where there is none."""
        last: Exception | None = None
        lacking, answers = torch.ones_like(where[:, 0], dtype=torch.bool), None
        for _ in range(self._attempts):
            try:
                answer = self._once(where.clone())
            except self._errors as error:
                last = error
                continue
            if answers is None and not isinstance(answer, Seen):
                return answer
            answers, lacking = gathered(answers, answer, where=where, lacking=lacking)
            if not bool(lacking.any()):
                break
        if answers is None:
            raise LookFailed(f"after {self._attempts} attempts: {type(last).__name__}: {last}") from last
        return answers.seen(lacking)

    def _once(self, where: Num[Tensor, "B 2"]) -> Num[Tensor, "B C g g"] | Seen:
        if self._timeout is None:
            return self._look(where)
        if not self._busy.acquire(timeout=self._timeout):
            raise LookFailed(f"the sensor is still busy with an earlier look after {self._timeout:g} seconds")
        answer: Future[Num[Tensor, "B C g g"] | Seen] = Future()
        # A daemon: a sensor that hangs for ever does not keep the program from ending.
        threading.Thread(target=self._answer, args=(where, answer), daemon=True).start()
        try:
            return answer.result(self._timeout)
        except TimeoutError as error:
            if answer.done():  # the sensor's own
                raise
            raise LookFailed(f"no answer in {self._timeout:g} seconds") from error

    def _answer(self, where: Num[Tensor, "B 2"], answer: Future[Num[Tensor, "B C g g"] | Seen]) -> None:
        try:
            answer.set_result(self._look(where))
        except BaseException as error:  # told to who asked
            answer.set_exception(error)
        finally:
            self._busy.release()
