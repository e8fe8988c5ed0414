"""What would we miss least? Eviction policies for runs of a prefix tree; usable without the rest of this project."""
