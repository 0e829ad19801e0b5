"""What is optimised and how: losses, optimisers, schedules, and the state they update."""
