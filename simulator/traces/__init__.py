"""Readers of request traces."""
