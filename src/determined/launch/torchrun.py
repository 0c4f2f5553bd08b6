"""torchrun, with a rendezvous for the processes of one machine that no other machine can reach.

    python -m determined.launch.torchrun --rdzv_backend loopback --rdzv_endpoint localhost:PORT ...

torch's own rendezvous open a store on all interfaces. Here the only torchrun needs none, and the
store for scripts that call `init_process_group` themselves listens on the loopback interface. Each
attempt gets a new one: in an old one, workers would find addresses of dead processes.
"""

from __future__ import annotations

import socket

from torch._C._distributed_c10d import HashStore, TCPStore
from torch.distributed import run
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

BACKEND = "loopback"
_ADDRESS = "127.0.0.1"


class LoopbackRendezvous(RendezvousHandler):
    """The rendezvous of a job with one torchrun; holds the store of its workers."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._port = int(parameters.endpoint.rpartition(":")[2] or 0)
        self._agent_store = HashStore()
        self._worker_store: TCPStore | None = None
        self._is_closed = False

    def get_backend(self) -> str:
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True  # workers connect to it; otherwise the first would open one of its own

    def next_rendezvous(self) -> RendezvousInfo:
        self._worker_store = None  # frees the port
        listener = _listen(self._port)
        port = listener.getsockname()[1]
        self._worker_store = TCPStore(
            _ADDRESS,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        store_info = RendezvousStoreInfo(_ADDRESS, port)
        return RendezvousInfo(self._agent_store, 0, 1, store_info)

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._worker_store = None
        return True


def _listen(port: int) -> socket.socket:
    """Listen on a port of the loopback interface, or on another one if that is taken."""
    try:
        return socket.create_server((_ADDRESS, port))
    except OSError:
        return socket.create_server((_ADDRESS, 0))


def main() -> None:
    rendezvous_handler_registry.register(BACKEND, LoopbackRendezvous)
    run.main()


if __name__ == "__main__":
    main()
