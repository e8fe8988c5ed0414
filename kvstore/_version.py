"""The version, alone in a file so that packaging reads it without importing anything."""

__all__ = ["__version__"]

__version__ = "0.1.0"
