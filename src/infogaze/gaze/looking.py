"""One look of every scene through a sensor, whatever becomes of it: it is taken in, or its place is given up for another."""

from __future__ import annotations

from infogaze.gaze.answers import gathered
from infogaze.gaze.episode import Episode
from infogaze.gaze.sensor import GlimpseFunction, LookFailed, Seen


def take_look(episode: Episode, look: GlimpseFunction) -> None:
    """Look where the episode asks, and tell it what was seen.

    Scenes whose looks fail are looked at in other places, until each that goes on was seen once. What was seen of the others meanwhile is
    not used: they are as if no look beside them had failed.
    """
    lacking, answers, again = episode.running, None, False
    while not episode.done:
        where = episode.next_location()
        # At first some scene lacks a look: the episode is not done. A GPU need not be waited for to tell.
        if again and not bool(lacking.any()):
            break
        failed = lacking
        try:
            answer = look(where)
        except LookFailed:
            pass
        else:
            if answers is None and not isinstance(answer, Seen):
                episode.observe(answer)
                return
            answers, failed = gathered(answers, answer, where=where, lacking=lacking)
        if not bool(failed.any()):
            break
        episode.skip(failed)
        lacking, again = failed & episode.running, True
    if answers is not None and not episode.done:
        seen = answers.seen()
        episode.observe(seen.glimpse, reached=seen.at)
