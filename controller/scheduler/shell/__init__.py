"""The scheduler on a cluster: watches, calls and threads around the pure core."""
