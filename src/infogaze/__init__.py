"""Classify a scene that is never seen whole, by looking where the expected information gain is largest."""

from infogaze.agent import Agent, Episode, Look
from infogaze.backbone import Backbone, GlimpseBackbone
from infogaze.belief import Belief
from infogaze.errors import InfogazeError
from infogaze.methods import METHODS, Method
from infogaze.model import Model, ModelConfig, Recogniser, build
from infogaze.noise import scene_seeds
from infogaze.policies import Choice, GainPolicy, RandomPolicy, RasterPolicy
from infogaze.presets import PRESETS, Preset, preset
from infogaze.scene import read_scene, sample_picture
from infogaze.sensing import GlimpseGrid, ImageSensor, Sensor
from infogaze.stopping import Confident, LittleToGain
from infogaze.weights import ModelFolderError, load, save

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
