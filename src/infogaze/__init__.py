"""Classify a scene that is never seen whole, by looking where the expected information gain is largest.

What may be imported from here is `__all__`. Each name is loaded when it is first used, so that a program that looks waits for no training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from infogaze.version import __version__

if TYPE_CHECKING:
    from infogaze.data.options import ReadOptions
    from infogaze.errors import InfogazeError
    from infogaze.export.write import export_onnx
    from infogaze.gaze.agent import Agent, Origin
    from infogaze.gaze.classification import Classification, sample_picture
    from infogaze.gaze.episode import Episode, Look
    from infogaze.gaze.policies import Choice, DistilledPolicy, GainPolicy, Policy, RandomPolicy, RasterPolicy
    from infogaze.gaze.retrying import Retrying
    from infogaze.gaze.scale import Scale
    from infogaze.gaze.sensor import ImageSensor, LookFailed, Seen, Sensor
    from infogaze.gaze.stopping import CalibratedStop, Confident, LittleToGain, LowEntropy, StopRule
    from infogaze.gaze.travel import Stage, Travel
    from infogaze.grid import GlimpseGrid
    from infogaze.methods.method import Method
    from infogaze.methods.registry import METHODS, register_method
    from infogaze.model_description import ModelFolderError
    from infogaze.models import load, save
    from infogaze.nn.backbone import Backbone, GlimpseBackbone
    from infogaze.nn.belief import Belief
    from infogaze.nn.config import ModelConfig
    from infogaze.nn.decoder import Decoder
    from infogaze.nn.dictionary import Dictionary
    from infogaze.nn.imagination import Imagination, Imagined
    from infogaze.nn.model import GlimpseClassifier, Model, build
    from infogaze.nn.partial_vae import PartialVAE
    from infogaze.nn.posterior import Posterior
    from infogaze.presets import PRESETS, Preset, preset
    from infogaze.rng import SceneNoise, scene_seeds
    from infogaze.scoring.scorer import Scorer
    from infogaze.sensors.function import CallableSensor
    from infogaze.sensors.http import HttpSensor
    from infogaze.sensors.tiff import TiffSensor
    from infogaze.tasks.calibrate import calibrate
    from infogaze.tasks.distil import distil
    from infogaze.tasks.evaluate import evaluate
    from infogaze.tasks.score import score
    from infogaze.tasks.train import train
    from infogaze.training.loop import Stopped
    from infogaze.training.recipe import RECIPES, Recipe, recipe

_HOMES = {
    "data.options": ("ReadOptions",),
    "errors": ("InfogazeError",),
    "export.write": ("export_onnx",),
    "gaze.agent": ("Agent", "Origin"),
    "gaze.classification": ("Classification", "sample_picture"),
    "gaze.episode": ("Episode", "Look"),
    "gaze.policies": ("Choice", "DistilledPolicy", "GainPolicy", "Policy", "RandomPolicy", "RasterPolicy"),
    "gaze.retrying": ("Retrying",),
    "gaze.scale": ("Scale",),
    "gaze.sensor": ("ImageSensor", "LookFailed", "Seen", "Sensor"),
    "gaze.stopping": ("CalibratedStop", "Confident", "LittleToGain", "LowEntropy", "StopRule"),
    "gaze.travel": ("Stage", "Travel"),
    "grid": ("GlimpseGrid",),
    "methods.method": ("Method",),
    "methods.registry": ("METHODS", "register_method"),
    "model_description": ("ModelFolderError",),
    "models": ("load", "save"),
    "nn.backbone": ("Backbone", "GlimpseBackbone"),
    "nn.belief": ("Belief",),
    "nn.config": ("ModelConfig",),
    "nn.decoder": ("Decoder",),
    "nn.dictionary": ("Dictionary",),
    "nn.imagination": ("Imagination", "Imagined"),
    "nn.model": ("GlimpseClassifier", "Model", "build"),
    "nn.partial_vae": ("PartialVAE",),
    "nn.posterior": ("Posterior",),
    "presets": ("PRESETS", "Preset", "preset"),
    "rng": ("SceneNoise", "scene_seeds"),
    "tasks.calibrate": ("calibrate",),
    "sensors.function": ("CallableSensor",),
    "sensors.http": ("HttpSensor",),
    "sensors.tiff": ("TiffSensor",),
    "scoring.scorer": ("Scorer",),
    "tasks.distil": ("distil",),
    "tasks.evaluate": ("evaluate",),
    "tasks.score": ("score",),
    "tasks.train": ("train",),
    "training.loop": ("Stopped",),
    "training.recipe": ("RECIPES", "Recipe", "recipe"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "PRESETS",
    "RECIPES",
    "Agent",
    "Backbone",
    "Belief",
    "CalibratedStop",
    "CallableSensor",
    "Choice",
    "Classification",
    "Confident",
    "Decoder",
    "Dictionary",
    "DistilledPolicy",
    "Episode",
    "GainPolicy",
    "GlimpseBackbone",
    "GlimpseClassifier",
    "GlimpseGrid",
    "HttpSensor",
    "ImageSensor",
    "Imagination",
    "Imagined",
    "InfogazeError",
    "LittleToGain",
    "Look",
    "LookFailed",
    "LowEntropy",
    "Method",
    "Model",
    "ModelConfig",
    "ModelFolderError",
    "Origin",
    "PartialVAE",
    "Policy",
    "Posterior",
    "Preset",
    "RandomPolicy",
    "RasterPolicy",
    "ReadOptions",
    "Recipe",
    "Retrying",
    "Scale",
    "SceneNoise",
    "Scorer",
    "Seen",
    "Sensor",
    "Stage",
    "StopRule",
    "Stopped",
    "TiffSensor",
    "Travel",
    "__version__",
    "build",
    "calibrate",
    "distil",
    "evaluate",
    "export_onnx",
    "load",
    "preset",
    "recipe",
    "register_method",
    "sample_picture",
    "save",
    "scene_seeds",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'infogaze' has no attribute {name!r}")
    value = getattr(import_module(f"infogaze.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
