"""What a release costs. Pure mathematics: no data, no randomness, no input or output."""
