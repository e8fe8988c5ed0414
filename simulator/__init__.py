"""Replays real traffic through the real store and says what it would have hit."""
