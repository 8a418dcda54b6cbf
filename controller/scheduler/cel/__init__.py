"""CEL, as the selectors of dynamic resource allocation are written in it. Pure.

What is read: the whole grammar but for messages and durations, the standard macros with cel.bind and optMap, optional
values, and of Kubernetes' libraries strings, lists, sets, regex, quantity and semver. An expression that uses more is
refused when it is compiled, by name. Types are not checked beforehand: the API server did when it took the object, and at
run time an operation on the wrong type is an error, as in CEL.

Why it is our own: cel-python 0.5.0 knows neither cel.bind nor optional values, nor that values of different types are
simply unequal; a selector took it 0.3 ms, its import 0.3 s and 23 MiB. Regular expressions are RE2's own, since users write
them and Python's engine can be kept busy for ever.

Source: the CEL language definition (cel-spec), and Kubernetes 1.37's environment (apiserver, pkg/cel/environment and
library; dynamic-resource-allocation/cel), whose answers `tests/scheduler/test_cel.py` holds.
"""
