"""Serving Prometheus metrics, the same way in every daemon. Needs prometheus-client, which `rackctl` does without."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from rackpower_common.address import Address, parse_address
from rackpower_common.errors import RackpowerError


class MetricsError(RackpowerError):
    """The metrics' address cannot be listened on."""


def serve_metrics(where: str, collector: Collector) -> Address | None:
    """Serve a collector from a daemon thread, which ends with the process.

    Args:
        where: `host:port`, port 0 for any free one; empty for nowhere.
        collector: What is scraped.

    Returns:
        Where it is served; None for nowhere.

    Raises:
        MetricsError: The port is in use, or not ours.
    """
    if not where:
        return None
    address = parse_address(where)
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, _ = start_http_server(address.port, address.host, registry)
    except OSError as error:
        hint = "set metrics: to another address, or to '' for none"
        raise MetricsError(f"cannot serve metrics on {address}: {error.strerror or error}", hint) from None
    return Address(host=address.host, port=server.server_port)
