"""Vocabularies as files and folders."""
