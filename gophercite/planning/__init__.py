"""What a program needs on devices that aren't present: memory, operations, traffic, time."""
