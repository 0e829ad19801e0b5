"""Finds pages for a question: search engines, fetching, and text that quotes can point into."""
