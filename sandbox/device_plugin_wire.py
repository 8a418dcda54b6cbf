"""The few messages of kubelet's device plugin API v1beta1 that the stand-in plugin speaks, in protobuf's wire format.

Field numbers from k8s.io/kubelet pkg/apis/deviceplugin/v1beta1/api.proto. By hand: the generated code would need the package
protobuf and its compiler for five small messages.
"""

from collections.abc import Iterable, Iterator, Mapping

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_VARINT, _BYTES = 0, 2


def register_request(endpoint: str, resource: str) -> bytes:
    """Write a RegisterRequest: a plugin at `endpoint` (beside kubelet's socket) that wants to be asked for preferences."""
    return _text(1, VERSION) + _text(2, endpoint) + _text(3, resource) + _field(4, options())


def options() -> bytes:
    """Write DevicePluginOptions: GetPreferredAllocation is available, PreStartContainer is not required."""
    return _number(2, 1)


def devices(health: Mapping[str, str]) -> bytes:
    """Write a ListAndWatchResponse of device ids with their health."""
    return b"".join(_field(1, _text(1, name) + _text(2, state)) for name, state in health.items())


def read_allocate(message: bytes) -> list[list[str]]:
    """Read an AllocateRequest: the device ids for each container."""
    return [[_string(each) for number, each in _fields(one) if number == 1] for one in _messages(message, 1)]


def allocated(environments: Iterable[Mapping[str, str]]) -> bytes:
    """Write an AllocateResponse: the environment for each container."""
    answer = b""
    for environment in environments:
        entries = (_field(1, _text(1, key) + _text(2, value)) for key, value in environment.items())
        answer += _field(1, b"".join(entries))
    return answer


def read_preferred(message: bytes) -> list[tuple[list[str], list[str], int]]:
    """Read a PreferredAllocationRequest: available ids, ids that must be among them, and how many, for each container."""
    found = []
    for one in _messages(message, 1):
        available: list[str] = []
        required: list[str] = []
        size = 0
        for number, value in _fields(one):
            if number == 3 and isinstance(value, int):
                size = value
            else:
                (available if number == 1 else required).append(_string(value))
        found.append((available, required, size))
    return found


def preferred(chosen: Iterable[Iterable[str]]) -> bytes:
    """Write a PreferredAllocationResponse: the ids chosen for each container."""
    return b"".join(_field(1, b"".join(_text(1, name) for name in names)) for names in chosen)


def read_devices(message: bytes) -> dict[str, str]:
    """Read what `devices` writes."""
    found = {}
    for one in _messages(message, 1):
        fields = dict(_fields(one))
        found[_string(fields[1])] = _string(fields[2])
    return found


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _messages(message: bytes, wanted: int) -> Iterator[bytes]:
    for number, value in _fields(message):
        if number == wanted and isinstance(value, bytes):
            yield value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give number and value of each field. Raises ValueError for what this API never sends."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if key & 7 == _VARINT:
            yield key >> 3, value
        elif key & 7 == _BYTES and at + value <= len(message):
            yield key >> 3, message[at : at + value]
            at += value
        else:
            raise ValueError(f"no message of the device plugin API: {message!r}")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number ends in its middle")


def _string(value: int | bytes) -> str:
    if isinstance(value, int):
        raise ValueError(f"{value} stands where text belongs")
    return value.decode()
