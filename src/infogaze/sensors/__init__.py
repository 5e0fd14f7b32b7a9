"""Sensors for what people have: large images, Python callables, endpoints. A sensor over arrays is `infogaze.gaze.sensor`."""
