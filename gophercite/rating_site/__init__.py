"""The web site of a study: what raters and administrators see, and its protection."""
