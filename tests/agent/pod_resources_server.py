"""What tests of the PodResources client share: bytes that kubelet's own code wrote, and sockets to speak on."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# What k8s.io/kubelet 0.37.2's own generated Go code writes (proto.Marshal of the same values as in the tests below).
GO_ALLOCATABLE = bytes.fromhex(
    "0a3e0a0e6e76696469612e636f6d2f67707512284750552d31313131313131312d323232322d333333332d343434342d3535"
    "353535353535353535351a020a000a400a0e6e76696469612e636f6d2f67707512284750552d31313131313131312d323232"
    "322d333333332d343434342d3535353535353535353535351a040a0208010a420a166e76696469612e636f6d2f6d69672d31"
    "672e3130676212284d49472d61616161616161612d323232322d333333332d343434342d3535353535353535353535350a0d"
    "0a0872646d612f6863611201301205000102ac021a130a066d656d6f7279108080808080201a020a00"
)
GO_LIST = bytes.fromhex(
    "0aa7010a09747261696e65722d3012067465616d2d611a7a0a046d61696e126e0a0e6e76696469612e636f6d2f677075122b"
    "4750552d31313131313131312d323232322d333333332d343434342d3535353535353535353535353a3a33122b4750552d32"
    "323232323232322d323232322d333333332d343434342d3535353535353535353535353a3a301a020a001a0201021a060a04"
    "73696465220204052a0a0a066d656d6f727910070a750a06636c61696d7312067465616d2d621a630a046d61696e2a5b1207"
    "6f6e652d6770751a067465616d2d6222480a220a206b38732e6770752e6e76696469612e636f6d2f636c61696d3d312d6770"
    "752d33120e6770752e6e76696469612e636f6d1a056770752d3122056770752d332a04663165320a190a05706c61696e120b"
    "6b7562652d73797374656d1a030a0163"
)


@contextmanager
def socket_path() -> Iterator[Path]:
    """Give a path short enough for a Unix socket (107 bytes), which pytest's own folders are not always."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder) / "kubelet.sock"


def serve_raw(listener: socket.socket, speak: Callable[[socket.socket], None]) -> threading.Thread:
    """Take one connection on a listening socket and let `speak` do with it what it will."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            speak(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread
