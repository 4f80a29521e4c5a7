"""Many runs as one study: planned, run on this machine or on a cluster, never twice."""
