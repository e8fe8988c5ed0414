"""How bytes move: layouts and page pools."""
