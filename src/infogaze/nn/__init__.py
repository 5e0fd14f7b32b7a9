"""The networks, and the gain that follows from them, as batched tensors; what sees, remembers, classifies and imagines."""
