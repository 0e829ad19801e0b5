"""The texts that the text browser accepts, as an automaton over tokens."""
