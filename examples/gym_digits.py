"""Scan a handwritten digit in gymnasium, draw the scan, and let the model play ap_gym: `python examples/gym_digits.py [scan.png]`."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import infogaze
import infogaze.adapters.gym  # registers infogaze/Scenes-v0
from infogaze.adapters.ap_gym import environment, play

LOOKS = 7


def scan(agent: infogaze.Agent) -> list[tuple[np.ndarray, str]]:
    """What was seen after each look, and what was believed of it."""
    env = gymnasium.make("infogaze/Scenes-v0", data="digits", num_looks=LOOKS, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    episode, frames, done = agent.episode(seed=0, budget=LOOKS), [], False
    while not done:
        episode.observe(observation["glimpse"][None], at=observation["location"])
        probabilities = episode.probabilities[0].numpy()
        best = int(probabilities.argmax())
        frames.append((env.render(), f"{agent.classes[best]}: {100 * probabilities[best]:.0f} %"))
        where = observation["location"] if episode.done else episode.next_location()[0].numpy()
        observation, reward, done, _, info = env.step({"action": where, "prediction": probabilities})
        print(f"look {len(frames)}: {frames[-1][1]}, reward {reward:.2f}")
    print(f"it is a {agent.classes[info['prediction']['target']]}")
    env.close()
    return frames


def drawn(frames: list[tuple[np.ndarray, str]]) -> Image.Image:
    """The frames side by side, each with its words below."""
    height, width, _ = frames[0][0].shape
    sheet = Image.new("RGB", (len(frames) * (width + 12) - 12, height + 44), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (frame, words) in enumerate(frames):
        left = number * (width + 12)
        sheet.paste(Image.fromarray(frame), (left, 0))
        draw.text((left + width // 2, height + 22), words, "black", ImageFont.load_default(26), anchor="mm")
    return sheet


if __name__ == "__main__":
    model = infogaze.load("digits")
    drawn(scan(model)).save(sys.argv[1] if len(sys.argv) > 1 else "scan.png", optimize=True)
    games = environment("digits", model, num_envs=20)
    accuracy = play(model, games, episodes=20, seed=0).accuracy
    games.close()
    print(
        f"ap_gym, {accuracy.n} episodes: {100 * accuracy.value[0]:.0f} % after one look, {100 * accuracy.value[-1]:.0f} % after 16"
    )
