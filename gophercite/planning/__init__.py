"""What a program would need of devices that aren't there: memory, operations, traffic, time."""
