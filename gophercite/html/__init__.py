"""Generates HTML: escaped text, and pages with marked quotes."""
