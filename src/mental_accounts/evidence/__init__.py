"""What came of it: statistics that can be trusted. Reads run folders only."""
