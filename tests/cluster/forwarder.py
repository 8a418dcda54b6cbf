"""A stretch of network that can be cut: forwards TCP connections of one client to one port of this machine."""

import selectors
import socket
import threading
from contextlib import suppress

_CHUNK = 65536


class Forwarder:
    """Listens on a free port of 127.0.0.1 while the block lasts. TLS passes through it unseen."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._whole = threading.Event()
        self._whole.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="forwarder", daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection, and refuse new ones until `mend`."""
        self._whole.clear()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if not self._whole.is_set():
                return
            with socket.create_connection(self._target, timeout=10) as far:
                far.settimeout(None)
                self._carry(near, far)

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            self._open |= {near, far}
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(near, selectors.EVENT_READ, far)
                selector.register(far, selectors.EVENT_READ, near)
                while self._whole.is_set():
                    for key, _ in selector.select(0.5):
                        source: socket.socket = key.fileobj  # type: ignore[assignment]  # we registered sockets
                        data = source.recv(_CHUNK)
                        if not data:
                            return
                        key.data.sendall(data)
        finally:
            with self._lock:
                self._open -= {near, far}
