"""HTML that is written: escaped text, and pages with marked quotes."""
