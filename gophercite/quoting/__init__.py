"""What may be quoted, as an automaton over tokens: built once a page, followed while sampling."""
