"""Many runs as one study: planned, then run on this machine or on a cluster, each only once."""
