"""Runs as a script: what kube-proxy does for the Service `kubernetes`, for the pods of one kubelet's node.

It listens on the Service's address in the node's network namespace and connects to the API server in this machine's; bytes
pass unchanged, so TLS is between the two ends. Without it no address of this machine would be reachable from a node. Stands
alone on the standard library: it is run by path, isolated (`python -I -S`).
"""

import ctypes
import os
import socket
import sys
import threading
from contextlib import suppress

_NEW_NET = 0x40000000
_CHUNK = 256 * 1024
_AT_ONCE = 256  # connections; kubelet and an agent hold a few each


def listener(init: int, address: str, port: int) -> socket.socket:
    """Listen in the network namespace of process `init`. The socket stays there, this thread does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(there, _NEW_NET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to the network of {init}")
        listening = socket.create_server((address, port), backlog=128)
    finally:
        if libc.setns(here, _NEW_NET) != 0:
            raise OSError(ctypes.get_errno(), "setns back")
        os.close(here)
        os.close(there)
    return listening


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes until the end, and the end too."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _serve(client: socket.socket, server_port: int, free: threading.Semaphore) -> None:
    try:
        with client, socket.create_connection(("127.0.0.1", server_port), timeout=10) as server:
            server.settimeout(None)
            back = threading.Thread(target=_carry, args=(server, client), daemon=True)
            back.start()
            _carry(client, server)
            back.join()
    except OSError:
        return  # the API server is down: the client sees its connection closed, and tries again
    finally:
        free.release()


def main(arguments: list[str]) -> int:
    """Take the pid of the node's process 1, ADDRESS and PORT to listen on there, and the API server's port here."""
    init, address, port, server_port = arguments
    free = threading.Semaphore(_AT_ONCE)
    with listener(int(init), address, int(port)) as listening:
        while True:
            free.acquire()
            client, _ = listening.accept()
            serve = threading.Thread(target=_serve, args=(client, int(server_port), free), daemon=True)
            serve.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
