"""Which pods belong together: the pod group that a pod's owners ask for, kind by kind, as data. Pure."""
