"""Classify a scene that is never seen whole, by looking where the expected information gain is largest."""

from infogaze.errors import InfogazeError
from infogaze.gaze.agent import Agent, Episode, Look
from infogaze.gaze.policies import Choice, GainPolicy, RandomPolicy, RasterPolicy
from infogaze.gaze.scene import read_scene, sample_picture
from infogaze.gaze.sensor import ImageSensor, Sensor
from infogaze.gaze.stopping import Confident, LittleToGain
from infogaze.grid import GlimpseGrid
from infogaze.methods.registry import METHODS, Method
from infogaze.models import ModelFolderError, load, save
from infogaze.nn.backbone import Backbone, GlimpseBackbone
from infogaze.nn.belief import Belief
from infogaze.nn.model import Model, ModelConfig, Recogniser, build
from infogaze.presets import PRESETS, Preset, preset
from infogaze.rng import scene_seeds

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PRESETS",
    "Agent",
    "Backbone",
    "Belief",
    "Choice",
    "Confident",
    "Episode",
    "GainPolicy",
    "GlimpseBackbone",
    "GlimpseGrid",
    "ImageSensor",
    "InfogazeError",
    "LittleToGain",
    "Look",
    "Method",
    "Model",
    "ModelConfig",
    "ModelFolderError",
    "Preset",
    "RandomPolicy",
    "RasterPolicy",
    "Recogniser",
    "Sensor",
    "build",
    "load",
    "preset",
    "read_scene",
    "sample_picture",
    "save",
    "scene_seeds",
]
