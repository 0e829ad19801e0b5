"""What a text browser accepts, as an automaton over tokens."""
