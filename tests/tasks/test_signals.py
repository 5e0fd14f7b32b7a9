from __future__ import annotations

import signal
import threading

import pytest

from infogaze.tasks.signals import stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_and_the_work_goes_on_until_it_asks(number: int) -> None:
    with stop_signals() as heard:
        assert heard == []
        signal.raise_signal(number)
        assert heard == [number]


def test_a_second_signal_is_not_waited_for() -> None:
    with stop_signals() as heard:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_afterwards_signals_do_what_they_did_before(number: int) -> None:
    before = signal.getsignal(number)
    with stop_signals():
        assert signal.getsignal(number) is not before
    assert signal.getsignal(number) is before


def test_a_thread_hears_nothing_and_changes_nothing() -> None:
    found: list[object] = []

    def work() -> None:
        with stop_signals() as heard:
            found.append(heard)
            found.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[], before]
