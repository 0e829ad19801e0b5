"""Finds pages for a question: search engines, fetching, and what of a page a prompt shows."""
