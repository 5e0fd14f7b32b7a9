"""What the commands do, from Python."""
