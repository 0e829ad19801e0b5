"""What may be quoted, as an automaton over tokens: built once per page, followed while sampling."""
