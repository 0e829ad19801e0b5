"""The text of a page from its bytes: HTML, PDF and plain text, in a separate process."""
