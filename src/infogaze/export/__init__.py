"""Models outside Python: ONNX graphs, and the contract that says how to run them."""
