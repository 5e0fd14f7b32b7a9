"""Training as it is shown to a person: a bar a phase."""

from __future__ import annotations

from infogaze.progress import Bar, Display
from infogaze.training.loop import Step


class Bars:
    """Turns notices of steps into bars."""

    def __init__(self, screen: Display) -> None:
        self._screen = screen
        self._bars: dict[str, Bar] = {}

    def notice(self, step: Step) -> None:
        """Show where training stands."""
        if step.phase not in self._bars:
            self._bars[step.phase] = self._screen.bar(
                f"phase {step.number}, {step.phase}", step.total, begin=step.scenes
            )
            return
        looks = " ".join(f"{100 * share:.0f}" for share in step.accuracy)
        right = "right" if len(step.accuracy) == 1 else "right by look"
        note = f"loss {step.loss:.2f}, {right} {looks} %" if looks else ""
        self._bars[step.phase].advance(step.scenes, note)
