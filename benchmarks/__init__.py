"""What do operations cost? Measurements, never imported by the packages that they measure."""
