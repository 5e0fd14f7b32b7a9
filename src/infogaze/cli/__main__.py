"""`python -m infogaze.cli`, as torchrun starts it."""

from infogaze.cli.main import main

main()
