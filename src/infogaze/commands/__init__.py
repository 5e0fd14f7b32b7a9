"""What each `infogaze` command does; one file a command."""
