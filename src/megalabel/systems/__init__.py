"""The named systems: each one a short file that puts parts together."""
