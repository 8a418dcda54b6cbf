"""The counters of a port that are read and judged, by the file's name. Pure data.

Widths: IBTA's PortCounters attribute, as drivers/infiniband/core/sysfs.c reads it: they stop at their end. Files of
hw_counters: drivers/infiniband/hw/mlx5/counters.c and drivers/infiniband/hw/efa/efa_verbs.c; those are 64 bits wide.
"""

BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_xmit_discards": 16,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
}
"""Counters of `counters/`, and after how many bits each stops."""

CONGESTION = "port_xmit_wait"
"""Ticks in which the port had something to send and no credit: evidence beside others, never a fault."""

COUNTERS = (*BITS, CONGESTION)

# Counters of `hw_counters/`, of the port or, where that has none, of the device.
MLX5 = ("local_ack_timeout_err", "rnr_nak_retry_err", "roce_slow_restart")
EFA_EVENTS = (
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "retrans_timeout_events",
)
EFA_PACKETS, EFA_BYTES = "retrans_pkts", "retrans_bytes"
EFA = (*EFA_EVENTS, EFA_PACKETS, EFA_BYTES)
