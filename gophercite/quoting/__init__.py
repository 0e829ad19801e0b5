"""What may be quoted, as an automaton over tokens: built per prompt, followed while sampling."""
